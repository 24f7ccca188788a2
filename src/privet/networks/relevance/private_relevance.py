"""The average relevance as a private release: what it costs, and on whose model it stands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import _check, premises
from privet.errors import InvalidArgument
from privet.gradients.module_validator import refuse_cross_example
from privet.guarantee import Adjacency, Guarantee, Premise, Standing
from privet.ledger import Entry, Ledger, Scope
from privet.mechanisms import LaplaceMechanism
from privet.networks.relevance.layer_rules import StabiliserRule, with_layer_rules
from privet.networks.relevance.propagation import (
    RecordWatcher,
    relevance_in_batches,
    scale_to_unit_l1,
)
from privet.noise import Source
from privet.sensitivity import BoundedValue, clip_l1
from privet.sensitivity.clipping import ClippedRows


@final
@dataclass(frozen=True, kw_only=True)
class PublicModel:
    """The model was made without these records; `why` says how that is known."""

    why: str

    def premise(self) -> Premise:
        """What the reader has to believe."""
        return premises.public_model(self.why)


@final
@dataclass(frozen=True, kw_only=True)
class PrivateModel:
    """The model is itself a private release on these records, under `guarantee`.

    Its cost comes on top of the relevance's; it has to be in the same ledger to be counted there.
    """

    guarantee: Guarantee

    def __post_init__(self) -> None:
        if self.guarantee.standing is not Standing.PROVED:
            raise InvalidArgument(
                "guarantee", str(self.guarantee), "a proved one", "a claim protects ignore_loss"
            )

    def premise(self) -> Premise:
        """What the reader has to believe."""
        return premises.private_model(str(self.guarantee))


@final
@dataclass(frozen=True, kw_only=True)
class LedgerModel:
    """The model was paid for by these entries of the ledger that is charged now."""

    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        if not self.entries:
            raise InvalidArgument("entries", (), "the ledger entries that paid for the model")

    def premise(self) -> Premise:
        """The premise that the ledger shows: the model was paid for there."""
        numbers = ", ".join(str(e.sequence) for e in self.entries)
        return premises.paid_model(numbers)


Origin = PublicModel | PrivateModel | LedgerModel


@final
@dataclass(frozen=True, kw_only=True)
class PrivateRelevance:
    """A released average relevance, with what it promises and what it cost."""

    values: NDArray[np.float64] = field(repr=False)
    guarantee: Guarantee
    entry: Entry | None

    def ratios(self, *, floor: float = 0.0) -> NDArray[np.float64]:
        """beta_j = d |R_j| / sum |R_j| (eq. 16): post-processing, so free.

        With `floor` in [0, 1) every feature first gets that share of an equal split: beta_j =
        floor + (1 - floor) d |R_j| / sum |R_j|.
        """
        return budget_ratios(self.values, floor=floor)


def budget_ratios(relevances: NDArray[np.float64], *, floor: float = 0.0) -> NDArray[np.float64]:
    """beta_j = d |R_j| / sum_j |R_j|, which sum to d (eq. 16); all 1 when there is no relevance.

    >>> budget_ratios(np.array([3.0, -1.0])).tolist()
    [1.5, 0.5]
    """
    floor = _check.delta_or_zero("floor", floor)
    size = np.abs(np.asarray(relevances, dtype=np.float64))
    total = float(size.sum())
    if not np.isfinite(total):
        raise InvalidArgument("relevances", total, "finite")
    ratios = np.ones_like(size) if total == 0.0 else size.size * size / total
    return floor + (1.0 - floor) * ratios


def bounded_average_relevance(
    model: nn.Module,
    x: Tensor | NDArray[np.float32],
    targets: Tensor | NDArray[np.int64],
    *,
    records: int,
    magnitudes: bool = False,
    rule: StabiliserRule | None = None,
    batch_size: int = 500,
    watcher: RecordWatcher | None = None,
) -> BoundedValue:
    """The average over records of relevance scaled to L1 norm 1, as a value with a sensitivity.

    (1/n) sum_i R(x_i) / ||R(x_i)||_1 with n = `records` a public number. With `magnitudes` the
    absolute values are averaged, so that contributions of opposite sign do not cancel.

    **Guarantee** L1 sensitivity 1/n (add-remove) and 2/n (replace-one), enforced by clipping in
    exact arithmetic, for a model that treats records separately (checked).
    """
    with with_layer_rules(model, rule or StabiliserRule(), None):
        refuse_cross_example(model)
    for name, module in model.named_modules():
        if getattr(module, "mixes_records", False):
            raise InvalidArgument(
                f"layer {name!r}",
                type(module).__name__,
                "a layer whose statistics do not come from records",
            )
    rows = torch.as_tensor(x)
    clipped = clip_l1(np.zeros((1, rows[0].numel() if len(rows) else 1)), 1.0)
    units = np.zeros(rows.shape[1:], dtype=np.int64)
    invalid = 0
    for part in relevance_in_batches(
        model, rows, targets, rule=rule, batch_size=batch_size, watcher=watcher
    ):
        scaled = scale_to_unit_l1(part).abs() if magnitudes else scale_to_unit_l1(part)
        clipped = clip_l1(scaled.numpy(), 1.0)
        units += clipped.units.sum(axis=0)
        invalid += int((~part.flatten(1).isfinite().all(1)).sum())
    return ClippedRows(
        units=units[None],  # the sum of all records, so `sum` has nothing left to add
        spacing=clipped.spacing,
        add_remove=clipped.add_remove,
        replace_one=clipped.replace_one,
        premise=premises.bound("each record has relevance of L1 norm at most 1"),
        invalid=invalid,
    ).mean(records=records)


def private_average_relevance(
    model: nn.Module,
    x: Tensor | NDArray[np.float32],
    targets: Tensor | NDArray[np.int64],
    *,
    origin: Origin,
    epsilon: float,
    records: int,
    rng: Source,
    ledger: Ledger | None,
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    magnitudes: bool = False,
    rule: StabiliserRule | None = None,
    batch_size: int = 500,
    watcher: RecordWatcher | None = None,
) -> PrivateRelevance:
    """The average relevance with Laplace noise, charged before it is drawn.

    Each record's relevance has L1 norm 1, so the average moves by 1/n (add-remove) or 2/n
    (replace-one) and noise of scale 1/(n epsilon) or 2/(n epsilon) is enough: d times less than the
    paper's Lap(2d/(n epsilon)).

    **Guarantee** (epsilon, 0) for the adjacency, given the model. `origin` states where the model
    comes from and has no default: the sensitivity is that of the *average*, and says nothing about
    a model that was itself trained on the records. That was the gap in Lemma 1.

    **Assumes** `records` is public, and `origin`. float32 rounding may depend on the batch a record
    is in (tested to stay within the stated sensitivity, not proved).

    >>> from privet.noise import seeded
    >>> layer = nn.Linear(2, 2, bias=False)
    >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, 1.0], [3.0, 1.0]]))
    >>> ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=0.0)
    >>> release = private_average_relevance(
    ...     layer, torch.ones(9000, 2), torch.zeros(9000, dtype=torch.long),
    ...     origin=PublicModel(why="written down by hand"), epsilon=1.0, records=9000,
    ...     rng=seeded(0), ledger=ledger)
    >>> release.values.round(2).tolist(), ledger.spent()
    ([0.75, 0.25], 1.0)

    Adaptive Laplace Mechanism, eq. 12 and Lemma 1, with its sensitivity made true.
    """
    if not isinstance(origin, PublicModel | PrivateModel | LedgerModel):
        raise InvalidArgument("origin", origin, "a PublicModel, PrivateModel or LedgerModel")
    if isinstance(origin, LedgerModel):
        _in_ledger(origin, ledger)
    bounded = bounded_average_relevance(
        model,
        x,
        targets,
        records=records,
        magnitudes=magnitudes,
        rule=rule,
        batch_size=batch_size,
        watcher=watcher,
    )
    mechanism = LaplaceMechanism.for_budget(
        bounded, epsilon=_check.positive("epsilon", epsilon), adjacency=adjacency
    )
    entry = None
    if ledger is not None:
        loss = mechanism.loss(bounded, adjacency=adjacency)
        scope = Scope(secret=rng.secret)
        entry = ledger.charge(loss, what="average relevance of the features", scope=scope)
    values = mechanism.release(bounded, rng=rng, adjacency=adjacency)
    promised = mechanism.guarantee(bounded, adjacency=adjacency, rng=rng)
    public, alone = premises.declared_size(records), premises.RELEVANCE_ALONE
    return PrivateRelevance(
        values=values,
        guarantee=replace(promised, premises=(*promised.premises, alone, public, origin.premise())),
        entry=entry,
    )


def _in_ledger(origin: LedgerModel, ledger: Ledger | None) -> None:
    """The entries that paid for the model must be in the ledger that is charged now."""
    present = set() if ledger is None else {entry.hash for entry in ledger.entries()}
    for entry in origin.entries:
        if entry.hash not in present:
            raise InvalidArgument(
                "origin", f"entry {entry.sequence}", "entries of the ledger that is charged now"
            )
