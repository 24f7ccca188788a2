"""Which layers the engine knows: for each a forward that taps its output, and its sites.

`build(name, module)` returns the recorded forward, or None for a module it does not know; such a
module, and all inside it, goes through `fallback`. A module counts as known only if its class did
not override `forward` and its parameters are the plain ones (no parametrisation).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from privet.errors import InvalidArgument
from privet.nets.per_example.conv_kernels import Geometry
from privet.nets.per_example.convolution import ConvolutionSite
from privet.nets.per_example.group_norm import GroupNormSite, normalised
from privet.nets.per_example.layer_norm import LayerNormSite
from privet.nets.per_example.sites import EmbeddingSite, LinearSite, RuleSite, Site
from privet.nets.per_example.tape import Tape

Forward = Callable[..., Any]


class Recorded(NamedTuple):
    """A forward with the tape as its first argument, and the sites it taps."""

    forward: Forward
    sites: tuple[Site, ...]


def trainable(parameter: Tensor | None) -> nn.Parameter | None:
    """The parameter if it is to be trained, else None."""
    keep = isinstance(parameter, nn.Parameter) and parameter.requires_grad
    return parameter if keep else None  # type: ignore[return-value]


def constant(parameter: Tensor | None) -> Any:
    """The parameter's value, outside the autograd graph: its gradient is the site's business."""
    return None if parameter is None else parameter.detach()


def recorded(forward: Forward, *sites: Site | None) -> Recorded:
    """A `Recorded` of the sites that are there."""
    return Recorded(forward, tuple(site for site in sites if site is not None))


def need_dimensions(name: str, x: Tensor, expected: int) -> None:
    """Refuse an input without a batch dimension."""
    if x.dim() != expected:
        raise InvalidArgument(
            f"the input of layer {name!r}", tuple(x.shape), f"of {expected} dimensions, batch first"
        )


def linear(name: str, module: nn.Linear) -> Recorded:
    weight, bias = trainable(module.weight), trainable(module.bias)
    site = LinearSite(name, weight, bias) if weight is not None or bias is not None else None

    def forward(tape: Tape, input: Tensor) -> Tensor:
        return tape.product(input, constant(module.weight), constant(module.bias), site)

    return recorded(forward, site)


def transposed_linear(name: str, module: Any) -> Recorded:
    """`Conv1D` of transformers (GPT-2): y = x W + b, for any dimensions before the last."""
    weight, bias = trainable(module.weight), trainable(module.bias)
    some = weight is not None or bias is not None
    site = LinearSite(name, weight, bias, transposed=True) if some else None

    def forward(tape: Tape, x: Tensor) -> Tensor:
        return tape.product(x, constant(module.weight).t(), constant(module.bias), site)

    return recorded(forward, site)


def embedding(name: str, module: nn.Embedding) -> Recorded:
    if module.max_norm is not None or module.scale_grad_by_freq:
        raise InvalidArgument(
            f"layer {name!r}",
            module,
            "an Embedding without max_norm and scale_grad_by_freq, which mix examples",
            "use privet.nets.make_private_ready(model)",
        )
    weight = trainable(module.weight)
    site = EmbeddingSite(name, weight, module.padding_idx) if weight is not None else None

    def forward(tape: Tape, input: Tensor) -> Tensor:
        y = F.embedding(input, constant(module.weight), module.padding_idx)
        return tape.tap(y, site, input)

    return recorded(forward, site)


def _symmetric_padding(module: Any) -> tuple[int, ...] | None:
    """The zero padding if it is the same on both sides of every axis, else None."""
    if module.padding_mode != "zeros":
        return None
    if not isinstance(module.padding, str):
        return tuple(module.padding)
    if module.padding == "valid":
        return (0,) * len(module.kernel_size)
    totals = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
    return tuple(t // 2 for t in totals) if all(t % 2 == 0 for t in totals) else None


def convolution(name: str, module: Any) -> Recorded:
    axes = len(module.kernel_size)
    convolve = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    padding = _symmetric_padding(module)
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    sides = None if padding is not None else module._reversed_padding_repeated_twice
    geometry = Geometry(module.stride, padding or (0,) * axes, module.dilation, module.groups)
    site = _convolution_site(name, module, geometry, transposed=False)

    def forward(tape: Tape, input: Tensor) -> Tensor:
        need_dimensions(name, input, axes + 2)
        if sides is not None:
            input = F.pad(input, sides, mode=mode)
        y = convolve(input, constant(module.weight), constant(module.bias), *geometry)
        return tape.tap(y, site, input)

    return recorded(forward, site)


def transposed_convolution(name: str, module: Any) -> Recorded:
    axes = len(module.kernel_size)
    geometry = Geometry(module.stride, module.padding, module.dilation, module.groups)
    site = _convolution_site(name, module, geometry, transposed=True)
    convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]

    def forward(tape: Tape, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        need_dimensions(name, input, axes + 2)
        extra = module._output_padding(
            input, output_size, module.stride, module.padding, module.kernel_size, axes,
            module.dilation,
        )  # fmt: skip
        y = convolve(
            input, constant(module.weight), constant(module.bias), module.stride, module.padding,
            extra, module.groups, module.dilation,
        )  # fmt: skip
        return tape.tap(y, site, input)

    return recorded(forward, site)


def _convolution_site(
    name: str, module: Any, geometry: Geometry, *, transposed: bool
) -> ConvolutionSite | None:
    weight, bias = trainable(module.weight), trainable(module.bias)
    if weight is None and bias is None:
        return None
    return ConvolutionSite(name, weight, bias, module.weight.shape, geometry, transposed)


def group_norm(name: str, module: nn.GroupNorm) -> Recorded:
    return _grouped_norm(name, module, module.num_groups)


def instance_norm(name: str, module: Any) -> Recorded:
    return _grouped_norm(name, module, module.num_features)


def _grouped_norm(name: str, module: Any, groups: int) -> Recorded:
    weight, bias = trainable(module.weight), trainable(module.bias)
    site = GroupNormSite(name, weight, bias) if weight is not None or bias is not None else None
    fewest = 2 if isinstance(module, nn.GroupNorm) else 3

    def forward(tape: Tape, input: Tensor) -> Tensor:
        if input.dim() < fewest:
            need_dimensions(name, input, fewest)
        return normalised(
            tape, site, input, constant(module.weight), constant(module.bias), groups, module.eps
        )

    return recorded(forward, site)


def layer_norm(name: str, module: nn.LayerNorm) -> Recorded:
    weight, bias = trainable(module.weight), trainable(module.bias)
    shape = tuple(module.normalized_shape)
    some = weight is not None or bias is not None
    site = LayerNormSite(name, weight, bias, shape) if some else None

    def forward(tape: Tape, input: Tensor) -> Tensor:
        y, mean, rstd = torch.native_layer_norm(
            input, shape, constant(module.weight), constant(module.bias), module.eps
        )
        return tape.tap(y, site, input, (mean.detach(), rstd.detach()))

    return recorded(forward, site)


def rms_norm(name: str, module: nn.RMSNorm) -> Recorded:
    weight = trainable(module.weight)
    shape = tuple(module.normalized_shape)
    site = LayerNormSite(name, weight, None, shape) if weight is not None else None
    axes = tuple(range(-len(shape), 0))

    def forward(tape: Tape, x: Tensor) -> Tensor:
        y = F.rms_norm(x, shape, constant(module.weight), module.eps)
        eps = torch.finfo(x.dtype).eps if module.eps is None else module.eps
        with torch.no_grad():
            rstd = (x.square().mean(axes, keepdim=True) + eps).rsqrt()
        return tape.tap(y, site, x, (rstd,))

    return recorded(forward, site)


Rule = Callable[[Any, Tensor, Tensor], Mapping[str, Tensor]]
"""`rule(module, x, g)`: per-row gradients of a layer, (rows, *shape of the parameter), by name.

x is the layer's input and g the gradient of its output, both with rows in front. The gradient of
row i may depend on row i only; the checks before the first step look at that, and at the values.
"""


def by_rule(name: str, module: nn.Module, rule: Rule) -> Recorded:
    """A layer whose per-row gradients somebody's rule gives; its forward is its own."""
    site = RuleSite(name, module, rule)
    own = module.forward

    def forward(tape: Tape, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        values = {key: constant(p) for key, p in module.named_parameters()}
        held, module.__dict__["forward"] = module.__dict__.get("forward"), own
        try:
            y = functional_call(module, values, (input, *args), kwargs)
        finally:
            module.__dict__["forward"] = held
        return tape.tap(y, site, input)

    return recorded(forward, site)


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)

KNOWN: dict[type[nn.Module], Callable[[str, Any], Recorded]] = {
    nn.Linear: linear,
    nn.Embedding: embedding,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
    nn.RMSNorm: rms_norm,
    **dict.fromkeys(_CONVOLUTIONS, convolution),
    **dict.fromkeys(_TRANSPOSED, transposed_convolution),
    **dict.fromkeys(_INSTANCE_NORMS, instance_norm),
}


def is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether the module behaves exactly like `kind`: same forward, parameters of its own."""
    own = type(module).forward is kind.forward and "forward" not in module.__dict__
    return own and "parametrizations" not in module._modules and _has_expected_parameters(module)


def _has_expected_parameters(module: nn.Module) -> bool:
    """A weight, perhaps a bias, and not the same one twice, whose gradients would be one's sum."""
    own = module._parameters
    apart = own.get("weight") is not own.get("bias") or own.get("weight") is None
    return "weight" in own and set(own) <= {"weight", "bias"} and apart


def build(name: str, module: nn.Module) -> Recorded | None:
    """The recorded form of a module, or None if its kind is not known."""
    known = dict(KNOWN)
    guest = getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", None)  # if imported
    if guest is not None:
        known[guest] = transposed_linear
    for kind, builder in known.items():
        if isinstance(module, kind) and is_plain(module, kind):
            return builder(name, module)
    return None
