"""What PATE promises and charges per teacher shard, whichever way it aggregates."""

from __future__ import annotations

from dataclasses import replace

from privet import accounting as losses
from privet import premises
from privet.errors import Incomparable
from privet.guarantee import Adjacency, Guarantee, Premise, Unit
from privet.ledger import Entry, Ledger, Scope
from privet.noise import Source

REPLACE_ONE = Adjacency.REPLACE_ONE


SHARD_PREMISES = (premises.PUBLIC_QUESTIONS, premises.DISJOINT_SHARDS)
"""What every promise per teacher shard rests on."""


def shard_ledger(*, epsilon: float, delta: float) -> Ledger:
    """A ledger in memory of the kind that PATE charges: replace-one, per teacher shard."""
    return Ledger.in_memory(
        cap_epsilon=epsilon, cap_delta=delta, adjacency=REPLACE_ONE, unit=Unit.SHARD
    )


def noise_premise(rng: Source | None) -> Premise:
    """Who knows the noise of a source; a plan without one is for a secret key."""
    return premises.SECRET_KEY if rng is None else rng.premise


def shard_guarantee(
    loss: losses.PrivacyLoss, delta: float, theorem: str, rests_on: tuple[Premise, ...]
) -> Guarantee:
    """What a loss promises per teacher shard, on these premises and those of all of PATE."""
    stated = loss.guarantee(delta, theorem=theorem, unit=Unit.SHARD)
    return replace(stated, premises=(*rests_on, *SHARD_PREMISES))


def charge_shards(
    ledger: Ledger | None,
    loss: losses.PrivacyLoss,
    *,
    what: str,
    rng: Source | None = None,
    token: str | None = None,
) -> Entry | None:
    """Write the cost down; None where nobody keeps an account.

    A ledger that speaks of other neighbours or units is refused.
    """
    if ledger is None:
        return None
    if ledger.adjacency is not REPLACE_ONE:
        raise Incomparable(ledger.adjacency.value, REPLACE_ONE.value, "adjacency of the ledger")
    if ledger.unit is not Unit.SHARD:
        raise Incomparable(ledger.unit.value, Unit.SHARD.value, "unit of the ledger")
    scope = Scope(unit=Unit.SHARD, secret=None if rng is None else rng.secret)
    return ledger.charge(loss, what=what, scope=scope, token=token)
