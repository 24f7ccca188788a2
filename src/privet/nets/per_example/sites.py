"""Sites: the places of a network where a parameter meets data, and how their gradients follow.

A site knows which parameters it feeds (`targets`) and, given its input a and the gradient g of its
output, every per-example gradient. `kernels` lists the ways to get norms and the weighted sum;
`per_example` instantiates, which serves as the reference and joins the uses of a tied parameter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from privet.nets.per_example.measured import (
    KEEP_BYTES,
    Captured,
    Kernel,
    Measured,
    Target,
    add_bias,
    chunks,
    gram_squared_norms,
    kept,
    silenced,
    squared_norms,
    weighted_rows,
)


class Site(ABC):
    """One place where trainable parameters meet data."""

    def __init__(self, name: str, targets: Sequence[Target]) -> None:
        self.name = name
        self.targets = tuple(targets)

    @abstractmethod
    def kernels(self, seen: Captured) -> list[Kernel]:
        """The ways to measure this site."""

    @abstractmethod
    def per_example(self, seen: Captured) -> list[Tensor]:
        """Per-example gradients, (examples, *shape of the target), one tensor a target."""

    def key(self, seen: Captured) -> str:
        """What the choice of a kernel depends on: shapes and layout, never the number of rows."""
        a, g, views, _ = seen
        layout = "last" if is_channels_last(a) else "first"
        inner = "x".join(map(str, a.shape[1:])), "x".join(map(str, g.shape[1:]))
        return f"{type(self).__name__}:{inner[0]}:{inner[1]}:{layout}:views{views}"


def is_channels_last(t: Tensor) -> bool:
    """Whether a 4-D or 5-D tensor is laid out channels-last."""
    if t.dim() == 4:
        return t.is_contiguous(memory_format=torch.channels_last)
    return t.dim() == 5 and t.is_contiguous(memory_format=torch.channels_last_3d)


def fold_views(t: Tensor, views: int) -> Tensor:
    """(examples * views, ...) per-row gradients to (examples, ...): the sum over the views."""
    return t if views == 1 else t.unflatten(0, (-1, views)).sum(1)


@final
class LinearSite(Site):
    """y = a W^T + b with any dimensions between the rows and the features.

    The per-example gradient is sum_t g_t a_t^T. With a single t its norm is ||a|| ||g||; with
    several it is instantiated, or its norm is taken from the Gram matrices: <a a^T, g g^T>.
    """

    def __init__(
        self,
        name: str,
        weight: nn.Parameter | None,
        bias: nn.Parameter | None,
        rows: slice | None = None,
    ) -> None:
        self.has_weight, self.has_bias = weight is not None, bias is not None
        super().__init__(name, [Target(p, rows) for p in (weight, bias) if p is not None])

    def _sequences(self, seen: Captured) -> tuple[Tensor, Tensor]:
        a, g, views, _ = seen
        examples = a.shape[0] // views
        return a.reshape(examples, -1, a.shape[-1]), g.reshape(examples, -1, g.shape[-1])

    def kernels(self, seen: Captured) -> list[Kernel]:
        a, g = self._sequences(seen)
        n, t, i = a.shape
        o = g.shape[2]
        if not self.has_weight:
            return [Kernel("bias", 0.0, lambda: self._bias_only(g))]
        if t == 1:
            return [Kernel("outer", 0.0, lambda: self._outer(a[:, 0], g[:, 0]))]
        contraction = n * t * i * o / 100
        instantiated = n * t * i * o / 40 + n * i * o / 4
        if n * i * o * 4 > KEEP_BYTES:
            instantiated += contraction
        gram = n * t * t * (i + o) / 40 + n * t * t * 2 + contraction
        return [
            Kernel("instantiate", instantiated, lambda: self._instantiate(a, g)),
            Kernel("gram", gram, lambda: self._gram(a, g)),
        ]

    def per_example(self, seen: Captured) -> list[Tensor]:
        a, g = self._sequences(seen)
        gradients = [torch.bmm(g.transpose(1, 2), a)] if self.has_weight else []
        return gradients + ([g.sum(1)] if self.has_bias else [])

    def _bias_only(self, g: Tensor) -> Measured:
        return kept(g.sum(1).unsqueeze(0), lambda total: [total[0]])

    def _outer(self, a: Tensor, g: Tensor) -> Measured:
        square_a, square_g = squared_norms(a), squared_norms(g)
        norms = (square_a + 1.0) * square_g if self.has_bias else square_a * square_g
        return self._contraction(a, g, norms, g if self.has_bias else None)

    def _contraction(self, a: Tensor, g: Tensor, norms: Tensor, bias: Tensor | None) -> Measured:
        """One product of all rows, with the weights on the narrower side."""

        def put(beta: int, weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
            left, right = silenced(g, bad), silenced(a, bad)
            if a.shape[-1] < g.shape[-1]:
                right = weighted_rows(right, weights)
            else:
                left = weighted_rows(left, weights)
            left, right = (t.flatten(0, -2).to(into[0].dtype) for t in (left, right))
            into[0].addmm_(left.t(), right, beta=beta)  # 0 overwrites, even NaN
            if beta == 0 and bias is not None:
                into[-1].zero_()
            add_bias(bias, weights, bad, into)

        return Measured(norms, partial(put, 1), partial(put, 0))

    def _instantiate(self, a: Tensor, g: Tensor) -> Measured:
        n, _, i = a.shape
        o = g.shape[2]
        bias = g.sum(1) if self.has_bias else None
        if n * i * o * a.element_size() <= KEEP_BYTES:
            values = torch.bmm(g.transpose(1, 2), a).view(1, n, o * i)
            return kept(values, lambda total: [total.view(o, i)], bias)
        return self._contraction(a, g, self._with_bias(self._exact_norms(a, g), bias), bias)

    def _with_bias(self, norms: Tensor, bias: Tensor | None) -> Tensor:
        return norms if bias is None else norms + squared_norms(bias)

    def _exact_norms(self, a: Tensor, g: Tensor) -> Tensor:
        width = a.shape[2] * g.shape[2]
        parts = chunks(a.shape[0], width * a.element_size())
        norms = [squared_norms(torch.bmm(g[s].transpose(1, 2), a[s]).flatten(1)) for s in parts]
        return torch.cat(norms)

    def _gram(self, a: Tensor, g: Tensor) -> Measured:
        bias = g.sum(1) if self.has_bias else None
        norms, vague = gram_squared_norms(
            torch.bmm(a, a.transpose(1, 2)), torch.bmm(g, g.transpose(1, 2))
        )
        if len(vague):
            norms[vague] = self._exact_norms(a[vague], g[vague])
        return self._contraction(a, g, self._with_bias(norms, bias), bias)


@final
class EmbeddingSite(Site):
    """y = W[index]; the gradient of a row is the sum of g over the places that looked it up."""

    def __init__(self, name: str, weight: nn.Parameter, padding: int | None) -> None:
        super().__init__(name, [Target(weight)])
        self.vocabulary, self.width = weight.shape
        self.padding = padding

    def _flat(self, seen: Captured) -> tuple[Tensor, Tensor]:
        a, g, views, _ = seen
        examples = a.shape[0] // views
        index, g = a.reshape(examples, -1), g.reshape(examples, -1, self.width)
        if self.padding is not None:
            g = g.masked_fill((index == self.padding).unsqueeze(2), 0.0)
        return index, g

    def kernels(self, seen: Captured) -> list[Kernel]:
        index, g = self._flat(seen)
        return [Kernel("segments", 0.0, lambda: self._segments(index, g))]

    def _segments(self, index: Tensor, g: Tensor) -> Measured:
        examples = index.shape[0]
        owner = torch.arange(examples).unsqueeze(1)
        keys, place = torch.unique(index + owner * self.vocabulary, return_inverse=True)
        sums = g.new_zeros(len(keys), self.width).index_add_(0, place.view(-1), g.flatten(0, 1))
        norms = torch.zeros(examples, dtype=torch.float64)
        norms.index_add_(0, keys // self.vocabulary, squared_norms(sums))

        def add_weighted(weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
            g_w = weighted_rows(silenced(g, bad), weights).flatten(0, 1)
            into[0].index_add_(0, index.view(-1), g_w.to(into[0].dtype))

        return Measured(norms, add_weighted)

    def per_example(self, seen: Captured) -> list[Tensor]:
        index, g = self._flat(seen)
        out = g.new_zeros(index.shape[0], self.vocabulary, self.width)
        owner = torch.arange(index.shape[0]).unsqueeze(1).expand_as(index)
        return [out.index_put_((owner, index), g, accumulate=True)]


@final
class InstantiatedSite(Site):
    """A parameter given to every row as a copy of its own, so g already is its per-row gradient."""

    def __init__(self, name: str, parameter: nn.Parameter) -> None:
        super().__init__(name, [Target(parameter)])
        self.shape = parameter.shape

    def kernels(self, seen: Captured) -> list[Kernel]:
        (gradients,) = self.per_example(seen)
        values = gradients.reshape(1, gradients.shape[0], -1)
        return [Kernel("given", 0.0, lambda: kept(values, lambda t: [t[0].view(self.shape)]))]

    def per_example(self, seen: Captured) -> list[Tensor]:
        return [fold_views(seen.g, seen.views)]
