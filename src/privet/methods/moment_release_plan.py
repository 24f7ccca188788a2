"""Plans of methods that release moments of records: each once, with noise of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from privet import _check
from privet.accounting import PrivacyLoss, compose
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Premise
from privet.mechanisms import (
    Coefficients,
    GaussianMechanism,
    KNormMechanism,
    Mechanism,
    release_moments,
)
from privet.methods.contract import Plan
from privet.noise import Source
from privet.sensitivity import Moments, MomentSum


def check_adjacency(value: Adjacency | str) -> Adjacency:
    """The adjacency that moments can be released for: add-remove or replace-one."""
    adjacency = _check.member("adjacency", value, Adjacency)
    if adjacency is Adjacency.ZERO_OUT:
        raise InvalidArgument(
            "adjacency",
            adjacency.value,
            "add-remove or replace-one",
            "add-remove becomes zero-out where records are counted",
        )
    return adjacency


@final
@dataclass(frozen=True, kw_only=True)
class MomentRelease:
    """Some moments and the noise on them: what one release is, and what it costs."""

    moments: Moments
    mechanism: Mechanism
    adjacency: Adjacency = Adjacency.ADD_REMOVE

    @classmethod
    def for_cost(
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
            GaussianMechanism.for_mu(of, mu=mu, adjacency=adjacency)
            if mu > 0.0
            else KNormMechanism.for_budget(of, epsilon=epsilon, adjacency=adjacency)
        )
        return cls(moments=moments, mechanism=noise, adjacency=adjacency)

    @property
    def loss(self) -> PrivacyLoss:
        """What this release costs."""
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


class MomentReleasePlan(Plan):
    """A plan whose releases are all of moments, for the same neighbours."""

    @property
    @abstractmethod
    def releases(self) -> Sequence[MomentRelease]:
        """All releases, in the order in which they are made."""

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
