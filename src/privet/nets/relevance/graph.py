"""Refuses a network that does something for which there is no rule, and names what it does."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from privet.errors import InvalidArgument

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


def refuse_unknown(output: Tensor) -> None:
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
