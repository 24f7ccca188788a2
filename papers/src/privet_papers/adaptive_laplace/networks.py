"""The paper's networks: a first layer with a constant feature, bounded hidden layers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from privet.errors import InvalidArgument
from privet.networks.bounded_layers import LocalResponseNorm, MinMax
from privet.noise import Source
from privet.sensitivity.polynomial_loss import taylor_error
from privet_papers.adaptive_laplace.noise import CROSS_ENTROPY, PolynomialLoss
from privet_papers.argument_checks import check_counts

Array = NDArray[Any]
EpochWatcher = Callable[[int, nn.Module], None]
"""Called after every epoch with its number and the model."""


def watch_nothing(epoch: int, model: nn.Module) -> None:
    """A watcher that does nothing."""


@final
class FirstConvolution(nn.Conv2d):
    """A convolution whose bias is W_b times a constant feature b, so that b can be perturbed."""

    constant: Tensor

    def __init__(self, inputs: int, maps: int, kernel: int, padding: int) -> None:
        super().__init__(inputs, maps, kernel, padding=padding)
        self.register_buffer("constant", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Compute x W + b W_b."""
        assert self.bias is not None
        return F.conv2d(x, self.weight, self.bias * self.constant, padding=self.padding)


@final
class FirstLinear(nn.Linear):
    """A dense layer whose bias is W_b times a constant feature b."""

    constant: Tensor

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__(inputs, units)
        self.register_buffer("constant", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Compute x W + b W_b."""
        return F.linear(x, self.weight, self.bias * self.constant)


@final
class PublishedNet(nn.Module):
    """h0, hidden layers bounded to [0, 1], and outputs z_l = h W_l without bias (eq. 23).

    `maps` are the feature maps of the convolutions (each followed by ReLU, LRN and 2x2 max
    pooling); with none the first layer is dense with `units` neurons. `hidden` is |h|.
    Dense layers are bounded by LRN over neighbouring units, or by min-max with `min_max`.
    `activation` is any without negative values (`nn.Sigmoid`), or with `min_max` any at all.
    `loss` says where outputs start.

    >>> net = PublishedNet((1, 28, 28), classes=10, maps=(32, 64))
    >>> net(torch.rand(2, 1, 28, 28)).shape, net.feature_maps, net.first_layer_neurons
    (torch.Size([2, 10]), 32, 25088)
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        *,
        classes: int,
        maps: tuple[int, ...] = (32, 64),
        kernel: int | tuple[int, ...] = 5,
        units: int = 64,
        hidden: int = 25,
        min_max: bool = False,
        activation: type[nn.Module] = nn.ReLU,
        loss: PolynomialLoss = CROSS_ENTROPY,
    ) -> None:
        super().__init__()
        check_counts(hidden=hidden, units=units)
        check_counts(2, classes=classes)
        self.hidden, self.classes, self.mixes_records = hidden, classes, min_max
        self.first: FirstConvolution | FirstLinear
        layers: list[nn.Module]
        if maps:
            if len(shape) != 3:
                raise InvalidArgument("shape", shape, "(channels, height, width) for convolutions")
            kernels = (kernel,) * len(maps) if isinstance(kernel, int) else kernel
            if len(kernels) != len(maps):
                raise InvalidArgument("kernel", kernel, f"a number, or one for each of {maps}")
            self.first = FirstConvolution(shape[0], maps[0], kernels[0], kernels[0] // 2)
            layers = [activation(), LocalResponseNorm(), nn.MaxPool2d(2)]
            for (before, after), size in zip(pairwise(maps), kernels[1:], strict=True):
                layers += [nn.Conv2d(before, after, size, padding=size // 2), activation()]
                layers += [LocalResponseNorm(), nn.MaxPool2d(2)]
            side = [size // 2 ** len(maps) for size in shape[1:]]
            wide = maps[-1] * side[0] * side[1]
            self.feature_maps = maps[0]
            self.first_layer_neurons = maps[0] * shape[1] * shape[2]
        else:
            wide = units
            inputs = int(torch.Size(shape).numel())
            self.first = FirstLinear(inputs, wide)
            layers = [activation(), MinMax(wide) if min_max else LocalResponseNorm()]
            self.feature_maps = self.first_layer_neurons = wide
        last = MinMax(hidden) if min_max else LocalResponseNorm()
        dense = nn.Linear(wide, hidden)
        self.body = nn.Sequential(*layers, nn.Flatten(), dense, activation(), last)
        self.output = nn.Linear(hidden, classes, bias=False)
        self.shape = shape
        self._start_at(loss.base_rate(classes), dense)

    @torch.no_grad()
    def _start_at(self, constant: float, hidden: nn.Linear) -> None:
        """Random output weights (line 20), and a hidden unit that stays 1 in place of a bias.

        The loss wants a constant on average, -2 (1 - 2/M) to order 2, which outputs without bias
        can only have from h. Left to themselves all units are driven to one value first, where the
        normalisation has no gradient any more, and nothing is learned.
        """
        nn.init.normal_(self.output.weight)
        if self.mixes_records:  # min-max has no constant unit; h is 1/2 on average
            self.output.weight += 2.0 * constant / self.hidden
            return
        hidden.weight[0], hidden.bias[0] = 0.0, 2.0  # above what the normalisation holds at 1
        self.output.weight[:, 0] = constant / self.body[-2:](hidden.bias[None])[0, 0]

    def forward(self, x: Tensor) -> Tensor:
        """The outputs before their sigmoid."""
        x = x.flatten(1) if isinstance(self.first, FirstLinear) else x.reshape(-1, *self.shape)
        z: Tensor = self.output(self.body(self.first(x)))
        return z


def pretrain(
    network: PublishedNet, rows: Array, labels: Array, epochs: int, rng: Source
) -> nn.Module:
    """Train a copy on the records: the paper's well-trained network, which nothing accounts for."""
    model = copy.deepcopy(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        order = rng.child("pretraining", epoch).permutation(len(rows))
        for chosen in np.array_split(order, max(1, len(rows) // 200)):
            optimizer.zero_grad()
            out = model(torch.from_numpy(rows[chosen]))
            F.cross_entropy(out, torch.from_numpy(labels[chosen])).backward()
            optimizer.step()
    return model.eval()


def rebuild(network: PublishedNet, batches: Iterable[Tensor], learning_rate: float) -> None:
    """Teach the first layer as an auto-encoder of these (noisy) batches; the decoder is dropped."""
    decoder: nn.Linear | None = None
    for x in batches:
        if decoder is None:
            if not isinstance(network.first, FirstLinear):
                raise InvalidArgument("network", "convolutions", "a dense first layer (maps=())")
            decoder = nn.Linear(network.first.out_features, x.shape[1])
            learned = [*network.first.parameters(), *decoder.parameters()]
            optimizer = torch.optim.Adam(learned, lr=learning_rate)
        optimizer.zero_grad()
        F.mse_loss(decoder(network.body[:2](network.first(x))), x).backward()
        optimizer.step()


def taylor_loss(z: Tensor, coefficients: Tensor) -> Tensor:
    """sum_l phi0 + phi1 z_l + phi2 z_l^2, one value a record (line 27, its exponent put right).

    >>> phi = torch.tensor([[[0.5, 1.0, 2.0]]])
    >>> taylor_loss(torch.tensor([[3.0]]), phi).tolist()
    [21.5]
    """
    phi0, phi1, phi2 = coefficients.unbind(-1)
    return (phi0 + phi1 * z + phi2 * z.square()).sum(1)


@torch.no_grad()
def largest_taylor_error(model: PublishedNet, rows: Tensor) -> tuple[float, float]:
    """The largest |z_l| on these rows, and the most that order 2 can then be off: M z^4 / 192.

    The paper's Lemma 7 states a constant for |z| <= 1 but nothing holds the outputs there; see
    `bound_outputs`. (Its derivatives are wrong too: `privet.sensitivity.taylor_error`.)
    """
    largest = max(float(model(part).abs().max()) for part in rows.split(2000))
    return largest, model.classes * taylor_error(largest)


def bound_outputs(output: nn.Linear, bound: float) -> None:
    """Scale each W_l to L1 norm at most `bound`; with h in [0, 1] then |z_l| <= bound."""
    with torch.no_grad():
        norms = output.weight.abs().sum(1, keepdim=True)
        output.weight.mul_((bound / norms.clamp(min=1e-12)).clamp(max=1.0))
