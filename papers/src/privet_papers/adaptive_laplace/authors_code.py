"""AdLM as its authors released it, which is not Algorithm 1.

From github.com/haiphanNJIT/PrivateDeepLearning, AdLM/MNIST/AdLM.py and dpLRP_MNIST.py, at its last
change (15fb1f3, December 2018), in our own words:

- one noise image a step for the whole batch, Lap(Delta / (|L| beta_j eps_2)) with Delta fixed;
- noisy inputs are clipped to +-10, so that most pixels say nothing but the sign of their noise;
- the last hidden layer is batch-normalised, which takes out what all records of a batch have in
  common, and so most of the noise; then ReLU, then clipped at 1. Tests use the tests' own moments;
- the noise of the labels is drawn once, as a term linear in the output weights, and the labels
  themselves are read at every step;
- epsilon is split 1 : 1 : 2; Adam at 3e-4; 2,400 epochs;
- relevance of 2,000 records to the fourth power; negative ones count for 1e-5.

What differs here: pictures are not padded by two pixels, relevance is that of the label's output,
and it comes from the paper's network where theirs came from a LeNet-5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Guarantee, Standing
from privet.networks.relevance import average_relevance
from privet.noise import Source
from privet_papers.adaptive_laplace import noise
from privet_papers.adaptive_laplace.networks import (
    EpochWatcher,
    PublishedNet,
    pretrain,
    watch_nothing,
)
from privet_papers.adaptive_laplace.published import AlgorithmOneClassifier, claim
from privet_papers.argument_checks import check_positive
from privet_papers.published_classifier import Array, PublishedRelease

SENSITIVITY = {1: 2.0 * 14 * 14 * 25, 3: 3.0 * 2 * 10 * 10 * 9}
"""Delta of the first layer by colours: that of the authors for MNIST, and for CIFAR-10."""
SMALLEST = 1e-5
"""Relevance and ratios are held there from below."""
SHARES = (1.0, 1.0, 2.0)
"""How the script splits epsilon among relevance, features and labels."""


@final
class AuthorsNet(nn.Module):
    """Convolutions with ReLU and 2x2 max pooling, a hidden layer normalised and clipped, outputs.

    With `maps` empty the first layer is dense with `units` neurons.

    >>> AuthorsNet((1, 28, 28), classes=10)(torch.rand(4, 784)).shape
    torch.Size([4, 10])
    """

    def __init__(
        self, shape: tuple[int, ...], *, classes: int, maps: tuple[int, ...] = (32, 64),
        kernel: tuple[int, ...] = (5, 5), units: int = 64, hidden: int = 25,
    ) -> None:  # fmt: skip
        super().__init__()
        self.shape, self.classes, self.hidden = shape, classes, hidden
        layers: list[nn.Module] = []
        if maps:
            before, side = shape[0], list(shape[1:])
            for after, size in zip(maps, kernel, strict=True):
                layers.append(nn.Conv2d(before, after, size, padding=size // 2))
                layers += [nn.MaxPool2d(2, ceil_mode=True), nn.ReLU()]  # the same, in less time
                before, side = after, [-(-length // 2) for length in side]
            wide = before * side[0] * side[1]
        else:
            layers, wide = [nn.Linear(math.prod(shape), units), nn.ReLU()], units
        self.dense = not maps
        body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(wide, hidden))
        layout: Any = {"memory_format": torch.channels_last}  # the same, in half the time
        self.body = body.to(**layout)
        self.normalise = nn.BatchNorm1d(hidden, eps=1e-3, track_running_stats=False)
        self.output = nn.Linear(hidden, classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.1, a=-0.2, b=0.2)
                assert layer.bias is not None
                nn.init.constant_(layer.bias, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        """The outputs before their sigmoid; moments are those of the rows given."""
        x = x.flatten(1) if self.dense else x.reshape(-1, *self.shape)
        hidden = self.normalise(self.body(x.clamp(-noise.CLIP, noise.CLIP))).relu().clamp(max=1.0)
        z: Tensor = self.output(hidden)
        return z


@final
@dataclass(frozen=True, kw_only=True)
class AuthorsScript:
    """The authors' training of `network`, in place.

    Without a `relevance_network` every feature has the same noise (ILM).

    `relevance_network` is trained without noise on the records, which nothing accounts for.

    **Guarantee** none: records of a batch share one draw. The claim is the paper's.
    """

    network: AuthorsNet
    relevance_network: PublishedNet | None = None
    batch_size: int = 1800
    epochs: int = 10
    learning_rate: float = 3e-4
    pretraining_epochs: int = 2
    watcher: EpochWatcher = field(default=watch_nothing, compare=False)

    def fit(
        self, x: NDArray[Any], y: NDArray[Any], *, epsilon: float, rng: Source
    ) -> PublishedRelease[AuthorsNet]:
        """Train on rows x in [0, 1] and class numbers y."""
        check_positive(epsilon=epsilon)
        rows, labels = np.require(x, np.float32, "W"), np.require(y, np.int64, "W")
        _, e2, e3 = split_epsilon(epsilon)
        net, size = self.network, min(self.batch_size, len(rows))
        scales = self.sensitivity / (size * self._ratios(rows, labels, epsilon, rng) * e2)
        second = noise.CROSS_ENTROPY.sensitivity(net.classes, net.hidden) / (size * e3)
        drawn = rng.child("labels").laplace((net.classes, net.hidden), second)
        linear = torch.from_numpy(drawn.astype(np.float32))
        exact = noise.CROSS_ENTROPY.coefficients(labels, net.classes).astype(np.float32)
        optimizer = torch.optim.Adam(net.parameters(), lr=self.learning_rate)
        for epoch in range(self.epochs):
            net.train()
            for step, chosen in enumerate(_orders(len(rows), size, epoch, rng)):
                x_bar = noise.share_one_draw(rows[chosen], scales, rng.child("image", epoch, step))
                phi0, phi1, phi2 = torch.from_numpy(exact[chosen]).unbind(-1)
                z = net(torch.from_numpy(x_bar))
                taylor = (phi0 + phi1 * z + phi2 * z.square()).sum(1).mean()
                optimizer.zero_grad()
                # their term is subtracted from each of the M losses of a record
                (taylor - net.classes * (linear * net.output.weight).sum()).backward()
                optimizer.step()
            net.eval()
            self.watcher(epoch + 1, net)
        return PublishedRelease(
            model=net, claim=claim(epsilon, adaptive=self.relevance_network is not None),
            guarantee=no_guarantee(),
        )  # fmt: skip

    @property
    def sensitivity(self) -> float:
        """Delta of the first layer in the script for pictures of so many colours."""
        colours = 1 if self.network.dense else self.network.shape[0]
        if colours not in SENSITIVITY:
            raise InvalidArgument("shape", self.network.shape, "pictures of 1 or 3 colours")
        return SENSITIVITY[colours]

    def _ratios(
        self, rows: NDArray[Any], labels: NDArray[Any], epsilon: float, rng: Source
    ) -> NDArray[np.float64]:
        d = rows.shape[1]
        if self.relevance_network is None:
            return np.ones(d)
        model = pretrain(self.relevance_network, rows, labels, self.pretraining_epochs, rng)
        shaped = torch.from_numpy(rows[:2000].reshape(-1, *self.relevance_network.shape))
        mean = average_relevance(
            model, shaped, torch.from_numpy(labels[:2000]), normalise=lambda r: r
        ).reshape(-1)
        spread = float(mean.max() - mean.min()) or 1.0
        scale = 2.0 * d / (split_epsilon(epsilon)[0] * len(rows))
        noisy = ((mean - mean.min()) / spread) ** 4 + rng.child("relevance").laplace(d, scale)
        held = np.maximum(noisy, SMALLEST)
        return np.asarray(np.maximum(d * held / held.sum(), SMALLEST))


def split_epsilon(epsilon: float) -> tuple[float, float, float]:
    """eps_1, eps_2 and eps_3 of the script, in its proportions.

    >>> split_epsilon(0.3)  # as in the script
    (0.075, 0.075, 0.15)
    """
    e1, e2, e3 = (epsilon * share / sum(SHARES) for share in SHARES)
    return e1, e2, e3


def no_guarantee() -> Guarantee:
    """The guarantee of the script, which is none: records of a batch differ without any noise."""
    return Guarantee(
        epsilon=math.inf, delta=0.0, adjacency=Adjacency.REPLACE_ONE, standing=Standing.NONE,
        theorem="none: records of a batch share one draw, so their differences carry no noise",
    )  # fmt: skip


def _orders(n: int, size: int, epoch: int, rng: Source) -> Iterator[NDArray[Any]]:
    order = rng.child("order", epoch).permutation(n)
    return (order[i : i + size] for i in range(0, n - size + 1, size))


@final
@dataclass(kw_only=True, eq=False)
class AuthorsAdLM(AlgorithmOneClassifier):
    """AdLM as its authors' script has it: one draw of noise for a whole batch.

    `network` is the one that relevance comes from. Predictions depend on the rows that are asked
    together: the hidden layer is normalised by their moments.

    **Guarantee** none: differences of two records of a batch carry no noise.
    """

    def _release(
        self, rows: Array, labels: NDArray[np.int64], rng: Source
    ) -> PublishedRelease[Any]:
        if self.ledger is not None:
            raise InvalidArgument("ledger", self.ledger, "None: nothing finite can be charged")
        facts = self._facts(rows, self.epsilon)
        relevant = self._network(facts, rng)
        with torch.random.fork_rng():
            torch.manual_seed(int(rng.child("released weights").integers(2**31, 1)[0]))
            net = AuthorsNet(
                relevant.shape, classes=facts.outputs, hidden=relevant.hidden,
                maps=() if len(relevant.shape) == 1 else (32, 64),
            )  # fmt: skip
        method = AuthorsScript(network=net, relevance_network=relevant, epochs=self.epochs)
        return method.fit(rows, labels, epsilon=self.epsilon, rng=rng)
