"""One stream for one draw, and noise in every coordinate: the properties, and bugs they catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from privet.audit.conformance import (
    laplace_cdf,
    noise_in_every_coordinate,
    noise_of_every_release,
    streams_drawn_once,
)
from privet.mechanisms import GaussianMechanism, KNormMechanism, LaplaceMechanism, release_moments
from privet.methods.dpsgd import noise_addition
from privet.methods.pate import answer_checks
from privet.noise import Source, grid, rounded_noise, secure, seeded, torch_noise
from privet.sensitivity import Moments, clip_l1
from tests.conformance.methods import METHODS

BY_NAME = {case.name: case for case in METHODS}


def forget(labels: dict[str, int], patch: pytest.MonkeyPatch) -> None:
    """Labels that begin so keep only so many of their parts: the bug of a label that is too short."""
    original = Source.child

    def child(self: Source, *label: str | int) -> Source:
        kept = labels.get(str(label[0]), len(label))
        return original(self, *label[:kept])

    patch.setattr(Source, "child", child)


@pytest.mark.slow
@pytest.mark.parametrize("case", METHODS, ids=lambda case: case.name)
def test_methods_draw_every_word_once(case: Any) -> None:
    assert streams_drawn_once(case._fit) is None


def test_one_stream_for_all_layers_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    forget({"release": 1}, monkeypatch)
    assert "release" in (streams_drawn_once(BY_NAME["autoencoder"]._fit) or "")


@pytest.mark.parametrize("broken", [False, True])
def test_one_stream_for_all_blocks_of_answers_is_seen(
    broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two blocks are needed to see it, so blocks are made small."""
    monkeypatch.setattr(answer_checks, "BLOCK", 4)
    if broken:
        forget({"pate": 2}, monkeypatch)
    found = streams_drawn_once(BY_NAME["pate"]._fit)
    assert ("pate" in (found or "")) == broken


def test_one_stream_for_all_steps_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    forget({"noise": 1}, monkeypatch)
    assert "noise" in (streams_drawn_once(BY_NAME["dpsgd"]._fit) or "")


def test_two_sources_of_one_seed_are_seen() -> None:
    assert streams_drawn_once(lambda: [seeded(3).gaussian(4) for _ in range(2)]) is not None
    assert streams_drawn_once(lambda: [seeded(k).gaussian(4) for k in range(2)]) is None
    assert streams_drawn_once(lambda: [secure().child("x").gaussian(4) for _ in range(2)]) is None
    one = seeded(3)
    assert streams_drawn_once(lambda: [one.gaussian(4) for _ in range(2)]) is None
    assert streams_drawn_once(lambda: None) == "nothing was drawn"


def test_tensors_are_watched_too() -> None:
    from privet.noise.torch_noise import gaussian_

    def twice(*labels: str) -> Callable[[], object]:
        return lambda: [gaussian_(torch.empty(9), 1.0, seeded(1).child(k)) for k in labels]

    assert streams_drawn_once(twice("a", "b")) is None
    assert streams_drawn_once(twice("a", "a")) is not None


def released_sum(source: Source) -> Any:
    flat = torch.linspace(-1.0, 1.0, 2000, dtype=torch.float32)
    noise_addition.release_sum_(flat, sensitivity=1.0, noise_multiplier=2.0, source=source)
    return flat.numpy()


def scale_of_sum() -> float:
    return grid.noise_scale(sensitivity=1.0, noise_multiplier=2.0, dimension=2000)


def test_every_coordinate_of_a_step_has_its_noise() -> None:
    assert noise_in_every_coordinate(released_sum, scale=scale_of_sum(), rng=seeded(1)) is None


@pytest.mark.parametrize("where", [-1, 0, 777])
def test_a_coordinate_without_noise_is_seen(where: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outsider's bug 19: the last coordinate of the sum keeps no noise."""
    original = torch_noise.add_gaussian_

    def quiet(flat: Any, scale: float, source: Source, **places: Any) -> None:
        kept = flat[where].clone()
        original(flat, scale, source, **places)
        flat[where] = kept

    monkeypatch.setattr(torch_noise, "add_gaussian_", quiet)
    found = noise_in_every_coordinate(released_sum, scale=scale_of_sum(), rng=seeded(1))
    assert found == f"coordinate {where % 2000}: standard deviation 0 of the stated one"


@pytest.mark.slow
@pytest.mark.parametrize("case", METHODS, ids=lambda case: case.name)
def test_every_release_of_a_method_has_its_noise(case: Any) -> None:
    """All that twenty trainings release, coordinate by coordinate; false alarms: 2e-6."""
    found = noise_of_every_release(lambda seed: case._fit(random_state=seed))
    assert found is None


@pytest.mark.slow
def test_a_method_that_leaves_one_coordinate_alone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug 19 in whole trainings, and its cousin in the mechanism of one-shot moments."""
    dpsgd, moments = BY_NAME["dpsgd"], BY_NAME["moments"]
    original, draw = torch_noise.add_gaussian_, rounded_noise.gaussian

    def quiet(flat: Any, scale: float, source: Source, **places: Any) -> None:
        kept = flat[-1].clone()
        original(flat, scale, source, **places)
        flat[-1] = kept

    def last_is_zero(*arguments: Any) -> Any:
        units = draw(*arguments)
        units[-1:] = 0
        return units

    monkeypatch.setattr(torch_noise, "add_gaussian_", quiet)
    found = noise_of_every_release(lambda seed: dpsgd._fit(random_state=seed), repetitions=8)
    assert "standard deviation" in (found or "")
    monkeypatch.setattr(rounded_noise, "gaussian", last_is_zero)
    found = noise_of_every_release(lambda seed: moments._fit(random_state=seed), repetitions=8)
    assert "standard deviation 0 of" in (found or "")


TOTAL = clip_l1(np.linspace(-1, 1, 60).reshape(4, 15), 1.0).sum()


@pytest.mark.parametrize("kind", [GaussianMechanism, LaplaceMechanism])
def test_mechanisms(kind: type) -> None:
    laplace = {"value": TOTAL.value, "cdf": laplace_cdf} if kind is LaplaceMechanism else {}
    found = noise_in_every_coordinate(
        lambda source: kind(scale=1.7).release(TOTAL, rng=source),
        scale=1.7,
        rng=seeded(2),
        **laplace,
    )
    assert found is None


def test_k_norm() -> None:
    """Its direction with the length of a normal vector at the same quantile is a normal vector."""
    d = TOTAL.dimension

    def as_normal(source: Source) -> np.ndarray:
        noise = KNormMechanism(scale=1.7).release(TOTAL, rng=source) - TOTAL.value
        length = np.linalg.norm(noise)
        share = stats.gamma(d, scale=1.7).cdf(length)
        return noise / length * np.sqrt(stats.chi2(d).ppf(share))

    assert noise_in_every_coordinate(as_normal, scale=1.0, value=0.0, rng=seeded(2)) is None


def test_moments() -> None:
    """The released matrix and vector, each entry with the noise that the coefficients state."""
    shape = Moments(features=6, outputs=2)
    total = shape.sum()
    total.add(np.eye(6), [0, 1, 0, 1, 0, 1])
    upper = np.triu_indices(6)

    def both(source: Source) -> np.ndarray:
        found = release_moments(total, GaussianMechanism(scale=0.5), rng=source)
        return np.concatenate([found.gram[upper], found.cross.ravel()])

    gram = np.where(upper[0] == upper[1], 0.5 / shape.second, 0.5 / shape.pair)
    scales = np.concatenate([gram, np.full(12, 0.5 / shape.cross)])
    assert noise_in_every_coordinate(both, scale=scales, rng=seeded(3)) is None
    assert noise_in_every_coordinate(both, scale=2.5 * scales, rng=seeded(3)) is not None


def test_coordinates_that_share_their_noise_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    original = rounded_noise.gaussian

    def halves(stream: Any, n: int, ratio: Any) -> Any:
        part = original(stream, (n + 1) // 2, ratio)
        return np.concatenate([part, part])[:n]

    monkeypatch.setattr(rounded_noise, "gaussian", halves)
    release_it = lambda source: GaussianMechanism(scale=1.0).release(TOTAL, rng=source)  # noqa: E731
    found = noise_in_every_coordinate(release_it, scale=1.0, rng=seeded(2))
    assert "correlation 1" in (found or "")


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_stated() -> None:
    """At a level of 1%, 400 fresh seeds: at most 2% of right releases may fail, and some do."""
    alarms = [
        noise_in_every_coordinate(
            lambda s: s.gaussian(20), scale=1.0, rng=seeded(seed), level=0.01, repetitions=20
        )
        is not None
        for seed in range(400)
    ]
    assert 0 < sum(alarms) <= 8 + 5 * np.sqrt(8)
