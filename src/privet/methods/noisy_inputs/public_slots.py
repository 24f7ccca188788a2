"""Noisy rows and labels in a public number of slots, which hide how many records there are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet.data.records import Records
from privet.guarantee import Adjacency
from privet.noise import Source
from privet.sensitivity import BoundedValue, Sensitivity, categories, clip_l2

if TYPE_CHECKING:
    from privet.methods.noisy_inputs.noisy_inputs import InputPlan, NoisyInputCost

Array = NDArray[Any]
_BLOCK = 2048  # rows that are clipped and noised at a time: bounds memory, changes no result


def noisy_rows(
    rows: Array, cost: NoisyInputCost, rng: Source, *, adjacency: Adjacency
) -> NDArray[np.float32]:
    """One noisy copy of clipped rows: what training may look at. Costs one exact draw a number."""
    out = np.empty(rows.shape, dtype=np.float32)
    for start in range(0, len(rows), _BLOCK):
        clipped = clip_l2(rows[start : start + _BLOCK], cost.radius)
        each = Sensitivity(l1=math.inf, l2=cost.sensitivity)
        part = BoundedValue(
            value=clipped.units.astype(np.float64) * clipped.spacing,
            add_remove=each,
            replace_one=each,
            premise=clipped.premise,
            spacing=clipped.spacing,
        )
        out[start : start + _BLOCK] = cost.mechanism.release(
            part, rng=rng.child("rows", start), adjacency=adjacency
        )
    return out


def fill_slots(
    records: Records, plan: InputPlan, rng: Source
) -> tuple[Array, NDArray[np.int64], NDArray[np.bool_]]:
    """Rows in [-1, 1] and labels in the public slots, in random order; which slots are null."""
    rows = records.rows.cube().reshape(len(records), plan.facts.features)
    missing = max(plan.facts.records - len(rows), 0)
    order = rng.permutation(len(rows) + missing)[: plan.facts.records]
    filled = np.concatenate([rows, np.zeros((missing, rows.shape[1]), dtype=rows.dtype)])[order]
    known = np.concatenate([records.targets, np.full(missing, -1)])[order].astype(np.int64)
    null = np.concatenate([records.null, np.ones(missing, dtype=bool)])[order]
    return filled, known, null


def randomised_labels(
    known: NDArray[np.int64], null: NDArray[np.bool_], plan: InputPlan, rng: Source
) -> NDArray[np.int64]:
    """The labels that training may look at; those of null slots are drawn from all classes."""
    if plan.answers is None:
        random = rng.child("null").integers(plan.facts.outputs, len(known))
        return np.where(null, random, known)
    labels = categories(np.where(null, 0, known), plan.facts.outputs)
    return plan.answers.release(labels, rng=rng.child("answers"), null=null)
