"""Perturbed residual networks: the plain network at gamma 0, the law of the noise, the cache."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from privet.errors import InvalidArgument
from privet.networks.residual import (
    DenseResidual,
    Perturbation,
    ResidualNoise,
    ResNet,
    Strategy,
    keep_from_zero,
    noise_modules,
    perturb,
    redraw,
    resnet8,
)

BOTH = pytest.mark.parametrize("strategy", list(Strategy))


class PlainBlock(nn.Module):
    """Written again from He et al., without privet: the reference."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.stride, self.more = stride, after - before

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        x = x[:, :, :: self.stride, :: self.stride]
        zeros = x.new_zeros(x.shape[0], self.more, *x.shape[2:])
        return torch.relu(torch.cat([x, zeros], 1) + y)


class PlainResNet8(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(
            PlainBlock(16, 16, 1), PlainBlock(16, 32, 2), PlainBlock(32, 64, 2)
        )
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        return self.fc(self.blocks(torch.relu(self.bn(self.conv(x)))).mean((2, 3)))


@BOTH
def test_gamma_zero_is_the_plain_resnet_bit_for_bit(strategy):
    """Outputs and gradients, in training and in evaluation; no random number is used up."""
    plain, ours = PlainResNet8(), resnet8(gamma=0.0, strategy=strategy)
    theirs = [*plain.parameters(), *plain.buffers()]
    mine = [*ours.parameters(), *ours.buffers()]
    for a, b in zip(theirs, mine, strict=True):
        a.data.copy_(b.data)
    x, state = torch.randn(5, 3, 32, 32), torch.get_rng_state()
    for training in (True, False):
        plain.train(training), ours.train(training)
        a, b = plain(x), ours(x)
        assert torch.equal(a, b)
        a.square().sum().backward()
        b.square().sum().backward()
        for p, q in zip(plain.parameters(), ours.parameters(), strict=True):
            assert torch.equal(p.grad, q.grad)
    assert torch.equal(torch.get_rng_state(), state)


def _noises(net, x):
    """What each noise module added, and the skip it saw."""
    found = []

    def look(module, inputs, output):
        found.append((output - inputs[0], inputs[1]))

    handles = [m.register_forward_hook(look) for m in noise_modules(net)]
    with torch.no_grad():
        net(x)
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("depth", [8, 20])
def test_additive_noise_has_its_law_at_every_block(training, depth):
    """KS at every block against N(0, gamma^2); level 1e-4 a block, false alarm below 2e-3."""
    net = ResNet(depth=depth, perturbation=Perturbation(gamma=1.7), input_noise=0.85).train(
        training
    )
    found = _noises(net, torch.randn(4, 3, 32, 32))
    assert len(found) == 1 + (depth - 2) // 2
    for i, (noise, _) in enumerate(found):
        scale = 0.85 if i == 0 else 1.7
        # sums near 1 in float32: the difference has errors of 1e-7, far below what KS sees
        assert stats.kstest(noise.flatten().double().numpy() / scale, "norm").pvalue > 1e-4
    flat = [noise.flatten().numpy()[:1000] for noise, _ in found]
    assert abs(np.corrcoef(flat)[np.triu_indices(len(flat), 1)]).max() < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("training", [True, False])
def test_multiplicative_noise_has_its_law_at_every_block(training):
    """(noise / (gamma x~)) is standard normal at every block; level 1e-4 each of three."""
    law = Perturbation(strategy=Strategy.MULTIPLICATIVE, gamma=0.6, floor=0.3)
    net = ResNet(perturbation=law).train(training)
    found = _noises(net, torch.randn(4, 3, 32, 32))[1:]
    assert len(found) == 3
    for noise, skip in found:
        scale = 0.6 * keep_from_zero(skip, 0.3)
        assert scale.abs().min() >= 0.6 * 0.3 * (1 - 1e-6)
        assert stats.kstest((noise / scale).flatten().double().numpy(), "norm").pvalue > 1e-4


def test_noise_differs_between_examples_and_calls():
    net = ResNet(perturbation=Perturbation(gamma=1.0)).eval()
    x = torch.randn(1, 3, 32, 32).expand(3, -1, -1, -1)
    with torch.no_grad():
        first, second = net(x), net(x)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])


@BOTH
def test_cached_noise_is_cached(strategy):
    law = Perturbation(strategy=strategy, gamma=1.0, cached=True)
    net = ResNet(perturbation=law).eval()
    x = torch.randn(4, 3, 32, 32)
    with torch.no_grad():
        first, second = net(x), net(x)
        assert torch.equal(first, second)
        assert torch.allclose(net(x[1:2]), first[1:2], atol=1e-5)  # whoever else is in the batch
        redraw(net)
        assert not torch.allclose(net(x), first, atol=1e-3)
    (noise, skip), *_ = _noises(net, x)[1:]
    scale = torch.ones_like(skip) if strategy is Strategy.ADDITIVE else skip
    seen = (scale[0].abs() > 0.1) & (scale[1].abs() > 0.1)
    assert torch.allclose((noise[0] / scale[0])[seen], (noise[1] / scale[1])[seen], atol=1e-4)


def test_gamma_is_absolute():
    """Ten times larger features get the same noise."""
    block = ResidualNoise(Perturbation(gamma=0.5))
    x = torch.randn(50, 100)
    for size in (1.0, 10.0):
        assert (block(size * x, x) - size * x).std() == pytest.approx(0.5, rel=0.05)


def test_skips_can_be_left_out():
    net = ResNet(skip=False).eval()
    block = net.blocks[0]
    x = torch.randn(2, 16, 8, 8)
    mapped = block.second_norm(block.second(torch.relu(block.first_norm(block.first(x)))))
    assert torch.equal(block(x), torch.relu(mapped))


def test_group_normalisation_does_not_mix_examples():
    net = ResNet(normalisation="group")
    x = torch.randn(3, 3, 32, 32)
    assert torch.allclose(net(x)[:1], net(x[:1]), atol=1e-5)


def test_wrong_settings_are_refused():
    with pytest.raises(InvalidArgument, match=r"6n \+ 2"):
        ResNet(depth=10)
    with pytest.raises(InvalidArgument, match="gamma"):
        Perturbation(gamma=-1.0)
    with pytest.raises(InvalidArgument, match="batch or group"):
        ResNet(normalisation="layer")


def test_dense_blocks_are_perturbed_too():
    net = DenseResidual(features=4, classes=2, blocks=3, perturbation=Perturbation(gamma=2.0))
    found = _noises(net, torch.zeros(2000, 4))
    assert [round(float(n.std()), 1) for n, _ in found] == [2.0, 2.0, 2.0]


# ----- anybody's network -----


class BasicBlock(nn.Module):
    """As in torchvision: in-place ReLU and +=, downsampling by a 1x1 convolution."""

    def __init__(self, before, after, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    """torchvision's resnet18: stem, four layers of two basic blocks, a dense layer."""

    def __init__(self, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        sizes = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        for i, (a, b, s) in enumerate(sizes):
            setattr(self, f"layer{i + 1}", nn.Sequential(BasicBlock(a, b, s), BasicBlock(b, b)))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class TimmBlock(nn.Module):
    """As in timm: optional parts, squeeze and excitation, the skip added in place at the end."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.act1 = nn.ReLU(inplace=True)
        self.aa = None
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.se = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels, 1), nn.Sigmoid()
        )
        self.act2 = nn.ReLU(inplace=True)
        self.drop_path = None

    def forward(self, x):
        shortcut = x
        x = self.act1(self.bn1(self.conv1(x)))
        if self.aa is not None:
            x = self.aa(x)
        x = self.bn2(self.conv2(x))
        x = x * self.se(x)
        if self.drop_path is not None:
            x = self.drop_path(x)
        x += shortcut
        return self.act2(x)


class PreActivated(nn.Module):
    """x += f(x), twice: the second skip is the noisy output of the first."""

    def __init__(self):
        super().__init__()
        self.f, self.g = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        x = x * 1.0
        x += self.f(torch.relu(x))
        return x.add_(self.g(torch.relu(x)))


@pytest.mark.slow
@pytest.mark.parametrize("training", [True, False])
def test_a_resnet18_of_torchvisions_shape_can_be_perturbed(training):
    model = ResNet18().train(training)
    before = copy.deepcopy(model.state_dict())
    x = torch.randn(2, 3, 64, 64)
    same = perturb(model, gamma=0.0)
    noisy = perturb(model, gamma=1.5, input_noise=0.75)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert same.state_dict().keys() == noisy.state_dict().keys() == before.keys()
    with torch.no_grad():
        assert torch.equal(same(x), model(x))
    found = _noises(noisy, x)
    assert len(found) == 9  # eight blocks and the input
    scales = sorted(round(float(n.std()), 1) for n, _ in found if n.numel() > 500)
    assert scales[0] == pytest.approx(0.75, abs=0.06) and set(scales[1:]) <= {1.4, 1.5, 1.6}
    pooled = torch.cat([n.flatten() for n, s in found if s.shape[1] >= 64]).double()
    assert stats.kstest(pooled.numpy() / 1.5, "norm").pvalue > 1e-4
    assert noisy(x).requires_grad


def test_the_skip_is_the_identity_of_a_torchvision_block():
    """Multiplicative noise is scaled by x, or by its projection where the block has one."""
    block = BasicBlock(4, 8, 2).eval()
    noisy = perturb(block, strategy=Strategy.MULTIPLICATIVE, gamma=1.0)
    x = torch.randn(2, 4, 8, 8)
    ((_, skip),) = _noises(noisy, x)
    assert torch.equal(skip, block.downsample(x))


def test_a_timm_block_can_be_perturbed():
    block = TimmBlock(8).eval()
    x = torch.randn(2, 8, 6, 6)
    with torch.no_grad():
        assert torch.equal(perturb(block, gamma=0.0)(x.clone()), block(x.clone()))
    noisy = perturb(block, strategy=Strategy.MULTIPLICATIVE, gamma=0.5)
    ((_, skip),) = _noises(noisy, x)
    assert torch.equal(skip, x)


def test_noise_of_consecutive_additions_builds_up():
    net = PreActivated()
    x = torch.randn(300, 6)
    with torch.no_grad():
        assert torch.equal(perturb(net, gamma=0.0)(x), net(x))
    noisy = perturb(net, strategy=Strategy.MULTIPLICATIVE, gamma=0.5)
    (_, skip), (_, second_skip) = _noises(noisy, x)
    assert torch.equal(skip, x)  # not x + f(x), although += writes into x
    assert not torch.allclose(second_skip, x + net.f(torch.relu(x)), atol=1e-3)  # the noisy one


def test_what_is_not_residual_is_refused():
    with pytest.raises(InvalidArgument, match="residual"):
        perturb(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), gamma=1.0)

    class Dynamic(nn.Module):
        def forward(self, x):
            return x + x if x.sum() > 0 else x

    with pytest.raises(InvalidArgument, match=r"torch\.fx"):
        perturb(Dynamic(), gamma=1.0)
