"""A search for records that move a sum by more than is paid for: it must fail.

    python -m benchmarks.moved_sums [--tries 120000] [--seed 0] [--json]

Every case is a way to add records up, with the sensitivity that its noise is made for. The search
starts from orders that are known to be bad (ones up to a power of two, then what float32 loses
beside it), changes values, order, duplicates, signs, powers of two and the record that goes, and
keeps what moves the sum more: hill climbing with restarts. Printed for each case: the largest
moved / paid (below 1, or the claim is false), and how much of the room for rounding was used. The
control adds up in float32 and pays 2 u B C, as this library once did; there the search must win.

To add a case, append a `Case` to `CASES`: `measure(values, gone)` takes rows (float32 numbers) and
the number of the one that goes, and returns what moved, what is paid, and the record's own norm.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet.gradients import ClippedSum, FlatClipping, PerExampleGradients
from privet.guarantee import Adjacency
from privet.methods.dpsgd.linear_head import LinearHead, add_softmax, add_squares
from privet.methods.dpsgd.noise_addition import EngineSummation, with_rounding

Rows = NDArray[np.float32]
BOUND = 1.0


@dataclass(frozen=True, kw_only=True)
class Found:
    """One try: how far the sum moved, what is paid for, and the norm of the record that went."""

    moved: float
    paid: float
    own: float

    @property
    def ratio(self) -> float:
        """moved / paid."""
        return self.moved / self.paid

    @property
    def used(self) -> float:
        """The share of the room for rounding that was used."""
        return (self.moved - self.own) / max(self.paid - BOUND, 1e-300)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A way to add up rows of so many numbers; `wins` marks a control that the search must beat."""

    name: str
    rows: int
    width: int
    measure: Callable[[Rows, int], Found]
    wins: bool = False


# Rows and what becomes of them


def start(case: Case, rng: np.random.Generator) -> tuple[Rows, int]:
    """An order that is known to be bad, or random powers of two."""
    n, width = case.rows, case.width
    values = np.zeros((n, width), np.float32)
    if rng.random() < 0.6:
        block = int(rng.choice([16, 32, 64, 128, 1 << (n - 1).bit_length()]))
        ones = block // 2 if rng.random() < 0.7 else int(block * rng.uniform(0.2, 0.7))
        place = np.arange(n) % block
        lost = 24 - int(np.log2(block // 2)) if rng.random() < 0.7 else int(rng.integers(4, 24))
        small = -(0.99 if rng.random() < 0.7 else rng.uniform(0.5, 1.0)) * 2.0**-lost
        values[:, 0] = np.where(place <= ones, 1.0, small)
    else:
        values[:] = _palette(rng, (n, width))
    if rng.random() < 0.3:
        values[:, 1:] = _palette(rng, (n, width - 1))
    return values, int(rng.integers(n)) if rng.random() < 0.5 else 0


def mutate(values: Rows, gone: int, rng: np.random.Generator) -> tuple[Rows, int]:
    """A few records changed: values, signs, scales, order, duplicates, or who goes."""
    values, n = values.copy(), len(values)
    first, last = sorted(rng.integers(0, n + 1, 2))
    kind = rng.integers(8)
    if kind == 0:
        values[first:last] = _palette(rng, (1, values.shape[1]))
    elif kind == 1:
        values[first:last] *= np.float32(2.0 ** int(rng.integers(-12, 13)))
    elif kind == 2:
        values[first:last] *= -1.0
    elif kind == 3:
        values[first:last] = values[first:last][::-1]
    elif kind == 4:
        values = np.roll(values, int(rng.integers(n)), axis=0)
    elif kind == 5:
        values[first:last] = values[int(rng.integers(n))]
    elif kind == 6:
        values[int(rng.integers(n))] = _palette(rng, (values.shape[1],))
    else:
        gone = int(rng.integers(n))
    return values, gone


def _palette(rng: np.random.Generator, shape: tuple[int, ...]) -> Rows:
    """Powers of two between 2^-26 and 4, a little more or less, of either sign; some zeros."""
    exponents = rng.integers(-26, 3, shape)
    near = 1.0 + rng.choice([0.0, 2.0**-23, -(2.0**-23), 2.0**-12, 0.5], shape)
    signs = rng.choice([1.0, 1.0, 1.0, -1.0, 0.0], shape)
    out: Rows = (2.0**exponents * near * signs).astype(np.float32)
    return out


# The ways to add up


def linear_head(values: Rows, gone: int, *, kind: str, shifts: bool) -> Found:
    """The closed form of a linear head, exact in any order."""
    n, width = values.shape
    head = _head(width, 3 if kind == "softmax" else 1)
    x = torch.from_numpy(values)
    y = torch.from_numpy((np.abs(values[:, 0]) > 0.1).astype(np.int64))
    targets = y if kind == "softmax" else y.float()[:, None] * 4.0 - 2.0
    examples = head.examples(x, targets)
    add = add_softmax if kind == "softmax" else add_squares

    def total(rows: Tensor) -> Tensor:
        out = torch.zeros(head.linear.weight.shape, dtype=torch.float64)
        for part in rows.split(len(values) // 2 + 1):
            some = tuple(t[part] for t in examples)
            add(head.linear.weight, some, BOUND, out, 2**20 if shifts else n)
        return out

    everybody = torch.arange(n)
    without = torch.cat([everybody[:gone], everybody[gone + 1 :]])
    moved = float((total(everybody) - total(without)).norm())
    return Found(moved=moved, paid=BOUND, own=moved)


@functools.cache
def _head(features: int, outputs: int) -> LinearHead:
    head = LinearHead(features=features, outputs=outputs, constant=0.1)
    rng = np.random.default_rng(features)
    weight = rng.normal(size=(outputs, features + 1)).astype(np.float32)
    head.linear.weight.data = torch.from_numpy(weight)
    return head


@functools.cache
def _layer(
    build: Callable[[int], nn.Module], width: int, shifts: bool, kernel: str | None
) -> PerExampleGradients:
    torch.manual_seed(width)
    model, bound = build(width), FlatClipping(bound=BOUND)
    engine = PerExampleGradients(
        model, clipping=bound, kernel_choice="cost-model", float64_products=shifts
    )
    engine.accumulate(_dot, torch.ones(2, width))  # the choices are made here
    if kernel is not None and not shifts:
        engine.choices = dict.fromkeys(engine.choices, kernel)
    return engine


def engine_sum(
    values: Rows,
    gone: int,
    *,
    build: Callable[[int], nn.Module],
    shifts: bool,
    micro_batch: int,
    convolutions: bool = False,
    kernel: str | None = None,
) -> Found:
    """The per-example engine on one layer, as the training loop adds up."""
    n, width = values.shape
    engine = _layer(build, width, shifts, kernel)
    x = torch.from_numpy(values)

    def total(rows: Tensor, there: Tensor) -> ClippedSum:
        out = engine.zeros()
        for part, weight in zip(rows.split(micro_batch), there.split(micro_batch), strict=True):
            with engine.recording():
                each = _dot(engine.model, part) * weight
            engine.clipped_sum(each, into=out)
        return out

    here = torch.ones(n)
    whole = total(x, here)
    if shifts:
        less = total(torch.cat([x[:gone], x[gone + 1 :]]), here[1:])
    else:
        here[gone] = 0.0
        less = total(x, here)
    moved = float((whole.flat - less.flat).norm())
    own = min(BOUND, float(whole.norms_unprotected[gone]))
    return Found(moved=moved, paid=_paid(shifts, n, micro_batch, convolutions), own=own)


@functools.cache
def _paid(shifts: bool, n: int, micro_batch: int, convolutions: bool) -> float:
    summation = EngineSummation(
        relation=Adjacency.ADD_REMOVE if shifts else Adjacency.ZERO_OUT,
        records=2**20 if shifts else n,
        micro_batch=micro_batch,
        convolutions=convolutions,
    )
    return with_rounding(BOUND, summation)


def in_float32(values: Rows, gone: int) -> Found:
    """The control: rows of norm at most C added one after another in float32, 2 u B C paid for."""
    norms = np.sqrt((values.astype(np.float64) ** 2).sum(1, keepdims=True))
    rows = (values / np.maximum(norms, 1.0)).astype(np.float32)

    def total(some: Rows) -> NDArray[np.float64]:
        return np.add.accumulate(some, axis=0)[-1].astype(np.float64)

    moved = float(np.linalg.norm(total(rows) - total(np.delete(rows, gone, axis=0))))
    paid = BOUND * (1.0 + 2.0 * 2.0**-24 * len(rows))
    return Found(moved=moved, paid=paid, own=float(np.linalg.norm(rows[gone].astype(np.float64))))


# Layers whose output gradient is the row itself, so that nothing but the sum is rounded


def _dot(model: nn.Module, x: Tensor) -> Tensor:
    """The output times the first numbers of the row."""
    out: Tensor = model(x)
    flat = out.flatten(1)
    repeats = -(-flat.shape[1] // x.shape[1])
    return (flat * x.repeat(1, repeats)[:, : flat.shape[1]]).sum(1)


def _zeroed(module: nn.Module) -> nn.Module:
    for p in module.parameters():
        nn.init.zeros_(p)
    return module


def _bias(width: int) -> nn.Module:
    """Inputs of zero: only the bias has a gradient, the row itself."""
    return nn.Sequential(_Zero(), _zeroed(nn.Linear(width, width)))


class _Zero(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.0 * x


class _Constant(nn.Module):
    """Rows whose inputs are all ones, so that outer products are as aligned as they can be."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.ones_like(x)


def _outer(width: int) -> nn.Module:
    return nn.Sequential(_Constant(), _zeroed(nn.Linear(width, width, bias=False)))


def _convolution(width: int) -> nn.Module:
    side = int(width**0.5)
    return nn.Sequential(
        nn.Unflatten(1, (1, side, side)), _zeroed(nn.Conv2d(1, 2, 3, padding=1)), nn.Flatten()
    )


def _layer_norm(width: int) -> nn.Module:
    return nn.LayerNorm(width)


def _group_norm(width: int) -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (2, width // 2)), nn.GroupNorm(2, 2), nn.Flatten())


class _Words(nn.Module):
    """Numbers to words by their exponent; the row is the gradient of what was looked up."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(4, 2)
        self.width = width

    def forward(self, x: Tensor) -> Tensor:
        words = (x.abs() > 0.01).long() + 2 * (x > 0).long()
        out: Tensor = self.table(words)
        return out


def _engine(
    name: str, build: Callable[[int], nn.Module], *, rows: int, width: int, **kw: Any
) -> list[Case]:
    """Both relations: the record keeps its place, or everybody shifts."""
    out = []
    for shifts in (False, True):
        measure = partial(engine_sum, build=build, shifts=shifts, **kw)
        relation = "add-remove" if shifts else "zero-out"
        out.append(Case(name=f"{name}, {relation}", rows=rows, width=width, measure=measure))
    return out


CASES: list[Case] = [
    *[
        Case(
            name=f"linear head, {kind}, {'add-remove' if shifts else 'zero-out'}",
            rows=300, width=width, measure=partial(linear_head, kind=kind, shifts=shifts),
        )
        for kind, width in (("softmax", 3), ("squares", 2))
        for shifts in (False, True)
    ],
    *_engine("linear layer", _outer, rows=256, width=2, micro_batch=256),
    *_engine("bias", _bias, rows=256, width=2, micro_batch=128),
    *_engine("convolution", _convolution, rows=32, width=16, micro_batch=32, convolutions=True),
    _engine(
        "convolution, contracted", _convolution, rows=32, width=16, micro_batch=32,
        convolutions=True, kernel="gram",
    )[0],
    *_engine("layer norm", _layer_norm, rows=128, width=4, micro_batch=128),
    *_engine("group norm", _group_norm, rows=128, width=4, micro_batch=128),
    *_engine("embedding", _Words, rows=96, width=3, micro_batch=96),
    Case(name="control: float32, 2 u B C", rows=4096, width=1, measure=in_float32, wins=True),
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a search found."""

    case: str
    tries: int
    ratio: float
    room_used: float
    wins: bool
    seconds: float


def search(case: Case, tries: int, seed: int) -> Result:
    """Hill climbing with restarts: half on moved / paid, half on the room that rounding uses."""
    rng = np.random.default_rng([seed, sum(map(ord, case.name))])
    begun = time.perf_counter()
    best_ratio = best_used = 0.0
    values, gone = start(case, rng)
    score, since, climb_used = -1.0, 0, True
    for _ in range(tries):
        if since > 60:
            values, gone = start(case, rng)
            score, since, climb_used = -1.0, 0, not climb_used
            candidate = values, gone
        else:
            candidate = mutate(values, gone, rng) if score >= 0.0 else (values, gone)
        found = case.measure(*candidate)
        best_ratio, best_used = max(best_ratio, found.ratio), max(best_used, found.used)
        reached = found.used if climb_used else found.ratio
        if reached > score:
            (values, gone), score, since = candidate, max(reached, 0.0), 0
        else:
            since += 1
    seconds = time.perf_counter() - begun
    return Result(
        case=case.name, tries=tries, ratio=best_ratio, room_used=best_used, wins=case.wins,
        seconds=seconds,
    )  # fmt: skip


def main() -> None:
    """Search all cases and print the table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tries", type=int, default=120_000, help="over all cases together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cases", nargs="+", default=[""], help="parts of the names of cases")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cases = [c for c in CASES if any(part in c.name for part in options.cases)]
    each = -(-options.tries // max(1, sum(not case.wins for case in cases)))
    results = []
    for case in cases:
        result = search(case, each if not case.wins else 3000, options.seed)
        results.append(result)
        if not options.json:
            print(
                f"{result.case:42} {result.tries:7} tries  moved/paid {result.ratio:.6f}  "
                f"room used {result.room_used:6.3f}  {result.seconds:6.1f} s",
                flush=True,
            )
    claimed = [r for r in results if not r.wins]
    worst = max(claimed, key=lambda r: r.ratio)
    summary = {
        "tries": sum(r.tries for r in claimed), "largest_ratio": worst.ratio, "case": worst.case,
        "control": max((r.ratio for r in results if r.wins), default=float("nan")),
    }  # fmt: skip
    if options.json:
        print(json.dumps({"rows": [vars(r) for r in results], **summary}, indent=1))
    else:
        print(
            f"largest moved/paid in {summary['tries']} tries: {worst.ratio:.6f} ({worst.case}); "
            f"the control reached {summary['control']:.3f}"
        )


if __name__ == "__main__":
    main()
