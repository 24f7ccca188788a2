"""Linear layers: nn.Linear, and Conv1D of transformers (GPT-2), which is one transposed.

What is recorded: the input a and the gradient g of the output. Norm: ||a_i|| ||g_i|| where an
example has one row of features, else from the instantiated sum_t g_t a_t^T. Attention and recurrent
layers take their projections and gates as linear layers too.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from privet.gradients.float64_sums import add_, products, put_pair_, squared_norms
from privet.gradients.layer_protocol import (
    BackwardCall,
    Kernel,
    LayerHandler,
    ParameterSlice,
    RecordedLayer,
    constant,
    put,
    trainable,
)
from privet.gradients.norms_and_sum import (
    NormsAndSum,
    add_bias,
    from_chunks,
    from_gradients,
    zero_rows,
)
from privet.gradients.rounding import BLOCK_ROWS, LARGEST_SQUARE
from privet.gradients.tape import Tape


@final
class LinearHandler(LayerHandler):
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
        super().__init__(name, [ParameterSlice(p, rows) for p in (weight, bias) if p is not None])

    @classmethod
    def of(
        cls,
        name: str,
        weight: Tensor | None,
        bias: Tensor | None,
        rows: slice | None = None,
        transposed: bool = False,
    ) -> LinearHandler | None:
        """The handler of those parameters that are to be trained; None if there are none."""
        w, b = trainable(weight), trainable(bias)
        return None if w is None and b is None else cls(name, w, b, rows, transposed)

    def _sequences(self, call: BackwardCall) -> tuple[Tensor, Tensor]:
        examples = call.a.shape[0] // call.views
        a, g = call.a, call.g
        return a.reshape(examples, -1, a.shape[-1]), g.reshape(examples, -1, g.shape[-1])

    def _sides(self, a: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """What runs over the first and over the second dimension of the weight."""
        return (a, g) if self.transposed else (g, a)

    def instance_size(self, a: torch.Size, y: torch.Size, views: int) -> int:
        one_product = views == 1 and a[1:].numel() == a[-1]
        return 0 if one_product or not self.has_weight else a[-1] * y[-1]

    def kernels(self, call: BackwardCall) -> list[Kernel]:
        a, g = self._sequences(call)
        if not self.has_weight:
            return [Kernel("bias", 0.0, lambda: self._bias_only(g))]
        if a.shape[1] == 1:
            float64 = call.float64_products
            return [Kernel("outer", 0.0, lambda: self._outer(a[:, 0], g[:, 0], float64))]
        return [Kernel("instantiate", 0.0, lambda: self._instantiate(a, g))]

    def per_example(self, call: BackwardCall) -> list[Tensor]:
        a, g = self._sequences(call)
        first, second = self._sides(a, g)
        gradients = [torch.bmm(first.transpose(1, 2), second)] if self.has_weight else []
        return gradients + ([g.sum(1)] if self.has_bias else [])

    def add_per_example(
        self, call: BackwardCall, into: Sequence[Tensor], *, fresh: bool = False
    ) -> None:
        a, g = self._sequences(call)
        if self.has_weight:
            first, second = self._sides(a, g)
            left = first.transpose(1, 2)
            if fresh:
                torch.bmm(left, second, out=into[0])
            else:
                into[0].baddbmm_(left, second)
        if self.has_bias:
            put(into[-1], g.sum(1), fresh=fresh)

    def _bias_only(self, g: Tensor) -> NormsAndSum:
        return from_gradients(g.sum(1).unsqueeze(0), None)

    def _instantiate(self, a: Tensor, g: Tensor) -> NormsAndSum:
        """Several t: build sum_t g_t a_t^T and square it in the cache.

        Cost: 2 T inputs outputs flops an example, and inputs * outputs numbers of memory.
        """
        first, second = self._sides(a, g)
        left = first.transpose(1, 2)
        bytes_each = first.shape[2] * second.shape[2] * second.element_size()
        norms = torch.empty(len(a), dtype=torch.float64, device=a.device)

        def instantiate(which: slice) -> Tensor:
            out = products(left[which], second[which], norms[which])
            return out.view(1, out.shape[0], -1)

        bias = g.sum(1) if self.has_bias else None
        return from_chunks(len(a), bytes_each, instantiate, None, bias, norms)

    def _outer(self, a: Tensor, g: Tensor, float64: bool) -> NormsAndSum:
        """One t: ||g_i|| ||a_i|| and one product of matrices; no gradient is built.

        Cost: 2 (inputs + outputs) flops an example for norms, 2 inputs outputs for the sum.
        """
        square_a, square_g = squared_norms(a), squared_norms(g)
        norms = (square_a + 1.0) * square_g if self.has_bias else square_a * square_g
        # entries below the normal numbers of float32 would be rounded by more than u of themselves
        norms = norms.masked_fill(torch.maximum(square_a, square_g) > LARGEST_SQUARE, torch.inf)

        def add(fresh: bool, weights: Tensor, bad: Tensor | None, into: Sequence[Tensor]) -> None:
            left, right = self._sides(zero_rows(a, bad), zero_rows(g, bad))
            if right.shape[1] < left.shape[1]:
                left, right = _promote(left, float64), _weigh(right, weights, float64)
            else:
                left, right = _weigh(left, weights, float64), _promote(right, float64)
            blocks = list(zip(left.split(BLOCK_ROWS), right.split(BLOCK_ROWS), strict=True))
            room = left.new_empty(min(2, len(blocks)), left.shape[1], right.shape[1])
            for k, (block_left, block_right) in enumerate(blocks):
                product = torch.mm(block_left.t(), block_right, out=room[min(k, 1)])
                if not fresh or k > 1:
                    add_(into[0], product)
                elif k == 1:
                    put_pair_(into[0], room[0], product)
                elif len(blocks) == 1:
                    into[0].copy_(product)
            add_bias(g if self.has_bias else None, weights, bad, into, fresh=fresh)

        return NormsAndSum(norms, partial(add, False), partial(add, True))


def _promote(t: Tensor, float64: bool) -> Tensor:
    return t.double() if float64 else t


def _weigh(rows: Tensor, weights: Tensor, float64: bool) -> Tensor:
    """Multiply row i by its weight w_i."""
    return _promote(rows, float64) * (weights if float64 else weights.to(rows.dtype))[:, None]


def record_linear(name: str, module: nn.Linear) -> RecordedLayer:
    """The recorded form of nn.Linear: y = x W^T + b."""
    handler = LinearHandler.of(name, module.weight, module.bias)

    def forward(tape: Tape, input: Tensor) -> Tensor:
        return tape.product(input, constant(module.weight), constant(module.bias), handler)

    return RecordedLayer.of(forward, handler)


def record_transposed_linear(name: str, module: Any) -> RecordedLayer:
    """The recorded form of `Conv1D` of transformers (GPT-2): y = x W + b, last dimension."""
    handler = LinearHandler.of(name, module.weight, module.bias, transposed=True)

    def forward(tape: Tape, x: Tensor) -> Tensor:
        return tape.product(x, constant(module.weight).t(), constant(module.bias), handler)

    return RecordedLayer.of(forward, handler)
