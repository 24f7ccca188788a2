"""How sure a linear head may be: bounded, of each record alone, paid once, and right."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import privet
from privet import mechanisms
from privet.methods.contract import ReleaseContext
from privet.methods.dpsgd import LinearDPSGD
from privet.methods.dpsgd.confidence_temperature import confidence_rows
from privet.methods.dpsgd.linear_head import (
    LinearHead,
    add_softmax,
    add_squares,
    exp,
    power_of_two_above,
    round_to_grid,
    rows_on_grid,
    total,
)
from privet.methods.neighbour_replay import small_facts
from privet.noise import secure


@pytest.mark.parametrize("outputs", [2, 3, 10])
def test_no_record_is_longer_than_1_and_none_depends_on_the_others(outputs: int) -> None:
    draw = torch.Generator().manual_seed(outputs)
    weight = 30.0 * torch.randn(outputs, 7, generator=draw)
    rows, squares, scales = rows_on_grid(
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
        context = ReleaseContext(ledger=ledger, rng=secure(), plan=plan, folder=tmp_path)
        weights.append(method.fit(records, plan, context).weights)
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
    real, drawn = mechanisms.GaussianMechanism.release, []

    def killed(self, value, **rest):
        out = real(self, value, **rest)
        drawn.append(value.dimension)
        if value.dimension == 5:
            raise MemoryError
        return out

    monkeypatch.setattr(mechanisms.GaussianMechanism, "release", killed)
    context = ReleaseContext(ledger=ledger, rng=secure(), plan=plan, folder=tmp_path)
    with pytest.raises(MemoryError):
        method.fit(records, plan, context)
    context = ReleaseContext(ledger=ledger, rng=secure(), plan=plan, folder=tmp_path)
    model = method.fit(records, plan, context)
    assert drawn == [2, 5] and np.isfinite(model.weights).all()


# Arithmetic that must not depend on the place of a number, nor on the processor


def test_exp_is_right_and_does_not_look_at_its_neighbours():
    x = -torch.cat([torch.linspace(0, 40, 4001), torch.linspace(40, 690, 500)]).double()
    found = exp(x)
    expected = torch.tensor([math.exp(v) for v in x.tolist()], dtype=torch.float64)
    assert float(((found - expected) / expected).abs().max()) <= 2.0**-50
    assert exp(torch.tensor([-701.0, -1e300, -math.inf], dtype=torch.float64)).tolist() == [0.0] * 3
    assert float(exp(torch.zeros(1, dtype=torch.float64))) == 1.0
    for size in (1, 2, 3, 5, 7, 8, 9, 17):
        for start in range(0, 200, 13):
            assert torch.equal(exp(x[start : start + size]), found[start : start + size])


KNOWN = [
    "0x1.cf46d99d52b3ap-1",
    "0x1.78b56362cef38p-2",
    "0x1.50385c094f425p-4",
    "0x1.0772c096d61b7p-25",
    "0x1.245639c3a49f7p-433",
]


def test_known_bits():
    """The same on every processor: a table of what IEEE 754 says, in hexadecimal."""
    x = torch.tensor([-0.1, -1.0, -2.5, -17.3, -300.0], dtype=torch.float64)
    assert [v.hex() for v in exp(x).tolist()] == KNOWN
    t = torch.tensor([[0.1], [0.2], [0.3], [0.4], [0.5]], dtype=torch.float64)
    assert float(total(t)) == ((0.1 + 0.3) + (0.2 + 0.4)) + 0.5


def test_grids():
    t = torch.tensor([0.3, -0.3, 0.125, 5.0], dtype=torch.float64)
    assert round_to_grid(t, 0.25).tolist() == [0.25, -0.25, 0.0, 5.0]
    above = power_of_two_above(torch.tensor([1e-30, 2.0**-5, 1e30], dtype=torch.float64))
    assert above.tolist() == [2.0**-99, 2.0**-4, 2.0**100]


def contributions(add, outputs, x, y, *, bound, capacity, place):
    """The sum of a batch of its own rows; `place` says where they stand among zero rows."""
    model = LinearHead(features=x.shape[1], outputs=outputs, constant=0.1)
    g = torch.Generator().manual_seed(5)
    model.linear.weight.data = torch.randn(model.linear.weight.shape, generator=g) * 3
    some = tuple(t[place] for t in model.examples(x, y))
    into = torch.zeros_like(model.linear.weight, dtype=torch.float64)
    add(model.linear.weight, some, bound, into, capacity)
    return into.detach().view(-1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["softmax", "squares"])
@pytest.mark.parametrize("bound", [0.1, 3.7])
def test_the_sum_is_the_sum_of_what_each_record_gives_alone(kind, bound):
    """Bit for bit, in any order, in any company: nothing is rounded."""
    n, g = 301, torch.Generator().manual_seed(1)
    x = torch.randn(n, 23, generator=g) * 10.0 ** (3 * torch.rand(n, 1, generator=g) - 2)
    x[7] = float("nan")
    if kind == "softmax":
        add, outputs, y = add_softmax, 5, torch.randint(5, (n,), generator=g)
    else:
        add, outputs, y = add_squares, 1, torch.randn(n, 1, generator=g)

    def of(place):
        return contributions(add, outputs, x, y, bound=bound, capacity=n, place=place)

    order = torch.randperm(n, generator=g)
    whole = of(torch.arange(n))
    assert torch.equal(of(order), whole)
    alone = torch.stack([of(torch.tensor([i])) for i in range(n)])
    assert torch.equal(alone.sum(0), whole)
    for size in (1, 2, 64, 299):
        assert torch.equal(sum(of(part) for part in order.split(size)), whole)
    assert float(alone.norm(dim=1).max()) <= bound
    assert float(alone.norm(dim=1).max()) > 0.99 * bound


@pytest.mark.parametrize("kind", ["softmax", "squares"])
def test_the_same_bits_on_every_processor(kind):
    """Rows from whole numbers alone; what comes out is written down here, to the last bit."""
    rows = torch.arange(40 * 7).view(40, 7)
    x = ((rows * 7919) % 1009).float() / 1024 - 0.5
    weight = ((torch.arange(3 * 8).view(3, 8) * 104729) % 997).float() / 256 - 2.0
    outputs = 3 if kind == "softmax" else 1
    model = LinearHead(features=7, outputs=outputs, constant=0.125)
    model.linear.weight.data = weight[:outputs].clone()
    y = torch.arange(40) % 3 if kind == "softmax" else (torch.arange(40) % 5).float()[:, None]
    into = torch.zeros_like(model.linear.weight, dtype=torch.float64)
    add = add_softmax if kind == "softmax" else add_squares
    add(model.linear.weight, model.examples(x, y), 0.3, into, 40)
    bits = hashlib.sha256(into.detach().numpy().tobytes()).hexdigest()[:16]
    assert bits == BITS[kind]


BITS = {"softmax": "b8315d762f7fa455", "squares": "0ddb5b5b8e0929d0"}
