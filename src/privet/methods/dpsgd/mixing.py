"""Rows must not see each other: a check that follows values, on rows that are made up.

Gradients tell only half of it: a batch mean that is detached, losses divided by their mean, weights
by how often a class occurs in the batch all mix examples and send no gradient across. So the loop
body is first run on a few made-up rows, and then on the same rows in other company: beside other
rows (same shapes, same seed, so that dropout draws the same), and alone. The losses and gradient
norms of the rows that stayed must stay. Nothing of the records is read: whether a program is
refused follows from the program and the shapes of the rows, so a refusal tells nothing of anybody.

What differs by the number of rows alone cannot be told from randomness where a network is random in
a way that follows shapes; both are then run in evaluation mode, and where that draws too the last
comparison is left out. Made-up numbers lie in [0, 1], those of the company in [0, 1.5]: a condition
on the batch that no such numbers meet is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from privet.errors import InvalidArgument

WATCHED, COMPANY = 4, 2
"""Made-up examples that are watched (or a few more), and those beside them; both are even."""
_TOLERATED = 1e-3
"""Largest change, relative to the largest value, that rounding may explain."""
_SEED = 20


@dataclass(frozen=True, kw_only=True)
class Company:
    """Made-up rows, and the seed of torch's generator with which they are to be run."""

    tensors: tuple[Tensor, ...]
    seed: int
    plain: bool = False
    """Whether the engine stays out of this pass."""

    def but(self, *, plain: bool = False, seed: int | None = None) -> Company:
        """The same rows in another way."""
        return Company(tensors=self.tensors, seed=self.seed if seed is None else seed, plain=plain)


@final
class MixingCheck:
    """Asks for the losses and norms of made-up rows in several companies, and compares them.

    Iterate over it, and answer each `Company` by `saw` before asking for the next.
    """

    def __init__(
        self,
        like: tuple[Tensor, ...],
        *,
        views: int,
        evaluating: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._like, self._views, self._evaluating = like, views, evaluating
        self._watched = _apart_from(like, views)
        self._seen: list[Tensor] = []

    def __iter__(self) -> Iterator[Company]:
        watched, others = self._watched * self._views, COMPANY * self._views
        rows = tuple(_made_up(t, watched, others) for t in self._like)
        self.first = Company(tensors=rows, seed=_SEED)
        yield self.first
        if not self._seen:
            return  # the clipped sum has a closed form: there is nothing to ask
        yield Company(tensors=tuple(_other_company(t, watched) for t in rows), seed=_SEED)
        self._compare(1, "the other rows of a batch")
        fewer = tuple(t[: watched - self._views] for t in rows)  # odd
        yield Company(tensors=fewer, seed=_SEED)
        if not self._differs(2):
            return
        yield Company(tensors=rows, seed=_SEED + 1)
        if not self._differs(3):
            self._compare(2, "the number of rows in a batch")
        with self._evaluating():
            yield self.first
            yield Company(tensors=rows, seed=_SEED + 1)
            yield Company(tensors=fewer, seed=_SEED)
        if not self._differs(5, 4):
            self._compare(6, "the number of rows in a batch", 4)

    @property
    def answered(self) -> bool:
        """Whether any company was answered."""
        return bool(self._seen)

    def saw(self, losses: Tensor, norms: Tensor) -> None:
        """The losses of the rows, and the gradient norms of the examples, of the last company."""
        watched = self._watched
        apart = losses.detach().double().view(-1, self._views)[:watched]
        self._seen.append(torch.cat([apart, norms.double()[:watched, None]], 1))

    def _differs(self, which: int, than: int = 0) -> bool:
        first, other = self._seen[than], self._seen[which]
        first = first[: len(other)]
        size = first.nan_to_num(0.0, 0.0, 0.0).abs().amax(0, keepdim=True)
        same = torch.isclose(first, other, rtol=0.0, atol=0.0, equal_nan=True)
        return not bool((same | ((first - other).abs() <= _TOLERATED * size)).all())

    def _compare(self, which: int, what: str, than: int = 0) -> None:
        if self._differs(which, than):
            raise InvalidArgument(
                "losses",
                f"values that depend on {what}",
                "those of each example by itself",
                "look for means, medians, counts or norms over the batch (seen on made-up rows)",
            )


def _apart_from(like: tuple[Tensor, ...], views: int) -> int:
    """The number of watched examples: no length of the data is the number of rows.

    So that a table of positions, say, is told from rows.
    """
    lengths = {length for t in like for length in t.shape[1:]}
    watched = WATCHED
    while lengths & {(watched - 1) * views, watched * views, (watched + COMPANY) * views}:
        watched += 2
    return watched


def _made_up(like: Tensor, watched: int, others: int) -> Tensor:
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


def _other_company(rows: Tensor, watched: int) -> Tensor:
    """The watched as they were, the others replaced: ones (numbers above 1), then zeros."""
    out = rows.clone()
    out[watched:] = 0
    out[watched : (watched + len(rows)) // 2] = 1.5 if rows.is_floating_point() else 1
    return out
