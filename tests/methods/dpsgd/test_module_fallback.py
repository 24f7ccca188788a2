"""Modules that cannot be recorded as they are go another way by themselves, and it is said once."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from privet import premises
from privet.errors import InvalidArgument
from tests.methods.dpsgd.helpers import data, losses_of, network, run, start, weights


class Experts(nn.Module):
    """Sends each row to an expert: rows meet in another order and number."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(5, 2), nn.ModuleList(nn.Linear(5, 5) for _ in range(2))

    def forward(self, x):
        shares = self.gate(x).softmax(-1)
        out = torch.zeros_like(x)
        for k, expert in enumerate(self.experts):
            mine = (shares.argmax(-1) == k).nonzero()[:, 0]
            out = out.index_add(0, mine, expert(x[mine]) * shares[mine, k, None])
        return out


class Reads(nn.Module):
    """Reads the weight of a layer without calling it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x):
        return F.linear(x, self.layer.weight.tanh(), self.layer.bias)


class Mixes(nn.Module):
    """Sends a gradient to other rows."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x):
        y = self.layer(x)
        return y - y.mean(0)


def model_of(*kinds):
    torch.manual_seed(0)
    return nn.Sequential(*(kind() for kind in kinds), nn.Linear(5, 2))


def loop(losses=losses_of, **kw):
    """A loop body that computes the losses, checked before: there is no program of one row."""
    with start(**kw) as training:
        training.check(losses)
        for batch in training:
            training.step(losses(training.model, batch))
    return training


@pytest.mark.parametrize("kind", [Experts, Reads])
def test_the_module_goes_by_torch_func(kind):
    model = model_of(kind, nn.Tanh, kind)
    before = weights(model)
    with pytest.warns(UserWarning, match=rf"0 \({kind.__name__}\) and 1 more runs by") as told:
        training = loop(model=model)
    assert len(told) == 1 and "\n" not in str(told[0].message)
    assert not torch.equal(weights(model), before)
    assert training._evaluation.engine.through_func == {"0", "2"}
    assert premises.NO_MIXING in training.guarantee.premises


def test_what_was_named_goes_without_a_line():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop(model=model_of(Reads), through_func=["0"])


def test_a_seeded_run_is_the_same_whether_it_was_named_or_found():
    found, named = model_of(Reads), model_of(Reads)
    with pytest.warns(UserWarning, match="torch.func"):
        loop(model=found)
    loop(model=named, through_func=["0"])
    assert torch.equal(weights(found), weights(named))


def test_rows_that_mix_are_refused_in_every_way():
    with pytest.raises(InvalidArgument, match="influence each other"):
        loop(model=model_of(Mixes))


def test_losses_that_mix_are_refused_at_once():
    calls = []

    def losses(model, batch):
        calls.append(len(batch))
        each = F.cross_entropy(model(batch.x), batch.y, reduction="none")
        return each / each.detach().mean()

    with pytest.raises(InvalidArgument, match="depend on the other rows"):
        loop(losses=losses, model=network(), tensors=data())
    assert len(calls) <= 4


def test_an_error_of_the_losses_comes_through():
    def losses(model, batch):
        raise KeyError("no such column")

    with pytest.raises(KeyError, match="no such column"):
        run(losses=losses)


def test_nothing_is_charged_before():
    with start(model=model_of(Mixes), losses=lambda m, b: m(b.x).sum(1)) as training:
        with pytest.raises(InvalidArgument):
            list(training)
        assert not training.entries
