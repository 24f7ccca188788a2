"""Planted bugs: each a small patch of the library that the suite must catch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from privet import sensitivity
from privet.accounting import PrivacyLoss, compose
from privet.gradients import engine as engine_module
from privet.gradients.clipping_rules import FlatClipping
from privet.mechanisms import mechanism
from privet.mechanisms.gaussian import DiscreteGaussianMechanism, GaussianMechanism
from privet.mechanisms.laplace import DiscreteLaplaceMechanism, LaplaceMechanism
from privet.methods.dpsgd import dpsgd_loop, linear_dpsgd, samplers, settings_and_plan
from privet.noise import rounded_noise, seeded
from privet.sensitivity import clipping
from privet.sensitivity.bounded_value import BoundedValue
from tests.conformance.planting import Patch, wrapped


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A bug: what it is, where it shows first, and how it is planted."""

    bug: str
    subject: str
    plant: Patch


def truncated(original: Any, stream: Any, size: int, ratio: Any) -> Any:
    return np.clip(original(stream, size, ratio), -int(3.5 * ratio), int(3.5 * ratio))


def repeated(original: Any, stream: Any, size: int, ratio: Any) -> Any:
    return original(seeded(5).stream, size, ratio)


def half_and_half(original: Any, stream: Any, size: int, ratio: Any) -> Any:
    part = original(stream, (size + 1) // 2, ratio)
    return np.concatenate([part, part])[:size]


def pay_later(original: Any, self: Any, bounded: Any, *, rng: Any, ledger: Any = None, **k: Any) -> Any:  # fmt: skip
    out = original(self, bounded, rng=rng, ledger=None, **k)
    if ledger is not None:
        ledger.charge(self.loss(bounded), what="late")
    return out


def never_pay(original: Any, self: Any, bounded: Any, *, ledger: Any = None, **k: Any) -> Any:
    return original(self, bounded, ledger=None, **k)


def pay_twice(original: Any, self: Any, bounded: Any, *, rng: Any, ledger: Any = None, **k: Any) -> Any:  # fmt: skip
    if ledger is not None:
        ledger.charge(self.loss(bounded), what="once more")
    return original(self, bounded, rng=rng, ledger=ledger, **k)


def mean_of_those_there(original: Any, self: Any, *, records: int) -> Any:
    return original(self, records=max(1, len(self.units)))


def as_wide_as_the_data(original: Any, values: Any, lower: float, upper: float) -> Any:
    v = np.nan_to_num(np.asarray(values, dtype=float), nan=0.0, posinf=1e9, neginf=-1e9)
    low, high = (v.min(), v.max()) if v.size else (lower, upper)
    return original((v - low) / max(high - low, 1e-9), lower, upper)


def clip_all_together(original: Any, x: Any, c: float, d: int, *, order: int) -> Any:
    largest = np.max(np.linalg.norm(x, axis=1)) if len(x) else 1.0
    return original(x * (c / max(largest, c)), c, d, order=order)


def clip_too_late(original: Any, x: Any, c: float, d: int, *, order: int) -> Any:
    return original(x, c * 1.01, d, order=order)


def replace_costs_the_same(original: Any, self: Any, adjacency: Any) -> Any:
    return self.add_remove


def sensitivity_from_the_rows(original: Any, self: Any) -> Any:
    found = original(self)
    size = np.linalg.norm(found.value)
    once = replace(found.add_remove, l1=float(size) + 0.1, l2=float(size) + 0.1)
    return replace(found, add_remove=once)


def cheaper(original: Any, self: Any, *a: Any, **k: Any) -> Any:
    return original(replace(self, scale=self.scale * 1.05), *a, **k)


def shuffled(original: Any, self: Any, step: int) -> Any:
    batch = max(1, round(self.rates[step] * self.n))
    epoch, place = divmod(step, max(1, self.n // batch))
    order = self._rng.child("epoch", epoch).permutation(self.n)
    return np.sort(order[place * batch : (place + 1) * batch])


def fixed_size(original: Any, self: Any, step: int) -> Any:
    return self._rng.child("s", step).sample(self.n, min(self.n, round(self.rates[step] * self.n)))


def rate_off(original: Any, self: Any, step: int) -> Any:
    coins = self._rng.child("sample", step).bernoulli(self.n, min(1.0, 1.05 * self.rates[step]))
    return np.flatnonzero(coins)


def same_batch(original: Any, self: Any, step: int) -> Any:
    return original(self, 0)


def same_on_every_rank(original: Any, self: Any, step: int) -> Any:
    coins = seeded(9).child("sample", step).bernoulli(self.n, float(self.rates[step]))
    return np.flatnonzero(coins)


def never_empty(original: Any, self: Any, step: int) -> Any:
    found = original(self, step)
    return found if len(found) or not self.n else np.array([0])


def divide_by_those_there(original: Any, self: Any, step: int) -> Any:
    return float(max(1, len(self.indices(step))))


def one_step_free(original: Any, self: Any, z: Any, **k: Any) -> Any:
    return original(self, z, start=1)


def noise_flattered(original: Any, self: Any, z: Any, **k: Any) -> Any:
    return original(self, np.asarray(z) * 1.1, **k)


def nothing_is_paid(original: Any, self: Any, z: Any, **k: Any) -> Any:
    return compose([], adjacency=self.adjacency)


def noise_over_root_batch(original: Any, flat: Any, *, sensitivity: float, **k: Any) -> float:
    return original(flat, sensitivity=sensitivity / math.sqrt(5.0), **k)


def half_the_noise(original: Any, flat: Any, *, noise_multiplier: float, **k: Any) -> float:
    return original(flat, noise_multiplier=noise_multiplier / 2, **k)


def no_noise_when_empty(original: Any, flat: Any, **k: Any) -> float:
    return _SKIP.step(original, flat, **k)


class _Skip:
    """Leaves out the noise of every fifth step, as code does that skips empty batches."""

    def __init__(self) -> None:
        self.seen = 0

    def step(self, original: Any, flat: Any, **k: Any) -> float:
        self.seen += 1
        return 0.0 if self.seen % 5 == 0 else original(flat, **k)


_SKIP = _Skip()


def same_noise_every_step(original: Any, flat: Any, *, source: Any, **k: Any) -> float:
    return original(flat, source=seeded(3), **k)


def twice_in_two_parts(original: Any, flat: Any, *, source: Any, **k: Any) -> float:
    original(flat, source=source.child("again"), **k)
    return original(flat, source=source, **k)


def not_clipped(original: Any, self: Any, *a: Any, **k: Any) -> Any:
    return torch.ones_like(original(self, *a, **k))


def clipped_by_the_mean(original: Any, self: Any, *a: Any, **k: Any) -> Any:
    weights = original(self, *a, **k)
    return torch.full_like(weights, float(weights.mean()))


def overshoot(original: Any, self: Any, *a: Any, **k: Any) -> Any:
    return original(self, *a, **k) * (1 + 1e-3)


def coarse_sum(original: Any, self: Any, *a: Any, **k: Any) -> Any:
    total = original(self, *a, **k)
    total.buffer.copy_(total.flat.to(torch.bfloat16).float())
    return total


MUTANTS = (
    Mutant(bug="half the Gaussian noise", subject="Gaussian", plant=wrapped(rounded_noise, "gaussian", lambda f, *a: f(*a) // 2)),
    Mutant(bug="half the Laplace noise", subject="Laplace", plant=wrapped(rounded_noise, "laplace", lambda f, *a: f(*a) // 2)),
    Mutant(bug="Gaussian noise 2% too small", subject="Gaussian", plant=wrapped(rounded_noise, "gaussian", lambda f, *a: f(*a) * 49 // 50)),
    Mutant(bug="Gaussian tail cut at 3.5", subject="Gaussian", plant=wrapped(rounded_noise, "gaussian", truncated)),
    Mutant(bug="Laplace tail cut at 3.5", subject="Laplace", plant=wrapped(rounded_noise, "laplace", truncated)),
    Mutant(bug="one-sided Laplace noise", subject="Laplace", plant=wrapped(rounded_noise, "laplace", lambda f, *a: np.abs(f(*a)))),
    Mutant(bug="the same noise in every release", subject="Gaussian", plant=wrapped(rounded_noise, "gaussian", repeated)),
    Mutant(bug="noise repeated within a release", subject="Gaussian", plant=wrapped(rounded_noise, "gaussian", half_and_half)),
    Mutant(bug="noise added as plain floats, off the grid", subject="Gaussian", plant=wrapped(mechanism.GridMechanism, "_perturb", lambda f, self, value, rng: value + rng.gaussian(value.shape, self.scale))),
    Mutant(bug="discrete Laplace at 3/4 of its scale", subject="DiscreteLaplace", plant=wrapped(DiscreteLaplaceMechanism, "_ratio", lambda f, self: f(self) * 3 / 4)),
    Mutant(bug="discrete Gaussian at 3/4 of its scale", subject="DiscreteGaussian", plant=wrapped(DiscreteGaussianMechanism, "_ratio", lambda f, self: f(self) * 3 / 4)),
    Mutant(bug="the ledger is charged after the release", subject="Laplace", plant=wrapped(mechanism.Mechanism, "release", pay_later)),
    Mutant(bug="the ledger is never charged", subject="Laplace", plant=wrapped(mechanism.Mechanism, "release", never_pay)),
    Mutant(bug="the ledger is charged twice", subject="Laplace", plant=wrapped(mechanism.Mechanism, "release", pay_twice)),
    Mutant(bug="a mean divides by the records that are there", subject="Gaussian of a mean", plant=wrapped(clipping.ClippedRows, "mean", mean_of_those_there)),
    Mutant(bug="min and max from the data", subject="Laplace of a box", plant=wrapped(sensitivity, "clip_range", as_wide_as_the_data)),
    Mutant(bug="one scale for the whole table when clipping", subject="Gaussian", plant=wrapped(clipping, "_scaled_down", clip_all_together)),
    Mutant(bug="clipping 1% too far out", subject="Gaussian", plant=wrapped(clipping, "_scaled_down", clip_too_late)),
    Mutant(bug="replace-one priced as add-remove", subject="Gaussian", plant=wrapped(BoundedValue, "sensitivity", replace_costs_the_same)),
    Mutant(bug="sensitivity measured on the data", subject="Gaussian", plant=wrapped(clipping.ClippedRows, "sum", sensitivity_from_the_rows)),
    Mutant(bug="Gaussian priced for 5% more noise", subject="Gaussian", plant=wrapped(GaussianMechanism, "loss", cheaper)),
    Mutant(bug="Laplace priced for 5% more noise", subject="Laplace", plant=wrapped(LaplaceMechanism, "loss", cheaper)),
    Mutant(bug="delta doubled", subject="Gaussian", plant=wrapped(PrivacyLoss, "epsilon", lambda f, self, delta: f(self, 2.0 * delta))),
    Mutant(bug="negative scales accepted", subject="Gaussian", plant=wrapped(mechanism.GridMechanism, "__post_init__", lambda f, self: None)),
    Mutant(bug="sampling rate 5% too high", subject="PoissonSampler", plant=wrapped(samplers.PoissonSampler, "indices", rate_off)),
    Mutant(bug="shuffling accounted as Poisson", subject="PoissonSampler", plant=wrapped(samplers.PoissonSampler, "indices", shuffled)),
    Mutant(bug="batches of fixed size accounted as Poisson", subject="PoissonSampler", plant=wrapped(samplers.PoissonSampler, "indices", fixed_size)),
    Mutant(bug="the same batch at every step", subject="PoissonSampler", plant=wrapped(samplers.PoissonSampler, "indices", same_batch)),
    Mutant(bug="every process draws the same batch", subject="PoissonSampler", plant=wrapped(samplers.PoissonSampler, "indices", same_on_every_rank)),
    Mutant(bug="empty batches filled up", subject="PoissonSampler", plant=wrapped(samplers.PoissonSampler, "indices", never_empty)),
    Mutant(bug="division by the batch that came", subject="PoissonSampler", plant=wrapped(samplers.PoissonSampler, "expected_batch", divide_by_those_there)),
    Mutant(bug="a step that is not charged", subject="PoissonSampler", plant=wrapped(samplers.PoissonSampler, "loss", one_step_free)),
    Mutant(bug="steps priced for 10% more noise", subject="PoissonSampler", plant=wrapped(samplers.PoissonSampler, "loss", noise_flattered)),
    Mutant(bug="nothing is charged", subject="PoissonSampler", plant=wrapped(samplers.PoissonSampler, "loss", nothing_is_paid)),
    Mutant(bug="gradient noise over the root of the batch", subject="DP-SGD steps", plant=wrapped(dpsgd_loop, "release_sum_", noise_over_root_batch)),
    Mutant(bug="half the gradient noise", subject="DP-SGD steps", plant=wrapped(dpsgd_loop, "release_sum_", half_the_noise)),
    Mutant(bug="no noise in some steps", subject="DP-SGD steps", plant=wrapped(dpsgd_loop, "release_sum_", no_noise_when_empty)),
    Mutant(bug="the same noise at every step", subject="DP-SGD steps", plant=wrapped(dpsgd_loop, "release_sum_", same_noise_every_step)),
    Mutant(bug="noise twice, as if once a micro-batch", subject="DP-SGD steps", plant=wrapped(dpsgd_loop, "release_sum_", twice_in_two_parts)),
    Mutant(bug="the mean of rows clipped too far out", subject="the private mean of DP-SGD", plant=wrapped(linear_dpsgd, "clip_l2", lambda f, rows, bound: f(rows, 1.01 * bound))),
    Mutant(bug="the mean of rows with a fifth less noise", subject="noise of the private mean", plant=wrapped(settings_and_plan.DPSGDPlan, "centre_scale", lambda f, self, dimension: 0.8 * f(self, dimension))),
    Mutant(bug="gradients not clipped", subject="clipped gradients", plant=wrapped(FlatClipping, "weights", not_clipped)),
    Mutant(bug="gradients clipped by their mean norm", subject="clipped gradients", plant=wrapped(FlatClipping, "weights", clipped_by_the_mean)),
    Mutant(bug="a user's clipping rule is believed", subject="a user's clipping rule", plant=wrapped(engine_module, "weigh_examples", lambda f, rule, squared, layers: (rule.weights(squared, layers), 0))),
    Mutant(bug="clipping overshoots by 0.1%", subject="clipped gradients", plant=wrapped(FlatClipping, "weights", overshoot)),
    Mutant(bug="sums kept in bfloat16", subject="clipped gradients", plant=wrapped(engine_module.PerExampleGradients, "clipped_sum", coarse_sum)),
)  # fmt: skip
