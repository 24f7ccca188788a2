"""Checks that a row's loss does not depend on the other rows of its batch, on made-up rows.

Gradients tell only half of it: a batch mean that is detached, losses divided by their mean, weights
by how often a class occurs in the batch all mix examples and send no gradient across. So the loss
function is first run on a few made-up rows, and then on the same rows in other company: beside
other rows (same shapes, same seeds, so that dropout draws the same), and alone. The losses and
gradient norms of the rows that stayed must stay. Nothing of the records is read: whether a program
is refused follows from the program and the shapes of the rows, so a refusal tells nothing of
anybody.

What differs by the number of rows alone looks like randomness where a network is random in a way
that follows shapes; both are then run in evaluation mode, and where that draws too the last
comparison is left out.

`check_odd_company` is for functions that see whole batches of records: company of every kind that
we could think of (missing, infinite, negative, large, other classes, lengths and masks), in batches
of the expected size, in the last part of a step and before, at several steps, seeds and scales of
the weights. Coins that rows of a part share are refused: which rows share them tells of the others.
A condition that none of it meets is not seen:
what passes is *tested*, not enforced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from privet.errors import InvalidArgument, PrivetError

WATCHED, COMPANY = 4, 2
"""Made-up examples that are watched (or a few more), and those beside them; both are even."""
_TOLERANCE = 1e-3
"""Largest change, relative to the largest value, that rounding may explain: float32 kernels of
another shape differ by some 1e-6, and what mixes moves a loss by far more."""
_SEED = 20
"""Any number: the rows only have to be the same in every pass."""


@dataclass(frozen=True, kw_only=True)
class MadeUpRows:
    """Rows that nobody owns, the seed of all generators with which to run them, and the step."""

    tensors: tuple[Tensor, ...]
    seed: int = _SEED
    step: int | None = None
    """The number of the step; None: the present one."""
    last: bool = False
    """Whether they are the last part of it."""
    scale: float = 1.0
    """How many times larger the trained weights are taken."""


Look = Callable[[MadeUpRows], tuple[Tensor, Tensor]]
"""Evaluates made-up rows: the losses of the rows, and the gradient norms of the examples."""


def check_batch_independence(
    look: Look,
    like: tuple[Tensor, ...],
    *,
    views: int,
    evaluating: Callable[[], AbstractContextManager[None]],
) -> MadeUpRows:
    """Refuse losses or norms of rows that change with their company; gives the first rows.

    `like` are tensors of no rows, in the shapes of the data; `evaluating` sets evaluation mode.
    """
    watched = _count_watched(like, views)
    rows = make_up_rows(like, watched=watched * views, others=COMPANY * views)
    fewer = tuple(t[: (watched - 1) * views] for t in rows)  # odd

    def values(tensors: tuple[Tensor, ...], seed: int = _SEED) -> Tensor:
        losses, norms = look(MadeUpRows(tensors=tensors, seed=seed))
        apart = losses.detach().double().view(-1, views)[:watched]
        return torch.cat([apart, norms.double()[:watched, None]], 1)

    first = values(rows)
    others = values(tuple(_replace_company(t, watched * views) for t in rows))
    if _differ(first, others):
        if _differ(first, values(rows)):
            raise _dependence(_BEFORE, _OWN_COINS)
        raise _dependence("the other rows of a batch")
    some = values(fewer)
    if _differ(first, some):
        other_coins = values(rows, _SEED + 1)
        if torch.equal(first.nan_to_num(), other_coins.nan_to_num()):  # nothing is drawn
            raise _dependence("the number of rows in a batch")
        with evaluating():
            quiet, again, some = values(rows), values(rows, _SEED + 1), values(fewer)
        if not _differ(quiet, again) and _differ(quiet, some):
            raise _dependence("the number of rows in a batch")
    return MadeUpRows(tensors=rows)


_ODD = {
    "float": (0.0, 1.5, math.nan, math.inf, -math.inf, -3.0, 255.0, 1e4, -1e4, 1e-30),
    "int": (0, 1, 2, 9, 255, -1, -100),
}
"""What one column of the company holds: what scripts look for, and what real data have."""
_LARGE = 3
"""Every so many kinds of company come in a batch of the expected size, which costs a real step; no
divisor of four, since four kinds in a row are of one value."""

_LARGE_WEIGHTS = 32.0
"""The weights are taken so many times larger every other time: losses that are so large, or so
small, as a trained model's. What a script does to a large loss is not seen on a fresh model."""
_CLASSES = range(2, 10)
"""Classes that are tried beside 0 and 1, each against the others."""
_COINS = 6
"""Seeds with which shared coins are looked for: a fair one comes out alike in 1 of 32 checks."""

Coins = Callable[[], object]
"""The state of all generators of random numbers that a function may draw from."""
Fill = Callable[[Tensor], Tensor]
Change = Callable[[int, Tensor, slice], Tensor]
"""A column by its number, with the rows of a part of it replaced."""


def _keep(k: int, rows: Tensor, part: slice) -> Tensor:
    return rows


def check_odd_company(
    evaluate: Callable[[MadeUpRows], Tensor],
    coins: Coins,
    like: tuple[Tensor, ...],
    *,
    views: int,
    rows: int,
    steps: Sequence[int],
    evaluating: Callable[[], AbstractContextManager[None]],
) -> None:
    """Refuse losses that change with odd company, from call to call, or with whose coins they draw.

    `evaluate` gives the losses of made-up rows. `rows` is how many a batch is expected to have;
    `steps` are numbers of steps to pretend. Company that the function raises an error for is passed
    over: an error is no answer.
    """
    watched = _count_watched(like, views) * views
    few, many = COMPANY * views, max(COMPANY * views, rows - watched)

    def usual(number: int, change: Change = _keep) -> tuple[MadeUpRows, slice]:
        """Ordinary rows, of which the watched are changed, the company in front or behind; and
        where the company is.
        """
        others = few if number % _LARGE else many
        tensors = make_up_rows(like, watched=watched, others=others)
        tensors = tuple(change(k, t, slice(0, watched)) for k, t in enumerate(tensors))
        in_front = number // (2 * _LARGE) % 2 == 1
        if in_front:
            tensors = tuple(t.roll(others, 0) for t in tensors)
        made_up = MadeUpRows(
            tensors=tensors,
            seed=_SEED + number,  # so that what mixes by chance is met
            step=steps[number % len(steps)],
            scale=1.0 if number // 2 % 2 else _LARGE_WEIGHTS,
        )
        return made_up, slice(0, others) if in_front else slice(watched, watched + others)

    def values(made_up: MadeUpRows, company: slice) -> tuple[Tensor, object]:
        losses = evaluate(made_up).detach().double()[:, None]
        return (losses[company.stop :] if company.start == 0 else losses[:watched]), coins()

    first = usual(1)
    before, _ = values(*first)
    for number, trial in enumerate(_trials(like)):
        made_up, company = usual(number, trial.watched)
        odd = tuple(trial.company(k, t, company) for k, t in enumerate(made_up.tensors))
        try:
            expected, drawn = values(made_up, company)
            found, drawn_then = values(replace(made_up, tensors=odd, last=True), company)
        except PrivetError:
            raise
        except Exception:  # of whatever the function says to such rows
            continue
        if _differ(expected, found):
            raise _dependence("the other rows of a batch")
        if drawn != drawn_then:
            raise _dependence("coins whose number the other rows decide")
    again, _ = values(*first)
    if not torch.equal(before.nan_to_num(), again.nan_to_num()):
        raise _dependence(_BEFORE, _OWN_COINS)
    alike = MadeUpRows(tensors=tuple(t[:1].expand_as(t) for t in first[0].tensors))
    with evaluating():
        drawn_each = [evaluate(replace(alike, seed=_SEED + k)).detach() for k in range(_COINS)]
    if any(map(_differ, drawn_each[1:], drawn_each)) and not any(
        _differ(losses, losses[:1].expand_as(losses)) for losses in drawn_each
    ):
        raise _dependence(
            "coins that rows share",
            "a batch comes in parts, and which rows share one tells of the others: draw for each "
            "row, torch.rand(len(batch)), or one for a step, torch.rand(()), in losses=",
        )


@dataclass(frozen=True, kw_only=True)
class _Trial:
    """What is done to the watched rows, and then to their company."""

    watched: Change = _keep
    company: Change


def _trials(like: tuple[Tensor, ...]) -> Iterator[_Trial]:
    """Odd company in one column (all of it or one row alone, of class 0 or 1), then other classes
    and lengths of everybody.
    """
    for column, t in enumerate(like):
        if t.is_floating_point() or t.is_complex():
            fills = [_filled_with(value) for value in _ODD["float"]]
        else:
            fills = [_filled_with(value) for value in _ODD["int"] if _holds(t.dtype, value)]
            if t.dim() > 1:
                fills += [_prefix(n) for n in (1, t.shape[-1] // 2)]
        for fill in fills:
            for others in (0, 1) if t.is_floating_point() else (0,):
                for alone in (True, False):
                    yield _Trial(company=_changer(column, fill, others, alone=alone))
        if not t.is_floating_point() and t.dim() == 1:
            for label in (k for k in _CLASSES if _holds(t.dtype, k + 1)):
                other = _changer(column, _filled_with(label), 0, alone=False)
                yield _Trial(company=other)
                yield _Trial(watched=_raiser(column, label), company=other)
    if any(t.dim() > 1 for t in like):
        yield _Trial(watched=_halved, company=_halved)
        yield _Trial(watched=_halved, company=_whole)


def _raiser(column: int, by: int) -> Change:
    def change(k: int, rows: Tensor, part: slice) -> Tensor:
        out = rows.clone()
        if k == column:
            out[part] += by
        return out

    return change


def _halved(k: int, rows: Tensor, part: slice) -> Tensor:
    """The second half of every sequence is padding."""
    out = rows.clone()
    if rows.dim() > 1:
        out[part, (rows.shape[1] + 1) // 2 :] = 0
    return out


def _whole(k: int, rows: Tensor, part: slice) -> Tensor:
    """Sequences and masks without padding."""
    out = rows.clone()
    if rows.dim() > 1 and not rows.is_floating_point():
        out[part] = 1
    return out


def _changer(column: int, fill: Fill, others: int, *, alone: bool) -> Change:
    def change(k: int, rows: Tensor, company: slice) -> Tensor:
        out = rows.clone()
        part = out[company][-1:] if alone else out[company]
        if k == column:
            part.copy_(fill(part))
        elif others and not rows.is_floating_point():
            part.fill_(others)
        return out

    return change


def _filled_with(value: float) -> Fill:
    return lambda part: torch.full_like(part, value)


def _prefix(length: int) -> Fill:
    """Ones, then zeros: the mask of a sequence of that length."""

    def fill(part: Tensor) -> Tensor:
        out = torch.zeros_like(part)
        out[..., : max(1, length)] = 1
        return out

    return fill


def _holds(dtype: torch.dtype, value: float) -> bool:
    if dtype == torch.bool:
        return value in (0, 1)
    return torch.iinfo(dtype).min <= value <= torch.iinfo(dtype).max


def _differ(first: Tensor, other: Tensor) -> bool:
    first = first[: len(other)]
    size = first.nan_to_num(0.0, 0.0, 0.0).abs().amax(0, keepdim=True)
    same = torch.isclose(first, other, rtol=0.0, atol=0.0, equal_nan=True)
    return not bool((same | ((first - other).abs() <= _TOLERANCE * size)).all())


_BEFORE = "what was computed before, or on coins of a generator of its own"
_OWN_COINS = "keep nothing from call to call, and draw from torch itself: torch.randn(x.shape)"
_STATISTICS = "look for means, medians, counts or norms over the batch (seen on made-up rows)"


def _dependence(what: str, hint: str = _STATISTICS) -> InvalidArgument:
    return InvalidArgument(
        "losses", f"values that depend on {what}", "those of each example by itself", hint
    )


def _count_watched(like: tuple[Tensor, ...], views: int) -> int:
    """The number of watched examples: no length of the data is the number of rows.

    So that a table of positions, say, is not taken for rows.
    """
    lengths = {length for t in like for length in t.shape[1:]}
    watched = WATCHED
    while lengths & {(watched - 1) * views, watched * views, (watched + COMPANY) * views}:
        watched += 2
    return watched


def make_up_rows(like: tuple[Tensor, ...], *, watched: int, others: int) -> tuple[Tensor, ...]:
    """Rows in the shapes and types of tensors that have none: the watched, then the others."""
    return tuple(_make_up(t, watched, others) for t in like)


def _make_up(like: Tensor, watched: int, others: int) -> Tensor:
    """Numbers between 0 and 1; classes or words are 0 and 1 by turns, and 0 in the company.

    Both stand among the watched: what is done to one class alone must be seen.
    """
    rows = watched + others
    if not like.is_floating_point():
        out = like.new_zeros(rows, *like.shape[1:])
        turns = torch.arange(watched)[:, None] + torch.arange(like.shape[1:].numel())
        out[:watched] = (turns % 2).view(watched, *like.shape[1:])
        return out
    generator = torch.Generator().manual_seed(_SEED)
    drawn = torch.rand(rows, *like.shape[1:], generator=generator, dtype=torch.float64)
    return drawn.to(like.dtype)


def _replace_company(rows: Tensor, watched: int) -> Tensor:
    """The watched as they were, the others replaced: ones (numbers above 1), then zeros."""
    out = rows.clone()
    out[watched:] = 0
    # 1.5: above any pixel
    out[watched : (watched + len(rows)) // 2] = 1.5 if rows.is_floating_point() else 1
    return out
