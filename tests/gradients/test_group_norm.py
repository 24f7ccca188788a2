"""GroupNorm's own backward pass: in both layouts, in every dimension, in pieces."""

from __future__ import annotations

import pytest
import torch
from oracle import engine_sum, example_gradients, oracle, squared_outputs, worst_relative_error
from torch import nn

from privet.gradients import FlatClipping, PerExampleGradients, group_norm

LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


@pytest.mark.parametrize("shape", [(4, 12), (4, 6, 5), (4, 6, 5, 3), (4, 6, 3, 2, 5)])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("mean", [0.0, 30.0])
def test_equals_torch(shape: tuple[int, ...], last: bool, affine: bool, mean: float) -> None:
    x = (torch.randn(shape) + mean).requires_grad_()
    if last and len(shape) in LAYOUTS:
        x = x.detach().contiguous(memory_format=LAYOUTS[len(shape)]).requires_grad_()
    weight, bias = (torch.randn(shape[1]), torch.randn(shape[1])) if affine else (None, None)
    wide = x.detach().double().requires_grad_()
    w = None if weight is None else weight.double().expand(*shape[:2])
    w = None if w is None else w.clone().requires_grad_()
    g = torch.randn_like(x)
    xhat = nn.functional.group_norm(wide, 3)
    scaled = xhat if w is None else xhat * w.view(*w.shape, *[1] * (len(shape) - 2))
    expected = torch.autograd.grad(scaled, wide, g.double(), retain_graph=True)[0]
    _, m, r = group_norm._forward(x.detach(), weight, bias, 3, 1e-5)
    dx, sums = group_norm._backward(x.detach(), g, m, r, weight)
    assert dx.stride() == x.stride() or len(shape) < 4
    tolerance = 1e-5 if mean == 0.0 else 2e-4  # float32 cannot hold the deviations any better
    torch.testing.assert_close(dx.double(), expected, rtol=tolerance, atol=tolerance)
    if w is not None:
        per_row = torch.autograd.grad(scaled, w, g.double())[0]
        torch.testing.assert_close(
            sums[:, 0].double(), per_row, rtol=tolerance, atol=tolerance * 10
        )
    total = g.double().flatten(2).sum(2) if g.dim() > 2 else g.double()
    torch.testing.assert_close(sums[:, 1].double(), total, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_one_of_two_frozen_and_several_pieces(frozen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_norm, "CACHE_BYTES", 1)
    norm = nn.GroupNorm(2, 4)
    nn.init.normal_(norm.weight)
    norm.get_parameter(frozen).requires_grad_(False)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3))
    engine, clipping = PerExampleGradients(model), FlatClipping(bound=1.0)
    (x,) = engine.prepare(torch.randn(6, 2, 8, 8))
    expected = oracle(engine, clipping, example_gradients(model, squared_outputs, x))
    for views in (1, 2):
        if views == 2:
            expected = oracle(
                engine, clipping, example_gradients(model, squared_outputs, x, views=2)
            )
        found = engine_sum(engine, squared_outputs, x, clipping=clipping, views=views)
        assert worst_relative_error(found, expected) < 1e-5


def test_one_layer_used_twice() -> None:
    norm = nn.GroupNorm(2, 4)
    model = nn.Sequential(nn.Conv2d(2, 4, 1), norm, nn.Tanh(), norm, nn.Conv2d(4, 1, 1))
    engine, clipping = PerExampleGradients(model), FlatClipping(bound=0.5)
    (x,) = engine.prepare(torch.randn(5, 2, 4, 4))
    found = engine_sum(engine, squared_outputs, x, clipping=clipping)
    expected = oracle(engine, clipping, example_gradients(model, squared_outputs, x))
    assert worst_relative_error(found, expected) < 1e-5


def test_a_norm_behind_a_frozen_convolution_does_not_end_the_process():
    """torch 2.13.0: SIGSEGV in its backward pass where a channels-last input needs no gradient."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.GroupNorm(4, 8), nn.Flatten(), nn.Linear(8 * 16, 2)
    )
    model[0].requires_grad_(False)
    engine = PerExampleGradients(model)
    engine.prepare()
    assert not engine.rearranges
    (x,) = engine.arrange(torch.randn(5, 3, 6, 6))
    torch.autograd.grad(model(x).square().sum(), [p for p in model.parameters() if p.requires_grad])
    model[0].requires_grad_(True)
    assert PerExampleGradients(model).rearranges
