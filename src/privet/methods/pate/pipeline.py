"""The PATE pipeline: teachers on disjoint shards, noisy labels for public inputs, a student.

Every PATE here is this pipeline with another `Aggregation`: clipped codes of targets of any shape
(`PATE`, `MeanPATE`, `VolumePATE`) or votes for classes (`VotingPATE`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol, Self, TypeVar, final

from numpy.typing import NDArray

from privet import _check
from privet.accounting import PrivacyLoss
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee, Premise
from privet.ledger import Entry, Ledger
from privet.methods.pate.answer_files import Answers, encode_predictions, hash_inputs
from privet.methods.pate.learner_adapters import Learner, Predictor, as_learner
from privet.methods.pate.mean_aggregation import Aggregator, NoisyAnswers, NoisyLabels
from privet.methods.pate.reducers import Reducer
from privet.methods.pate.teachers import Shard, ask_teachers
from privet.noise import Source, secure

Array = NDArray[Any]
Trained = TypeVar("Trained")


class Aggregation(Protocol):
    """How the answers of many teachers become noisy labels: `CodeAggregation` or `GNMax`."""

    charged_as: ClassVar[str]
    """What a ledger calls it."""

    @property
    def theorem(self) -> str:
        """The statement that the loss rests on."""

    @property
    def premises(self) -> tuple[Premise, ...]:
        """The premises of the answers: what bounds them, and what hides them."""

    def loss(self, queries: int) -> PrivacyLoss:
        """What so many queries cost together."""

    def encode(self, site: str, predictions: Any, *, queries: int) -> Any:
        """What a site sends of its teacher's predictions: *private* until noise is added."""

    def release(
        self, answers: Sequence[Any], *, rng: Source, delta: float, ledger: Ledger | None = None
    ) -> NoisyLabels:
        """Add noise to what all sites sent; charged first where there is a ledger."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CodeAggregation:
    """The noisy mean of clipped codes, decoded: for targets of any shape that has a reducer."""

    charged_as: ClassVar[str] = "answers of teachers"

    queries: int
    aggregator: Aggregator
    reducer: Reducer = field(repr=False)
    inputs_hash: str = ""

    @classmethod
    def for_budget(
        cls,
        *,
        reducer: Reducer,
        teachers: int,
        queries: int,
        epsilon: float,
        delta: float,
        inputs_hash: str = "",
    ) -> Self:
        """The least noise with which `queries` codes are (epsilon, delta)-private in all."""
        aggregator = Aggregator.for_budget(
            teachers=teachers, queries=queries, epsilon=epsilon, delta=delta,
            radius=reducer.radius, dimension=reducer.dimension,
        )  # fmt: skip
        return cls(queries=queries, aggregator=aggregator, reducer=reducer, inputs_hash=inputs_hash)

    @property
    def theorem(self) -> str:
        return f"{self.aggregator.mechanism.theorem}, {self.queries} answers as one"

    @property
    def premises(self) -> tuple[Premise, ...]:
        return (self.aggregator.clipping, self.aggregator.mechanism.law)

    def loss(self, queries: int) -> PrivacyLoss:
        return self.aggregator.loss(queries, dimension=self.reducer.dimension)

    def encode(self, site: str, predictions: Any, *, queries: int) -> Answers:
        return encode_predictions(
            site,
            predictions,
            reducer=self.reducer,
            inputs_hash=self.inputs_hash,
            expected=queries,
        )

    def average(
        self,
        answers: Sequence[Answers],
        *,
        rng: Source,
        delta: float,
        ledger: Ledger | None = None,
        allow_equal: bool = False,
    ) -> NoisyAnswers:
        """The noisy mean of the codes, charged first where there is a ledger."""
        return self.aggregator.release(
            answers,
            rng=rng,
            delta=delta,
            ledger=ledger,
            reducer=self.reducer.name,
            allow_equal=allow_equal,
        )

    def release(
        self, answers: Sequence[Answers], *, rng: Source, delta: float, ledger: Ledger | None = None
    ) -> NoisyLabels:
        # teachers of shards that were dealt here: two of them may well agree
        noisy = self.average(answers, rng=rng, delta=delta, ledger=ledger, allow_equal=True)
        return NoisyLabels(
            labels=self.reducer.decode(noisy.codes, noise=noisy.noise),
            codes=noisy.codes,
            noise=noisy.noise,
            guarantee=noisy.guarantee,
            entry=noisy.entry,
        )


def run_pipeline(
    shards: Sequence[Shard],
    public_inputs: Any,
    *,
    teacher: Learner,
    aggregation: Aggregation,
    train_student: Callable[[Any, NoisyLabels], Trained],
    rng: Source,
    delta: float,
    charge: Callable[[], object] = lambda: None,
    ledger: Ledger | None = None,
    **teacher_options: Any,
) -> tuple[Trained, NoisyLabels]:
    """Train and ask teachers, pay, release noisy labels, and teach a student with them.

    `charge` pays elsewhere than in `ledger`; `teacher_options` are those of `ask_teachers`.

    **Guarantee** that of `aggregation`: nothing else that depends on the shards comes out.
    """
    encode = partial(aggregation.encode, queries=len(public_inputs))
    answers = ask_teachers(teacher, shards, public_inputs, encode, **teacher_options)
    charge()
    noisy = aggregation.release(answers, rng=rng, delta=delta, ledger=ledger)
    return train_student(public_inputs, noisy), noisy


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Student:
    """A student and the noisy labels that taught it: both public."""

    predict: Predictor
    labels: Array = field(repr=False)
    """Soft targets (queries, *target_shape), as decoded."""
    codes: Array = field(repr=False)
    noise: float


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PATEResult:
    """What a `PATE` hands over: the student, what is promised and what was charged for it."""

    model: Student
    guarantee: Guarantee
    entry: Entry | None


@final
@dataclass(frozen=True, kw_only=True)
class PATE:
    """Many teachers, one student, for targets of any shape.

    - `teachers`, `student`: a `Learner`, a scikit-learn regressor, a torch module, or a function
      `train(inputs, targets, seed)` that returns a predictor;
    - `reducer`: fitted on public targets, with noise from `unit_noise`;
    - `epsilon`, `delta`: the budget, all of it spent on the public inputs given to `fit`;
    - `backend`, `workers`: joblib's ("loky", "threading", "ray", "dask"), for teachers;
    - `sites`: names of the shards; None numbers them.

    **Guarantee** that of `Aggregator`: replace-one, per teacher shard.

    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from privet.methods.pate import IdentityReducer, UnitBox
    >>> from privet.noise import seeded
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(size=(400, 1)); y = np.hstack([x, 1 - x])
    >>> shards = [(x[i::20], y[i::20]) for i in range(20)]
    >>> pate = PATE(teachers=DecisionTreeRegressor(max_depth=3),
    ...             student=DecisionTreeRegressor(max_depth=2),
    ...             reducer=IdentityReducer(shape=(2,), space=UnitBox()),
    ...             epsilon=8.0, delta=1e-5)
    >>> release = pate.fit(shards, np.linspace(0, 1, 10)[:, None], rng=seeded(0))
    >>> print(release.guarantee)
    (8, 1e-05)-DP per teacher shard, replace-one, proved, if 2 assumed premises hold; EXPERIMENT...
    >>> release.model.labels.shape
    (10, 2)
    """

    teachers: Any
    reducer: Reducer
    student: Any
    epsilon: float
    delta: float
    ledger: Ledger | None = None
    backend: str = "loky"
    workers: int = 1
    seed: int = 0
    """Of the learners: teacher k is trained with seed + k. It has nothing to do with noise."""
    sites: Sequence[str] | None = None
    watcher: Callable[[int, int], None] | None = field(default=None, repr=False)
    """Called with how many teachers have answered, and of how many (not by Ray)."""

    def __post_init__(self) -> None:
        _check.positive("epsilon", self.epsilon)
        _check.open_unit("delta", self.delta)

    def plan(self, *, teachers: int, queries: int, inputs_hash: str = "") -> CodeAggregation:
        """The aggregation, from public facts alone."""
        return CodeAggregation.for_budget(
            reducer=self.reducer, teachers=teachers, queries=queries, epsilon=self.epsilon,
            delta=self.delta, inputs_hash=inputs_hash,
        )  # fmt: skip

    def fit(
        self, shards: Sequence[Shard], public_inputs: Any, *, rng: Source | None = None
    ) -> PATEResult:
        """Train teachers on (inputs, targets) shards, ask them, aggregate, train the student.

        `rng`: the noise; None draws from `privet.noise.secure()`.
        """
        sites = self._sites(len(shards))
        student, noisy = run_pipeline(
            shards,
            public_inputs,
            teacher=as_learner(self.teachers),
            aggregation=self.plan(
                teachers=len(sites),
                queries=len(public_inputs),
                inputs_hash=hash_inputs(public_inputs),
            ),
            train_student=self._train_student,
            rng=secure() if rng is None else rng,
            delta=self.delta,
            ledger=self.ledger,
            sites=sites,
            seed=self.seed,
            backend=self.backend,
            n_workers=self.workers,
            watcher=self.watcher,
        )
        return PATEResult(model=student, guarantee=noisy.guarantee, entry=noisy.entry)

    def aggregate(self, answers: Sequence[Answers], *, rng: Source) -> NoisyAnswers:
        """Release the noisy mean of answers that came from elsewhere, charged first."""
        plan = self.plan(teachers=len(answers), queries=answers[0].header.rows)
        return plan.average(answers, rng=rng, delta=self.delta, ledger=self.ledger)

    def _train_student(self, public_inputs: Any, noisy: NoisyLabels) -> Student:
        predict = as_learner(self.student).train(public_inputs, noisy.labels, seed=self.seed)
        assert noisy.codes is not None
        return Student(predict=predict, labels=noisy.labels, codes=noisy.codes, noise=noisy.noise)

    def _sites(self, count: int) -> list[str]:
        if count == 0:
            raise InvalidArgument("shards", count, "at least one (inputs, targets) pair")
        if self.sites is None:
            return [f"site-{k}" for k in range(count)]
        if len(self.sites) != count or len(set(self.sites)) != count:
            raise InvalidArgument("sites", list(self.sites), f"{count} different names")
        return list(self.sites)
