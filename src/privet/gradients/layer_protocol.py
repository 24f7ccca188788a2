"""The protocol that every kind of layer follows: what it records, its norms, its clipped sum.

A file for each kind (`linear`, `embedding`, `convolution`, ...) has two things:

1. `record_<kind>(name, module)` returns a `RecordedLayer`: a forward that computes what the module
   computes, with the parameters as constants, and passes its output through `tape.tap`; and the
   handlers that it taps for.
2. A `LayerHandler` for each place where parameters meet data. After the backward pass it gets a
   `BackwardCall` (the layer's input a and the gradient g of its output, rows in front). It must
   give the gradients `per_example`; it may list faster `kernels` to a `NormsAndSum`, which holds
   the squared norm of every example's gradient and adds up sum_i w_i g_i once weights are known.

To add a kind, copy `embedding.py` (the shortest) and enter the new function in `find_layers.KINDS`;
docs/theory/gradients.md goes through it step by step.

Per-example gradients are computed in the model's precision, each from its own row; their norms and
their weighted sums are taken in float64, so that neither depends on the order to more than 2^-53.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from privet.errors import InvalidArgument
from privet.gradients.norms_and_sum import NormsAndSum, from_gradients_by_target


class LayerProblem(InvalidArgument):
    """A layer that cannot be recorded as it is used; `layer` is its name in the model.

    `private` then tries other ways to take its gradients before it refuses the model.
    """

    def __init__(self, layer: str, name: str, value: Any, expected: str, hint: str = "") -> None:
        super().__init__(name, value, expected, hint)
        self.layer = layer


class ParameterSlice(NamedTuple):
    """A parameter, or some rows of one, that a handler's gradient belongs to."""

    parameter: nn.Parameter
    rows: slice | None = None

    def of(self, tensor: Tensor, *, batched: bool = False) -> Tensor:
        """The part of `tensor` (shaped like the parameter, after a batch axis) that is meant."""
        if self.rows is None:
            return tensor
        return tensor[:, self.rows] if batched else tensor[self.rows]


class BackwardCall(NamedTuple):
    """One call of a layer after the backward pass: its input a and the gradient g of its output.

    Rows are example-major: with `views` = K, rows iK ... iK+K-1 belong to example i. `statistics`
    are those of a normalisation. `float64_products` asks for products of matrices in float64.
    """

    a: Tensor
    g: Tensor
    views: int
    statistics: tuple[Tensor, ...] = ()
    float64_products: bool = False

    def select(self, examples: slice) -> BackwardCall:
        """The part that belongs to some of the examples."""
        rows = slice(examples.start * self.views, examples.stop * self.views)
        statistics = tuple(s[rows] for s in self.statistics)
        return BackwardCall(
            self.a[rows], self.g[rows], self.views, statistics, self.float64_products
        )


class Kernel(NamedTuple):
    """One way to norms and sum; `cost` is a rough estimate in nanoseconds from shapes alone."""

    name: str
    cost: float
    run: Callable[[], NormsAndSum]


class LayerHandler(ABC):
    """One place where trainable parameters meet data.

    `targets` are the parameters that its gradients belong to; `name` is that of the layer. `kind`
    is what a saved choice of a kernel begins with; a kind with several kernels sets its own.
    """

    kind: ClassVar[str] = "layer"

    def __init__(self, name: str, targets: Sequence[ParameterSlice]) -> None:
        self.name = name
        self.targets = tuple(targets)

    @abstractmethod
    def per_example(self, call: BackwardCall) -> list[Tensor]:
        """Per-example gradients, (examples, *shape of the target), one tensor a target.

        It serves tests as the reference, and tied parameters, which are added up before the norm.
        """

    def kernels(self, call: BackwardCall) -> list[Kernel]:
        """The ways to this call's norms and weighted sum: from `per_example`, if nothing better."""
        return [Kernel("given", 0.0, lambda: from_gradients_by_target(self.per_example(call)))]

    def add_per_example(
        self, call: BackwardCall, into: Sequence[Tensor], *, fresh: bool = False
    ) -> None:
        """Add the per-example gradients to given memory (or, if `fresh`, put them there)."""
        for target, value in zip(into, self.per_example(call), strict=True):
            put(target, value, fresh=fresh)

    def instance_size(self, a: torch.Size, y: torch.Size, views: int) -> int:
        """Numbers in one example's gradient if it is to be instantiated, from the shapes alone.

        a and y are the shapes of input and output; `micro_batch` plans memory by it.
        """
        return 0

    def key(self, call: BackwardCall) -> str:
        """What the choice of a kernel depends on: shapes and layout, never the number of rows."""
        layout = "last" if is_channels_last(call.a) else "first"
        inner = (
            "x".join(map(str, call.a.shape[1:])),
            "x".join(map(str, call.g.shape[1:])),
        )
        return f"{self.kind}:{inner[0]}:{inner[1]}:{layout}:views{call.views}"


class RecordedLayer(NamedTuple):
    """A module's forward with the tape as its first argument, and the handlers it taps for."""

    forward: Callable[..., Any]
    handlers: tuple[LayerHandler, ...]

    @classmethod
    def of(cls, forward: Callable[..., Any], *handlers: LayerHandler | None) -> RecordedLayer:
        """With those handlers that there are; None stands for frozen parameters."""
        return cls(forward, tuple(h for h in handlers if h is not None))


RecordLayer = Callable[[str, Any], RecordedLayer]
"""`record(name, module)`: how a kind of module is recorded."""


def trainable(parameter: Tensor | None) -> nn.Parameter | None:
    """The parameter if it is to be trained, else None."""
    keep = isinstance(parameter, nn.Parameter) and parameter.requires_grad
    return parameter if keep else None  # type: ignore[return-value]


def constant(parameter: Tensor | None) -> Any:
    """The parameter's value outside the autograd graph: its gradient is the handler's business."""
    return None if parameter is None else parameter.detach()


def require_dimensions(name: str, x: Tensor, expected: int) -> None:
    """Refuse an input without a batch dimension."""
    if x.dim() != expected:
        raise LayerProblem(
            name, f"the input of layer {name!r}", tuple(x.shape),
            f"of {expected} dimensions, batch first",
        )  # fmt: skip


def is_channels_last(t: Tensor) -> bool:
    """Whether a 4-D or 5-D tensor is laid out channels-last."""
    if t.dim() == 4:
        return t.is_contiguous(memory_format=torch.channels_last)
    return t.dim() == 5 and t.is_contiguous(memory_format=torch.channels_last_3d)


def fold_views(t: Tensor, views: int) -> Tensor:
    """Sum per-row gradients over the views: (examples * views, ...) to (examples, ...)."""
    return t if views == 1 else t.unflatten(0, (-1, views)).sum(1)


def put(into: Tensor, value: Tensor, *, fresh: bool) -> None:
    """Add a value to memory, or if `fresh` write it over what is there."""
    into.copy_(value) if fresh else into.add_(value)
