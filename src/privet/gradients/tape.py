"""The tape: what every site saw during one forward pass, filled in by the backward pass.

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
from privet.nets.per_example.sites import Site


@dataclass(eq=False)
class Use:
    """One call of a site."""

    site: Site
    a: Tensor
    statistics: tuple[Tensor, ...]
    version: int
    rows: int

    def check_unchanged(self) -> None:
        """Refuse an input that was overwritten after the layer had read it."""
        if self.a._version != self.version:
            raise InvalidArgument(
                self.site.name,
                "an input that was modified in place afterwards",
                "a layer whose input is left alone",
                "replace the in-place operation that follows it (for instance x += y by x = x + y)",
            )

    def release(self) -> None:
        """Let go of what was seen, once it is measured; activations are most of the memory."""
        self.a, self.statistics = self.a.new_empty(0), ()


class Tape:
    """The uses of one forward pass, and the function that receives their gradients.

    `rows` is the number of rows of the batch, by the first layer unless told; `shapes` are the
    sites with the shapes of their inputs and outputs. `events` tells how shared values met rows,
    `constants` what they met that had none, in all passes so far. A `replaying` tape serves
    checkpointed activations, which are computed again during the backward pass. `lowered`: under
    autocast.
    """

    def __init__(self, rows: int | None = None, *, home: torch.device | None = None) -> None:
        self.rows = rows
        self.replaying = self.lowered = False
        self.events: list[tuple[Any, ...]] = []
        self.constants: set[tuple[str, int, torch.Size]] = set()
        self.uses: list[Use] = []
        self.anchor = torch.zeros((), device=home, requires_grad=True)
        self.arrived: Callable[[Use, Tensor], None] = lambda use, g: None
        self.shapes: list[tuple[Site, torch.Size, torch.Size]] = []
        self._seen: list[tuple[int, torch.Size]] = []

    def tap(
        self, y: Tensor, site: Site | None, a: Tensor, statistics: tuple[Tensor, ...] = ()
    ) -> Tensor:
        """Return y, noting that `site` made it from `a`; a site of None is frozen."""
        return self._tapped(y, y.shape, site, a, statistics)

    def product(self, a: Tensor, weight: Tensor, bias: Tensor | None, site: Site | None) -> Tensor:
        """a W^T + b, tapped: as one matrix, since of a tapped view autograd copies the gradient."""
        flat = F.linear(a.reshape(-1, a.shape[-1]), weight, bias)
        shape = torch.Size((*a.shape[:-1], len(weight)))
        tapped = self._tapped(flat, shape, site, a, ())
        return tapped if a.dim() == 2 else tapped.view(shape)  # FSDP2 warns of views

    def _tapped(
        self, y: Tensor, shape: torch.Size, site: Site | None, a: Tensor, statistics: Any
    ) -> Tensor:
        self.saw(y, shape)
        self.saw(a, a.shape)
        if site is not None:
            self.shapes.append((site, a.shape, shape))
        if site is None or not torch.is_grad_enabled() or self.replaying:
            return y
        use = self.note(site, a, statistics, rows=shape[0])
        tapped: Tensor = _Tap.apply(y, self.anchor, self, use, shape)  # type: ignore[no-untyped-call]
        return tapped

    def saw(self, t: Tensor, shape: torch.Size) -> None:
        """Take note of the size of a row."""
        self._seen.append((t.element_size(), shape))

    @property
    def largest_row(self) -> int:
        """The size in bytes of the largest row of any input or output of a layer."""
        return max((size * math.prod(shape[1:]) for size, shape in self._seen), default=0)

    def note(self, site: Site, a: Tensor, statistics: tuple[Tensor, ...], rows: int) -> Use:
        """Add a use; its input may be filled in later."""
        a = a.detach()
        use = Use(site, a, statistics, a._version, rows)
        if not self.replaying:
            self.uses.append(use)
        return use

    def copies(self, parameter: Tensor, site: Site, rows: int) -> Tensor:
        """A copy of a parameter for each row, (rows, *shape); its gradient is the per-row one."""
        return self.copied(parameter, [self.note(site, parameter, (), rows)])

    def copied(self, value: Tensor, uses: list[Use]) -> Tensor:
        """A copy of a value for each row; all the uses get the gradient."""
        out: Tensor = _Copies.apply(value, self.anchor, self, uses)  # type: ignore[no-untyped-call]
        return out


class _Tap(torch.autograd.Function):
    """The identity; declared in place, so that in-place activations may follow."""

    @staticmethod
    def forward(
        ctx: Any, y: Tensor, anchor: Tensor, tape: Tape, use: Use, shape: torch.Size
    ) -> Tensor:
        ctx.tape, ctx.use, ctx.shape = tape, use, shape
        ctx.mark_dirty(y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        ctx.tape.arrived(ctx.use, gradients[0].reshape(ctx.shape))
        return gradients[0], None, None, None, None


class _Copies(torch.autograd.Function):
    """A value expanded over the rows."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, anchor: Tensor, tape: Tape, uses: list[Use]) -> Tensor:
        ctx.tape, ctx.uses = tape, uses
        return value.detach().expand(uses[0].rows, *value.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        for use in ctx.uses:
            ctx.tape.arrived(use, gradients[0])
        return None, None, None, None
