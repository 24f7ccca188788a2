"""Plans of methods that release moments of records: each once, with noise of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from privet.bounds import Moments, MomentSum
from privet.guarantee import Adjacency, Premise
from privet.loss import PrivacyLoss, compose
from privet.mechanisms import Coefficients, Gaussian, KNorm, Mechanism, release_moments
from privet.methods.contract import Plan
from privet.noise import Source


@final
@dataclass(frozen=True, kw_only=True)
class MomentRelease:
    """Some moments and the noise on them: what one release is, and what it costs."""

    moments: Moments
    mechanism: Mechanism
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    @classmethod
    def priced(
        cls,
        moments: Moments,
        adjacency: Adjacency = Adjacency.ADD_REMOVE,
        *,
        mu: float = 0.0,
        epsilon: float = 0.0,
    ) -> MomentRelease:
        """The least noise at the cost of a Gaussian release of this mu, or of a pure epsilon."""
        of = moments.sum().bounded()
        noise: Mechanism = (
            Gaussian.for_mu(of, mu=mu, adjacency=adjacency)
            if mu > 0.0
            else KNorm.for_budget(of, epsilon=epsilon, adjacency=adjacency)
        )
        return cls(moments=moments, mechanism=noise, adjacency=adjacency)

    @property
    def loss(self) -> PrivacyLoss:
        """What it costs."""
        return self.mechanism.loss(self.moments.sum().bounded(), adjacency=self.adjacency)

    @property
    def premises(self) -> tuple[Premise, Premise]:
        """What bounds one unit, and how the noise is known."""
        return self.moments.sum().bounded().premise, self.mechanism.law

    @property
    def scale(self) -> float | None:
        """Of its noise, where that has one."""
        return getattr(self.mechanism, "scale", None)

    def release(self, total: MomentSum, rng: Source) -> Coefficients:
        """The noisy moments of a sum; whoever calls this has charged for it."""
        return release_moments(total, self.mechanism, rng=rng, adjacency=self.adjacency)


class MomentsPlan(Plan):
    """All releases are of moments, for the same neighbours."""

    @property
    @abstractmethod
    def releases(self) -> Sequence[MomentRelease]:
        """In their order."""

    @cached_property
    def loss(self) -> PrivacyLoss:
        """The cost of all releases."""
        return compose([r.loss for r in self.releases], adjacency=self.releases[0].adjacency)

    @property
    def theorem(self) -> str:
        kind = self.releases[0].mechanism.theorem
        return f"{kind}, composed over {len(self.releases)} releases of moments"

    @property
    def premises(self) -> tuple[Premise, ...]:
        return self.releases[0].premises
