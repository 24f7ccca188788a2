"""Before anything is spent: the engine's gradients are the model's own."""

import pytest
import torch
from torch import nn

from privet.dpsgd import Schedule, private
from privet.errors import InvalidArgument
from privet.gradients.custom_layer import RuleHandler
from privet.noise import seeded
from tests.methods.dpsgd.helpers import data, losses_of, start
from tests.methods.dpsgd.helpers import run as run_losses


class Scale(nn.Module):
    """y = w x, number by number."""

    def __init__(self, width=5):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, x):
        return self.weight * x


def right(module, x, g):
    return {"weight": x * g}


def doubled(module, x, g):
    return {"weight": 2.0 * x * g}


def of_the_next(module, x, g):
    """Attack: everybody's gradient is their neighbour's."""
    return {"weight": (x * g).roll(1, 0)}


def only_sums(module, x, g):
    return {"weight": (x * g).sum(0)}


def run(rule, **kw):
    model = nn.Sequential(Scale(), nn.Linear(5, 2), *kw.pop("more", ()))
    schedule = Schedule(steps=2, sample_rate=0.5, noise_multiplier=1.0)
    how = {"layers": {Scale: rule}, "independence": "tested"}
    return run_losses(model=model, schedule=schedule, **how, **kw)


@pytest.mark.parametrize("views", [1, 2])
def test_a_rule_of_ones_own(views):
    training = run(right, views=views)
    assert training.steps_done == 2
    assert isinstance(training._evaluation.engine._layers.handlers[0], RuleHandler)


@pytest.mark.parametrize("rule", [doubled, of_the_next])
def test_a_wrong_rule_is_found_before_anything_is_charged(rule):
    with pytest.raises(InvalidArgument, match=r"'0.weight'|values that depend on|norms of single"):
        run(rule)


def test_a_rule_must_give_a_gradient_a_row():
    with pytest.raises(InvalidArgument, match="the rule for layer '0'"):
        run(only_sums)


@pytest.mark.parametrize("rule", [right, doubled])
def test_dropout_does_not_hide_it(rule):
    class Odd(nn.Module):
        """Draws in another order when the engine runs it row by row."""

        def __init__(self):
            super().__init__()
            self.shift = nn.Parameter(torch.zeros(2))

        def forward(self, x):
            return nn.functional.dropout(x + self.shift, 0.5, self.training)

    if rule is right:
        assert run(rule, more=(Odd(),)).steps_done == 2
    else:
        with pytest.raises(InvalidArgument, match=r"'0.weight'"):
            run(rule, more=(Odd(),))


def test_modes_come_back():
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    model[0].eval()
    run_losses(model=model)
    assert [m.training for m in model] == [False, True, True]


def test_integers_that_mix_are_found():
    """A batch of words or classes can mix as well as one of numbers."""
    x, y = data()

    def weighed(model, batch):
        return losses_of(model, batch) * (1.0 + batch.y.float().mean())

    with pytest.raises(InvalidArgument, match="depend on the other rows"):
        start(tensors=(x, y)).check(weighed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["columns", "rows", "memory map"])
def test_columns_by_name(kind, tmp_path):
    x, y = data()
    columns = {"x": x, "labels": y}
    dataset = columns
    if kind == "rows":
        dataset = [
            {"x": row.tolist(), "labels": int(label)} for row, label in zip(x, y, strict=True)
        ]
    if kind == "memory map":
        import numpy as np

        np.save(tmp_path / "x.npy", x.numpy())
        dataset = {"x": np.load(tmp_path / "x.npy", mmap_mode="r"), "labels": y.numpy()}
    seen = []
    with start(tensors=dataset) as training:
        for batch in training:
            both = dict(**batch)
            seen.append(both["x"].clone())
            out = training.model(both["x"].add_(0.0))
            training.step(nn.functional.cross_entropy(out, batch["labels"], reduction="none"))
    with start(tensors=(x, y)) as training:
        expected = []
        for batch in training:
            expected.append(batch.x.clone())
            training.step(losses_of(training.model, batch))
    assert all(torch.equal(a, b) for a, b in zip(seen, expected, strict=True))
    with pytest.raises(InvalidArgument, match="'labels'"):
        batch["labels"]


def test_weights_in_half_precision_train():
    """The sum and its noise stay in float64; only the step itself is rounded to the weights."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2)).bfloat16()
    before = [p.detach().clone() for p in model.parameters()]
    x = torch.randn(40, 10)
    schedule = Schedule(steps=3, sample_rate=0.5, noise_multiplier=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with private(
        model, optimizer, (x, (x[:, 0] > 0).long()), schedule, delta=1e-5, rng=seeded(0)
    ) as training:
        for batch in training:
            logits = model(batch.x.bfloat16()).float()
            training.step(nn.functional.cross_entropy(logits, batch.y, reduction="none"))
    assert training.steps_done == 3
    for old, new in zip(before, model.parameters(), strict=True):
        assert new.dtype == torch.bfloat16 and not torch.equal(old, new)
