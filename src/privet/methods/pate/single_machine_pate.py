"""PATE for classes, what both ways share: records are dealt to teachers, and a student learns.

Symbols: n records, K teachers, N queries, c classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from privet import _check, chosen
from privet.data.records import PublicFacts, Records
from privet.data.rows import Domain, Kind, Rows
from privet.errors import InvalidArgument
from privet.guarantee import Unit
from privet.methods.contract import (
    Front,
    Model,
    Plan,
    Signal,
    Spending,
    Worst,
    lone_record,
    setting,
)
from privet.methods.pate.asking import Shard, ask_teachers
from privet.methods.pate.learners import Learner, as_learner
from privet.methods.pate.students import student_model

Array = NDArray[Any]


class DealtPlan(Plan):
    """A plan with so many teachers and queries."""

    teachers: int
    queries: int

    @property
    def unit(self) -> Unit:
        return Unit.SHARD

    @property
    def signal(self) -> Signal:
        """Every teacher pulls at c probabilities of an answer."""
        return Signal(units=self.teachers, numbers=self.facts.outputs, what="teachers")


@dataclass(frozen=True, kw_only=True, eq=False)
class Dealt:
    """Settings of a method that deals records to teachers; None leaves one to the rule."""

    front: ClassVar[Front] = Front.FEW
    grouped: ClassVar[bool] = True
    questions: ClassVar[str | None] = "public_inputs"

    public_inputs: Any = setting(
        None, help="Records without labels that depend on no private one.", option=False
    )
    teachers: int | None = setting(None, help="K, how many; 8 sqrt(n) unless told.")
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
    def small(cls) -> Self:
        """Four teachers of two records each, asked about four rows."""
        rows = np.zeros((4, 2), dtype=np.float32)
        blank = Rows(values=rows, kind=Kind.BALL, null=np.zeros(4, dtype=bool))
        return cls(public_inputs=blank, teachers=4)

    def for_domain(self, domain: Domain) -> Self:
        """Public inputs as rows of the domain, by the map that private records go through."""
        if self.public_inputs is None or isinstance(self.public_inputs, Rows):
            return self
        return replace(self, public_inputs=domain.rows(np.asarray(self.public_inputs)))

    def counted(self, facts: PublicFacts) -> tuple[int, int]:
        """K and N, from public facts alone.

        K = 8 sqrt(n), of 8 records or more where there are enough. N as many as the budget answers
        clearly: N answers of GNMax cost mu = sqrt(2 N) / sigma, and sigma may be K times
        `chosen.PATE_AGREED`.
        """
        _check.open_unit("delta", facts.delta)
        if self.public_inputs is None or len(self.public_inputs) == 0:
            raise InvalidArgument(
                "public_inputs", self.public_inputs, "records without labels",
                "the student learns from these alone",
            )  # fmt: skip
        n, public = facts.records, len(self.public_inputs)
        teachers = self.teachers or min(
            n, max(10, min(n // 8, round(chosen.PATE_TEACHERS * math.sqrt(n))))
        )
        if teachers > n:
            raise InvalidArgument("teachers", teachers, f"at most {n}, one for each record")
        if self.queries is not None:
            if self.queries > public:
                raise InvalidArgument("queries", self.queries, f"at most {public} public inputs")
            return teachers, self.queries
        clear = int((chosen.PATE_AGREED * teachers * facts.mu) ** 2 / 2.0)
        return teachers, min(public, max(clear, 2 * facts.outputs))

    def asked(self, records: Records, plan: DealtPlan, spending: Spending, read: Any) -> list[Any]:
        """What all teachers say about the queries: private until noise is added."""
        return ask_teachers(
            _learner(self.teacher, plan, trust=10.0),
            deal(records, plan.teachers),
            self._public(plan).box().astype(np.float64),
            read,
            sites=[f"teacher {k}" for k in range(plan.teachers)],
            backend=self.backend,
            n_workers=self.workers,
            watcher=lambda done, of: spending.progress("teachers", done, of),
        )

    def taught(
        self,
        plan: DealtPlan,
        labels: Array,
        which: Any = slice(None),
        teach: Callable[[Learner, Array, Array], Model] = student_model,
    ) -> Model:
        """The student of labels for (some of) the queries: post-processing."""
        inputs = self._public(plan).box().astype(np.float64)[which]
        few = plan.queries / (20.0 * plan.facts.features)
        trust = 10.0 * min(1.0, few)
        return teach(_learner(self.student, plan, trust=trust), inputs, labels)

    def neighbours(self, plan: DealtPlan) -> Worst:
        """A shard all of whose records are of class 0, or of class 1; all others are null."""
        facts, nobody = plan.facts, lone_record(plan.facts).absent
        places = np.arange(facts.records)
        null = places % plan.teachers != 0
        rows = replace(nobody.rows, null=null)

        def records(label: int) -> Records:
            groups = places if facts.unit is Unit.USER else None
            return replace(nobody, rows=rows, targets=np.where(null, -1, label), groups=groups)

        return Worst(present=records(0), absent=records(1))

    def _public(self, plan: DealtPlan) -> Rows:
        public = self.public_inputs
        shape = plan.facts.shape or (plan.facts.features,)
        if not isinstance(public, Rows) or public.shape != shape:
            given = public.shape if isinstance(public, Rows) else type(public).__name__
            raise InvalidArgument(
                "public_inputs", given, f"rows of shape {shape}", "map them with for_domain"
            )
        return public.part(slice(0, plan.queries))


def _learner(given: Any, plan: DealtPlan, *, trust: float) -> Learner:
    """What was given, or a logistic regression that trusts its labels so far (C of scikit-learn).

    A student's labels are noisy, so that it trusts them less where they are few for its columns: on
    digits, with 143 queries for 64 columns, C = 1 was better than 10, 3, .3, .1 and .03 at epsilon
    2 and 8 together; on a table of two columns with 40 queries 10 was better than 1.
    """
    if given is None:
        from sklearn.linear_model import LogisticRegression

        given = LogisticRegression(C=trust, max_iter=200)
    return as_learner(given, classes=plan.facts.outputs)


def deal(records: Records, teachers: int) -> list[Shard]:
    """Rows and class numbers of each teacher; a null record keeps its place and is left out.

    Record i goes to teacher i mod K; where records have users, all of user u to teacher u mod K, so
    that a user is in one shard.
    """
    places = np.arange(len(records)) if records.groups is None else records.groups
    if records.groups is not None and (users := int(places.max(initial=-1)) + 1) < teachers:
        raise InvalidArgument("teachers", teachers, f"at most {users}, the number of groups")
    whose = np.where(records.null, -1, places % teachers)
    rows = records.rows.box()
    members = [np.flatnonzero(whose == k) for k in range(teachers)]
    return [(rows[own].astype(np.float64), records.targets[own]) for own in members]
