"""Which optimisers are accepted; float32 masters, with which small steps in bfloat16 add up."""

import copy

import pytest
import torch
from torch import nn

from privet.dpsgd import Checkpoints, Float32Masters, Schedule
from privet.errors import InvalidArgument
from privet.gradients import make_private_ready
from privet.guarantee import Adjacency
from privet.ledger import Ledger
from tests.methods.dpsgd.helpers import Watch, data, losses_of, network, run, start

SCHEDULE = Schedule(steps=6, sample_rate=0.5, noise_multiplier=1.0, clipping_bound=0.5)


def half():
    return network().bfloat16()


def losses_in_half(model, batch):
    logits = model(batch.x.bfloat16()).float()
    return nn.functional.cross_entropy(logits, batch.y, reduction="none")


def train(model, optimizer, **kw):
    with start(
        model=model, optimizer=optimizer, tensors=data(), schedule=SCHEDULE, **kw
    ) as training:
        for batch in training:
            training.step(losses_in_half(model, batch))
    return training


def descent(lr):
    return lambda weights: torch.optim.SGD(weights, lr=lr)


def test_steps_that_bfloat16_would_swallow_add_up():
    """A step of 1e-5 of a weight is lost in 8 bits of it; six of them are in the master."""
    lost, kept = half(), half()
    before = [p.detach().clone() for p in lost.parameters()]
    train(lost, torch.optim.SGD(lost.parameters(), lr=1e-6))
    masters = Float32Masters(kept, descent(1e-6))
    start_of = {n: m.detach().clone() for n, m in masters.masters.items()}
    train(kept, masters)
    swallowed = [p[p.abs() > 0.01] for p in lost.parameters()]
    for p, q in zip(swallowed, (b[b.abs() > 0.01] for b in before), strict=True):
        assert torch.equal(p, q)
    for name, m in masters.masters.items():
        assert m.dtype == torch.float32 and not torch.equal(m, start_of[name])


def test_the_released_sum_is_applied_in_float32(monkeypatch):
    watch, model = Watch(monkeypatch), half()
    masters = Float32Masters(model, descent(1.0))
    expected = torch.cat([m.detach().double().reshape(-1) for m in masters.masters.values()])
    train(model, masters)
    assert len(watch.noisy) == 6
    for released in watch.noisy:
        expected -= released / 30.0  # q N
    found = torch.cat([m.detach().double().reshape(-1) for m in masters.masters.values()])
    assert float((found - expected).abs().max()) < 2e-6  # bfloat16 would be off by 2e-3
    for p, m in zip(model.parameters(), masters.masters.values(), strict=True):
        assert p.dtype == torch.bfloat16 and torch.equal(p, m.bfloat16())


def test_masters_are_as_good_as_float32_weights():
    """The model in float32 that starts at the same weights goes the same way, up to bfloat16 passes."""
    model = half()
    wide = network()
    wide.load_state_dict({k: v.float() for k, v in model.state_dict().items()})
    masters = Float32Masters(model, descent(0.5))
    train(model, masters)
    with start(model=wide, optimizer=torch.optim.SGD(wide.parameters(), lr=0.5),
               tensors=data(), schedule=SCHEDULE) as training:  # fmt: skip
        for batch in training:
            training.step(losses_of(wide, batch))
    for p, m in zip(wide.parameters(), masters.masters.values(), strict=True):
        assert torch.allclose(p, m, atol=0.02)


def test_a_run_is_taken_up_again_with_its_masters(tmp_path):
    def run(folder, until):
        model = half()
        masters = Float32Masters(model, lambda w: torch.optim.AdamW(w, lr=0.01))
        falling = torch.optim.lr_scheduler.StepLR(masters, 1, gamma=0.9)
        with start(model=model, optimizer=masters, tensors=data(), schedule=SCHEDULE,
                   scheduler=falling, checkpoints=Checkpoints(folder=folder, every=2)) as training:  # fmt: skip
            for batch in training:
                training.step(losses_in_half(model, batch))
                if batch.last and training.steps_done == until:
                    break
        return masters

    straight = run(tmp_path / "a", 6)
    run(tmp_path / "b", 4)
    resumed = run(tmp_path / "b", 6)
    assert straight.param_groups[0]["lr"] == pytest.approx(0.01 * 0.9**6)
    assert resumed.param_groups[0]["lr"] == straight.param_groups[0]["lr"]
    for name, m in straight.masters.items():
        assert torch.equal(m, resumed.masters[name])


def test_autocast_keeps_float32_weights():
    model = network()
    with start(model=model, tensors=data(), schedule=SCHEDULE) as training:
        for batch in training:
            with torch.autocast("cpu", torch.bfloat16):
                losses = nn.functional.cross_entropy(model(batch.x), batch.y, reduction="none")
            training.step(losses)
    assert training.steps_done == 6
    assert {p.dtype for p in model.parameters()} == {torch.float32}


# An optimiser of something else


OTHER_OPTIMIZERS = {
    "of a copy": (lambda m: copy.deepcopy(m).parameters(), "anew from model.parameters"),
    "of a part": (lambda m: m[0].parameters(), r"one without 2\.weight and 1 more.*freeze"),
    "of all and more": (lambda m: [*m.parameters(), nn.Parameter(torch.ones(1))], "1 tensors"),
}


@pytest.mark.parametrize("which", OTHER_OPTIMIZERS)
def test_an_optimizer_of_other_parameters_is_refused_before_charging(which):
    """The whole budget was spent, *proved*, and no weight moved."""
    parameters, message = OTHER_OPTIMIZERS[which]
    model, ledger = network(), Ledger.in_memory(cap_epsilon=9.0, cap_delta=1e-5)
    optimizer = torch.optim.SGD(parameters(model), lr=0.1)
    with pytest.raises(InvalidArgument, match=message) as error:
        start(model=model, optimizer=optimizer, ledger=ledger)
    assert "\n" not in str(error.value) and not ledger.entries()


def test_an_optimizer_that_asks_for_more_gradients_is_refused_before_charging(tmp_path):
    """LBFGS failed in its first step, when a quarter of the schedule was paid; a path is a ledger."""
    path, model = tmp_path / "x.ledger", network()
    Ledger.create(path, cap_epsilon=90.0, cap_delta=1e-5, adjacency=Adjacency.ZERO_OUT)
    with pytest.raises(InvalidArgument, match="needs no closure"):
        start(model=model, optimizer=torch.optim.LBFGS(model.parameters()), ledger=path)
    assert not Ledger.open(path).entries()
    assert run(ledger=str(path)).steps_done == 6
    assert Ledger.open(path).entries()


def test_parameters_that_are_frozen_may_be_left_out_of_the_optimizer():
    model = network()
    model[0].requires_grad_(False)
    frozen, before = model[0].weight.clone(), model[2].weight.clone()
    run(model=model, optimizer=torch.optim.SGD(model[2].parameters(), lr=0.5))
    assert torch.equal(model[0].weight, frozen) and not torch.equal(model[2].weight, before)


def test_an_optimizer_made_before_make_private_ready_trains():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with pytest.raises(InvalidArgument, match="make_private_ready"):
        run(model=model, optimizer=optimizer)
    make_private_ready(model)  # as people call it: the result is not looked at
    before = [p.detach().clone() for p in model.parameters()]
    run(model=model, optimizer=optimizer)
    assert not any(map(torch.equal, before, model.parameters()))
