"""Pre-activated blocks: the form of equation (6)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from privet.errors import InvalidArgument
from privet.networks.residual import Perturbation, noise_modules
from privet_papers.residual.networks import JointEnsemble, PreactivatedBlock, PreactivatedResNet

pytestmark = pytest.mark.usefixtures("repeatable")


def test_a_block_is_equation_six_with_nothing_behind_the_sum() -> None:
    block = PreactivatedBlock(4, 4, 1, Perturbation(gamma=3.0), skip=True, how="batch").eval()
    nn.init.zeros_(block.second.weight)  # F = 0: what is left is x + gamma n
    x = torch.randn(200, 4, 6, 6)
    left = (block(x) - x).detach()
    assert left.min() < -6.0 < 6.0 < left.max()  # no ReLU cuts it off
    assert abs(float(left.std()) / 3.0 - 1.0) < 0.02 and abs(float(left.mean())) < 0.1
    cut = PreactivatedBlock(4, 4, 1, Perturbation(), skip=False, how="batch").eval()
    nn.init.zeros_(cut.second.weight)
    assert float(cut(x).detach().abs().max()) == 0.0


def test_shapes_and_settings() -> None:
    net = PreactivatedResNet(channels=3, classes=5, depth=14, normalisation="group")
    assert net(torch.zeros(2, 3, 16, 16)).shape == (2, 5)
    assert sum(1 for _ in noise_modules(net)) == 7  # six blocks and the input
    with pytest.raises(InvalidArgument, match="6n"):
        PreactivatedResNet(channels=1, classes=2, depth=9)
    pair = JointEnsemble([nn.Linear(3, 2), nn.Linear(3, 2)])
    x = torch.randn(4, 3)
    assert torch.allclose(pair(x), (pair.members[0](x) + pair.members[1](x)) / 2)
