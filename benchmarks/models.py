"""Does `private` take the models that people have, and are its gradients right?

    python -m benchmarks.models                # all; a line for each
    python -m benchmarks.models gpt2 lstm      # those whose name contains one of the words
    python -m benchmarks.models --json

Every model is first run in plain torch. It is then trained by `private` with default arguments, in
training mode; and once more in evaluation mode (nothing drawn at random) with all records in every
step and next to no noise, where the gradient that the optimiser gets is compared with a loop over
examples: one backward pass each, clipped by hand. Outcomes: *pass*; *refused* in one line, and
whether following the line's advice helps; *wrong* gradients; *crash*.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import torch_models, transformer_models
from benchmarks.model_cases import Case, Problem
from privet.dpsgd import Batch, Sampling, Schedule, private
from privet.errors import PrivetError
from privet.gradients import make_private_ready
from privet.noise import seeded

NOISE = 1e-6
"""So little noise that the released gradient is the clipped sum to six digits."""
TOLERANCE = 1e-3
"""Of the norm of the clipped sum; float32 of tiny models is good to some 1e-5."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a case."""

    model: str
    outcome: str
    message: str = ""
    advice: str = ""
    """What came of following the message: an outcome again; empty if there was nothing to do."""
    error: float | None = None
    """Distance of the released gradient from the loop over examples, over its norm (or C)."""
    remedies: tuple[str, ...] = ()
    """What `private` said it did about the model by itself."""
    seconds: float = 0.0


class Catch(torch.optim.SGD):
    """An optimiser that keeps the gradient it is given."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__([p for p in model.parameters() if p.requires_grad], lr=0.0)
        self.gradient: Tensor | None = None

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        some = [p for group in self.param_groups for p in group["params"]]
        self.gradient = torch.cat([_flat(p.grad, p) for p in some]).clone()


def _flat(g: Tensor | None, p: Tensor) -> Tensor:
    return (torch.zeros_like(p) if g is None else g).detach().double().reshape(-1)


def run(case: Case) -> Outcome:
    """Build it, train it, compare its gradients; where it is refused, do what the line says."""
    start = time.perf_counter()
    kind, message, error, remedies = attempt(build(case))
    advice = ""
    if kind == "refused":
        problem = follow(message, build(case))
        advice = "nothing to do" if problem is None else attempt(problem)[0]
    seconds = time.perf_counter() - start
    return Outcome(
        model=case.name, outcome=kind, message=message, advice=advice, error=error,
        remedies=remedies, seconds=round(seconds, 2),
    )  # fmt: skip


def build(case: Case) -> Problem:
    """The problem in training mode, seen to work in plain torch."""
    torch.manual_seed(0)
    problem = case.make()
    problem.model.train()
    plain = copy.deepcopy(problem)
    problem.losses(plain.model, first_rows(plain)).sum().backward()
    return problem


def first_rows(problem: Problem) -> Batch:
    return Batch(tensors=tuple(t[:3] for t in problem.tensors), step=0, last=True)


def follow(message: str, problem: Problem) -> Problem | None:
    """The problem as a person would change it who does what a refusal says; None: it says none."""
    if "make_private_ready(model)" in message:
        return problem._replace(model=make_private_ready(problem.model))
    if "model.eval()" in message:
        problem.model.eval()
        return problem
    if "call it once on a batch" in message:
        problem.losses(problem.model, first_rows(problem))
        return problem
    return None


def attempt(problem: Problem) -> tuple[str, str, float | None, tuple[str, ...]]:
    """Outcome, message, error of the gradient, and what `private` did by itself."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            train(copy.deepcopy(problem.model), problem)
            error = gradient_error(copy.deepcopy(problem.model), problem)
        except PrivetError as refusal:
            one_line = "\n" not in str(refusal)
            return "refused" if one_line else "crash", str(refusal), None, ()
        except Exception as crash:
            return "crash", f"{type(crash).__name__}: {crash}"[:300], None, ()
    remedies = tuple(dict.fromkeys(str(w.message) for w in seen if "torch.func" in str(w.message)))
    return ("pass" if error < TOLERANCE else "wrong"), "", error, remedies


def train(model: nn.Module, problem: Problem) -> None:
    """Three steps with default arguments."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = Schedule(steps=3, sample_rate=0.4, noise_multiplier=1.0)
    with private(
        model, optimizer, problem.tensors, schedule, losses=problem.losses, rng=seeded(1),
        delta=1e-5,
    ) as training:  # fmt: skip
        for _ in training:
            pass


def gradient_error(model: nn.Module, problem: Problem) -> float:
    """How far the released gradient is from a loop over examples."""
    model.eval()
    bound, expected = by_loop(model, problem)
    n = len(problem.tensors[0])
    optimizer = Catch(model)
    schedule = Schedule(steps=1, sample_rate=1.0, noise_multiplier=NOISE, clipping_bound=bound)
    with private(
        model, optimizer, problem.tensors, schedule, losses=problem.losses, rng=seeded(2),
        delta=1e-5, sampling=Sampling(n_public=n),
    ) as training:  # fmt: skip
        for _ in training:
            pass
    assert optimizer.gradient is not None
    off = (optimizer.gradient * n - expected).norm()
    return float(off / expected.norm().clamp(min=bound))  # clipped gradients may cancel


def by_loop(model: nn.Module, problem: Problem) -> tuple[float, Tensor]:
    """A clipping bound that half of the examples exceed, and the sum of clipped gradients."""
    some = [p for p in model.parameters() if p.requires_grad]
    gradients = []
    for i in range(len(problem.tensors[0])):
        one = Batch(tensors=tuple(t[i : i + 1] for t in problem.tensors), step=0, last=True)
        found = torch.autograd.grad(problem.losses(model, one).sum(), some, allow_unused=True)
        gradients.append(torch.cat([_flat(g, p) for g, p in zip(found, some, strict=True)]))
    norms = torch.stack([g.norm() for g in gradients])
    bound = float(norms.median())
    weights = (bound / norms).clamp(max=1.0)
    return bound, sum((w * g for w, g in zip(weights, gradients, strict=True)), torch.zeros(()))


def cases() -> Iterator[Case]:
    """Every model there is."""
    yield from torch_models.cases()
    yield from transformer_models.cases()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="run the models whose name contains one of these")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    outcomes = []
    for case in cases():
        if args.words and not any(word in case.name for word in args.words):
            continue
        outcome = run(case)
        outcomes.append(outcome)
        if not args.json:
            notes = outcome.message or "; ".join(outcome.remedies)
            after = f" -> {outcome.advice}" if outcome.advice else ""
            print(f"{outcome.outcome + after:8} {outcome.seconds:6.1f} s  {outcome.model}  {notes}")
            sys.stdout.flush()
    counts = dict(Counter(o.outcome for o in outcomes))
    if args.json:
        print(json.dumps({"counts": counts, "rows": [asdict(o) for o in outcomes]}, indent=1))
    else:
        print(f"{len(outcomes)} models: {counts}")


if __name__ == "__main__":
    main()
