"""The result of a student that is taught by a file of labels, which were paid for elsewhere."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import final

from privet.accounting import PrivacyLoss
from privet.data.domain import Domain
from privet.data.records import PublicFacts
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee, Premise, Unit
from privet.ledger import Entry
from privet.methods.contract import Model, Plan
from privet.methods.pate.reducer_and_label_files import LabelFile
from privet.methods.train_method import TrainingResult


@final
@dataclass(frozen=True, kw_only=True)
class LabelFilePlan(Plan):
    """The plan of an aggregation elsewhere, read back from its file of labels."""

    facts: PublicFacts
    charged: PrivacyLoss
    stated: Guarantee

    @property
    def loss(self) -> PrivacyLoss:
        return self.charged

    @property
    def theorem(self) -> str:
        return self.stated.theorem

    @property
    def premises(self) -> tuple[Premise, ...]:
        return self.stated.premises

    @property
    def unit(self) -> Unit:
        return Unit.SHARD


def training_result(labels: LabelFile, model: Model, domain: Domain) -> TrainingResult:
    """The result of training on labels that were paid for elsewhere: nothing more is charged."""
    payment = labels.payment
    if not payment:
        raise InvalidArgument(
            "labels", "of an earlier version", "labels that say what was paid for them",
            "make them again with `privet pate aggregate`",
        )  # fmt: skip
    entry = Entry.from_body(str(payment["entry"]).encode())
    facts = PublicFacts(
        records=len(payment["sites"]), features=domain.columns, outputs=labels.labels.shape[1],
        epsilon=labels.guarantee.epsilon, delta=labels.guarantee.delta, shape=domain.shape,
        unit=Unit.RECORD,
    )  # fmt: skip
    return TrainingResult(
        model=model,
        guarantee=labels.guarantee,
        claim=labels.claim,
        plan=LabelFilePlan(facts=facts, charged=entry.loss, stated=labels.guarantee),
        entries=(entry,),
        run=entry.run or f"student-{secrets.token_hex(8)}",
        account=dict(payment["account"]),
        loss=entry.loss,
    )
