"""What PATE methods of one machine share: settings, sizes by rule, shards of records, a student.

Symbols: n records, K teachers, N queries, c classes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, tuned_defaults
from privet.accounting import PrivacyLoss
from privet.data.domain import Domain, RowKind, Rows
from privet.data.records import PublicFacts, Records
from privet.errors import InvalidArgument
from privet.guarantee import Premise, Unit
from privet.methods.contract import InputFeatures, Method, Model, Plan, ReleaseContext, setting
from privet.methods.feasibility import Signal
from privet.methods.neighbouring_pairs import NeighbouringPair, lone_record_pair
from privet.methods.pate.learner_adapters import Learner, as_learner
from privet.methods.pate.mean_aggregation import NoisyLabels
from privet.methods.pate.pipeline import Aggregation, run_pipeline
from privet.methods.pate.shard_charges import SHARD_PREMISES
from privet.methods.pate.students import train_student
from privet.methods.pate.teachers import deal_shards

Array = NDArray[Any]

TRUST = 10.0
"""scikit-learn's C of a logistic regression: how far it trusts its labels. Teachers have true ones.
A student's are noisy, so that it trusts them less where they are few for its columns: on digits,
with 143 queries for 64 columns, C = 1 was better than 10, 3, .3, .1 and .03 at epsilon 2 and 8
together; on a table of two columns with 40 queries 10 was better than 1."""
QUERIES_PER_COLUMN = 20.0
"""From so many queries a column on a student trusts its labels as teachers do; see `TRUST`."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PATEPlan(Plan):
    """So many answers of so many teachers, aggregated in one way."""

    facts: PublicFacts
    teachers: int
    queries: int
    aggregation: Aggregation
    signal_numbers: int
    """How many numbers the teachers' answers stand against noise with, for `Signal`."""
    details: Mapping[str, Any] = field(repr=False)
    """What else the plan arrived at, for config.json."""

    @property
    def loss(self) -> PrivacyLoss:
        return self.aggregation.loss(self.queries)

    @property
    def theorem(self) -> str:
        return self.aggregation.theorem

    @property
    def premises(self) -> tuple[Premise, ...]:
        return (*self.aggregation.premises, *SHARD_PREMISES)

    @property
    def unit(self) -> Unit:
        return Unit.SHARD

    @property
    def signal(self) -> Signal:
        return Signal(units=self.teachers, numbers=self.signal_numbers, what="teachers")

    def summary(self) -> dict[str, Any]:
        return {"teachers": self.teachers, "queries": self.queries, **self.details}


@dataclass(frozen=True, kw_only=True, eq=False)
class ShardedPATE(Method[PATEPlan]):
    """PATE on one machine: records are dealt to teachers. Settings of None are left to the rule."""

    system: ClassVar[str] = "PATE"
    input_features: ClassVar[InputFeatures] = InputFeatures.FEW
    protects_users: ClassVar[bool] = True
    public_inputs_field: ClassVar[str | None] = "public_inputs"
    unplanned_fields: ClassVar[tuple[str, ...]] = ("teacher", "student")

    public_inputs: Any = setting(
        None, help="Records without labels that depend on no private one.", option=False
    )
    teachers: int | None = setting(None, help="K, how many; by default 8 sqrt(n).")
    queries: int | None = setting(
        None, help="N, how many of the public inputs are asked about; by rule."
    )
    teacher: Any = setting(
        None, help="A scikit-learn classifier or torch module; logistic regression.", option=False
    )
    student: Any = setting(
        None, help="A scikit-learn classifier or torch module; logistic regression.", option=False
    )
    backend: str = setting("loky", help="joblib's, for teachers: loky, threading, ray, dask.")
    workers: int = setting(1, help="Processes for the teachers.")

    def __post_init__(self) -> None:
        for name in ("teachers", "queries", "workers"):
            if (value := getattr(self, name)) is not None:
                _check.count(name, value)

    @classmethod
    def for_audit(cls) -> Self:
        """Four teachers of two records each, asked about four rows."""
        rows = np.zeros((4, 2), dtype=np.float32)
        blank = Rows(values=rows, kind=RowKind.BALL, null=np.zeros(4, dtype=bool))
        return cls(public_inputs=blank, teachers=4)

    def for_domain(self, domain: Domain) -> Self:
        """Public inputs as rows of the domain, by the map that private records go through."""
        if self.public_inputs is None or isinstance(self.public_inputs, Rows):
            return self
        return replace(self, public_inputs=domain.rows(np.asarray(self.public_inputs)))

    @abstractmethod
    def plan(self, facts: PublicFacts) -> PATEPlan:
        """The least noise for so many answers, from public facts alone."""

    def sizes(self, facts: PublicFacts) -> tuple[int, int]:
        """K teachers and N queries, from public facts alone.

        K = 8 sqrt(n), of 8 records or more where there are enough. N as many as the budget answers
        clearly: N answers of GNMax cost mu = sqrt(2 N) / sigma, and sigma may be K times
        `tuned_defaults.PATE_AGREED`.
        """
        _check.open_unit("delta", facts.delta)
        if self.public_inputs is None or len(self.public_inputs) == 0:
            raise InvalidArgument(
                "public_inputs", self.public_inputs, "records without labels",
                "the student learns from these alone",
            )  # fmt: skip
        n, public = facts.records, len(self.public_inputs)
        teachers = self.teachers or min(
            n, max(10, min(n // 8, round(tuned_defaults.PATE_TEACHERS * math.sqrt(n))))
        )
        if teachers > n:
            raise InvalidArgument("teachers", teachers, f"at most {n}, one for each record")
        if self.queries is not None:
            if self.queries > public:
                raise InvalidArgument("queries", self.queries, f"at most {public} public inputs")
            return teachers, self.queries
        clear = int((tuned_defaults.PATE_AGREED * teachers * facts.mu) ** 2 / 2.0)
        return teachers, min(public, max(clear, 2 * facts.outputs))

    def fit(self, records: Records, plan: PATEPlan, context: ReleaseContext) -> Model:
        """Teachers, then the charge, then noise, then the student."""
        aggregation = plan.aggregation
        student, _ = run_pipeline(
            deal_shards(records, plan.teachers),
            self._public_rows(plan).box().astype(np.float64),
            teacher=_learner(self.teacher, plan, trust=TRUST),
            aggregation=aggregation,
            train_student=lambda inputs, noisy: self.train_student(plan, inputs, noisy),
            rng=context.rng,
            delta=plan.facts.delta,
            charge=lambda: context.charge(what=aggregation.charged_as),
            sites=[f"teacher {k}" for k in range(plan.teachers)],
            backend=self.backend,
            n_workers=self.workers,
            watcher=lambda done, of: context.progress("teachers", done, of),
        )
        return student

    def train_student(self, plan: PATEPlan, inputs: Array, noisy: NoisyLabels) -> Model:
        """The student of labels for (some of) the queries: post-processing."""
        which = noisy.answered
        return train_student(self.student_learner(plan), inputs[which], noisy.labels[which])

    def student_learner(self, plan: PATEPlan) -> Learner:
        """The student's learner, which trusts its labels the less the fewer they are."""
        clear = plan.queries / (QUERIES_PER_COLUMN * plan.facts.features)
        return _learner(self.student, plan, trust=TRUST * min(1.0, clear))

    def neighbours(self, plan: PATEPlan) -> NeighbouringPair:
        """A shard all of whose records are of class 0, or of class 1; all others are null."""
        facts, blank = plan.facts, lone_record_pair(plan.facts).absent
        places = np.arange(facts.records)
        null = places % plan.teachers != 0
        rows = replace(blank.rows, null=null)

        def records(label: int) -> Records:
            groups = places if facts.unit is Unit.USER else None
            return replace(blank, rows=rows, targets=np.where(null, -1, label), groups=groups)

        return NeighbouringPair(present=records(0), absent=records(1))

    def _public_rows(self, plan: PATEPlan) -> Rows:
        public = self.public_inputs
        shape = plan.facts.shape or (plan.facts.features,)
        if not isinstance(public, Rows) or public.shape != shape:
            shape_or_type = public.shape if isinstance(public, Rows) else type(public).__name__
            raise InvalidArgument(
                "public_inputs", shape_or_type, f"rows of shape {shape}", "map them with for_domain"
            )
        return public.part(slice(0, plan.queries))


def _learner(estimator: Any, plan: PATEPlan, *, trust: float) -> Learner:
    """The estimator as a learner, or a logistic regression that trusts its labels so far."""
    if estimator is None:
        from sklearn.linear_model import LogisticRegression

        estimator = LogisticRegression(C=trust, max_iter=200)
    return as_learner(estimator, classes=plan.facts.outputs)
