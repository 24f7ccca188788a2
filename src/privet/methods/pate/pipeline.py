"""PATE in one call: teachers on shards, clipped codes, noise, a student."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.data.records import PublicFacts
from privet.errors import InvalidArgument
from privet.guarantee import Guarantee
from privet.ledger import Entry, Ledger, fingerprint
from privet.methods.pate.aggregate import Aggregator, NoisyAnswers
from privet.methods.pate.answers import Answers
from privet.methods.pate.asking import ask_teachers
from privet.methods.pate.learners import Predictor, as_learner
from privet.methods.pate.reducers import Reducer
from privet.noise import Source, secure

Array = NDArray[Any]


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
class Taught:
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
    (8, 1e-05)-DP per teacher shard, replace-one, proved; EXPERIMENT, NOT A RELEASE
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

    def plan(self, *, teachers: int, queries: int) -> Aggregator:
        """The aggregation, from public facts alone."""
        return least_noise(self, (teachers, queries), self.reducer)

    def fit(
        self, shards: Sequence[tuple[Any, Any]], public_inputs: Any, *, rng: Source | None = None
    ) -> Taught:
        """Train teachers on (inputs, targets) shards, ask them, aggregate, train the student.

        `rng`: the noise; None draws from `privet.noise.secure()`.
        """
        rng = secure() if rng is None else rng
        answers = self.answers(shards, public_inputs)
        noisy = self.aggregate(answers, rng=rng)
        student = self.taught(public_inputs, noisy)
        return Taught(model=student, guarantee=noisy.guarantee, entry=noisy.entry)

    def answers(self, shards: Sequence[tuple[Any, Any]], public_inputs: Any) -> list[Answers]:
        """What each teacher says about the public inputs, clipped: *private* until aggregated."""
        return ask_teachers(
            as_learner(self.teachers),
            shards,
            public_inputs,
            partial(
                clipped_answers,
                reducer=self.reducer,
                queries=inputs_name(public_inputs),
                expected=len(public_inputs),
            ),
            sites=self._sites(len(shards)),
            seed=self.seed,
            backend=self.backend,
            n_workers=self.workers,
            watcher=self.watcher,
        )

    def aggregate(self, answers: Sequence[Answers], *, rng: Source) -> NoisyAnswers:
        """Noise, charged first."""
        aggregator = self.plan(teachers=len(answers), queries=answers[0].header.rows)
        return aggregator.release(
            answers, rng=rng, delta=self.delta, ledger=self.ledger, reducer=self.reducer.name
        )

    def taught(self, public_inputs: Any, noisy: NoisyAnswers) -> Student:
        """The student: post-processing."""
        labels = self.reducer.decode(noisy.codes, noise=noisy.noise)
        predict = as_learner(self.student).train(public_inputs, labels, seed=self.seed)
        return Student(predict=predict, labels=labels, codes=noisy.codes, noise=noisy.noise)

    def _sites(self, count: int) -> list[str]:
        if self.sites is None:
            return [f"site-{k}" for k in range(count)]
        if len(self.sites) != count or len(set(self.sites)) != count:
            raise InvalidArgument("sites", list(self.sites), f"{count} different names")
        return list(self.sites)


def least_noise(budget: PATE | PublicFacts, counted: tuple[int, int], of: Reducer) -> Aggregator:
    """The aggregator of so many teachers and queries for the codes of a reducer."""
    teachers, queries = counted
    return Aggregator.for_budget(
        teachers=teachers,
        queries=queries,
        epsilon=budget.epsilon,
        delta=budget.delta,
        radius=of.radius,
        dimension=of.dimension,
    )


def clipped_answers(
    site: str, predictions: Any, *, reducer: Reducer, queries: str, expected: int
) -> Answers:
    """What a site sends of its teacher's predictions."""
    codes = reducer.encode(np.asarray(predictions))
    if len(codes) != expected:
        raise InvalidArgument("answers", len(codes), f"one for each of {expected} inputs")
    return Answers.clipped(
        codes, radius=reducer.radius, site=site, reducer=reducer.name, queries=queries
    )


def inputs_name(public_inputs: Any) -> str:
    """A hash of the public inputs in their order: of an array, or of a list of arrays or names."""
    if isinstance(public_inputs, np.ndarray) and not public_inputs.dtype.hasobject:
        return fingerprint(public_inputs)
    return fingerprint(
        *(str(x).encode() if isinstance(x, str | Path) else np.asarray(x) for x in public_inputs)
    )
