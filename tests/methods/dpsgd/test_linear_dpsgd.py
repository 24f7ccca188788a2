"""Linear heads: the closed form is the engine's sum, and the plan costs what it says."""

from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn

from privet.data.domain import RowKind, Rows
from privet.data.records import PublicFacts, Records
from privet.errors import BudgetExceeded, InvalidArgument
from privet.gradients import FlatClipping, PerExampleGradients
from privet.guarantee import Backing
from privet.ledger import Ledger
from privet.methods.contract import ReleaseContext
from privet.methods.dpsgd import (
    LinearDPSGD,
    NetworkDPSGD,
    Schedule,
    StepOptions,
    private,
)
from privet.methods.dpsgd.linear_dpsgd import descend
from privet.methods.dpsgd.linear_head import LinearHead, add_softmax, add_squares, rows_at_a_time
from privet.methods.dpsgd.settings_and_plan import DPSGDPlan
from privet.methods.train_method import state_guarantee, train
from privet.noise import secure, seeded


def rows(n=200, d=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g)
    x = x / x.norm(dim=1, keepdim=True)
    return x, (x[:, 0] + 0.2 * torch.randn(n, generator=g) > 0).long()


@pytest.mark.parametrize("numbers", [1, 500])
def test_parts_do_not_change_what_is_summed(monkeypatch, numbers):
    x, y = rows(n=101)
    whole = head(x, 2).examples(x, y)
    monkeypatch.setattr(import_module("privet.methods.dpsgd.linear_head"), "_NUMBERS", numbers)
    assert rows_at_a_time(7) < 101
    for some, others in zip(head(x, 2).examples(x, y), whole, strict=True):
        assert torch.equal(some, others)


def head(x, outputs, seed=0):
    torch.manual_seed(seed)
    out = LinearHead(features=x.shape[1], outputs=outputs, constant=0.3)
    nn.init.normal_(out.linear.weight, std=2.0)
    out.mean.copy_(0.1 * torch.randn(x.shape[1]))
    return out


@pytest.mark.parametrize("bound", [0.05, 0.5, 100.0])
@pytest.mark.parametrize("kind", ["softmax", "squares"])
def test_closed_form_is_the_engine(kind, bound):
    x, y = rows()
    model = head(x, 3 if kind == "softmax" else 1)
    engine = PerExampleGradients(model, clipping=FlatClipping(bound=bound))
    targets = y if kind == "softmax" else y.float()[:, None]
    cut = model.examples(x, targets)
    with engine.recording():
        out = model.linear((cut[0] * cut[3][:, None]).float())  # the rows, on their grid
        if kind == "softmax":
            losses = nn.functional.cross_entropy(out, targets, reduction="none")
        else:
            losses = 0.5 * (out - targets).square().sum(1)
    expected = engine.clipped_sum(losses)
    total = torch.zeros_like(model.linear.weight, dtype=torch.float64)
    add = add_softmax if kind == "softmax" else add_squares
    add(model.linear.weight, cut, bound, total, len(x))
    torch.testing.assert_close(total.view(-1), expected.flat, rtol=1e-4, atol=1e-5 * bound)


def test_rows_on_the_grid_are_the_rows():
    """Cut to 2^-18 of a power of two above their length: exact norms, nobody looks at others."""
    x, y = rows()
    x = x * 10.0 ** torch.linspace(-30, 30, len(x))[:, None]
    x[3], x[4, 1], x[5, 1] = 0.0, float("nan"), float("inf")
    model = LinearHead(features=x.shape[1], outputs=2, constant=0.0)
    cut, _, squares, scales = model.examples(x, y)
    bad = [4, 5]
    fine = [i for i in range(len(x)) if i not in bad]
    whole = (cut.double() * scales[:, None])[fine]
    exact = model.rows(x)[fine].double()
    lengths = exact.norm(dim=1, keepdim=True)
    assert bool(((whole - exact).abs() <= 2.0**-18 * lengths.clamp(min=1e-300)).all())
    assert torch.equal(cut * 2**18, (cut * 2**18).round())
    norms = squares[[i for i in fine if i != 3]].sqrt()
    assert float(norms.max()) <= 1.01 and float(norms.min()) > 0.49
    assert not cut[bad].any() and bool(scales[bad].isnan().all())
    for i in range(0, len(x), 17):
        alone = model.examples(x[i : i + 1], y[i : i + 1])
        assert torch.equal(alone[0][0], cut[i]) and torch.equal(alone[2][0], squares[i])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
def test_bad_rows_move_the_sum_by_at_most_the_bound(bad):
    x, y = rows()
    model = head(x, 2)
    sums = []
    for value in (None, bad):
        changed = x.clone()
        if value is not None:
            changed[5, 2] = value
        total = torch.zeros_like(model.linear.weight, dtype=torch.float64)
        add_softmax(model.linear.weight, model.examples(changed, y), 0.1, total, 2**24)
        sums.append(total)
    assert float((sums[0] - sums[1]).norm()) <= 0.2 * (1 + 1e-6)  # replace-one: both within 0.1


@pytest.mark.slow
def test_same_training_as_the_engine():
    x, y = rows()
    schedule = Schedule(steps=8, sample_rate=0.5, noise_multiplier=1.0, clipping_bound=0.2)
    plan = DPSGDPlan(
        facts=FACTS, schedule=schedule, learning_rates=schedule.bounds, momentum=0.9, closed=True
    )
    ledger = Ledger.in_memory(cap_epsilon=50.0, cap_delta=1e-5, adjacency=plan.stated_adjacency)
    context = ReleaseContext(ledger=ledger, rng=seeded(3), plan=plan)
    closed, model = head(x, 2, seed=4), head(x, 2, seed=4)
    descend(closed, closed.examples(x, y), add_softmax, plan, context, None, lambda save: None)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9, nesterov=True)
    with private(
        model, optimizer, (x, y), schedule, delta=1e-5, rng=seeded(3),
        step=StepOptions(micro_batch=32),
    ) as run:  # fmt: skip
        for batch in run:
            run.step(nn.functional.cross_entropy(model(batch.x), batch.y, reduction="none"))
    torch.testing.assert_close(closed.linear.weight, model.linear.weight, rtol=1e-3, atol=1e-5)
    assert context.steps == 8
    assert context.loss.epsilon(1e-5) == run.guarantee.epsilon
    backing = {
        p.about: p.backing for p in state_guarantee(plan, context.loss, context.rng).premises
    }
    assert {backing[about] for about in ("sum", "company", "mixing")} == {Backing.ENFORCED}


FACTS = PublicFacts(records=200, features=6, outputs=2, epsilon=2.0, delta=1e-5)


def records() -> Records:
    x, y = rows()
    null = np.zeros(len(x), dtype=bool)
    held = Rows(values=x.numpy() * np.float32(1.0 - 1e-6), kind=RowKind.BALL, null=null)
    return Records(rows=held, targets=y.numpy(), outputs=2, n_public=200)


@pytest.mark.slow
@pytest.mark.parametrize("told", [{}, {"sample_rate": 0.2, "steps": 20}, {"centre": 0.0}])
def test_plan_spends_the_budget(told):
    method = LinearDPSGD(**told)
    plan = method.plan(FACTS)
    assert 1.99 < plan.loss.epsilon(1e-5) <= 2.0
    found = train(method, records(), plan, rng=seeded(0))
    assert found.guarantee.epsilon == pytest.approx(plan.loss.epsilon(1e-5), rel=1e-9)
    assert len(found.entries) == (1 if told.get("centre") == 0.0 else 3)
    assert found.claim.epsilon > 0.0


def test_refused_before_anything():
    ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5)
    method = LinearDPSGD()
    with pytest.raises(BudgetExceeded):
        train(method, records(), method.plan(FACTS), ledger=ledger, rng=seeded(0))
    assert len(ledger) == 0


@pytest.mark.slow
@pytest.mark.parametrize("secret", [False, True])
def test_resume_takes_the_released_mean(tmp_path, secret):
    """Interrupted while it goes on; the mean is charged once, and seeded weights are the same."""
    ledger = Ledger.in_memory(cap_epsilon=50.0, cap_delta=1e-5)
    method = LinearDPSGD(steps=8)
    plan = method.plan(FACTS)

    class Stop(Exception):
        pass

    def stop(what, done, of):
        if done == 5:
            raise Stop

    def source():
        return secure() if secret else seeded(1)

    with pytest.raises(Stop):
        train(method, records(), plan, ledger=ledger, rng=source(), progress=stop, folder=tmp_path)
    found = train(
        method, records(), plan, ledger=ledger, rng=source(), folder=tmp_path, resume=True
    )
    assert sum("mean" in entry.what for entry in ledger.entries()) == 1
    if secret:
        assert found.guarantee.epsilon > plan.loss.epsilon(1e-5)  # steps were made twice
        return
    whole = train(method, records(), plan, rng=source(), folder=tmp_path / "other")
    assert np.array_equal(whole.model.weights, found.model.weights)
    assert found.guarantee.epsilon == pytest.approx(plan.loss.epsilon(1e-5), rel=1e-9)


def test_network_method():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    method = NetworkDPSGD(network=network, steps=10)
    found = train(method, records(), method.plan(FACTS), rng=seeded(0))
    assert 1.98 < found.guarantee.epsilon <= 2.0 and found.steps == 10


@pytest.mark.parametrize("wish", ["steps", "sample_rate", "clipping_bound", "learning_rate"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_wish_that_means_nothing_is_refused(wish: str, value: int) -> None:
    """Not taken for "by rule", which would spend the budget on what nobody asked for."""
    with pytest.raises(InvalidArgument, match=wish):
        LinearDPSGD(**{wish: value})
