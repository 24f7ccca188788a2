"""Influence models: psi_t(v, u), how strongly v moves u, from public facts or a paid release.

The social part of u's example for day t + 1 is sum_v psi_t(v, u), with

    psi_t(v, u) = a(v, u) theta(v, u) g_vt,          0 <= theta <= 1, |g| <= 1,

a the public weights of `friend_weights` and g_vt how far above its own past v's activity was.
Whatever theta is, one user changes the social parts of all others by at most sum_u a(v, u) <= 1 a
day.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from privet import premises
from privet.errors import InvalidArgument
from privet.guarantee import Unit
from privet.mechanisms import GaussianMechanism
from privet.noise import Source
from privet.sensitivity import BoundedValue, Sensitivity
from privet_papers.argument_checks import check_in_open_unit

Array = NDArray[np.float64]
Edges = NDArray[np.int64]

SQUARES = 0.5
"""The weight of exposure beside propagation in the packed sum: below 1, since exposure is never
smaller than propagation and shares its sensitivity."""


def tie_kinds(edges: Edges, users: int, levels: tuple[int, ...]) -> NDArray[np.int64]:
    """The kind of each tie, users x users, by its number of common friends."""
    graph = adjacency_matrix(edges, users)
    return np.searchsorted(np.asarray(levels), graph @ graph, side="right")


def tie_weights(edges: Edges, users: int, levels: tuple[int, ...], theta: Array) -> Array:
    """The weights a(v, u) theta(v, u) of all ties, users x users."""
    return np.asarray(friend_weights(edges, users) * theta[tie_kinds(edges, users, levels)])


@final
@dataclass(frozen=True, kw_only=True)
class FriendshipInfluence:
    """theta = 1: all friendships count alike. Costs nothing: the graph is public.

    >>> edges = np.array([(0, 1), (1, 2)])
    >>> tie_weights(edges, 3, (), FriendshipInfluence().strengths(None, 0.0))[1].tolist()
    [0.5, 0.0, 0.5]
    """

    share: ClassVar[float] = 0.0
    levels: ClassVar[tuple[int, ...]] = ()

    def strengths(self, released: Array | None, noise: float) -> Array:
        """The strength theta of the one kind of ties."""
        return np.ones(1)


@final
@dataclass(frozen=True, kw_only=True)
class PropagationInfluence:
    """theta by kind of tie, from how activity propagates along friendships.

    Ties fall into kinds by their number of common friends (a public fact): kind k has at least
    `levels[k - 1]`. With e = sign(g), T days, and days on which u was below its own past,

        propagation  p_k = sum over ties (v, u) of kind k of a(v, u) / (T-1) sum_t e_vt e_u,t+1,
        exposure     q_k = sum over the same of             a(v, u) / (T-1) sum_t e_vt^2,

    are released, and theta_k follows r_k = p_k / q_k, how much more often u rose after v had been
    active, as far as the noise lets it be believed; where it does not, theta_k = 1. Taking days on
    which u was low keeps friends who are merely alike from looking like friends who push.

    **Guarantee** (add or remove a user's records, the graph staying): as a source the user moves
    (p, beta q) by at most sqrt(1 + beta^2) sum_u a(v, u), as a target by at most the same with
    sum_v a(v, u); both sums are at most 1, so L2 and L1 sensitivities are 2 sqrt(1 + beta^2) and
    2 (1 + beta), beta = `SQUARES`.

    After the CPP model of Phan, Dou, Xiao, Piniewski and Kil, "Analysis of physical activity
    propagation in a health social network" (2014), which counts propagations too, per user and
    without noise.

    >>> PropagationInfluence(budget_share=0.1).share
    0.1
    """

    budget_share: float = 0.1
    """The part of the budget (of mu^2) that it needs."""
    levels: tuple[int, ...] = (1, 3)
    """Kind k of ties has at least `levels[k - 1]` common friends."""

    def __post_init__(self) -> None:
        check_in_open_unit(budget_share=self.budget_share)
        if list(self.levels) != sorted(set(self.levels)) or min(self.levels, default=1) < 1:
            raise InvalidArgument("levels", self.levels, "rising whole numbers from 1")

    @property
    def share(self) -> float:
        """The part of the budget that it needs."""
        return self.budget_share

    @property
    def release_size(self) -> int:
        """How many numbers are released for it."""
        return 2 * (len(self.levels) + 1)

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one user's records, added or removed, move them."""
        slack = 1.0 + 2.0**-30  # products of a tie are off by a relative 2^-50; sums are exact
        return Sensitivity(
            l1=2.0 * (1.0 + SQUARES) * slack, l2=2.0 * math.sqrt(1.0 + SQUARES**2) * slack
        )

    def counts(self, activity: Array, edges: Edges) -> BoundedValue:
        """What has to be released, with its sensitivity per user."""
        sign = np.sign(activity)
        users, days = sign.shape
        if days < 2:
            raise InvalidArgument("days", days, "at least 2 to see activity propagate")
        weights, kinds = friend_weights(edges, users), tie_kinds(edges, users, self.levels)
        low = (sign[:, :-1] < 0.0).astype(np.float64)
        propagated = weights * (sign[:, :-1] @ (low * sign[:, 1:]).T) / (days - 1)
        exposed = weights * (sign[:, :-1] ** 2 @ low.T) / (days - 1)
        # each tie's part is cut towards zero to a multiple of 2^-32, so that sums have no rounding
        parts = [np.trunc(z * 2.0**32) for z in (propagated, exposed * SQUARES)]
        packed = [
            part[kinds == k].sum() * 2.0**-32 for part in parts for k in range(len(self.levels) + 1)
        ]
        return BoundedValue(
            value=np.array(packed),
            add_remove=self.sensitivity,
            replace_one=self.sensitivity.scaled(2.0),
            premise=premises.bound("friends are weighted by 1 / max(degrees), in both directions"),
            spacing=2.0**-32,
            unit=Unit.USER,
        )

    def strengths(self, released: Array, noise: float) -> Array:
        """theta of each kind, from what was released with this noise; the strongest is 1."""
        kinds = len(self.levels) + 1
        pushed = np.maximum(released[kinds:] / SQUARES, 0.0)
        spread = noise / SQUARES
        followed = np.clip(released[:kinds] / np.maximum(pushed, max(spread, 1e-9)), 0.0, 1.0)
        believed = pushed**2 / np.maximum(pushed**2 + 9.0 * spread**2, 1e-12)
        strongest = float(followed.max())
        relative = followed / strongest if strongest > 0.0 else np.ones(kinds)
        return np.asarray(np.clip(believed * relative + 1.0 - believed, 0.0, 1.0))


Influence = FriendshipInfluence | PropagationInfluence
"""A model of psi: from public facts, or paid for."""


def release_influence(
    influence: Influence,
    activity: Array,
    edges: Edges,
    *,
    mechanism: GaussianMechanism | None,
    rng: Source,
) -> Array:
    """theta of each kind, from a release of what it needs; whoever calls this has charged."""
    if isinstance(influence, FriendshipInfluence):
        return influence.strengths(None, 0.0)
    assert mechanism is not None  # whoever pays for it has planned its noise
    counts = influence.counts(activity, edges)
    return influence.strengths(mechanism.release(counts, rng=rng), mechanism.scale)


def adjacency_matrix(edges: NDArray[np.int64], users: int) -> Array:
    """Users x users: 1 for friends, 0 for others."""
    graph = np.zeros((users, users))
    graph[edges[:, 0], edges[:, 1]] = graph[edges[:, 1], edges[:, 0]] = 1.0
    return graph


def friend_weights(edges: NDArray[np.int64], users: int) -> Array:
    """a(v, u), symmetric, with rows and columns that sum to at most 1.

    **Guarantee** the sums are at most 1 in exact arithmetic: weights are cut down to multiples of
    2^-30.

    >>> star = np.array([(0, 1), (0, 2), (0, 3), (0, 4)])
    >>> friend_weights(star, 5)[0].tolist()
    [0.0, 0.25, 0.25, 0.25, 0.25]
    """
    graph = adjacency_matrix(edges, users)
    degree = graph.sum(axis=0)
    larger = np.maximum(np.maximum(degree[:, None], degree[None, :]), 1.0)
    return np.asarray(np.floor(graph / larger * 2.0**30) / 2.0**30)


def largest_degree(edges: NDArray[np.int64]) -> int:
    """The most friends that a user has; 0 without friendships."""
    return int(np.bincount(edges.ravel()).max()) if len(edges) else 0
