"""Sites: the places of a network where a parameter meets data, and how their gradients follow.

A site knows which parameters it feeds (`targets`) and, given its input a and the gradient g of its
output, every per-example gradient. `kernels` lists the ways to get norms and the weighted sum;
`per_example` instantiates, which serves as the reference and joins the uses of a tied parameter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from privet.errors import InvalidArgument
from privet.nets.per_example.measured import (
    Captured,
    Kernel,
    Measured,
    Target,
    add_bias,
    in_chunks,
    kept,
    silenced,
)
from privet.nets.per_example.rounding import BLOCK_ROWS, LARGEST_SQUARE
from privet.nets.per_example.wide import add_, products, put_pair_, squared_norms


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

    def add_per_example(
        self, seen: Captured, into: Sequence[Tensor], *, fresh: bool = False
    ) -> None:
        """Add the per-example gradients to given memory (or, if `fresh`, put them there)."""
        for target, value in zip(into, self.per_example(seen), strict=True):
            _put(target, value, fresh)

    def instance_size(self, a: torch.Size, y: torch.Size, views: int) -> int:
        """Numbers in one example's gradient if it is to be instantiated, from the shapes alone."""
        return 0

    def key(self, seen: Captured) -> str:
        """What the choice of a kernel depends on: shapes and layout, never the number of rows."""
        a, g, views = seen.a, seen.g, seen.views
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


def _put(into: Tensor, value: Tensor, fresh: bool) -> None:
    into.copy_(value) if fresh else into.add_(value)


@final
class LinearSite(Site):
    """y = a W^T + b with any dimensions between the rows and the features; a W if `transposed`.

    The per-example gradient is sum_t g_t a_t^T. With a single t it is an outer product: its norm is
    ||a|| ||g||, and the weighted sum is one product of matrices, in blocks of rows. With several it
    is instantiated, and squared a few examples at a time, before it leaves the cache.
    """

    def __init__(
        self,
        name: str,
        weight: nn.Parameter | None,
        bias: nn.Parameter | None,
        rows: slice | None = None,
        transposed: bool = False,
    ) -> None:
        self.has_weight, self.has_bias = weight is not None, bias is not None
        self.transposed = transposed
        super().__init__(name, [Target(p, rows) for p in (weight, bias) if p is not None])

    def _sequences(self, seen: Captured) -> tuple[Tensor, Tensor]:
        examples = seen.a.shape[0] // seen.views
        a, g = seen.a, seen.g
        return a.reshape(examples, -1, a.shape[-1]), g.reshape(examples, -1, g.shape[-1])

    def _sides(self, a: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """What runs over the first and over the second dimension of the weight."""
        return (a, g) if self.transposed else (g, a)

    def instance_size(self, a: torch.Size, y: torch.Size, views: int) -> int:
        one_product = views == 1 and a[1:].numel() == a[-1]
        return 0 if one_product or not self.has_weight else a[-1] * y[-1]

    def kernels(self, seen: Captured) -> list[Kernel]:
        a, g = self._sequences(seen)
        if not self.has_weight:
            return [Kernel("bias", 0.0, lambda: self._bias_only(g))]
        if a.shape[1] == 1:
            return [Kernel("outer", 0.0, lambda: self._outer(a[:, 0], g[:, 0], seen.wide))]
        return [Kernel("instantiate", 0.0, lambda: self._instantiate(a, g))]

    def per_example(self, seen: Captured) -> list[Tensor]:
        a, g = self._sequences(seen)
        first, second = self._sides(a, g)
        gradients = [torch.bmm(first.transpose(1, 2), second)] if self.has_weight else []
        return gradients + ([g.sum(1)] if self.has_bias else [])

    def add_per_example(
        self, seen: Captured, into: Sequence[Tensor], *, fresh: bool = False
    ) -> None:
        a, g = self._sequences(seen)
        if self.has_weight:
            first, second = self._sides(a, g)
            left = first.transpose(1, 2)
            if fresh:
                torch.bmm(left, second, out=into[0])
            else:
                into[0].baddbmm_(left, second)
        if self.has_bias:
            _put(into[-1], g.sum(1), fresh)

    def _bias_only(self, g: Tensor) -> Measured:
        return kept(g.sum(1).unsqueeze(0), None)

    def _instantiate(self, a: Tensor, g: Tensor) -> Measured:
        first, second = self._sides(a, g)
        left = first.transpose(1, 2)
        bytes_each = first.shape[2] * second.shape[2] * second.element_size()
        norms = torch.empty(len(a), dtype=torch.float64, device=a.device)

        def instantiate(which: slice) -> Tensor:
            out = products(left[which], second[which], norms[which])
            return out.view(1, out.shape[0], -1)

        bias = g.sum(1) if self.has_bias else None
        return in_chunks(len(a), bytes_each, instantiate, None, bias, norms)

    def _outer(self, a: Tensor, g: Tensor, wide: bool) -> Measured:
        square_a, square_g = squared_norms(a), squared_norms(g)
        norms = (square_a + 1.0) * square_g if self.has_bias else square_a * square_g
        # entries below the normal numbers of float32 would be rounded by more than u of themselves
        norms = norms.masked_fill(torch.maximum(square_a, square_g) > LARGEST_SQUARE, torch.inf)

        def put(fresh: bool, weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
            left, right = self._sides(silenced(a, bad), silenced(g, bad))
            if right.shape[1] < left.shape[1]:
                left, right = _wider(left, wide), _weighted(right, weights, wide)
            else:
                left, right = _weighted(left, weights, wide), _wider(right, wide)
            blocks = list(zip(left.split(BLOCK_ROWS), right.split(BLOCK_ROWS), strict=True))
            room = left.new_empty(min(2, len(blocks)), left.shape[1], right.shape[1])
            for k, (some_left, some_right) in enumerate(blocks):
                product = torch.mm(some_left.t(), some_right, out=room[min(k, 1)])
                if not fresh or k > 1:
                    add_(into[0], product)
                elif k == 1:
                    put_pair_(into[0], room[0], product)
                elif len(blocks) == 1:
                    into[0].copy_(product)
            add_bias(g if self.has_bias else None, weights, bad, into, fresh=fresh)

        return Measured(norms, partial(put, False), partial(put, True))


def _wider(t: Tensor, wide: bool) -> Tensor:
    return t.double() if wide else t


def _weighted(rows: Tensor, weights: Tensor, wide: bool) -> Tensor:
    """Row i times w_i."""
    return _wider(rows, wide) * (weights if wide else weights.to(rows.dtype))[:, None]


@final
class EmbeddingSite(Site):
    """y = W[index]; the gradient of a row is the sum of g over the places that looked it up."""

    def __init__(self, name: str, weight: nn.Parameter, padding: int | None) -> None:
        super().__init__(name, [Target(weight)])
        self.vocabulary, self.width = weight.shape
        self.padding = padding

    def _flat(self, seen: Captured) -> tuple[Tensor, Tensor]:
        a, g, views = seen.a, seen.g, seen.views
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
        owner = torch.arange(examples, device=index.device).unsqueeze(1)
        keys, place = torch.unique(index + owner * self.vocabulary, return_inverse=True)
        sums = g.new_zeros(len(keys), self.width).index_add_(0, place.view(-1), g.flatten(0, 1))
        norms = torch.zeros(examples, dtype=torch.float64, device=g.device)
        norms.index_add_(0, keys // self.vocabulary, squared_norms(sums))

        def add_weighted(weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
            whose = keys // self.vocabulary
            usable = sums.double()
            if bad is not None:
                usable = usable.index_fill(0, torch.isin(whose, bad).nonzero().view(-1), 0.0)
            usable *= weights.double()[whose][:, None]
            words, place = torch.unique(keys % self.vocabulary, return_inverse=True)
            together = usable.new_zeros(len(words), self.width).index_add_(0, place, usable)
            into[0].index_add_(0, words, together)

        return Measured(norms, add_weighted)

    def per_example(self, seen: Captured) -> list[Tensor]:
        out = seen.g.new_empty(len(seen.a) // seen.views, self.vocabulary, self.width)
        self.add_per_example(seen, [out], fresh=True)
        return [out]

    def add_per_example(
        self, seen: Captured, into: Sequence[Tensor], *, fresh: bool = False
    ) -> None:
        if fresh:
            into[0].zero_()
        for words, g, target in zip(*self._flat(seen), into[0], strict=True):
            target.index_add_(0, words, g)


@final
class InstantiatedSite(Site):
    """A parameter given to every row as a copy of its own, so g already is its per-row gradient."""

    def __init__(self, name: str, parameter: nn.Parameter) -> None:
        super().__init__(name, [Target(parameter)])
        self.shape = parameter.shape

    def kernels(self, seen: Captured) -> list[Kernel]:
        (gradients,) = self.per_example(seen)
        values = gradients.reshape(1, gradients.shape[0], -1)
        return [Kernel("given", 0.0, lambda: kept(values, None))]

    def per_example(self, seen: Captured) -> list[Tensor]:
        return [fold_views(seen.g, seen.views)]


@final
class RuleSite(Site):
    """The trainable parameters of a layer, with per-row gradients by somebody's own rule."""

    def __init__(self, name: str, module: nn.Module, rule: Callable[..., Any]) -> None:
        trained = {key: p for key, p in module.named_parameters() if p.requires_grad}
        super().__init__(name, [Target(p) for p in trained.values()])
        self.module, self.rule, self.parameters = module, rule, trained

    def kernels(self, seen: Captured) -> list[Kernel]:
        def run() -> Measured:
            values = torch.cat([g.flatten(1) for g in self.per_example(seen)], 1)
            return kept(values[None], self._apart)

        return [Kernel("rule", 0.0, run)]

    def _apart(self, total: Tensor) -> list[Tensor]:
        parts = total[0].split([p.numel() for p in self.parameters.values()])
        return [t.view(p.shape) for t, p in zip(parts, self.parameters.values(), strict=True)]

    def per_example(self, seen: Captured) -> list[Tensor]:
        with torch.no_grad():
            found = self.rule(self.module, seen.a, seen.g)
        expected = {key: (len(seen.g), *p.shape) for key, p in self.parameters.items()}
        shapes = {key: tuple(found[key].shape) for key in expected if key in found}
        if shapes != expected:
            raise InvalidArgument(f"the rule for layer {self.name!r}", shapes, f"{expected}")
        return [fold_views(found[key], seen.views) for key in expected]
