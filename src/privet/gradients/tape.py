"""The tape: the input of every layer in one forward pass, and who receives the gradients after it.

Recorded layers see their parameters as constants, so autograd never computes the summed parameter
gradients, nor the gradient of the network's input. `Tape.tap` passes an output through unchanged
and hands its gradient over when the backward pass reaches it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from privet.errors import InvalidArgument
from privet.gradients.layer_protocol import LayerHandler


@dataclass(eq=False)
class ForwardCall:
    """One call of a layer in the forward pass: its input a, and statistics of a normalisation."""

    handler: LayerHandler
    a: Tensor
    statistics: tuple[Tensor, ...]
    version: int
    rows: int

    def check_unchanged(self) -> None:
        """Refuse an input that was overwritten after the layer had read it."""
        if self.a._version != self.version:
            raise InvalidArgument(
                self.handler.name,
                "an input that was modified in place afterwards",
                "a layer whose input is left alone",
                "replace the in-place operation that follows it (for instance x += y by x = x + y)",
            )

    def release(self) -> None:
        """Let go of the input once norms are known; activations are most of the memory."""
        self.a, self.statistics = self.a.new_empty(0), ()


class Tape:
    """The calls of one forward pass, and the function that receives their gradients.

    `rows` is the number of rows of the batch: that of the first layer's input unless it is passed.
    `receive(call, g)` gets each call's output gradient as the backward pass reaches it. `shapes`
    are the handlers with the shapes of their inputs and outputs. `events` says how shared values
    met rows, `constants` what they met that had none, in all passes so far. A `replaying` tape
    serves checkpointed activations, which are computed again during the backward pass.
    `used_autocast`: whether a layer ran in lower precision. `regrouped` are handlers (by id) of
    layers that saw their rows in another arrangement, whose owners each backward pass has to test.
    """

    def __init__(self, rows: int | None = None, *, device: torch.device | None = None) -> None:
        self.rows = rows
        self.replaying = self.used_autocast = False
        self.events: list[tuple[Any, ...]] = []
        self.constants: set[tuple[str, int, torch.Size]] = set()
        self.regrouped: set[int] = set()
        self.calls: list[ForwardCall] = []
        self.anchor = torch.zeros((), device=device, requires_grad=True)
        self.receive: Callable[[ForwardCall, Tensor], None] = lambda call, g: None
        self.shapes: list[tuple[LayerHandler, torch.Size, torch.Size]] = []
        self._sizes: list[tuple[int, torch.Size]] = []

    def tap(
        self,
        y: Tensor,
        handler: LayerHandler | None,
        a: Tensor,
        statistics: tuple[Tensor, ...] = (),
    ) -> Tensor:
        """Return y, noting that `handler` made it from `a`; a handler of None is frozen."""
        return self._tap(y, y.shape, handler, a, statistics)

    def product(
        self, a: Tensor, weight: Tensor, bias: Tensor | None, handler: LayerHandler | None
    ) -> Tensor:
        """a W^T + b, tapped: as one matrix, since of a tapped view autograd copies the gradient."""
        flat = F.linear(a.reshape(-1, a.shape[-1]), weight, bias)
        shape = torch.Size((*a.shape[:-1], len(weight)))
        tapped = self._tap(flat, shape, handler, a, ())
        return tapped if a.dim() == 2 else tapped.view(shape)  # FSDP2 warns of views

    def _tap(
        self, y: Tensor, shape: torch.Size, handler: LayerHandler | None, a: Tensor, statistics: Any
    ) -> Tensor:
        self.note_size(y, shape)
        self.note_size(a, a.shape)
        if handler is not None:
            self.shapes.append((handler, a.shape, shape))
        if handler is None or not torch.is_grad_enabled() or self.replaying:
            return y
        call = self.note(handler, a, statistics, rows=shape[0])
        tapped: Tensor = _Tap.apply(y, self.anchor, self, call, shape)  # type: ignore[no-untyped-call]
        return tapped

    def note_size(self, t: Tensor, shape: torch.Size) -> None:
        """Note the size of a tensor, for `largest_row`."""
        self._sizes.append((t.element_size(), shape))

    @property
    def largest_row(self) -> int:
        """The size in bytes of the largest input or output of a layer, an example."""
        folds = [max(1, shape[0] // self.rows) if self.rows else 1 for _, shape in self._sizes]
        sizes = [size * math.prod(shape[1:]) for size, shape in self._sizes]
        return max((n * size for n, size in zip(folds, sizes, strict=True)), default=0)

    def note(
        self, handler: LayerHandler, a: Tensor, statistics: tuple[Tensor, ...], rows: int
    ) -> ForwardCall:
        """Add a call; its input may be filled in later."""
        a = a.detach()
        call = ForwardCall(handler, a, statistics, a._version, rows)
        if not self.replaying:
            self.calls.append(call)
        return call

    def copy_parameter(self, parameter: Tensor, handler: LayerHandler, rows: int) -> Tensor:
        """A copy of a parameter for each row, (rows, *shape); its gradient is the per-row one."""
        return self.copy_to_rows(parameter, [self.note(handler, parameter, (), rows)])

    def copy_to_rows(self, value: Tensor, calls: list[ForwardCall]) -> Tensor:
        """A copy of a value for each row; all the calls receive the gradient."""
        out: Tensor = _Copies.apply(value, self.anchor, self, calls)  # type: ignore[no-untyped-call]
        return out


class _Tap(torch.autograd.Function):
    """The identity; declared in place, so that in-place activations may follow."""

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, anchor: Tensor, tape: Tape, call: ForwardCall, shape: torch.Size
    ) -> Tensor:
        ctx.tape, ctx.call, ctx.shape = tape, call, shape
        ctx.mark_dirty(y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        ctx.tape.receive(ctx.call, gradients[0].reshape(ctx.shape))
        return gradients[0], None, None, None, None


class _Copies(torch.autograd.Function):
    """Expands a value over the rows; its gradient arrives per row."""

    @staticmethod
    def forward(
        ctx: Any, value: Tensor, anchor: Tensor, tape: Tape, calls: list[ForwardCall]
    ) -> Tensor:
        ctx.tape, ctx.calls = tape, calls
        return value.detach().expand(calls[0].rows, *value.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        for call in ctx.calls:
            ctx.tape.receive(call, gradients[0])
        return None, None, None, None
