"""Layer-wise relevance: conservation, oracles, what is refused, and the private average."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from privet.errors import InvalidArgument
from privet.networks.bounded_layers import LocalResponseNorm, MinMax
from privet.networks.relevance import (
    Add,
    Residual,
    StabiliserRule,
    accounted_relevance,
    average_relevance,
    relevance,
    scale_to_unit_interval,
    scale_to_unit_l1,
)

EXACT = StabiliserRule(stabiliser=0.0)


def _flat(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(5))


class Branches(nn.Module):
    """Written with functions: relu, addition, concatenation, a product with a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.out = nn.Linear(16, 8), nn.Linear(16, 8), nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        a, b = torch.relu(self.a(x)), self.b(x)
        b += 0.5 * a
        return self.out(torch.cat([a, torch.nn.functional.leaky_relu(b)], 1))


def _trained_batch_norm() -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(6)
    norm.running_mean.copy_(torch.randn(6))
    norm.running_var.copy_(torch.rand(6) + 0.5)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def _ranged() -> MinMax:
    layer = MinMax(7)
    layer(torch.randn(50, 7))
    return layer


def _group_norm() -> nn.GroupNorm:
    norm = nn.GroupNorm(2, 6)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


CASES = {
    "dense": (16,), "dense min-max": (16,), "layer norm": (16,), "functions": (16,),
    "conv1d": (2, 12), "conv2d": (1, 8, 8), "conv3d": (1, 6, 6, 6), "strided": (3, 9, 9),
    "batch norm": (1, 8, 8), "group norm": (1, 8, 8), "residual": (4, 6, 6), "lrn": (1, 8, 8),
    "adaptive": (1, 9, 9), "sigmoid tanh": (1, 8, 8), "in place": (1, 8, 8),
}  # fmt: skip


def network(name: str) -> nn.Module:
    torch.manual_seed(1)
    built = {
        "dense": lambda: nn.Sequential(
            nn.Linear(16, 9), nn.ReLU(), nn.Dropout(), nn.Identity(), nn.Linear(9, 5)
        ),
        "dense min-max": lambda: nn.Sequential(nn.Linear(16, 7), _ranged(), nn.Linear(7, 5)),
        "layer norm": lambda: nn.Sequential(
            nn.Linear(16, 9), nn.LayerNorm(9), nn.GELU(), nn.Linear(9, 5)
        ),
        "functions": Branches,
        "conv1d": lambda: _flat(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.AvgPool1d(2)),
        "conv2d": lambda: _flat(
            nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 4, 2), nn.ReLU()
        ),
        "conv3d": lambda: _flat(nn.Conv3d(1, 3, 3), nn.Tanh(), nn.MaxPool3d(2)),
        "strided": lambda: _flat(
            nn.Conv2d(3, 6, 3, stride=2, padding=1, groups=3), nn.ReLU(), nn.AvgPool2d(2)
        ),
        "batch norm": lambda: _flat(nn.Conv2d(1, 6, 3), _trained_batch_norm(), nn.ReLU()),
        "group norm": lambda: _flat(nn.Conv2d(1, 6, 3), _group_norm(), nn.ReLU()),
        "residual": lambda: _flat(
            Residual(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())), nn.ReLU(),
            Residual(nn.Conv2d(4, 6, 1), nn.Conv2d(4, 6, 1)),
        ),
        "lrn": lambda: _flat(nn.Conv2d(1, 6, 3), nn.ReLU(), LocalResponseNorm()),
        "adaptive": lambda: _flat(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.AdaptiveMaxPool2d(2)),
        "sigmoid tanh": lambda: _flat(
            nn.Conv2d(1, 6, 3), nn.Sigmoid(), nn.Conv2d(6, 3, 3), nn.Tanh(), nn.AvgPool2d(2)
        ),
        "in place": lambda: _flat(nn.Conv2d(1, 6, 3), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
    }[name]()  # fmt: skip
    built(torch.rand(2, *CASES[name]))
    return built.double()


@pytest.mark.slow
@pytest.mark.parametrize("stabiliser", [0.0, 1e-2, 1.0])
@pytest.mark.parametrize("name", sorted(CASES))
def test_nothing_is_lost(name, stabiliser):
    model = network(name)
    x = torch.rand(7, *CASES[name], dtype=torch.float64)
    y = torch.arange(7) % 5
    found = accounted_relevance(model, x, y, rule=StabiliserRule(stabiliser=stabiliser))
    total = found.inputs.flatten(1).sum(1) + found.absorbed
    size = found.inputs.flatten(1).abs().sum(1) + 1.0
    assert ((total - found.outcome).abs() <= 1e-9 * size).all()
    with torch.no_grad():
        assert torch.allclose(found.outcome, model.eval()(x)[torch.arange(7), y], rtol=1e-9)
    assert torch.equal(
        relevance(model, x, y, rule=StabiliserRule(stabiliser=stabiliser)), found.inputs
    )


def test_eq_9_holds_without_biases_and_stabiliser():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3, bias=False)
    ).double()  # fmt: skip
    x = torch.rand(5, 1, 8, 8, dtype=torch.float64)
    found = relevance(model, x, rule=EXACT)
    assert torch.allclose(found.flatten(1).sum(1), model(x).amax(1), rtol=1e-10)


def _by_hand(
    weights: list[Tensor], biases: list[Tensor], x: Tensor, target: int, mu: float
) -> Tensor:
    """Eqs. 4-8 as written, with loops, for one record and ReLU between layers."""
    values, sums = [x], []
    for W, b in zip(weights, biases, strict=True):
        sums.append(values[-1] @ W + b)
        values.append(torch.relu(sums[-1]))
    R = torch.zeros_like(sums[-1])
    R[target] = sums[-1][target]
    for W, p, z in zip(weights[::-1], values[-2::-1], sums[::-1], strict=True):
        below = torch.zeros_like(p)
        for i in range(len(p)):
            for m in range(len(z)):
                below[i] += p[i] * W[i, m] / (z[m] + (mu if z[m] >= 0 else -mu)) * R[m]
        R = below
    return R


@pytest.mark.parametrize("mu", [1e-6, 0.1, 2.0])
def test_equals_the_papers_equations_written_out(mu):
    torch.manual_seed(3)
    sizes = [6, 5, 4, 3]
    model = nn.Sequential(*(
        layer for i in range(3) for layer in (nn.Linear(sizes[i], sizes[i + 1]), nn.ReLU())
    ))[:-1].double()  # fmt: skip
    linear = [m for m in model if isinstance(m, nn.Linear)]
    x = torch.rand(4, 6, dtype=torch.float64)
    found = relevance(model, x, torch.tensor([0, 1, 2, 1]), rule=StabiliserRule(stabiliser=mu))
    for i, target in enumerate([0, 1, 2, 1]):
        expected = _by_hand(
            [m.weight.T for m in linear], [m.bias for m in linear], x[i], target, mu
        )
        assert torch.allclose(found[i], expected.detach(), rtol=1e-9, atol=1e-12)


class _Reshape(nn.Module):
    """captum cannot follow nn.Flatten."""

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features, self.head = features, head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mu", [1e-6, 1e-2, 0.5])
@pytest.mark.parametrize("kind", ["max", "average", "batch norm", "tanh"])
def test_agrees_with_captum(kind, mu):
    captum = pytest.importorskip("captum.attr")
    from captum.attr._utils.lrp_rules import EpsilonRule, IdentityRule

    torch.manual_seed(2)
    middle = {
        "max": [nn.ReLU(), nn.MaxPool2d(2)],
        "average": [nn.ReLU(), nn.AvgPool2d(2)],
        "batch norm": [_trained_batch_norm(), nn.ReLU()],
        "tanh": [nn.Tanh()],
    }[kind]
    features = nn.Sequential(nn.Conv2d(1, 6, 3), *middle, nn.Conv2d(6, 4, 3), nn.ReLU())
    width = features(torch.rand(1, 1, 8, 8)).numel()
    model = _Reshape(features, nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 3)))
    model = model.double().eval()
    x, y = torch.rand(6, 1, 8, 8, dtype=torch.float64), torch.arange(6) % 3
    ours = relevance(model, x, y, rule=StabiliserRule(stabiliser=mu))
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear, nn.AvgPool2d, nn.BatchNorm2d)):
            module.rule = EpsilonRule(epsilon=mu)
        if isinstance(module, nn.MaxPool2d):  # captum stabilises the winner too; we pass it on
            module.rule = EpsilonRule(epsilon=1e-14)
        if isinstance(module, (nn.ReLU, nn.Tanh)):
            module.rule = IdentityRule()
    theirs = captum.LRP(model).attribute(x, target=y)
    assert torch.allclose(ours, theirs.detach(), rtol=1e-6, atol=1e-9)


def test_model_is_left_as_it_was():
    model = network("batch norm").train()
    model[0].weight.requires_grad_(False)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    x = torch.rand(3, 1, 8, 8, dtype=torch.float64)
    kept = x.clone()
    relevance(model, x)
    assert all(m.training for m in model.modules())
    assert [p.requires_grad for p in model.parameters()] == [False] + [True] * 5
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(not m._forward_hooks for m in model.modules())
    assert torch.equal(x, kept) and not x.requires_grad


@pytest.mark.parametrize("tail", [nn.Softmax(1), nn.LogSoftmax(1), nn.Bilinear(5, 5, 5)])
def test_operations_without_a_rule_are_refused_by_name(tail):
    class Ends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.tail = nn.Linear(4, 5), tail

        def forward(self, x: Tensor) -> Tensor:
            z = self.body(x)
            return self.tail(z, z) if isinstance(self.tail, nn.Bilinear) else self.tail(z)

    with pytest.raises(InvalidArgument, match="operations that have a relevance rule"):
        relevance(Ends(), torch.rand(2, 4))


def test_functional_activations_are_refused_instead_of_wrong():
    class Functional(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(x)

    with pytest.raises(InvalidArgument, match="Tanh"):
        relevance(Functional(), torch.rand(2, 4))


def test_bad_arguments_say_what_is_wrong():
    model = nn.Linear(4, 3)
    with pytest.raises(InvalidArgument, match="targets"):
        relevance(model, torch.rand(2, 4), torch.zeros(3, dtype=torch.long))
    with pytest.raises(InvalidArgument, match="records of real numbers"):
        relevance(model, torch.ones(2, 4, dtype=torch.long))
    with pytest.raises(InvalidArgument, match="stabiliser"):
        StabiliserRule(stabiliser=-1.0)
    with pytest.raises(InvalidArgument, match="at least one record"):
        average_relevance(model, torch.rand(0, 4))


def test_sums_of_exactly_zero_stay_finite():
    model = nn.Sequential(nn.Linear(3, 2), nn.Sigmoid(), nn.Linear(2, 2))
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[0].bias)
    assert relevance(model, torch.rand(2, 3)).isfinite().all()
    assert relevance(model, torch.zeros(2, 3), rule=EXACT).isfinite().all()


def test_add_is_a_sum():
    assert Add()(torch.tensor(1.0), torch.tensor(2.0)) == 3.0


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(1, 9))
def test_average_does_not_depend_on_the_batch_size(seed, batch_size):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3))
    x, y = torch.rand(9, 6), torch.randint(0, 3, (9,))
    whole = scale_to_unit_interval(relevance(model, x, y)).double().mean(0).numpy()
    parts = average_relevance(model, x, y, batch_size=batch_size)
    np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@given(st.lists(st.lists(st.floats(-1e30, 1e30), min_size=4, max_size=4), min_size=1, max_size=5))
def test_normalisations_have_their_range(rows):
    R = torch.tensor(rows, dtype=torch.float64)
    scaled = scale_to_unit_interval(R)
    assert (scaled >= 0).all() and (scaled <= 1).all()
    norms = scale_to_unit_l1(R).abs().sum(1)
    assert (norms <= 1 + 1e-12).all()
    assert (norms[R.abs().sum(1) > 0] >= 1 - 1e-12).all()
