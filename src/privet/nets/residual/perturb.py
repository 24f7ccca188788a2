"""Turn anybody's residual network into a perturbed one, by finding its residual additions."""

from __future__ import annotations

import copy
import operator

import torch
from torch import fx, nn

from privet.errors import InvalidArgument
from privet.nets.residual.noise import Perturbation, ResidualNoise, Strategy

_ADDITIONS = {operator.add, operator.iadd, torch.add}
_METHODS = {"add", "add_"}
_NOT_IN_PLACE = {operator.iadd: operator.add, "add_": "add"}


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
    own = copy.deepcopy(model)
    try:
        traced = fx.symbolic_trace(own)
    except Exception as error:  # tracing runs the model's own code, which may raise anything
        raise InvalidArgument(
            "model",
            type(model).__name__,
            "a network that torch.fx can trace",
            f"{str(error).splitlines()[0] if str(error) else type(error).__name__}; put "
            "ResidualNoise after its additions by hand",
        ) from None
    traced.train(model.training)
    found = [node for node in traced.graph.nodes if _skip(node) is not None]
    if not found:
        raise InvalidArgument(
            "model", type(model).__name__, "a residual network, with additions x + F(x)"
        )
    for i, node in enumerate(found):
        node.target = _NOT_IN_PLACE.get(node.target, node.target)  # x must outlive x += F(x)
        skip = _skip(node)  # found again: it may be the noisy output of the block before
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
