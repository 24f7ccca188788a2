"""Noise at residual additions, additive or multiplicative, and how to put it into any network."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Self, final

import torch
from torch import Tensor, fx, nn

from privet import _check
from privet.errors import InvalidArgument

_ADDITIONS = {operator.add, operator.iadd, torch.add}
_METHODS = {"add", "add_"}
_NOT_IN_PLACE = {operator.iadd: operator.add, "add_": "add"}

Draw = Callable[[Tensor], Tensor]
"""Standard normal numbers in the shape of a tensor."""


class Strategy(Enum):
    """What the noise of a block is multiplied with."""

    ADDITIVE = "additive"
    """gamma n: Strategy I, equation (6)."""
    MULTIPLICATIVE = "multiplicative"
    """gamma x~ (.) n: Strategy II, equation (8)."""


@final
@dataclass(frozen=True, kw_only=True)
class Perturbation:
    """What every block of a network does: x -> x + F(x) + gamma n, or + gamma x~ (.) n.

    - `gamma`: absolute, never scaled by a statistic of the data; 0 is the plain network, bit for
      bit, and draws nothing.
    - `floor`: eta; multiplicative noise uses x~_j = sgn(x_j) max(|x_j|, eta).
    - `cached`: draw once for each block and shape, and use that for every example and call (one
      realisation of the equation); otherwise noise is new for each example and call.

    **Guarantee** none: inside a network this noise regularises. It is drawn from torch's generator
    (`torch.manual_seed` repeats it), not from `privet.noise`.

    >>> Perturbation(gamma=0.5).strategy
    <Strategy.ADDITIVE: 'additive'>
    """

    strategy: Strategy = Strategy.ADDITIVE
    gamma: float = 0.0
    floor: float = 0.0
    cached: bool = False

    def __post_init__(self) -> None:
        _check.non_negative("gamma", self.gamma)
        _check.non_negative("floor", self.floor)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; `from_dict` reads it back."""
        return {**asdict(self), "strategy": self.strategy.value}

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`.

        >>> Perturbation.from_dict(Perturbation(gamma=0.5).to_dict()).gamma
        0.5
        """
        return cls(**{**d, "strategy": Strategy(d["strategy"])})


@final
class ResidualNoise(nn.Module):
    """The noise of one block, in training and in test.

    `forward(total, skip)` takes x + F(x) and x and returns x + F(x) + noise. It has no parameters
    and no buffers, so that state dictionaries of plain and perturbed networks are the same.

    >>> block = ResidualNoise(Perturbation(gamma=0.0))
    >>> x = torch.ones(2, 3)
    >>> block(x, x) is x
    True
    """

    def __init__(self, law: Perturbation, draw: Draw | None = None) -> None:
        super().__init__()
        self.law = law
        self.draw = standard_normal if draw is None else draw
        self._kept: dict[tuple[int, ...], Tensor] = {}

    def forward(self, total: Tensor, skip: Tensor) -> Tensor:
        """x + F(x) with its noise."""
        law = self.law
        if law.gamma == 0.0:
            return total
        noise = self._cached(total) if law.cached else self.draw(total)
        if law.strategy is Strategy.ADDITIVE:
            return torch.add(total, noise, alpha=law.gamma)
        return torch.addcmul(total, keep_from_zero(skip, law.floor), noise, value=law.gamma)

    def redraw(self) -> None:
        """Forget cached noise; the next call draws anew."""
        self._kept.clear()

    def _cached(self, total: Tensor) -> Tensor:
        shape = tuple(total.shape[1:])
        if shape not in self._kept:
            self._kept[shape] = self.draw(total[:1].detach())
        return self._kept[shape].expand_as(total)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"{self.law.strategy.value}, gamma={self.law.gamma:g}"


def standard_normal(like: Tensor) -> Tensor:
    """Normal numbers in the shape and layout of a tensor, from torch's generator.

    The law of `torch.randn_like`, eight times as fast for channels-last pictures: the memory is
    filled in its own order. Costs one draw a number.
    """
    out = torch.empty_like(like)  # dense, whatever `like` is
    out.as_strided((out.numel(),), (1,)).normal_()
    return out


def keep_from_zero(x: Tensor, floor: float) -> Tensor:
    """x~_j = sgn(x_j) max(|x_j|, eta), with sgn(0) = 1.

    >>> keep_from_zero(torch.tensor([-3.0, -0.1, 0.0, 2.0]), 0.5).tolist()
    [-3.0, -0.5, 0.5, 2.0]
    """
    if floor == 0.0:
        return x
    return torch.where(x < 0.0, x.clamp(max=-floor), x.clamp(min=floor))


def noise_modules(model: nn.Module) -> Iterator[ResidualNoise]:
    """Every place of a network where noise is added, in the order of its modules."""
    return (m for m in model.modules() if isinstance(m, ResidualNoise))


def redraw(model: nn.Module) -> None:
    """Make every block of the network forget its cached noise."""
    for module in noise_modules(model):
        module.redraw()


def perturb(
    model: nn.Module,
    *,
    strategy: Strategy = Strategy.ADDITIVE,
    gamma: float,
    input_noise: float = 0.0,
    floor: float = 0.0,
    cached: bool = False,
) -> fx.GraphModule:
    """A copy of a residual network with noise at each of its residual additions.

    The model is traced (torch.fx). An addition of two tensors that come from a common tensor is a
    residual one: x + F(x) where x is the operand on the shorter way. torchvision's and timm's
    blocks, pre-activated ones and plain `x = x + f(x)` are all of that form. Noise goes right after
    the addition, before an activation that follows; `input_noise` is pi, on the input.

    The copy has the same parameter names, so weights load both ways; gamma = 0 gives the same
    outputs bit for bit.

    **Guarantee** none; see `Perturbation`.

    >>> class Net(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.f = nn.Linear(3, 3)
    ...     def forward(self, x):
    ...         return x + self.f(x)
    >>> net = perturb(Net(), gamma=0.5)
    >>> [name for name, m in net.named_modules() if isinstance(m, ResidualNoise)]
    ['residual_noise_0']
    """
    law = Perturbation(strategy=strategy, gamma=gamma, floor=floor, cached=cached)
    network = copy.deepcopy(model)
    try:
        traced = fx.symbolic_trace(network)
    except Exception as error:  # tracing runs the model's own code, which may raise anything
        raise InvalidArgument(
            "model",
            type(model).__name__,
            "a network that torch.fx can trace",
            f"{str(error).splitlines()[0] if str(error) else type(error).__name__}; put "
            "ResidualNoise after its additions by hand",
        ) from None
    traced.train(model.training)
    additions = [node for node in traced.graph.nodes if _skip(node) is not None]
    if not additions:
        raise InvalidArgument(
            "model", type(model).__name__, "a residual network, with additions x + F(x)"
        )
    for i, node in enumerate(additions):
        node.target = _NOT_IN_PLACE.get(node.target, node.target)  # x must outlive x += F(x)
        skip = _skip(node)  # looked up again: it may be the noisy output of the block before
        assert skip is not None
        _insert(traced, node, skip, f"residual_noise_{i}", law)
    if input_noise > 0.0:
        inputs = [node for node in traced.graph.nodes if node.op == "placeholder"]
        _insert(traced, inputs[0], inputs[0], "input_noise", Perturbation(gamma=input_noise))
    traced.graph.lint()
    traced.recompile()
    return traced


def _insert(
    traced: fx.GraphModule, node: fx.Node, skip: fx.Node, name: str, law: Perturbation
) -> None:
    traced.add_submodule(name, ResidualNoise(law))
    with traced.graph.inserting_after(node):
        noisy = traced.graph.call_module(name, (node, skip))
    node.replace_all_uses_with(noisy, delete_user_cb=lambda user: user is not noisy)


def _skip(node: fx.Node) -> fx.Node | None:
    """The operand x of x + F(x); None when the node is not a residual addition."""
    adds = node.target in (_ADDITIONS if node.op == "call_function" else _METHODS)
    if node.op not in ("call_function", "call_method") or not adds:
        return None
    operands = [a for a in node.args[:2] if isinstance(a, fx.Node)]
    if len(operands) != 2:
        return None
    first, second = (_distances(a) for a in operands)
    common = set(first) & set(second)
    if not common:
        return None
    nearest = min(common, key=lambda n: first[n] + second[n])
    return operands[0] if first[nearest] <= second[nearest] else operands[1]


def _distances(start: fx.Node) -> dict[fx.Node, int]:
    """How many steps back each ancestor is, along the shortest way; the node itself is at 0."""
    seen, frontier, steps = {start: 0}, [start], 0
    while frontier:
        steps += 1
        behind = {p for n in frontier for p in n.all_input_nodes if p not in seen}
        seen.update(dict.fromkeys(behind, steps))
        frontier = list(behind)
    return seen
