"""The buffer of the clipped sum: a new step overwrites the old one, whoever writes and reads it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from privet.gradients import FlatClipping, PerExampleGradients


class Tied(nn.Module):
    """Two uses of one weight, a convolution, and a layer that is left out on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3, padding=1)
        self.shared = nn.Linear(4, 4)
        self.sometimes = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)
        self.with_all = True

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x).mean(2)
        x = self.shared(torch.tanh(self.shared(x)))
        return self.head(self.sometimes(x) if self.with_all else x)  # type: ignore[no-any-return]


def losses(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).square().mean(1)  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("left_behind", [1.0, math.nan, math.inf])
@pytest.mark.parametrize("with_all", [True, False])
@pytest.mark.parametrize("micro_batch", [3, 8])
def test_nothing_of_the_last_step_is_left(
    left_behind: float, with_all: bool, micro_batch: int
) -> None:
    torch.manual_seed(0)
    model, x = Tied(), torch.randn(8, 1, 5)
    engine = PerExampleGradients(model, clipping=FlatClipping(bound=0.1))
    used = engine.accumulate(losses, x, micro_batch=micro_batch)
    model.with_all = with_all
    fresh = engine.accumulate(losses, x, micro_batch=micro_batch)
    used.flat.fill_(left_behind)
    engine.accumulate(losses, x, micro_batch=micro_batch, into=used.reset())
    assert torch.equal(used.flat, fresh.flat)
    assert all(torch.equal(used.gradients[k], v) for k, v in fresh.gradients.items())
    assert bool(fresh.gradients["sometimes.weight"].any()) == with_all


def test_an_empty_step_is_zero() -> None:
    model = nn.Linear(3, 2)
    engine = PerExampleGradients(model)
    total = engine.zeros()
    total.flat.fill_(math.nan)
    engine.accumulate(losses, torch.zeros(0, 3), into=total.reset())
    assert not total.flat.any()
    total.flat.fill_(math.nan)
    total.reset().assign_to(model, divisor=2.0)
    assert model.weight.grad is not None and not model.weight.grad.any()


def test_a_bad_row_is_not_written_over_the_last_step() -> None:
    torch.manual_seed(1)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(5, 3)
    engine = PerExampleGradients(model)
    total = engine.accumulate(losses, x)
    without = engine.accumulate(losses, x[1:]).flat
    x[0] = math.nan
    engine.accumulate(losses, x, into=total.reset())
    assert torch.allclose(total.flat, without, rtol=1e-6, atol=1e-7)
    assert total.non_finite_unprotected == 1


@pytest.mark.parametrize(
    ("norm", "shape"), [(nn.LayerNorm(6), (5, 6)), (nn.GroupNorm(2, 6), (6, 5))]
)
def test_a_norm_whose_bias_is_its_weight_stays_within_the_bound(
    norm: nn.Module, shape: tuple[int, ...]
) -> None:
    """|a|^2 + |b|^2 was taken for |a + b|^2: one example moved the sum by 1.41 for 1."""
    norm.bias = norm.weight
    engine = PerExampleGradients(norm, clipping=FlatClipping(bound=1.0))
    x = 3 * torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))
    with engine.recording():
        each = 100 * norm(x).flatten(1).sum(1)
    total = engine.clipped_sum(each)
    assert 0.999 < float(total.flat.norm()) <= 1.0


def test_a_model_without_trainable_layers_has_an_empty_sum() -> None:
    model = nn.Linear(3, 2).requires_grad_(False)
    engine = PerExampleGradients(model)
    x = torch.randn(4, 3, requires_grad=True)
    with engine.recording():
        each = losses(model, x)
    assert engine.clipped_sum(each).flat.numel() == 0


@pytest.mark.parametrize("how", ["data", "layout", "types"])
def test_a_gradient_that_was_given_other_memory_is_given_anew(how: str) -> None:
    """Else the next steps would apply the old one again, silently."""
    model = nn.Linear(3, 2)
    total = PerExampleGradients(model).zeros()
    for k in (1.0, 2.0):
        total.flat.fill_(k)
        total.assign_to(model, divisor=1.0)
        assert model.weight.grad is not None and bool((model.weight.grad == k).all())
        if how == "data":
            model.weight.grad.data = torch.zeros(2, 3)
        elif how == "layout":
            model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        else:
            model.double().float()
