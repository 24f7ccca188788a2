"""How relevance passes each kind of layer: the stabiliser rule as a modified gradient.

Write the relevance of a neuron as its value times a coefficient, R_p = p c_p. Then the rule of
eqs. 4-7, R_p = sum_m p W_pm / (z_m +- mu) R_m with R_m = z_m c_m, says

    c_p = sum_m W_pm  c_m  z_m / (z_m +- mu),

which is the gradient of the layer with one factor for each output. Between a sum z and its
activation y relevance does not change, so c_z = c_y y / z. Additions, reshapes, concatenations and
max pooling have the right coefficients already: those of the ordinary gradient. So relevance is one
backward pass with two kinds of nodes put in, whatever the network looks like.

Symbols: z a sum before its activation, y after it, c a coefficient, mu the stabiliser.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.instancenorm import _InstanceNorm

from privet import _check
from privet.errors import InvalidArgument
from privet.networks.bounded_layers import LocalResponseNorm, MinMax

_POOLS = (
    nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
)  # fmt: skip
_ACTIVATIONS = (
    nn.Sigmoid, nn.Tanh, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus,
    nn.Softsign, nn.LogSigmoid, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, LocalResponseNorm,
)  # fmt: skip
_STATISTICS = (nn.GroupNorm, nn.LayerNorm, _InstanceNorm)

TINY = 1e-20  # sums nearer to 0 count as this far from it: far below any float32 sum of note


@dataclass(frozen=True, kw_only=True)
class StabiliserRule:
    """The rule of eqs. 4-9: ratios of local to global sums, kept finite by `stabiliser` (mu).

    mu = 0 is allowed: then a sum near 0 has wild relevance. A larger mu takes more of it away.
    """

    stabiliser: float = 1e-2  # the paper leaves mu open: small beside sums of order 1, but no 0

    def __post_init__(self) -> None:
        _check.non_negative("stabiliser", self.stabiliser)


@dataclass
class RelevanceTally:
    """What biases and stabilisers took, one number a record; filled in by the backward pass."""

    amounts: list[Tensor] = field(default_factory=list)

    def total(self, records: int) -> Tensor:
        """What all layers took, for each record."""
        return sum(self.amounts, start=torch.zeros(records, dtype=torch.float64))


class Stabilise(torch.autograd.Function):
    """The identity on sums z; backwards the coefficient is multiplied by z / (z +- mu).

    Costs one pass over z forwards and one backwards, and the memory of z.

    `offset` is the part of z that comes from no input (the bias), broadcast against z; it is only
    needed for the tally.
    """

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, mu: float, offset: Tensor | float, tally: RelevanceTally | None
    ) -> Tensor:
        size = z.abs().clamp_(min=TINY)
        ctx.ratio = size.div_(size + max(mu, TINY))
        ctx.tally, ctx.offset = tally, offset
        if tally is not None:
            ctx.z = z.detach().clone()
        ctx.mark_dirty(z)
        return z

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor, None, None, None]:
        scaled = c * ctx.ratio
        if ctx.tally is not None:
            z, b = ctx.z.double(), ctx.offset
            b = b.double() if isinstance(b, Tensor) else b
            absorbed = z * c.double() - (z - b) * scaled.double()
            ctx.tally.amounts.append(absorbed.flatten(1).sum(1))
        return scaled, None, None, None


class Ratio(torch.autograd.Function):
    """The value y of an activation of z; backwards the coefficient is multiplied by y / z."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, y: Tensor) -> Tensor:
        away = z.abs().clamp_(min=TINY)
        ctx.ratio = torch.where(z < 0, -away, away).reciprocal_().mul_(y)
        return y.detach().clone()

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor, None]:
        return c * ctx.ratio, None


class Standardise(torch.autograd.Function):
    """(x - mean) / spread within groups, the spread held fixed: a linear map, so it has a rule.

    `x` has its groups in the second dimension: (records, groups, values).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        variance, mean = torch.var_mean(x, dim=2, correction=0, keepdim=True)
        ctx.scale = variance.add_(eps).rsqrt_()
        out: Tensor = (x - mean) * ctx.scale
        return out

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor, None]:
        return (c - c.mean(dim=2, keepdim=True)) * ctx.scale, None


class Scale(torch.autograd.Function):
    """x times a factor that is held fixed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx: Any, c: Tensor) -> tuple[Tensor, None]:
        return c * ctx.factor, None


@final
class Add(nn.Module):
    """The sum of two branches, stabilised like any other sum in the paper's rule.

    A plain `a + b` in a module's forward is followed too, with stabiliser 0.

    >>> Add()(torch.ones(2), torch.ones(2)).tolist()
    [2.0, 2.0]
    """

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Add the two inputs, a + b."""
        return a + b


@final
class Residual(nn.Module):
    """body(x) + shortcut(x): a residual block whose addition has a rule of its own.

    >>> Residual(nn.ReLU())(torch.tensor([-1.0, 2.0])).tolist()
    [-1.0, 4.0]
    """

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.body = body
        self.shortcut = nn.Identity() if shortcut is None else shortcut
        self.add = Add()

    def forward(self, x: Tensor) -> Tensor:
        """Both branches, added."""
        total: Tensor = self.add(self.body(x), self.shortcut(x))
        return total


@contextlib.contextmanager
def with_layer_rules(
    model: nn.Module, rule: StabiliserRule, tally: RelevanceTally | None
) -> Iterator[None]:
    """Run the model in evaluation mode, without parameter gradients, its layers under the rule.

    Everything is put back afterwards.
    """
    modes = [(m, m.training) for m in model.modules()]
    needed = [(p, p.requires_grad) for p in model.parameters()]
    in_place = [m for m in model.modules() if getattr(m, "inplace", False) is True]
    hooks = _Hooks(rule.stabiliser, tally)
    handles = []
    try:
        model.eval()
        for p, _ in needed:
            p.requires_grad_(False)
        for module in in_place:
            setattr(module, "inplace", False)  # noqa: B010
        for module in model.modules():
            hook = hooks.of(module)
            if hook is not None:
                handles.append(module.register_forward_hook(hook))
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module in in_place:
            setattr(module, "inplace", True)  # noqa: B010
        for p, trained in needed:
            p.requires_grad_(trained)
        for module, training in modes:
            module.training = training


class _Hooks:
    """Forward hooks that put the modified gradients behind the layers."""

    def __init__(self, mu: float, tally: RelevanceTally | None) -> None:
        self.mu, self.tally = mu, tally

    def of(self, module: nn.Module) -> Any:
        """The hook for a layer; None when the ordinary gradient is right, or it is no layer."""
        if isinstance(module, (nn.Linear, _ConvNd, _BatchNorm, Add, *_POOLS)):
            return self._affine
        if isinstance(module, _STATISTICS):
            return self._statistics
        if isinstance(module, MinMax):
            return self._min_max
        if isinstance(module, _ACTIVATIONS):
            return self._activation
        return None

    def _affine(self, module: nn.Module, inputs: tuple[Tensor, ...], z: Tensor) -> Any:
        return self._stabilised(z, self._offset(module, z) if self.tally is not None else 0.0)

    def _activation(self, module: nn.Module, inputs: tuple[Tensor, ...], y: Tensor) -> Any:
        return _apply(Ratio, inputs[0], y.detach())

    def _statistics(self, module: nn.Module, inputs: tuple[Tensor, ...], y: Tensor) -> Any:
        if getattr(module, "track_running_stats", False):
            raise InvalidArgument("layer", type(module).__name__, "without running statistics")
        (x,) = inputs
        standard = _apply(Standardise, x.reshape(*_groups(module, x), -1), module.eps)
        standard = standard.reshape(x.shape)
        weight, bias = _parameter(module, "weight", x), _parameter(module, "bias", x)
        z = standard if weight is None else _apply(Scale, standard, weight)
        return self._stabilised(z if bias is None else z + bias, 0.0 if bias is None else bias)

    def _min_max(self, module: nn.Module, inputs: tuple[Tensor, ...], y: Tensor) -> Any:
        assert isinstance(module, MinMax)
        width = (module.high - module.low).clamp(min=1e-12)
        z = _apply(Scale, inputs[0], width.reciprocal()) - module.low / width
        return self._stabilised(z, -module.low / width)

    def _stabilised(self, z: Tensor, offset: Tensor | float) -> Any:
        owned = z.clone() if z._is_view() else z  # the node marks z as written to
        return _apply(Stabilise, owned, self.mu, offset, self.tally)

    @staticmethod
    def _offset(module: nn.Module, z: Tensor) -> Tensor | float:
        """The part of z that comes from no input."""
        if isinstance(module, _BatchNorm):
            mean, variance = module.running_mean, module.running_var
            assert mean is not None and variance is not None
            scale = (variance + module.eps).rsqrt()
            weight, shift = _parameter(module, "weight", z), _parameter(module, "bias", z)
            scale = scale.reshape(-1, *(1,) * (z.dim() - 2))
            scale = scale if weight is None else scale * weight
            moved = -mean.reshape(scale.shape) * scale
            return moved if shift is None else moved + shift
        bias = getattr(module, "bias", None)
        if bias is None:
            return 0.0
        after = z.dim() - 2 if isinstance(module, _ConvNd) else 0
        return torch.as_tensor(bias).reshape(-1, *(1,) * after)


def _apply(function: Any, x: Tensor, *arguments: Any) -> Tensor:
    out: Tensor = function.apply(x, *arguments)
    return out


def _groups(module: nn.Module, x: Tensor) -> tuple[int, int]:
    """How x is divided: by records, and by what is standardised together."""
    if isinstance(module, nn.GroupNorm):
        return len(x), module.num_groups
    if isinstance(module, nn.LayerNorm):
        inner = 1
        for size in module.normalized_shape:
            inner *= size
        return len(x), x[0].numel() // inner
    return len(x), x.shape[1]


def _parameter(module: nn.Module, name: str, x: Tensor) -> Tensor | None:
    """A scale or shift of a normalisation, shaped so that it meets its values; None without one."""
    parameter = getattr(module, name, None)
    if parameter is None or isinstance(module, nn.LayerNorm):
        return parameter
    shaped: Tensor = parameter.reshape(-1, *(1,) * (x.dim() - 2))
    return shaped
