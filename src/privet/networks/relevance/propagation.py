"""Layer-wise relevance propagation: how much of an output each input feature accounts for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument
from privet.networks.relevance.layer_rules import RelevanceTally, StabiliserRule, with_layer_rules

Normalise = Callable[[Tensor], Tensor]
RecordWatcher = Callable[[int, int], None]
"""Called with how many records are done, and of how many."""


@dataclass(frozen=True, kw_only=True)
class RelevanceAccount:
    """Relevance with the whole account: inputs + absorbed = outcome, for every record."""

    inputs: Tensor
    absorbed: Tensor
    """What biases and stabilisers took, layer by layer; not computed from the other two."""
    outcome: Tensor
    """The value of the output that is explained."""


def relevance(
    model: nn.Module,
    x: Tensor,
    targets: Tensor | None = None,
    *,
    rule: StabiliserRule | None = None,
) -> Tensor:
    """The relevance of every input feature of every record to the output `targets`.

    R_p = sum_m z_pm / (z_m +- mu) R_m from the output (R_o = z_o) down to the features, the sign
    that of z_m; `targets` are the numbers of the outputs, by default the largest of each.
    Works for networks of affine layers, pooling, the usual activations, normalisation with fixed
    statistics, additions and rearrangements, in any arrangement; anything else is refused by name.
    The model is run in evaluation mode and left as it was.

    **Guarantee** none about privacy: see `private_average_relevance`.

    **Assumes** that records do not influence each other in evaluation mode. Eq. 9 of the paper
    (nothing is lost) holds exactly without biases and stabiliser; see `accounted_relevance`.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, -1.0]]))
    >>> relevance(layer, torch.tensor([[1.0, 2.0]]), rule=StabiliserRule(stabiliser=0.0)).tolist()
    [[3.0, -2.0]]

    Adaptive Laplace Mechanism, eqs. 4-9; Bach et al. 2015. As a modified gradient: Ancona et al.,
    "Towards better understanding of gradient-based attribution methods" (2018), proposition 1.
    """
    return _propagate(model, x, targets, rule, None)[0]


def accounted_relevance(
    model: nn.Module,
    x: Tensor,
    targets: Tensor | None = None,
    *,
    rule: StabiliserRule | None = None,
) -> RelevanceAccount:
    """As `relevance`, with what biases and stabilisers took: the conservation law made visible.

    sum_j R_j + absorbed = outcome. Eq. 9 leaves `absorbed` out, though eqs. 5 and 7 have it: a bias
    is part of the sum z_m but no message carries its share.

    **Assumes** layers, not functions: what a constant takes in a plain `x + 1` is not tallied.
    """
    tally = RelevanceTally()
    inputs, outcome = _propagate(model, x, targets, rule, tally)
    return RelevanceAccount(inputs=inputs, absorbed=tally.total(len(x)), outcome=outcome)


def _propagate(
    model: nn.Module,
    x: Tensor,
    targets: Tensor | None,
    rule: StabiliserRule | None,
    tally: RelevanceTally | None,
) -> tuple[Tensor, Tensor]:
    if not x.is_floating_point() or x.dim() < 2:
        raise InvalidArgument("x", tuple(x.shape), "records of real numbers, one row each")
    with with_layer_rules(model, rule or StabiliserRule(), tally), torch.enable_grad():
        leaf = x.detach().clone().requires_grad_()
        out: Tensor = model(leaf + 0.0)  # a layer may write into its input, never into ours
        if out.dim() != 2 or len(out) != len(x):
            raise InvalidArgument("model", tuple(out.shape), "one with outputs (records, outputs)")
        outputs = out.argmax(1) if targets is None else targets
        if outputs.shape != (len(x),):
            raise InvalidArgument("targets", tuple(outputs.shape), "one output number a record")
        check_operations(out)
        start = torch.zeros_like(out).scatter_(1, outputs[:, None], 1.0)
        (c,) = torch.autograd.grad(out, leaf, start)
    outcome = out.detach().gather(1, outputs[:, None])[:, 0]
    return c.mul_(x.detach()), outcome


def scale_to_unit_interval(relevance: Tensor) -> Tensor:
    """Each record's relevance moved and scaled to [0, 1], as the paper does it.

    (R - chi) / (phi - chi), phi and chi the largest and smallest of the *record*. A record whose
    relevance is the same everywhere becomes 0. (The paper says [-1, 1]; the formula gives [0, 1].
    A feature without relevance does not stay at 0: it goes to -chi / (phi - chi).)

    >>> scale_to_unit_interval(torch.tensor([[1.0, 3.0, 2.0], [5.0, 5.0, 5.0]])).tolist()
    [[0.0, 1.0, 0.5], [0.0, 0.0, 0.0]]
    """
    flat = relevance.flatten(1)
    low, high = flat.amin(1, keepdim=True), flat.amax(1, keepdim=True)
    width = high - low
    # the clamp only keeps the branch that is not taken from dividing by 0
    flat = torch.where(width > 0, (flat - low) / width.clamp(min=1e-30), torch.zeros_like(flat))
    return flat.reshape(relevance.shape)


def scale_to_unit_l1(relevance: Tensor) -> Tensor:
    """Each record's relevance scaled to L1 norm 1; a record with none, or a bad one, becomes 0.

    >>> scale_to_unit_l1(torch.tensor([[1.0, -3.0], [0.0, 0.0]])).tolist()
    [[0.25, -0.75], [0.0, 0.0]]
    """
    flat = relevance.flatten(1).double()
    good = flat.isfinite().all(1, keepdim=True)
    flat = torch.where(good, flat, torch.zeros_like(flat))
    largest = flat.abs().amax(1, keepdim=True)
    flat = flat / torch.where(largest > 0, largest, torch.ones_like(largest))
    norm = flat.abs().sum(1, keepdim=True)
    return (flat / norm.clamp(min=1.0)).reshape(relevance.shape)


def relevance_in_batches(
    model: nn.Module,
    x: Tensor | NDArray[np.float32],
    targets: Tensor | NDArray[np.int64] | None = None,
    *,
    rule: StabiliserRule | None = None,
    batch_size: int = 500,
    watcher: RecordWatcher | None = None,
) -> Iterator[Tensor]:
    """The relevance of a whole data set, a batch at a time."""
    size = _check.count("batch_size", batch_size)
    rows = torch.as_tensor(x)
    classes = None if targets is None else torch.as_tensor(targets)
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        yield relevance(model, rows[part], None if classes is None else classes[part], rule=rule)
        if watcher is not None:
            watcher(min(start + size, len(rows)), len(rows))


def average_relevance(
    model: nn.Module,
    x: Tensor | NDArray[np.float32],
    targets: Tensor | NDArray[np.int64] | None = None,
    *,
    rule: StabiliserRule | None = None,
    normalise: Normalise = scale_to_unit_interval,
    batch_size: int = 500,
    watcher: RecordWatcher | None = None,
) -> NDArray[np.float64]:
    """R_j(D): the mean over records of the normalised relevance of each feature.

    **Guarantee** none: it is exact. Adaptive Laplace Mechanism, eq. 10.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, 1.0]]))
    >>> average_relevance(layer, torch.ones(4, 2)).round(3).tolist()
    [1.0, 0.0]
    """
    rows = torch.as_tensor(x)
    if len(rows) == 0:
        raise InvalidArgument("x", tuple(rows.shape), "at least one record")
    total = torch.zeros(rows.shape[1:], dtype=torch.float64)
    for part in relevance_in_batches(
        model, rows, targets, rule=rule, batch_size=batch_size, watcher=watcher
    ):
        total += normalise(part).double().sum(0)
    mean: NDArray[np.float64] = (total / len(rows)).numpy()
    return mean


_OURS = {"Stabilise", "Ratio", "Standardise", "Scale"}
_RIGHT = {
    # sums, selections and rearrangements; max pooling; piecewise linear activations through 0
    "AccumulateGrad", "Add", "Sub", "Neg", "Sum", "Mean", "Cat", "Stack", "Clone", "Copy", "To",
    "View", "UnsafeView", "ReshapeAlias", "Permute", "Transpose", "T", "Expand", "Repeat", "Alias",
    "Squeeze", "Unsqueeze", "Unbind", "Split", "SplitWithSizes", "Chunk", "Slice", "Select",
    "Index", "IndexSelect", "Narrow", "Flip", "Roll", "Pad", "ConstantPadNd", "Unfold",
    "Relu", "LeakyRelu", "Prelu", "PreluKernel", "MaxPool1DWithIndices", "MaxPool2DWithIndices",
    "MaxPool3DWithIndices", "MkldnnMaxPool2D", "MkldnnMaxPool3D", "AdaptiveMaxPool1D",
    "AdaptiveMaxPool2D", "AdaptiveMaxPool3D", "AvgPool2D", "AvgPool3D", "AdaptiveAvgPool2D",
    "AdaptiveAvgPool3D", "UpsampleNearest1D", "UpsampleNearest2D", "UpsampleNearest3D",
    "UpsampleBilinear2D", "UpsampleTrilinear3D", "NativeBatchNorm", "CudnnBatchNorm", "Squeeze1",
    "ToCopy", "AsStrided", "Movedim", "Swapaxes", "PixelShuffle", "MaxUnpool2D", "NativeDropout",
}  # fmt: skip
_PRODUCTS = {"Mul", "Mm", "Bmm", "Addmm", "Addbmm", "Baddbmm", "Mv", "Linear", "MkldnnLinear"}
_PRODUCTS |= {"Convolution", "MkldnnConvolution", "Div", "SlowConvDilated2D", "Einsum"}


def check_operations(output: Tensor) -> None:
    """Walk the graph behind an output; raise at the first operation whose rule is not known.

    A product has a rule when only one of its factors depends on the input.
    """
    seen: set[Any] = set()
    todo: list[Any] = [output.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        _check_node(node)
        todo.extend(before for before, _ in node.next_functions)


def _check_node(node: Any) -> None:
    name = type(node).__name__
    operation = name.split("Backward")[0]
    if operation in _OURS or operation in _RIGHT:
        return
    live = [before is not None for before, _ in node.next_functions]
    if operation in _PRODUCTS and sum(live) == 1 and not (operation == "Div" and not live[0]):
        return
    raise InvalidArgument(
        "model",
        operation,
        "made of operations that have a relevance rule",
        "use the layer (such as nn.Tanh or nn.GroupNorm) instead of the function, or drop a "
        "softmax at the end",
    )
