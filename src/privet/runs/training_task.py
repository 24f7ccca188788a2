"""From a data set to a trained model and how good it is: features, records, plan, measures."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from privet import _check, premises
from privet.data.dataset import FIXED_SPLIT, TRAINED_ON, Dataset
from privet.data.domain import Domain
from privet.data.records import Records, silence_diagnostics
from privet.errors import InvalidArgument
from privet.features import Features
from privet.features.combined_extractors import FeaturesWithProgress
from privet.guarantee import Adjacency, Standing
from privet.ledger import Ledger
from privet.methods.contract import InputFeatures, Method, Plan
from privet.methods.train_method import TrainingResult, make_plan, train
from privet.noise.source import source_of
from privet.report.metrics import measure_outputs, summarise_metrics
from privet.runs.class_weights import class_offsets, class_shares, decision_weights
from privet.runs.released_metrics import MetricsRelease, answers_alone, check_unit

MANY, FEW = 1000, 500
"""More features than the first are projected to the second where their square is released."""


def domain_of(
    dataset: Dataset, front: InputFeatures, *, features: str, cache: bool = False
) -> Domain:
    """What is declared about a data set's records, with the public features that were asked for."""
    extractor = public_features(dataset.shape, front, features)
    if extractor is not None and cache:
        from privet.features import CachedFeatures

        extractor = CachedFeatures(extractor)
    return Domain(shape=dataset.shape, bounds=(dataset.low, dataset.high), features=extractor)


def public_features(shape: tuple[int, ...], front: InputFeatures, name: str) -> Features | None:
    """The public extractor of this name for a method that takes such a front; None for rows."""
    from privet.features import RandomProjection, features_by_name

    extractor = features_by_name(name, shape)
    if extractor is None or front is InputFeatures.NONE:
        return None
    if front is InputFeatures.FEW and extractor.n_features > MANY:
        return extractor.then(RandomProjection(n_inputs=extractor.n_features, n_features=FEW))
    return extractor


def records_of(
    dataset: Dataset,
    domain: Domain,
    *,
    n_public: int | None = None,
    public: int = 0,
    prior: tuple[float, ...] | None = None,
) -> Records:
    """The training records, without the last `public` ones, whose inputs are asked about."""
    end = len(dataset.x_train) - public
    x, y = dataset.x_train[:end], dataset.y_train[:end]
    facts: dict[str, Any] = {
        "domain": domain,
        "n_public": n_public,
        "groups": None if dataset.groups is None else dataset.groups[:end],
        "column": dataset.user or "groups",
        "split": dataset.split_assumes,
    }
    if dataset.target_bounds is not None:
        return Records.with_numbers(x, y, target_bounds=dataset.target_bounds, **facts)
    return Records.with_classes(x, y, classes=np.arange(len(dataset.classes)), prior=prior, **facts)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A method and the data that it will be trained on; make one with `task_of`."""

    method: Any
    dataset: Dataset
    domain: Domain
    public: int
    """How many of the last training inputs are public questions."""
    weights: dict[str, float] | None
    """What missing a class costs, as declared."""
    prior: tuple[float, ...] | None
    """The declared share of each class, where classes are to be served alike."""

    @property
    def numbers(self) -> int:
        """How many numbers the training rows hold."""
        return len(self.dataset.x_train) * math.prod(self.domain.row_shape)

    def records_without_features(self, *, n_public: int | None) -> Records:
        """The training records without their features, which may take minutes: for a plan."""
        return records_of(
            self.dataset, self.domain.with_zero_features(), n_public=n_public, public=self.public,
            prior=self.prior,
        )  # fmt: skip

    def records(self, *, n_public: int | None, progress: Any) -> Records:
        """The same with features; `progress` is called with how many are made."""
        domain = self.domain
        if domain.features is not None and progress is not None:
            domain = replace(domain, features=FeaturesWithProgress(domain.features, progress))
        with silence_diagnostics():
            return records_of(
                self.dataset, domain, n_public=n_public, public=self.public, prior=self.prior
            )

    def plan(self, records: Records, *, epsilon: float, delta: float, allow_vacuous: bool) -> Plan:
        """Plan the training; that a replaced record keeps its side of the split is a premise."""
        split_stated = any(p.about == "split" for p in records.premises)
        split = TRAINED_ON if self.dataset.drops_unlabelled else FIXED_SPLIT
        return make_plan(
            self.method, records.facts(epsilon=epsilon, delta=delta), allow_vacuous=allow_vacuous,
            replace_one_premises=() if split_stated else (premises.split(split),),
            hint="--anyway trains all the same",
        )  # fmt: skip

    def train(self, records: Records, plan: Plan, **how: Any) -> TrainingResult:
        """Train as planned; see `methods.train_method.train`."""
        return train(self.method, records, plan, **how)

    def decision_weights(self, plan: Plan) -> dict[str, float] | None:
        """By what the model's probabilities are multiplied for a decision."""
        served = plan.serves_classes_alike
        return decision_weights(self.weights, self.prior, self.dataset.classes, served=served)

    def metrics_release(self, epsilon: float, *, ledger: Ledger | None) -> MetricsRelease:
        """What a release of test results would be; refused where people have several records."""
        found = self.dataset
        check_unit(ledger, found.user)
        if found.y_test.ndim > 1:
            raise InvalidArgument("--release-metrics", "given", "left out for maps of classes")
        outputs = len(found.classes) if found.target_bounds is None else 1
        replaces = ledger is not None and ledger.adjacency is Adjacency.REPLACE_ONE
        return MetricsRelease(outputs=outputs, epsilon=epsilon, replace_one=replaces)

    def release_metrics(
        self, paid: MetricsRelease, trained: TrainingResult, *, ledger: Ledger, rng: Any
    ) -> dict[str, Any]:
        """Test results with noise, charged to the ledger."""
        found, source = self.dataset, source_of(rng)
        outputs = answers_alone(trained.model, self.domain.rows(found.x_test))
        offsets = class_offsets(self.decision_weights(trained.plan), found.classes)
        return paid.release(
            outputs if offsets is None else outputs + offsets, found.y_test,
            classes=found.classes, target_bounds=found.target_bounds, ledger=ledger,
            rng=source.child("test metrics"),
        )  # fmt: skip

    def measure(self, trained: TrainingResult) -> dict[str, Any]:
        """How good the model is on the test records: exact, not private."""
        found = self.dataset
        outputs = trained.model.outputs(self.domain.rows(found.x_test))
        offsets = class_offsets(self.decision_weights(trained.plan), found.classes)
        if offsets is not None:
            outputs = outputs + offsets
        return measure_outputs(
            outputs, found.y_test, classes=found.classes, target_bounds=found.target_bounds
        )

    def summary(self, trained: TrainingResult, metrics: dict[str, Any]) -> str:
        """The measures and the guarantee of the trained model, in a line."""
        claim = trained.claim
        is_claim = claim is not None and claim.standing is Standing.CLAIMED
        return (
            f"{summarise_metrics(metrics)}, {trained.guarantee}{f'; {claim}' if is_claim else ''}"
        )


def task_of(
    method: Any,
    dataset: Dataset,
    *,
    features: str,
    cache: bool,
    public: int | None,
    own: bool,
    class_weight: Any,
    class_prior: Any = None,
) -> Task:
    """Make the task, or refuse it where it cannot be done; only public facts are looked at."""
    class_offsets(class_weight, dataset.classes)  # refused now where they are wrong
    prior = class_shares(class_prior, dataset.classes)
    domain = domain_of(dataset, method.input_features, features=features, cache=cache)
    asked = 0
    if method.public_inputs_field is not None or public is not None:
        asked, questions = _questions(type(method), dataset, public, own=own)
        method = replace(method, **questions).for_domain(domain)
    return Task(
        method=method, dataset=dataset, domain=domain, public=asked, weights=class_weight,
        prior=prior,
    )  # fmt: skip


def _questions(
    kind: type[Method[Any]], found: Dataset, public: int | None, *, own: bool
) -> tuple[int, dict[str, Any]]:
    """How many of the last training inputs are public, and these inputs as settings.

    Those of a benchmark that everybody has are public anyhow; those of a file of the user's own
    only where the user says so.
    """
    if kind.public_inputs_field is None:
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
    labels = (
        {}
        if kind.public_labels_field is None
        else {kind.public_labels_field: found.y_train[n - asked :]}
    )
    return asked, {kind.public_inputs_field: found.x_train[n - asked :], **labels}
