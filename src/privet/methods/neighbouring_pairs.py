"""The pairs of neighbouring data sets that move the releases of a method most."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from privet.data.domain import RowKind, Rows
from privet.data.records import PublicFacts, Records
from privet.guarantee import Unit
from privet.methods.release_context import ReleaseContext as ReleaseContext
from privet.settings import setting as setting


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class NeighbouringPair:
    """Two data sets that differ in one unit: what audits and conformance play back."""

    present: Records
    absent: Records


def lone_record_pair(facts: PublicFacts, *, kind: RowKind = RowKind.BALL) -> NeighbouringPair:
    """One record in the first place, of unit length along the first axis; or none at all."""
    rows = np.zeros((facts.records, *(facts.shape or (facts.features,))), dtype=np.float32)
    # float32 stays in the ball
    rows.reshape(facts.records, -1)[0, 0] = 1.0 if kind is RowKind.BOX else 1.0 - 1e-6
    there = np.ones(facts.records, dtype=bool)

    def records(null: NDArray[np.bool_]) -> Records:
        nothing = -1 if facts.outputs != 1 else 0
        target = 0 if facts.outputs != 1 else 1
        return Records(
            rows=Rows(values=np.where(null[:, None], 0.0, rows.reshape(len(rows), -1))
                      .reshape(rows.shape).astype(np.float32), kind=kind, null=null),
            targets=np.where(null, nothing, target),
            outputs=facts.outputs,
            groups=None if facts.unit is Unit.RECORD else np.zeros(facts.records, dtype=np.int64),
            n_public=facts.records if facts.declared else None,
            premises=facts.premises,
        )  # fmt: skip

    alone = there.copy()
    alone[0] = False
    return NeighbouringPair(present=records(alone), absent=records(there))


def worst_unit_pair(facts: PublicFacts, *, replaced: bool = False) -> NeighbouringPair:
    """A unit that weighs as much as one can, against none; all other places are null.

    A record of unit length along the first axis; or a user to whom all places belong. Where the
    number of records was declared the unit is gone from the second data set, which is then shorter;
    where it was counted, null. `replaced`: records of the opposite sign are there instead.
    """
    worst = lone_record_pair(facts)
    there = worst.present
    if facts.unit is Unit.USER:
        values = np.repeat(there.rows.values[:1], len(there), axis=0)
        rows = dataclasses.replace(there.rows, values=values, null=np.zeros(len(there), dtype=bool))
        targets = np.repeat(there.targets[:1], len(there))
        there = dataclasses.replace(there, rows=rows, targets=targets)
    if replaced:
        rows = dataclasses.replace(there.rows, values=-there.rows.values)
        return NeighbouringPair(present=there, absent=dataclasses.replace(there, rows=rows))
    if not facts.declared:
        return NeighbouringPair(present=there, absent=worst.absent)
    kept = there.null  # all places but the unit's
    return NeighbouringPair(
        present=there,
        absent=dataclasses.replace(
            there,
            rows=there.rows.part(kept),
            targets=there.targets[kept],
            groups=None if there.groups is None else there.groups[kept],
        ),
    )
