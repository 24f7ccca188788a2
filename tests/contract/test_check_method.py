"""`check_method`: faults planted in the page's method are found, and named in words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privet
from privet.accounting import Gaussian
from privet.mechanisms import GaussianMechanism
from privet.methods import LinearModel, NeighbouringPair, check_method
from privet.sensitivity import BoundedValue, ClippedRows, Sensitivity, clip_l2

sys.path.insert(0, str(Path(__file__).parent / "outside"))
from nearest_mean import MeansPlan, NearestMean

BELIEVED = privet.premises.stated_bound("it is believed")
Fit = Callable[[Any, Any, Any], Any]


def contributions(records: Any, plan: Any, rows: Any = None) -> Any:
    """What each record adds, before it is clipped."""
    rows = records.rows.ball() if rows is None else rows
    one_hot = np.eye(plan.facts.outputs + 1)[records.targets][:, :-1]
    return (one_hot[:, :, None] * rows[:, None, :]).reshape(len(records), -1)


def total(records: Any, plan: Any) -> Any:
    return clip_l2(contributions(records, plan), 1.0).sum()


def model(noisy: Any, plan: Any) -> LinearModel:
    means = noisy.reshape(plan.facts.outputs, -1)
    return LinearModel(weights=means.T, intercept=np.zeros(plan.facts.outputs))


def release(plan: Any, context: Any, value: Any, *label: Any) -> Any:
    return plan.mechanism.release(value, rng=context.noise(*(label or ("means",))))


def stated(value: Any, l2: float) -> BoundedValue:
    moved = Sensitivity(l1=2.0 * l2, l2=l2)
    return BoundedValue(
        value=value, add_remove=moved, replace_one=moved.scaled(2), premise=BELIEVED
    )


def half_the_noise(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    weaker = GaussianMechanism(scale=0.5 * plan.mechanism.scale)
    return model(weaker.release(total(records, plan), rng=context.noise("means")), plan)


def half_the_noise_afterwards(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    value = total(records, plan)
    return model(0.5 * (release(plan, context, value) + value.value), plan)


class HalvedMechanism(GaussianMechanism):  # type: ignore[misc]
    def _units(self, shape: Any, rng: Any) -> Any:
        return super()._units(shape, rng) // 2


def half_the_noise_inside(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    weaker = HalvedMechanism(scale=plan.mechanism.scale)
    return model(weaker.release(total(records, plan), rng=context.noise("means")), plan)


def not_clipped(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    raw = contributions(records, plan, records.rows.flat)
    return model(release(plan, context, stated(raw.sum(axis=0), 1.0)), plan)


def clipped_to_twice(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    rows = clip_l2(3.0 * contributions(records, plan), 2.0)
    one = Sensitivity(l1=2.0, l2=1.0)
    lied = ClippedRows(units=rows.units, spacing=rows.spacing, add_remove=one,
                       replace_one=one.scaled(2), premise=BELIEVED)  # fmt: skip
    return model(release(plan, context, lied.sum()), plan)


def root_two_too_low(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    return model(release(plan, context, stated(total(records, plan).value, 0.5**0.5)), plan)


def half_a_charge(records: Any, plan: Any, context: Any) -> Any:
    context.charge(Gaussian(mu=0.5 * plan.loss.mu), what="means")
    return model(release(plan, context, total(records, plan)), plan)


def no_charge(records: Any, plan: Any, context: Any) -> Any:
    return model(release(plan, context, total(records, plan)), plan)


def charged_afterwards(records: Any, plan: Any, context: Any) -> Any:
    noisy = release(plan, context, total(records, plan))
    context.charge(what="means")
    return model(noisy, plan)


def released_twice(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    noisy = [release(plan, context, total(records, plan), "means", k) for k in range(2)]
    return model(np.mean(noisy, axis=0), plan)


def the_same_noise_in_every_run(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    source = privet.noise.seeded(0).child("means")
    return model(plan.mechanism.release(total(records, plan), rng=source), plan)


def noise_of_its_own(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    source = privet.noise.secure()
    return model(plan.mechanism.release(total(records, plan), rng=source), plan)


def one_stream_twice(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    value, half = total(records, plan), plan.facts.features * plan.facts.outputs // 2
    wide = GaussianMechanism(scale=2.0 * plan.mechanism.scale)
    first = wide.release(stated(value.value[:half], 1.0), rng=context.noise("means"))
    second = wide.release(stated(value.value[half:], 1.0), rng=context.noise("means"))
    return model(np.concatenate([first, second]), plan)


def noise_without_a_mechanism(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    noise = context.noise("means").gaussian(plan.facts.features * plan.facts.outputs)
    return model(total(records, plan).value + plan.mechanism.scale * noise, plan)


def number_of_records(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    return model(release(plan, context, total(records, plan)) / len(records), plan)


def number_that_count(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    return model(release(plan, context, total(records, plan)) / (1 + (~records.null).sum()), plan)


def exact_class_sizes(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    found = model(release(plan, context, total(records, plan)), plan)
    sizes = np.bincount(records.targets + 1, minlength=plan.facts.outputs + 1)[1:]
    return replace(found, intercept=0.01 * sizes)


def largest_value(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    noisy = release(plan, context, total(records, plan))
    return model(np.clip(noisy, -np.abs(records.rows.flat).max() * 9, None), plan)


def progress_tells(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    context.progress("records", int((~records.null).sum()), len(records))
    return model(release(plan, context, total(records, plan)), plan)


def sensitivity_of_the_data(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    rows = contributions(records, plan)
    longest = 1e-3 + float(np.linalg.norm(rows, axis=1).max())
    weaker = GaussianMechanism(scale=plan.mechanism.scale * longest)
    return model(weaker.release(stated(rows.sum(axis=0), longest), rng=context.noise("m")), plan)


def stops_for_some(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    if len(set(records.targets[~records.null].tolist())) < 2:
        raise ValueError("one class only")
    return model(release(plan, context, total(records, plan)), plan)


@dataclass(frozen=True, kw_only=True)
class CheapPlan(MeansPlan):
    """Its loss is that of twice the noise."""

    @property
    def loss(self) -> Any:
        return Gaussian(mu=0.5 * super().loss.mu)


@dataclass(frozen=True, kw_only=True)
class LooseModel(LinearModel):  # type: ignore[misc]
    """Whose intercept is not saved; and which knows a private row."""

    private: Any = field(default=None, repr=False)

    def state(self) -> Any:
        arrays, settings = super().state()
        return {k: v for k, v in arrays.items() if k != "intercept"}, settings

    @classmethod
    def from_state(cls, arrays: Any, settings: Any) -> Any:
        zero = np.zeros(arrays["weights"].shape[1])
        return cls(intercept=zero, **arrays, **settings)


def with_fit(fit: Fit) -> NearestMean:
    """The page's method with another `fit`."""
    return type("Faulty", (NearestMean,), {"fit": lambda self, *given: fit(*given)})()


class SaysNothingPlan(MeansPlan):
    premises = ()


class SaysNothing(NearestMean):
    def plan(self, facts: Any) -> Any:
        return SaysNothingPlan(facts=facts, mechanism=super().plan(facts).mechanism)


class EqualNeighbours(NearestMean):
    def neighbours(self, plan: Any) -> Any:
        pair = super().neighbours(plan)
        return NeighbouringPair(present=pair.present, absent=pair.present)


class ManyNeighbours(NearestMean):
    def neighbours(self, plan: Any) -> Any:
        pair = super().neighbours(plan)
        every = np.ones_like(pair.present.rows.values) * 0.1
        return replace(
            pair, present=replace(pair.present, rows=replace(pair.present.rows, values=every))
        )


class CheapPlans(NearestMean):
    def plan(self, facts: Any) -> Any:
        found = super().plan(facts)
        return CheapPlan(facts=facts, mechanism=found.mechanism)


class ForgetsItsIntercept(NearestMean):
    def fit(self, records: Any, plan: Any, context: Any) -> Any:
        found = super().fit(records, plan, context)
        return LooseModel(weights=found.weights, intercept=np.ones(plan.facts.outputs))


def keeps_rows(records: Any, plan: Any, context: Any) -> Any:
    context.charge(what="means")
    found = model(release(plan, context, total(records, plan)), plan)

    class Remembers(LinearModel):  # type: ignore[misc]
        def outputs(self, rows: Any) -> Any:
            return super().outputs(rows) + records.rows.flat.sum()

    return Remembers(weights=found.weights, intercept=found.intercept)


FAULTS = [
    (half_the_noise, "the noise is 0.5 of what that needs"),
    (half_the_noise_afterwards, "something exact reaches the model"),
    (half_the_noise_inside, "standard deviation 0.4"),
    (not_clipped, "one record moves it by 1.41, and a sensitivity of 1 is stated"),
    (clipped_to_twice, "one record moves it by 2, and a sensitivity of 1 is stated"),
    (root_two_too_low, "one record moves it by 1, and a sensitivity of 0.707 is stated"),
    (half_a_charge, "is charged, where the plan costs 1: charge all of plan.loss"),
    (no_charge, "charged nothing"),
    (charged_afterwards, "released before it was paid"),
    (released_twice, "2 releases with the noise that was drawn cost epsilon 1.4"),
    (the_same_noise_in_every_run, "the same noise in two runs"),
    (noise_of_its_own, "something random is not from context.noise"),
    (one_stream_twice, "drawn from twice"),
    (noise_without_a_mechanism, "nothing is released through a mechanism"),
    (number_of_records, "only the number of records differs (take plan.facts.records)"),
    (number_that_count, "only how many records count differs"),
    (exact_class_sizes, "only the labels differ"),
    (largest_value, "only what the rows hold differs"),
    (progress_tells, "its progress depends on the records"),
    (sensitivity_of_the_data, "its stated sensitivity, and so its noise, depends on the records"),
    (stops_for_some, "it stops (ValueError: one class only) on some records only"),
    (keeps_rows, "it keeps something that is not in state()"),
    (CheapPlans(), "plan.loss must be the price of all releases"),
    (SaysNothing(), "no premise about the bound"),
    (EqualNeighbours(), "neighbours() returns two equal data sets"),
    (ManyNeighbours(), "neighbours() returns data sets that differ in 8 records, not in one"),
    (ForgetsItsIntercept(), "from_state(*state()) is another model"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "named"), FAULTS, ids=lambda f: getattr(f, "__name__", type(f).__name__)
)
def test_a_planted_fault_is_found_and_named(fault: Any, named: str) -> None:
    method = fault if isinstance(fault, NearestMean) else with_fit(fault)
    found = check_method(method)
    assert not found.held
    assert named in str(found)


@pytest.mark.slow
def test_the_method_of_the_page_keeps_to_the_contract() -> None:
    assert str(check_method(NearestMean())) == "nearest-mean: 8 checks held"
    assert check_method(NearestMean(), privet.methods.PublicFacts(
        records=20, features=3, outputs=3, epsilon=3.0, delta=1e-6)).held  # fmt: skip
