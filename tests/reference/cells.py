"""Random compositions of two or three releases, wild on purpose, and what the oracle says of them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from privet.accounting import (
    FixedSizeGaussian,
    Gaussian,
    Laplace,
    LossPart,
    PrivacyLoss,
    Pure,
    SampledGaussian,
    SampledLaplace,
    compose,
)
from privet.guarantee import Adjacency
from tests.reference.few_steps import Release, delta_of, profile


@dataclass(frozen=True)
class Cell:
    """A loss, a delta, and the same releases in the oracle's words, once for each direction."""

    loss: PrivacyLoss
    delta: float
    ways: tuple[tuple[Release, ...], ...]

    def true_delta(self, epsilon: float) -> float:
        """delta by the oracle, the worse direction."""
        return max(delta_of(way, epsilon, self.delta) for way in self.ways)


def _spread(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(math.log(low), math.log(high))))


def _release(rng: np.random.Generator, adjacency: Adjacency) -> tuple[LossPart, Release]:
    q = 1.0 if rng.random() < 0.05 else _spread(rng, 1e-6, 0.9)
    z = _spread(rng, 0.25, 40.0)
    replaced = adjacency is Adjacency.REPLACE_ONE
    kinds = ["sampled", "sampled", "sampled", "fixed" if replaced else "sampled laplace"]
    kind = rng.choice(
        [*kinds, "gaussian", "laplace", "pure"], p=[0.2, 0.2, 0.2, 0.2, 0.08, 0.06, 0.06]
    )
    settings = {"sample_rate": q, "noise_multiplier": z, "adjacency": adjacency}
    if kind == "sampled":
        if replaced and q == 1.0:  # told as the plain Gaussian that it is
            return SampledGaussian(**settings), Release("gauss", 1.0, z / 2.0, "remove")
        return SampledGaussian(**settings), Release("gauss", q, z, "replace" if replaced else "")
    if kind == "fixed":
        return FixedSizeGaussian(**settings), Release("gauss", q, z, "fixed")
    if kind == "sampled laplace":
        return SampledLaplace(**settings), Release("laplace", q, z, "")
    if kind == "gaussian":
        return Gaussian(mu=1.0 / z, adjacency=adjacency), Release("gauss", 1.0, z, "remove")
    if kind == "laplace":
        part = Laplace(epsilon_each=1.0 / z, adjacency=adjacency)
        return part, Release("laplace", 1.0, z, "remove")
    return Pure(epsilon_each=1.0 / z, adjacency=adjacency), Release(
        "response", 1.0, 1.0 / z, "remove"
    )


def random_cell(rng: np.random.Generator, *, three: float = 0.1) -> Cell:
    """Two releases, or (add-remove) three with probability `three`, equal ones among them."""
    adjacency = Adjacency.REPLACE_ONE if rng.random() < 0.4 else Adjacency.ADD_REMOVE
    count = 3 if rng.random() < three and adjacency is Adjacency.ADD_REMOVE else 2
    found = [_release(rng, adjacency)]
    while len(found) < count:
        found.append(found[0] if rng.random() < 0.4 else _release(rng, adjacency))
    parts, releases = zip(*found, strict=True)
    ways = tuple(
        tuple(r if r.relation else replace(r, relation=way) for r in releases)
        for way in ("remove", "add")
    )
    most = sum(
        max(float(profile(way[i], np.zeros(1))[0]) for way in ways) for i in range(len(releases))
    )
    decades = rng.uniform(0.05, 14.0) if rng.random() < 0.7 else rng.uniform(14.0, 45.0)
    return Cell(
        loss=compose(parts), delta=min(0.5, most) * 10**-decades, ways=tuple(dict.fromkeys(ways))
    )


DIGITS = 1e-12
"""The oracle's own roundings of epsilon - L: bounded losses end in a cliff."""


@dataclass(frozen=True)
class Checked:
    """How one cell came out; ratios of true delta to the stated one."""

    low: float
    high: float
    at_high: float
    """true delta at the stated epsilon over delta: above 1 is below the truth."""
    at_low: float
    """true delta at the bound from below over delta: under 1 is a false lower bound."""
    over: float
    """true delta over the stated delta at another epsilon: above 1 is below the truth."""
    under: float
    """the lower bound of delta there over the true one: above 1 is false."""
    width: float
    """(high - low) / high."""
    seconds: float
    """Processor time of the bounds of epsilon."""
    digits: float
    """The oracle's own relative error."""

    @property
    def below_truth(self) -> bool:
        """Whether an upper bound is too small."""
        return max(self.at_high, self.over) > 1.0 + self.digits

    @property
    def above_truth(self) -> bool:
        """Whether a lower bound is too large."""
        return self.at_low < 1.0 - self.digits or self.under > 1.0 + self.digits


def check(cell: Cell) -> Checked:
    """Both bounds of epsilon and of delta against the oracle."""
    start = time.process_time()
    low, high = cell.loss.epsilon_bounds(cell.delta)
    seconds = time.process_time() - start
    other = 0.7 * high
    true = cell.true_delta(other)
    below, above = cell.loss.delta_bounds(other)
    return Checked(
        low=low,
        high=high,
        at_high=cell.true_delta(high * (1.0 + DIGITS)) / cell.delta,
        at_low=cell.true_delta(low * (1.0 - DIGITS)) / cell.delta if low > 0.0 else math.inf,
        over=true / above if above > 0.0 else (math.inf if true > 0.0 else 0.0),
        under=below / true if true > 0.0 else (math.inf if below > 0.0 else 0.0),
        width=(high - low) / high if high > 0.0 else 0.0,
        seconds=seconds,
        digits=1e-9 if len(cell.ways[0]) == 2 else 1e-7,
    )
