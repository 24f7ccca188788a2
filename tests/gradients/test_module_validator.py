"""Layers that mix examples are refused by name, and replaced."""

from __future__ import annotations

import pytest
import torch
from oracle import engine_sum, example_gradients, oracle, relative_error, squared_outputs
from torch import nn

from privet.errors import InvalidArgument
from privet.gradients import FlatClipping, PerExampleGradients, make_private_ready


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.bn = nn.BatchNorm2d(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.bn(self.conv(x)))


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.BatchNorm3d(4), nn.SyncBatchNorm(4),
        nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        nn.Embedding(4, 4, max_norm=1.0), nn.Embedding(4, 4, scale_grad_by_freq=True),
    ],
    ids=lambda layer: str(layer)[:40],
)  # fmt: skip
def test_refused_by_name(layer: nn.Module) -> None:
    model = nn.Sequential()
    model.add_module("stem", nn.Identity())
    model.add_module("culprit", layer)
    with pytest.raises(InvalidArgument, match=r"'culprit'.*make_private_ready") as caught:
        PerExampleGradients(model)
    assert type(layer).__name__ in str(caught.value)
    PerExampleGradients(make_private_ready(model))


def test_ready_model_trains() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(Body(), nn.Flatten(), nn.Linear(6 * 16, 5), nn.BatchNorm1d(5))
    with torch.no_grad():
        model[0].bn.weight.uniform_(0.5, 2.0)
    parameters = list(model.parameters())
    ready = make_private_ready(model)
    assert ready is model
    assert isinstance(ready[0].bn, nn.GroupNorm) and ready[0].bn.num_channels == 6
    assert all(p is q for p, q in zip(parameters, ready.parameters(), strict=True))
    x, clipping = torch.randn(6, 3, 6, 6), FlatClipping(bound=1.0)
    engine = PerExampleGradients(ready)
    found = engine_sum(engine, squared_outputs, x, clipping=clipping)
    expected = oracle(engine, clipping, example_gradients(ready, squared_outputs, x))
    assert relative_error(found, expected) < 1e-5


def test_frozen_batch_norm_in_evaluation_mode_passes() -> None:
    model = nn.Sequential(Body(), nn.Flatten(), nn.Linear(6 * 16, 5))
    model[0].bn.eval().requires_grad_(False)
    engine = PerExampleGradients(model)
    engine_sum(engine, squared_outputs, torch.randn(4, 3, 6, 6))
    model.train()
    with pytest.raises(InvalidArgument, match=r"'0\.bn'"), engine.recording():
        pass


@pytest.mark.parametrize("channels", [1, 2, 3, 7, 24, 96, 100])
def test_groups_divide_the_channels(channels: int) -> None:
    norm = make_private_ready(nn.BatchNorm2d(channels))
    assert isinstance(norm, nn.GroupNorm)
    assert channels % norm.num_groups == 0 and norm.num_groups <= 32


def test_a_layer_under_two_names_is_replaced_once() -> None:
    norm = nn.BatchNorm1d(4)
    model = make_private_ready(nn.Sequential(norm, nn.Linear(4, 4), norm))
    assert isinstance(model[0], nn.GroupNorm) and model[0] is model[2]
