"""What the guard of a step takes for a change of state: values, and nothing else."""

import pytest
import torch
from torch import nn

from privet.errors import InvalidArgument, PrivetError
from privet.methods.dpsgd.side_effects import StateGuard
from tests.methods.dpsgd.helpers import data, losses_of, start

COMPLEX = torch.complex(torch.arange(3.0), torch.ones(3))


def guarded(value):
    model = nn.Module()
    model.register_buffer("state", value)
    guard = StateGuard(model)
    guard.begin_step()
    return guard, model.state


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(12.0).view(3, 4),
        torch.arange(12.0).view(3, 4).t(),
        torch.tensor([float("nan"), 1.0]),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.zeros(20, dtype=torch.bool)[1:],
        torch.ones(1).expand(3),
        torch.tensor(3),
        torch.empty(0, 3),
        COMPLEX,
        COMPLEX.conj(),
        torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
        torch.view_as_real(COMPLEX)[:1, 1],
    ],
)
def test_state_that_stays_is_taken_and_a_changed_number_is_not(value):
    guard, state = guarded(value)
    guard.check_step()
    if state.numel():
        state.data = state.data.clone()
        guard.check_step()
        state.data[(-1,) * state.dim()] = state.dtype is torch.bool or 7
        with pytest.raises(InvalidArgument, match="'state' of the model"):
            guard.check_step()


@pytest.mark.parametrize("before", [torch.randn(3, 4), torch.randn(4, 3).t()])
def test_the_same_numbers_may_lie_otherwise(before):
    """A copy that lies otherwise was refused as a change, since one was noted by its digest."""
    guard, state = guarded(before)
    lying = state.t().contiguous().t() if state.is_contiguous() else state.contiguous()
    assert lying.is_contiguous() != state.is_contiguous()
    state.data = lying
    guard.check_step()
    state.data[0, 0] += 1.0
    with pytest.raises(InvalidArgument, match="'state' of the model"):
        guard.check_step()


def test_other_numbers_that_lie_alike_are_refused():
    guard, state = guarded(torch.randn(4, 4))
    state.data = state.data.t()
    with pytest.raises(InvalidArgument, match="'state' of the model"):
        guard.check_step()


def test_state_that_moves_between_steps_is_read_where_it_lies():
    """Where a tensor lies is remembered from step to step: a stale place would see no change."""
    guard, state = guarded(torch.arange(6.0))
    guard.begin_step()
    state.numpy()[2] = 9.0  # leaves no trace in the version
    with pytest.raises(InvalidArgument, match="'state' of the model"):
        guard.check_step()
    before = state.data
    state.data = before.clone()
    guard.begin_step()
    before[0] = 7.0  # no longer the model's
    guard.check_step()
    state.numpy()[0] = 7.0
    with pytest.raises(InvalidArgument, match="'state' of the model"):
        guard.check_step()


@pytest.mark.parametrize("how", ["replace", "add", "remove", "write"])
def test_a_part_that_touches_state_is_refused_by_name(how):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].register_buffer("seen", torch.zeros(1))
    guard = StateGuard(model)
    guard.begin_part()
    guard.check_part()
    if how == "replace":
        model[1].seen = torch.zeros(1)
    elif how == "add":
        model[1].register_buffer("other", torch.zeros(1))
    elif how == "remove":
        del model[1].seen
    else:
        model[1].seen += 1
    names = {"add": "'1.other'", "remove": "is gone"}
    with pytest.raises(InvalidArgument, match=names.get(how, "'1.seen'")):
        guard.check_part()


@pytest.mark.parametrize("before", [torch.arange(4.0), torch._neg_view(torch.arange(4.0))])
def test_a_sign_that_is_kept_beside_the_numbers_counts(before):
    """It changes no byte of the memory."""
    guard, state = guarded(before)
    guard.begin_step()
    guard.check_step()
    state.data = torch._neg_view(state.data)
    with pytest.raises(InvalidArgument, match="'state' of the model"):
        guard.check_step()


def test_two_parameters_may_not_change_places():
    """Equal values, but of other groups of the optimiser."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    guard = StateGuard(model)
    guard.begin_part()
    model[0].bias, model[1].bias = model[1].bias, model[0].bias
    with pytest.raises(InvalidArgument, match=r"'0\.bias' of the model"):
        guard.check_part()


@pytest.mark.slow
def test_what_a_loop_body_does_beside_the_steps_is_noticed():
    """An evaluation of which nobody spoke is a premise; a step of one's own has no noise."""

    def premises_of(*, look, **told):
        with start(losses=losses_of, **told) as training:
            for _ in training:
                if look:
                    training.model(data()[0][:5])
        return {p.about: p.text for p in training.guarantee.premises}

    assert "evaluation" not in premises_of(look=False)
    with pytest.warns(UserWarning, match=r"Charging\(evaluation='public'\)") as seen:
        found = premises_of(look=True)
    assert len(seen) == 1 and "are public" in found["evaluation"]
    premises_of(look=True, evaluation="public")  # without a word
    with start(losses=losses_of) as training:
        steps = iter(training)
        next(steps)
        with pytest.raises(PrivetError, match=r"take loss.backward\(\) and optimizer.step\(\) out"):
            training.optimizer.step()
        steps.close()
    training.optimizer.step()  # the model is one's own again
