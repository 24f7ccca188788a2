"""A Strategy II model that may be asked only as often as its budget allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import _check, premises
from privet.errors import BudgetExceeded, InvalidArgument, PrivetError
from privet.guarantee import Guarantee, Unit
from privet.ledger import Ledger, Scope
from privet.loss import PrivacyLoss
from privet.methods.residual.budgets import QueryBudget
from privet.nets.residual import Perturbation, ResidualNoise, Strategy
from privet.nets.residual.noise import standard_normal
from privet.nets.residual.resnet import shortcut
from privet.noise import Source, secure
from privet.noise.tensor import gaussian_

_UP = 1.0 + 2.0**-16
"""Margin of float32 norms and products."""
_MANY = 2**40


_PREMISES = (
    premises.bound("residual mappings are clipped to B", what="the mappings"),
    premises.bound("the last layer is clipped to a", what="the last layer"),
    premises.held("training", "nothing else in the network is trained"),
    premises.held("charge", "each query was charged before it was answered"),
    premises.doubtful("weights", "nobody has the weights, only answers"),
    premises.doubtful("sum", "arithmetic inside the network is exact"),
)


class QueriesSpent(PrivetError):
    """The model has answered as many queries as its budget allows; nothing was computed."""

    def __init__(self, *, asked: int, left: int, ledger: Ledger) -> None:
        self.asked, self.left, self.cap_epsilon = asked, left, ledger.cap_epsilon
        spent = (
            f"this model's query budget is spent (epsilon {ledger.spent():.4g} of "
            f"{ledger.cap_epsilon:.4g} at delta {ledger.cap_delta:.3g}): it answers no more"
        )
        few = f"asked {asked} queries where the budget has room for {left}; ask fewer"
        super().__init__(f"{few if left else spent}; no answer was computed")


class QueryNet(nn.Module):
    """A residual network in which every trained part is bounded, as Strategy II's proof needs.

    x^0 is the input, its channels padded with zeros; x^{i+1} = s(x^i) + clip_B(F_i(x^i)) + gamma x~
    (.) n with s the parameter-free skip of He et al.; the output is W h + pi ||h|| n with h the
    channels' means of x^M (and no bias), ||W||_F <= a. In training as in use.

    Anything that the data could shape sits inside F_i (held to L2 norm B for each example) or in W:
    that is what `QueryBudget` counts. BatchNorm inside F_i is therefore allowed.

    >>> net = QueryNet(channels=1, classes=10, bound=8.0, floor=0.5, gamma=2.0, last=4.0,
    ...                output_noise=1.0)
    >>> net(torch.zeros(2, 1, 8, 8)).shape, net.budget.mappings
    (torch.Size([2, 10]), 4)

    residual-perturbation, F_2 and equation (10), with projections and biases left out.
    """

    def __init__(
        self,
        *,
        channels: int,
        classes: int,
        bound: float,
        floor: float,
        gamma: float,
        last: float,
        output_noise: float,
        widths: Sequence[int] = (16, 16, 32, 64),
    ) -> None:
        super().__init__()
        self.budget = QueryBudget(
            mappings=len(widths),
            bound=bound,
            floor=floor,
            gamma=gamma,
            last=last,
            output_noise=output_noise,
        )
        law = Perturbation(strategy=Strategy.MULTIPLICATIVE, gamma=gamma, floor=floor)
        self.added, self.strides = [], []
        blocks, before = [], _check.count("channels", channels)
        for i, after in enumerate(widths):
            if after < before:
                raise InvalidArgument("widths", tuple(widths), f"not below {before} channels")
            stride = 2 if i and after > before else 1
            blocks.append(_mapping(before, after, stride))
            self.added.append(after - before)
            self.strides.append(stride)
            before = after
        self.blocks = nn.ModuleList(blocks)
        self.noises = nn.ModuleList(ResidualNoise(law) for _ in widths)
        self.weight = nn.Parameter(
            torch.randn(_check.count("classes", classes), before) / before**0.5
        )
        self.source: Source | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Noisy logits."""
        for block, noise, stride, added in zip(
            self.blocks, self.noises, self.strides, self.added, strict=True
        ):
            skip = shortcut(x, stride=stride, added=added)
            x = noise(skip + _held(block(x), self.budget.bound), skip)
        h = x.mean((2, 3))
        size = h.norm(dim=1, keepdim=True)
        weight = self.weight * (self.budget.last / _UP / self.weight.norm()).clamp(max=1.0)
        logits = h @ weight.t()
        noisy: Tensor = logits + self.budget.output_noise * size * self.draw(logits)
        return noisy

    def draw(self, like: Tensor) -> Tensor:
        """Normal noise: from the secret source when there is one, from torch in training."""
        if self.source is None:
            return standard_normal(like)
        return gaussian_(torch.empty(like.shape, dtype=like.dtype), 1.0, self.source)

    def use(self, source: Source) -> None:
        """From now on draw all noise from this source."""
        self.source = source
        for module in self.noises:
            assert isinstance(module, ResidualNoise)
            module.draw = self.draw


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ServedModel:
    """Answers queries until the ledger refuses: each one is charged before it is computed.

    A query is one row; a batch of k rows costs sqrt(k) times the mu of one and is answered whole
    or not at all. The counter *is* the ledger, which must be one per query: with a ledger
    file it survives restarts and is shared by all processes that serve the model.

    **Guarantee** `guarantee()`: all answers ever given are together (cap_epsilon,
    cap_delta)-private for any change of the training data, as long as nobody gets the weights.

    **Assumes** arithmetic on real numbers inside the network; answers are rounded to multiples of
    2^-10, which hides the low bits of the last layer but is no proof for the layers before.

    >>> net = QueryNet(channels=1, classes=2, bound=1.0, floor=1.0, gamma=9.0, last=1.0,
    ...                output_noise=9.0, widths=(2,))
    >>> ledger = Ledger.in_memory(cap_epsilon=2.0, cap_delta=1e-5, unit=Unit.QUERY)
    >>> model = ServedModel.of(net, ledger)
    >>> model.queries_left
    2
    >>> model.predict_proba(np.zeros((2, 1, 4, 4))).shape
    (2, 2)
    >>> model.predict_proba(np.zeros((1, 1, 4, 4)))
    Traceback (most recent call last):
    ...
    privet.methods.residual.served.QueriesSpent: this model's query budget is spent ...
    """

    network: QueryNet
    ledger: Ledger

    def __post_init__(self) -> None:
        if self.ledger.unit is not Unit.QUERY:
            raise InvalidArgument("ledger", f"one per {self.ledger.unit.value}", "one per query")
        self.network.eval()
        if self.network.source is None:  # torch's own noise can be drawn again by its seed
            self.network.use(secure())

    @classmethod
    def of(cls, network: QueryNet, ledger: Ledger, *, rng: Source | None = None) -> ServedModel:
        """Serve a trained network; noise is secret unless a source is given."""
        network.use(secure() if rng is None else rng)
        return cls(network=network, ledger=ledger)

    @property
    def queries_left(self) -> int:
        """How many more rows can be answered; 2^40 stands for no end."""
        if self._affords(_MANY):
            return _MANY
        low, high = 0, 1
        while self._affords(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._affords(middle) else (low, middle)
        return low

    @torch.no_grad()
    def predict_proba(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Probabilities of the classes for each row; charged before anything is computed."""
        rows = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
        if not len(rows) or rows.ndim != 4:
            expected = "at least one row, of shape (rows, channels, height, width)"
            raise InvalidArgument("x", tuple(rows.shape), expected, "nothing was charged")
        if not bool(torch.isfinite(rows).all()):
            raise InvalidArgument("x", "NaN or infinity", "finite rows", "nothing was charged")
        self._charge(len(rows))
        logits = self.network(rows).double()
        return np.asarray(((logits * 1024.0).round() / 1024.0).softmax(1).numpy())

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """The most probable class of each row; costs the same."""
        return np.asarray(self.predict_proba(x).argmax(1))

    def guarantee(self) -> Guarantee:
        """What all answers ever given promise together: the ledger's cap, on its premises too."""
        stated, source = self.ledger.guarantee(), self.network.source
        seed = () if source is None or source.secret else (premises.SECRET_SEED,)
        own = (*_PREMISES, *seed)
        about = {p.about for p in own}
        return replace(
            stated,
            theorem="one Gaussian release a residual mapping and one for the last layer, composed;"
            f" {stated.theorem}",
            premises=(*own, *(p for p in stated.premises if p.about not in about)),
        )

    def _affords(self, queries: int) -> bool:
        return self.ledger.affords(self._loss(queries))

    def _loss(self, queries: int) -> PrivacyLoss:
        return self.network.budget.loss(queries, adjacency=self.ledger.adjacency.of_losses)

    def _charge(self, queries: int) -> None:
        try:
            source = self.network.source
            scope = Scope(unit=Unit.QUERY, secret=None if source is None else source.secret)
            self.ledger.charge(self._loss(queries), what=f"{queries} queries", scope=scope)
        except BudgetExceeded:
            raise QueriesSpent(asked=queries, left=self.queries_left, ledger=self.ledger) from None


def _mapping(before: int, after: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1, bias=False),
        nn.BatchNorm2d(after),
    )


def _held(x: Tensor, bound: float) -> Tensor:
    """Each example scaled down to L2 norm `bound`, a NaN or infinite one to 0."""
    size = x.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    scaled = x * (bound / _UP / size.clamp(min=bound / _UP))
    return torch.where(torch.isfinite(size), scaled, torch.zeros_like(x))
