"""From a data set to a trained model and how good it is: features, records, plan, measures."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet.data.dataset import FIXED_SPLIT, Dataset
from privet.data.records import Records, told_before
from privet.data.rows import Domain
from privet.errors import InvalidArgument
from privet.guarantee import Standing
from privet.methods.contract import Front, Method, Plan
from privet.methods.promise import Trained, planned, train
from privet.nets.features import Features
from privet.nets.features.base import Watched
from privet.report.measures import in_words, measures_of
from privet.runs.weights import class_offsets

MANY, FEW = 1000, 500
"""More features than the first are projected to the second where their square is released."""
FRONTS = ("auto", "plain", "scattering", "strokes")


def domain_of(dataset: Dataset, front: Front, *, features: str, cache: bool = False) -> Domain:
    """What is declared about a data set's records, with the public features that were asked for."""
    extractor = None if front is Front.PLAIN else extractor_of(dataset, features)
    if extractor is not None and front is Front.FEW and extractor.n_features > MANY:
        from privet.nets.features import RandomProjection

        fewer = RandomProjection(n_inputs=extractor.n_features, n_features=FEW)
        extractor = extractor.then(fewer)
    if extractor is not None and cache:
        from privet.nets.features import Cached

        extractor = Cached(extractor)
    return Domain(
        shape=dataset.x_train.shape[1:], bounds=(dataset.low, dataset.high), features=extractor
    )


def extractor_of(dataset: Dataset, features: str) -> Features | None:
    """A public extractor by its name; None for plain rows."""
    from privet.nets.features import handwriting, pictures

    if features not in FRONTS:
        raise InvalidArgument("--features", features, f"one of {', '.join(FRONTS)}")
    shape = dataset.x_train.shape[1:]
    drawn = len(shape) >= 2
    if features == "auto":
        large = drawn and min(shape[:2]) >= 16
        features = "scattering" if large else "plain"
    if features == "plain":
        return None
    if not drawn:
        raise InvalidArgument("--features", features, "plain for data that are not pictures")
    if features == "strokes" and shape != (28, 28):
        raise InvalidArgument("--features", features, "for pictures of 28x28 grey pixels")
    return handwriting() if features == "strokes" else pictures(shape)


def records_of(
    dataset: Dataset, domain: Domain, *, n_public: int | None = None, public: int = 0
) -> Records:
    """The training records, without the last `public` ones, whose inputs are asked about."""
    end = len(dataset.x_train) - public
    x, y = dataset.x_train[:end], dataset.y_train[:end]
    told: dict[str, Any] = {
        "domain": domain,
        "n_public": n_public,
        "groups": None if dataset.groups is None else dataset.groups[:end],
        "column": dataset.user or "groups",
        "split": dataset.split_assumes,
    }
    if dataset.target_bounds is not None:
        return Records.measured(x, y, target_bounds=dataset.target_bounds, **told)
    return Records.classified(x, y, classes=np.arange(len(dataset.classes)), **told)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A method and the data that it will be trained on; make one with `task_of`."""

    method: Any
    dataset: Dataset
    domain: Domain
    public: int
    """How many of the last training inputs are public questions."""
    offsets: NDArray[np.float64] | None
    """What class weights add to logits."""

    @property
    def numbers(self) -> int:
        """How many numbers the training rows hold."""
        return len(self.dataset.x_train) * math.prod(self.domain.row_shape)

    def unmade(self, *, n_public: int | None) -> Records:
        """What is trained on before features are made of it, which may take minutes: for a plan."""
        return records_of(self.dataset, self.domain.unmade(), n_public=n_public, public=self.public)

    def records(self, *, n_public: int | None, progress: Any) -> Records:
        """The same with features; `progress` is told how many are made."""
        domain = self.domain
        if domain.features is not None and progress is not None:
            domain = replace(domain, features=Watched(domain.features, progress))
        with told_before():
            return records_of(self.dataset, domain, n_public=n_public, public=self.public)

    def plan(self, records: Records, *, epsilon: float, delta: float, anyway: bool) -> Plan:
        """What will be done; a record that is replaced may change sides: a premise then."""
        told = any(p.about == "split" for p in records.premises)
        return planned(
            self.method, records.facts(epsilon=epsilon, delta=delta), anyway=anyway,
            replaced=() if told else (premises.split(FIXED_SPLIT),),
            hint="--anyway trains all the same",
        )  # fmt: skip

    def train(self, records: Records, plan: Plan, **how: Any) -> Trained:
        """Train as planned; see `promise.train`."""
        return train(self.method, records, plan, **how)

    def measure(self, trained: Trained) -> dict[str, Any]:
        """How good the model is on the test records: exact, not private."""
        found = self.dataset
        outputs = trained.model.outputs(self.domain.rows(found.x_test))
        if self.offsets is not None:
            outputs = outputs + self.offsets
        return measures_of(
            outputs, found.y_test, classes=found.classes, target_bounds=found.target_bounds
        )

    def told(self, trained: Trained, metrics: dict[str, Any]) -> str:
        """What came out, in a line."""
        claim = trained.claim
        is_claim = claim is not None and claim.standing is Standing.CLAIMED
        return f"{in_words(metrics)}, {trained.guarantee}{f'; {claim}' if is_claim else ''}"


def task_of(
    method: Any,
    dataset: Dataset,
    *,
    features: str,
    cache: bool,
    public: int | None,
    own: bool,
    class_weight: Any,
) -> Task:
    """What is to be done, refused where it cannot be; nothing but public facts is looked at."""
    offsets = None if class_weight is None else class_offsets(class_weight, dataset.classes)
    domain = domain_of(dataset, method.front, features=features, cache=cache)
    asked = 0
    if method.questions is not None or public is not None:
        asked, questions = _questions(type(method), dataset, public, own=own)
        method = replace(method, **questions).for_domain(domain)
    return Task(method=method, dataset=dataset, domain=domain, public=asked, offsets=offsets)


def _questions(
    kind: type[Method[Any]], found: Dataset, public: int | None, *, own: bool
) -> tuple[int, dict[str, Any]]:
    """How many of the last training inputs are public questions, and they themselves.

    Those of a benchmark that everybody has are public anyhow; those of a file of the user's own
    only where the user says so.
    """
    if kind.questions is None:
        if public is not None:
            raise InvalidArgument("--public", public, f"left out: {kind.name} asks no questions")
        return 0, {}
    n = len(found.x_train)
    if public is None and own:
        raise InvalidArgument(
            "--public", None, "how many of the last training inputs are public",
            "the student learns from inputs that depend on no private record",
        )  # fmt: skip
    asked = max(100, min(1000, n // 10)) if public is None else _check.count("--public", public)
    if asked + 2 > n:
        raise InvalidArgument("--public", asked, f"fewer than the {n} training records")
    labels = {} if kind.known is None else {kind.known: found.y_train[n - asked :]}
    return asked, {kind.questions: found.x_train[n - asked :], **labels}
