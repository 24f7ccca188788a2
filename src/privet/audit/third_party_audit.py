"""Audits of anybody's releases, trainings and accounts: given a claim, and a way to run it.

- `audit_draws`: whatever gives a vector (a mechanism of OpenDP or diffprivlib, an estimator of
  scikit-learn's kind, a Flower client's update), drawn again and again on two neighbours;
- `watching_opacus`: a training loop of Opacus, whose every noisy sum is then seen by
  `privet.audit.audit_releases`; `noted` does the same for a loop of plain torch or numpy;
- `check_account`: an accountant's epsilon against the two-sided exact one;
- `certain_outputs`: floating-point noise whose last bits tell neighbours apart.

None of the libraries is imported here: they are handed over. `privet.audit.peers_table` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.audit.finding import Finding
from privet.audit.likelihood_ratio import OneShotAudit
from privet.loss import PrivacyLoss
from privet.mechanisms import transcript
from privet.noise import Source, seeded

Floats = NDArray[np.float64]
Release = Callable[[bool, int], Any]
"""Whether the record is there, and a seed (for those that take one), to what is released."""


def audit_draws(
    release: Release, *, what: str, epsilon: float, delta: float = 0.0, trials: int = 5_000,
    confidence: float = 0.99, seed: int = 0, without_noise: Release | None = None,
) -> Finding:  # fmt: skip
    """A lower bound of epsilon from draws on both sides, with nothing assumed about them.

    The score is the projection of a release on the line between the two means, over its spread:
    learned on draws of their own, as the threshold is. Without `without_noise` the control is what
    is found when every draw is told apart.

    >>> def count(there, seed):
    ...     return there + seeded(seed).laplace(1)
    >>> found = audit_draws(count, what="a count", epsilon=1.0, trials=2_000)
    >>> 0.5 < found.audited <= 1.0, found.verdict.value
    (True, 'consistent')
    """
    pilot = max(200, trials // 5)

    def vectors(of: Release, there: bool, n: int, rng: Source) -> Floats:
        rows = [np.ravel(of(there, int(s))) for s in rng.integers(2**31, n)]
        return np.asarray(rows, dtype=np.float64)

    def drawn(of: Release) -> tuple[Any, Any]:
        rng = seeded(seed).child("direction")
        first, second = (vectors(of, side, pilot, rng.child(str(side))) for side in (True, False))
        apart = first.mean(axis=0) - second.mean(axis=0)
        line = apart / (first.var(axis=0) + second.var(axis=0) + 1e-300)
        line /= np.abs(line).max() or 1.0
        return tuple(
            lambda n, rng, side=side: vectors(of, side, n, rng) @ line for side in (True, False)
        )  # type: ignore[return-value]

    with_record, without_record = drawn(release)
    audit = OneShotAudit(trials=trials, pilot=pilot, delta=delta, confidence=confidence)
    apart = (lambda n, rng: np.ones(n), lambda n, rng: np.zeros(n))
    return audit.run(
        what=what,
        with_record=with_record,
        without_record=without_record,
        control=apart if without_noise is None else drawn(without_noise),
        claimed=epsilon,
        proved=float("inf"),
        rng=seeded(seed),
    )


def noted(exact: Any, noisy: Any, *, scale: float, sensitivity: float, rate: float = 1.0) -> Floats:
    """Tell whoever watches of a sum with normal noise; what to go on with comes back.

    In any training loop: `grad = noted(clipped_sum, grad, scale=z * C, sensitivity=C)`.
    """
    return transcript.note(
        "clipped sum",
        np.asarray(exact, dtype=np.float64),
        np.asarray(noisy, dtype=np.float64),
        sensitivity=sensitivity,
        log_ratio=partial(transcript.gaussian_log_ratio, scale=scale),
        rate=rate,
    )


@contextmanager
def watching_opacus(optimizer: Any, *, rate: float = 1.0) -> Iterator[None]:
    """Inside, every noisy sum of a `DPOptimizer` is noted: all parameters as one vector."""
    torch = import_module("torch")
    add_noise = optimizer.add_noise

    def watched() -> None:
        exact = [p.summed_grad.detach().clone().ravel() for p in optimizer.params]
        add_noise()
        parts = [p.grad.detach().ravel() for p in optimizer.params]
        out = noted(
            torch.cat(exact).double().numpy(), torch.cat(parts).double().numpy(),
            scale=optimizer.noise_multiplier * optimizer.max_grad_norm,
            sensitivity=optimizer.max_grad_norm, rate=rate,
        )  # fmt: skip
        flat, at = torch.from_numpy(out), 0
        for p in optimizer.params:
            n = p.grad.numel()
            p.grad.copy_(flat[at : at + n].view_as(p.grad).to(p.grad.dtype))
            at += n

    optimizer.add_noise = watched
    try:
        yield
    finally:
        optimizer.add_noise = add_noise


@final
@dataclass(frozen=True, kw_only=True)
class Account:
    """What an accountant states, beside the interval that holds the truth."""

    stated: float
    low: float
    high: float

    @property
    def holds(self) -> bool:
        """Whether it states no less than the exact epsilon."""
        return self.stated >= self.low


def check_account(stated: float, loss: PrivacyLoss, *, delta: float) -> Account:
    """A stated epsilon against both proved bounds of the exact one.

    >>> from privet.loss import Gaussian
    >>> check_account(4.0, Gaussian(mu=1.0), delta=1e-5).holds
    False
    """
    low, high = loss.epsilon_bounds(delta)
    return Account(stated=float(stated), low=low, high=high)


def certain_outputs(release: Callable[[float, int], float], *, draws: int = 2_000) -> float:
    """The share of releases of 0 that no release of 1 could have been: floats that tell.

    Noise added in floating point leaves a grid of its own around every value: o = fl(1 + x) gives
    (o - 1) + 1 = o, which small outputs around 0 do not. Nothing is reported unless releases of 1
    keep that rule without exception. Mironov, "On significance of the least significant bits for
    differential privacy" (2012).

    >>> rng = np.random.default_rng(0)
    >>> certain_outputs(lambda value, seed: value + rng.laplace()) > 0.2
    True
    """
    broken = [
        sum(float((o - 1.0) + 1.0) != o for o in (release(v, k) for k in range(draws))) / draws
        for v in (0.0, 1.0)
    ]
    return broken[0] if broken[1] == 0.0 else 0.0
