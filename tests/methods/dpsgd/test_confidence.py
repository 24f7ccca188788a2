"""How sure a linear head may be: bounded, of each record alone, paid once, and right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import privet
from privet import mechanisms
from privet.methods.contract import Spending
from privet.methods.dpsgd import LinearDPSGD
from privet.methods.dpsgd.linear import confidence_rows, on_the_grid
from privet.methods.replay import small_facts
from privet.noise import secure


@pytest.mark.parametrize("outputs", [2, 3, 10])
def test_no_record_is_longer_than_1_and_none_depends_on_the_others(outputs: int) -> None:
    draw = torch.Generator().manual_seed(outputs)
    weight = 30.0 * torch.randn(outputs, 7, generator=draw)
    rows, squares, scales = on_the_grid(
        torch.nn.functional.normalize(torch.randn(5000, 7, generator=draw))
    )
    y = torch.randint(outputs, (5000,), generator=draw)
    scales[:2] = torch.tensor([0.0, np.nan])
    examples = rows, y, squares, scales
    v = confidence_rows(weight, examples)
    assert not v[:2].any() and float(v.norm(dim=1).max()) <= 1.0 + 1e-12
    assert float(v.norm(dim=1).max()) > 0.9  # the length is not given away
    for i in (2, 17, 4095, 4096, 4999):
        alone = confidence_rows(weight, tuple(t[i : i + 1] for t in examples))
        assert torch.equal(alone[0], v[i])  # bit for bit


def test_the_two_sums_cost_no_more_than_the_mean_did() -> None:
    plan = LinearDPSGD().plan(small_facts(LinearDPSGD()))
    parts = plan.centre_scale(1) ** -2.0 + plan.confidence_scale(1) ** -2.0
    assert parts <= plan.centre_mu**2
    assert parts == pytest.approx(plan.centre_mu**2, rel=1e-6)


def off(clf: privet.DPSGDClassifier, x: np.ndarray, y: np.ndarray) -> float:
    p = clf.predict_proba(x)
    return float(p.max(axis=1).mean() - (p.argmax(axis=1) == y).mean())


@pytest.mark.slow
@pytest.mark.parametrize(("flipped", "distance"), [(0.2, 2.0), (0.0, 0.5), (0.0, 4.0)])
def test_confidence_is_what_is_right(flipped: float, distance: float) -> None:
    """Noise and records are seeded. Without the temperature the first is .15 too sure."""
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=8000)
    x = rng.normal(size=(8000, 6)).clip(-4, 4)
    x[:, 0] += distance * (y - 0.5)
    y = np.where(rng.random(8000) < flipped, 1 - y, y)
    clf = privet.DPSGDClassifier(epsilon=1.0, classes=[0, 1], bounds=(-5, 5), random_state=0)
    clf.fit(x[:4000], y[:4000])
    assert abs(off(clf, x[4000:], y[4000:])) < 0.04


def test_a_finished_run_that_is_taken_up_again_draws_nothing(tmp_path: Path) -> None:
    method = LinearDPSGD(steps=3)
    facts = small_facts(method)
    plan = method.plan(facts)
    records = method.neighbours(plan).present
    ledger = privet.Ledger.in_memory(cap_epsilon=10.0, cap_delta=facts.delta)
    weights = []
    for _ in range(2):
        spending = Spending(ledger=ledger, rng=secure(), plan=plan, folder=tmp_path)
        weights.append(method.fit(records, plan, spending).weights)
    assert np.array_equal(*weights)


def test_a_measure_that_may_have_reached_the_disk_is_not_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: killed after the draw, before its checkpoint is in place; it was paid for once."""
    method = LinearDPSGD(steps=3)
    facts = small_facts(method)
    plan = method.plan(facts)
    records = method.neighbours(plan).present
    ledger = privet.Ledger.in_memory(cap_epsilon=10.0, cap_delta=facts.delta)
    real, drawn = mechanisms.Gaussian.release, []

    def killed(self, value, **rest):
        out = real(self, value, **rest)
        drawn.append(value.dimension)
        if value.dimension == 5:
            raise MemoryError
        return out

    monkeypatch.setattr(mechanisms.Gaussian, "release", killed)
    spending = Spending(ledger=ledger, rng=secure(), plan=plan, folder=tmp_path)
    with pytest.raises(MemoryError):
        method.fit(records, plan, spending)
    spending = Spending(ledger=ledger, rng=secure(), plan=plan, folder=tmp_path)
    model = method.fit(records, plan, spending)
    assert drawn == [2, 5] and np.isfinite(model.weights).all()
