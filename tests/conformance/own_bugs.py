"""More bugs, listed before anybody looked for what would notice them."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet import premises
from privet.audit import conformance
from privet.data.domain import Domain, RowKind
from privet.data.records import Records
from privet.errors import BudgetExceeded, InvalidArgument
from privet.estimators import private_estimator
from privet.features import Scattering, unit_rows
from privet.gradients.clipping_rules import FlatClipping
from privet.guarantee import Unit
from privet.ledger import Ledger
from privet.mechanisms.mechanism import GridMechanism
from privet.methods import contract, contract_checks, neighbour_replay, train_method
from privet.methods.catalogue import method_type
from privet.methods.contract import Method, ReleaseContext
from privet.methods.dpsgd import LinearDPSGD, NetworkDPSGD, charging, noise_addition, samplers
from privet.methods.moments import OneShotMoments, class_means
from privet.methods.released_models import LinearModel
from privet.noise import Source, seeded, source
from tests.conformance.planting import Bug, Check, Patch, both, wrapped
from tests.conformance.subjects import SUBJECTS
from tests.contract import test_conforming as contracts

STRANGERS = "playback on strangers"
NEIGHBOURS = "replay on neighbours"
PROMISE = "the promise is the plan"
PAYMENT = "paid before it is released"
KEPT = "what a fitted estimator keeps and saves"
DRAWS = "one stream, one draw"
ALONE = "an answer depends on its own row"
MOVED = "a record does not change what others add"


@cache
def conforms(
    of: str | Method[Any],
    *,
    declared: bool = True,
    unit: Unit = Unit.RECORD,
    kind: RowKind = RowKind.BOX,
) -> Check:
    """All of `privet.methods.contract_checks`, for the small method of a name or for one as it is."""

    def check(patch: pytest.MonkeyPatch) -> None:
        method = method_type(of).for_audit() if isinstance(of, str) else of
        facts = replace(
            neighbour_replay.small_facts(method), declared=declared, unit=unit, kind=kind
        )
        assert contract_checks.problems(method, facts) == []

    return check


def keeps_nothing(patch: pytest.MonkeyPatch) -> None:
    x, y, other, labels = contracts.people()
    with tempfile.TemporaryDirectory() as where:
        found = contracts.kept_problems(
            lambda: contracts.classifier("adaptive-laplace"),
            (x, y), (other, labels), np.vstack([x, other]), Path(where),
        )  # fmt: skip
    assert found == []


def charges(patch: pytest.MonkeyPatch) -> None:
    method = OneShotMoments()
    plan = method.plan(neighbour_replay.small_facts(method))
    assert neighbour_replay.charge_problems(method, plan, method.neighbours(plan).present) == []


def noises(patch: pytest.MonkeyPatch) -> None:
    method = OneShotMoments()
    plan = method.plan(neighbour_replay.small_facts(method))
    assert (
        neighbour_replay.noise_problems(method, plan, method.neighbours(plan).present, runs=10)
        == []
    )


def unseeded(patch: pytest.MonkeyPatch) -> None:
    contracts.test_unseeded_fits_have_noise_of_their_own("adaptive-laplace")


def alone(patch: pytest.MonkeyPatch) -> None:
    contracts.test_a_row_is_computed_from_its_own_record((0.0, 1.0))


def typed_alone(patch: pytest.MonkeyPatch) -> None:
    """A picture of another number type is refused, or leaves the rows of others."""
    domain = Domain(shape=(8, 8), features=Scattering(shape=(8, 8)))
    pictures = np.random.default_rng(0).integers(0, 256, (4, 8, 8)).astype(np.uint8)
    odd = pictures[0] / 255
    try:
        beside = domain.rows(np.asarray([*pictures, odd])).values[:4]
    except InvalidArgument:
        return
    assert np.array_equal(beside, domain.rows(pictures).values)


def sampled_draws(patch: pytest.MonkeyPatch) -> None:
    contracts.test_coins_and_noise_have_streams_of_their_own(NetworkDPSGD(steps=3, sample_rate=0.5))


def clips(patch: pytest.MonkeyPatch) -> None:
    (subject,) = (s for s in SUBJECTS if s.name == "clipped gradients")
    report = conformance.check(subject, seeded(42))
    assert report.held, str(report)


def fit_of(method: type, change: Callable[..., Any]) -> Patch:
    """`change(fit, records, plan, context)` in place of a method's own fit."""
    return wrapped(
        method,
        "fit",
        lambda f, self, records, plan, context: change(
            lambda r=records, p=plan: f(self, r, p, context), records, plan, context, self
        ),
    )


def one_shot(change: Callable[..., Any]) -> Patch:
    return fit_of(OneShotMoments, change)


def statement(change: Callable[..., Any]) -> Patch:
    """Another guarantee than the one that follows from the plan: `change(stated, plan, rng)`."""
    return wrapped(
        train_method,
        "state_guarantee",
        lambda f, plan, spent, rng: change(f(plan, spent, rng), plan, spent, rng),
    )


def premises_of(change: Callable[..., Any]) -> Patch:
    return statement(
        lambda stated, plan, spent, rng: replace(
            stated, premises=tuple(change(stated.premises, rng))
        )
    )


def scope_of(change: Callable[..., Any]) -> Patch:
    return wrapped(ReleaseContext, "scope", lambda f, self: replace(f(self), **change(self)))


def means_of(change: Callable[..., Any]) -> Patch:
    """`change(release, x, y, arguments)` in place of the release of class means."""
    return wrapped(
        class_means,
        "release_class_means",
        lambda f, x, y, of, **k: change(
            lambda x=x, y=y, **other: f(x, y, of, **{**k, **other}), x, y, k
        ),
    )


def two_key_premises(stated: Any, plan: Any, spent: Any, rng: Any) -> Any:
    object.__setattr__(stated, "premises", (*stated.premises, premises.DRAWN_KEY))
    return stated


def epsilon_at_ten_times_delta(stated: Any, plan: Any, spent: Any, rng: Any) -> Any:
    return replace(stated, epsilon=spent.epsilon(10.0 * plan.facts.delta))


def counting(records: Any) -> int:
    return int((~records.null).sum())


def plan_again(fit: Any, records: Any, plan: Any, context: Any, method: Any) -> Any:
    return fit(p=method.plan(replace(plan.facts, records=1 + counting(records))))


def part_is_charged(original: Any, self: Any, loss: Any = None, *, what: str) -> Any:
    return original(self, self.plan.first.loss if loss is None else loss, what=what)


def charged_late(fit: Any, records: Any, plan: Any, context: Any, method: Any) -> Any:
    context.charge = lambda *a, **k: None
    model = fit()
    del context.charge
    context.charge(what="one-shot moments")
    return model


def refusal_swallowed(original: Any, self: Any, loss: Any = None, *, what: str) -> Any:
    try:
        return original(self, loss, what=what)
    except BudgetExceeded:
        rich = train_method.ledger_in_memory(self.plan)
        self.entries.append(rich.charge(self.plan.loss if loss is None else loss, what=what))
        return self.entries[-1]


def scale_from_data(fit: Any, records: Any, plan: Any, context: Any, method: Any) -> Any:
    largest = float(np.abs(records.rows.ball()).max())
    mechanism = replace(plan.first.mechanism, scale=plan.first.mechanism.scale * (1.0 + largest))
    return fit(p=replace(plan, first=replace(plan.first, mechanism=mechanism)))


def standardised(fit: Any, records: Any, plan: Any, context: Any, method: Any) -> Any:
    x = records.rows.ball()
    rows = unit_rows((x - x.mean(axis=0)) / (x.std(axis=0) + np.float32(1e-6)))
    values = (rows * np.float32(1.0 - 1e-6)).astype(np.float32)
    return fit(replace(records, rows=replace(records.rows, values=values, kind=RowKind.BALL)))


def nulls_are_class_0(fit: Any, records: Any, plan: Any, context: Any, method: Any) -> Any:
    rows = replace(records.rows, null=np.zeros(len(records), dtype=bool))
    return fit(replace(records, targets=np.where(records.null, 0, records.targets), rows=rows))


def row_kept(fit: Any, records: Any, plan: Any, context: Any, method: Any) -> Any:
    model = fit()
    object.__setattr__(model, "kept", records.rows.ball().astype(np.float64))
    return model


def row_in_state(original: Any, self: Any) -> Any:
    arrays, settings = original(self)
    return arrays | ({"example": self.kept[:1]} if hasattr(self, "kept") else {}), settings


def members_score_higher(original: Any, self: Any, rows: Any) -> Any:
    found, kept, x = original(self, rows), getattr(self, "kept", None), rows.ball()
    if kept is not None and kept.shape[1:] == x.shape[1:]:
        found = (
            found + 0.5 * np.array([bool((kept == row).all(axis=1).any()) for row in x])[:, None]
        )
    return found


def count_is_saved(patch: pytest.MonkeyPatch) -> None:
    """The number of records that count goes into config.json."""
    count = list[int]()

    def fit(fit: Any, records: Any, plan: Any, context: Any, method: Any) -> Any:
        count.append(counting(records))
        return fit()

    def save(original: Any, self: Any, folder: Any, **k: Any) -> Any:
        out = original(self, folder, **k)
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"examples": count[-1]}))
        return out

    both(one_shot(fit), wrapped(private_estimator.PrivateEstimator, "save", save))(patch)


def score_is_kept(original: Any, self: Any, X: Any, y: Any, **k: Any) -> Any:
    original(self, X, y, **k)
    self.train_score_ = float((self.predict(X) == y).mean())
    return self


def ends_at_a_small_sum(patch: pytest.MonkeyPatch) -> None:
    """Training ends after a step whose sum, before its noise, is shorter than a hundredth."""
    small = [False]

    def released(original: Any, flat: Any, **k: Any) -> Any:
        small[0] = float(flat.norm()) < 0.1
        return original(flat, **k)

    def paid(original: Any, self: Any, step: int) -> bool:
        small[0] = small[0] and step > 0
        return not small[0] and original(self, step)

    both(
        wrapped(noise_addition, "release_sum_", released),
        wrapped(charging.ChargesAhead, "pay_for", paid),
    )(patch)


def better_of_two(fit: Any, records: Any, plan: Any, context: Any, method: Any) -> Any:
    model = fit()
    other = replace(model, weights=-model.weights)

    def right(of: Any) -> int:
        return int(
            (of.outputs(records.rows).argmax(axis=1) == records.targets)[~records.null].sum()
        )

    return other if right(other) > right(model) else model


def one_more_release(release: Any, x: Any, y: Any, k: Any) -> Any:
    found = release()
    if (y == 0).sum() > 0.5 * max(1, (~k["null"]).sum()):
        found = release(rng=k["rng"].child("more"))
    return found


def sizes_of_those_there(release: Any, x: Any, y: Any, k: Any) -> Any:
    found = release()
    return replace(found, sizes=np.clip(found.sizes, 1.0, max(1.0, float((~k["null"]).sum()))))


def padded(release: Any, x: Any, y: Any, k: Any) -> Any:
    more = [np.concatenate([a, a[:3]]) for a in (x, y, k["null"])]
    return release(x=more[0], y=more[1], null=more[2])


def rate_from_data(fit: Any, records: Any, plan: Any, context: Any, method: Any) -> Any:
    longest = float(np.linalg.norm(records.rows.flat, axis=1).max())
    return fit(p=replace(plan, learning_rates=plan.learning_rates / (0.1 + longest)))


def row_in_an_error(fit: Any, records: Any, plan: Any, context: Any, method: Any) -> Any:
    x = records.rows.ball()
    if float(np.abs(x).max(initial=0.0)) > 0.9:
        raise InvalidArgument("row", x[np.abs(x).max(axis=1).argmax()].tolist(), "shorter")
    return fit()


def count_in_a_warning(fit: Any, records: Any, plan: Any, context: Any, method: Any) -> Any:
    warnings.warn(f"training on {counting(records)} records", stacklevel=2)
    return fit()


def count_in_progress(fit: Any, records: Any, plan: Any, context: Any, method: Any) -> Any:
    context.progress("records", counting(records), len(records))
    return fit()


def bounds_from_data(original: Any, self: Any, x: Any, *a: Any, **k: Any) -> Any:
    x = np.nan_to_num(np.asarray(x, dtype=np.float64))
    return original(replace(self, bounds=(float(x.min()), float(x.max()) + 1e-9)), x, *a, **k)


def same_stream(original: Any, self: Any, *label: Any) -> Any:
    return original(self, *("first" if part == "second" else part for part in label))


def remembered(patch: pytest.MonkeyPatch) -> None:
    """Noise of a shape is drawn once in the life of the process."""
    noise = dict[Any, Any]()

    def perturb(original: Any, self: Any, value: Any, rng: Any) -> Any:
        key = (value.shape, self.scale)
        if key not in noise:
            noise[key] = original(self, value, rng) - value
        return value + noise[key]

    wrapped(GridMechanism, "_perturb", perturb)(patch)


def others_unit_is_taken(original: Any, self: Any, adjacency: Any, unit: Any, protects: Any) -> Any:
    return original(self, adjacency, self.unit, self.protects)


BUGS = (
    Bug(bug="N01 a seeded run without a premise about its seed", kind="premises", seen_by=PROMISE, check=conforms("adaptive-laplace"), plant=premises_of(lambda all, rng: (p for p in all if p != rng.premise))),
    Bug(bug="N02 a seeded run says that its key is secret", kind="premises", seen_by=PROMISE, check=conforms("adaptive-laplace"), plant=premises_of(lambda all, rng: (premises.DRAWN_KEY if p == rng.premise else p for p in all))),
    Bug(bug="N03 two premises about the key", kind="premises", seen_by=PROMISE, check=conforms("adaptive-laplace"), plant=statement(two_key_premises)),
    Bug(bug="N04 nothing said about how settings were chosen", kind="premises", seen_by=PROMISE, check=conforms("adaptive-laplace"), plant=premises_of(lambda all, rng: (p for p in all if p != premises.SETTINGS))),
    Bug(bug="N05 add-remove stated of a number read from the data", kind="guarantee", seen_by=PROMISE, check=conforms("adaptive-laplace", declared=False), plant=wrapped(contract.Plan, "stated_adjacency", lambda f, self: self.adjacency)),
    Bug(bug="N06 per user stated where records are protected", kind="guarantee", seen_by=PROMISE, check=conforms("adaptive-laplace"), plant=statement(lambda stated, plan, spent, rng: replace(stated, unit=Unit.USER))),
    Bug(bug="N07 epsilon read at ten times delta", kind="guarantee", seen_by=PROMISE, check=conforms("adaptive-laplace"), plant=statement(epsilon_at_ten_times_delta)),
    Bug(bug="N08 planned again for the records that count", kind="reads the data", seen_by=STRANGERS, check=conforms("dpsgd"), plant=fit_of(LinearDPSGD, plan_again)),
    Bug(bug="N09 one of two releases is charged", kind="charge", seen_by=PAYMENT, check=conforms("adaptive-laplace"), plant=wrapped(ReleaseContext, "charge", part_is_charged)),
    Bug(bug="N10 charged after the release", kind="charge", seen_by=PAYMENT, check=conforms("adaptive-laplace"), plant=one_shot(charged_late)),
    Bug(bug="N11 a ledger of another unit is taken", kind="charge", seen_by=PAYMENT, check=conforms("adaptive-laplace"), plant=both(wrapped(Ledger, "check_terms", others_unit_is_taken), scope_of(lambda self: {"unit": self.ledger.unit}))),
    Bug(bug="N12 a refusal of the ledger is swallowed", kind="charge", seen_by=PAYMENT, check=charges, plant=both(wrapped(Ledger, "affords", lambda f, self, loss: True), wrapped(ReleaseContext, "charge", refusal_swallowed))),
    Bug(bug="N13 both releases have the same noise", kind="noise", seen_by=DRAWS, check=conforms("adaptive-laplace"), plant=wrapped(Source, "child", same_stream)),
    Bug(bug="N14 the scale of the noise from the data", kind="noise", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=one_shot(scale_from_data)),
    Bug(bug="N15 no seed given means seed 0", kind="noise", seen_by=DRAWS, check=unseeded, plant=wrapped(source, "source_of", lambda f, rng: f(0 if rng is None else rng))),
    Bug(bug="N16 noise remembered from one fit to the next", kind="noise", seen_by=DRAWS, check=noises, plant=remembered),
    Bug(bug="N17 gradients of a batch clipped together", kind="bound", seen_by=MOVED, check=clips, plant=wrapped(FlatClipping, "weights", lambda f, self, squared, layers: f(self, squared * 0 + squared.sum(), layers))),
    Bug(bug="N18 bounds read from the data", kind="mixes records", seen_by=MOVED, check=alone, plant=wrapped(Domain, "rows", bounds_from_data)),
    Bug(bug="N19 features standardised over all records", kind="mixes records", seen_by=NEIGHBOURS, check=conforms("adaptive-laplace"), plant=one_shot(standardised)),
    Bug(bug="N20 null records are rows of class 0", kind="null records", seen_by=NEIGHBOURS, check=conforms("adaptive-laplace", kind=RowKind.BALL), plant=one_shot(nulls_are_class_0)),
    Bug(bug="N21 the number of records less the null ones is planned for", kind="null records", seen_by=KEPT, check=keeps_nothing, plant=wrapped(Records, "facts", lambda f, self, **k: replace(f(self, **k), records=counting(self)))),
    Bug(bug="N22 the model keeps a private row", kind="model", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=both(one_shot(row_kept), wrapped(LinearModel, "state", row_in_state))),
    Bug(bug="N23 predictions look at rows kept beside the state", kind="model", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=both(one_shot(row_kept), wrapped(LinearModel, "outputs", members_score_higher))),
    Bug(bug="N24 save() writes how many records count", kind="leaves", seen_by=KEPT, check=keeps_nothing, plant=count_is_saved),
    Bug(bug="N25 the exact training accuracy stays with the estimator", kind="leaves", seen_by=KEPT, check=keeps_nothing, plant=wrapped(private_estimator.PrivateClassifier, "fit", score_is_kept)),
    Bug(bug="N26 training ends when the exact sum is small", kind="flow", seen_by=STRANGERS, check=conforms(LinearDPSGD()), plant=ends_at_a_small_sum),
    Bug(bug="N27 one more release where a class is in the majority", kind="flow", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=means_of(one_more_release)),
    Bug(bug="N28 the better of two models by exact accuracy", kind="flow", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=one_shot(better_of_two)),
    Bug(bug="N29 released sizes held to the number that is there", kind="reads the data", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=means_of(sizes_of_those_there)),
    Bug(bug="N30 the learning rate from the longest row", kind="reads the data", seen_by=STRANGERS, check=conforms("dpsgd"), plant=fit_of(LinearDPSGD, rate_from_data)),
    Bug(bug="N31 coins of two steps from one stream", kind="noise", seen_by=DRAWS, check=sampled_draws, plant=wrapped(samplers.PoissonSampler, "indices", lambda f, self, step: f(self, step - step % 2))),
    Bug(bug="N32 an answer depends on the other rows asked", kind="model", seen_by=ALONE, check=conforms("adaptive-laplace"), plant=wrapped(LinearModel, "outputs", lambda f, self, rows: f(self, rows) - f(self, rows).mean(axis=0))),
    Bug(bug="N33 an error that shows a private row", kind="leaves", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=one_shot(row_in_an_error)),
    Bug(bug="N34 a warning that tells how many records count", kind="leaves", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=one_shot(count_in_a_warning)),
    Bug(bug="N35 the last block is padded with the first records", kind="bound", seen_by=NEIGHBOURS, check=conforms("adaptive-laplace"), plant=means_of(padded)),
    Bug(bug="N36 progress tells how many records count", kind="leaves", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=one_shot(count_in_progress)),
    Bug(bug="N37 the mean's price is not taken off the steps' budget", kind="budget", seen_by=PROMISE, check=conforms("dpsgd"), plant=wrapped(LinearDPSGD, "schedule_for", lambda f, self, facts, **k: f(self, facts, **{**k, "extra_loss": None}))),
    Bug(bug="N38 the ledger is told that a seeded key is secret", kind="charge", seen_by=PROMISE, check=conforms("adaptive-laplace"), plant=scope_of(lambda self: {"secret": True})),
    Bug(bug="N39 the ledger is told records where users are protected", kind="charge", seen_by=PROMISE, check=conforms("adaptive-laplace", unit=Unit.USER), plant=scope_of(lambda self: {"unit": Unit.RECORD})),
    Bug(bug="N40 pictures scaled by the number type of all records", kind="mixes records", seen_by=MOVED, check=typed_alone, plant=wrapped(Domain, "_check_number_type", lambda f, self, x: None)),
)  # fmt: skip
