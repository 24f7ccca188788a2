"""Find the layers of a model, and decide how each is recorded.

The kinds that have a file of their own are listed in `KINDS`. A module counts as of a kind only if
its class did not override `forward` and its parameters are the plain ones (no parametrisation).
Any other module that has parameters goes, with all inside it, through `any_module`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from torch import nn

from privet.errors import InvalidArgument
from privet.gradients.any_module import CopiedParameterHandler, record_any_module
from privet.gradients.attention import is_supported_attention, record_attention
from privet.gradients.convolution import record_convolution, record_transposed_convolution
from privet.gradients.custom_layer import LayerRule, record_by_rule
from privet.gradients.embedding import record_embedding, record_embedding_bag
from privet.gradients.group_norm import record_group_norm, record_instance_norm
from privet.gradients.layer_norm import record_layer_norm, record_rms_norm
from privet.gradients.layer_protocol import (
    LayerHandler,
    LayerProblem,
    RecordedLayer,
    RecordLayer,
)
from privet.gradients.linear import record_linear, record_transposed_linear
from privet.gradients.module_validator import all_modules_of
from privet.gradients.recurrent import is_supported_recurrent, record_recurrent
from privet.gradients.tied_parameters import group_tied_handlers

KINDS: dict[type[nn.Module], RecordLayer] = {
    nn.Linear: record_linear,
    nn.Embedding: record_embedding,
    nn.EmbeddingBag: record_embedding_bag,
    nn.GroupNorm: record_group_norm,
    nn.LayerNorm: record_layer_norm,
    nn.RMSNorm: record_rms_norm,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), record_convolution),
    **dict.fromkeys(
        (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), record_transposed_convolution
    ),
    **dict.fromkeys(
        (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d), record_instance_norm
    ),
}
"""How a module with a weight, and perhaps a bias, is recorded: enter a new kind here."""


@dataclass(frozen=True, kw_only=True)
class ModelLayers:
    """The recorded modules of a model, and how their handlers hang together.

    Handlers of the same parameter form a group (see `tied_parameters`): their gradients add up
    before the norm is taken. A layer is what per-layer clipping clips by itself: the groups named
    after a module. Groups and layers are numbers, handlers are known by their id.
    """

    modules: tuple[tuple[nn.Module, RecordedLayer], ...]
    shared_parameters: tuple[tuple[nn.Module, str], ...]
    """Parameters by module and name that enter a pass as values that all rows share."""
    handlers: tuple[LayerHandler, ...]
    parameters: dict[str, nn.Parameter]
    layer_names: tuple[str, ...]
    group_by_handler: dict[int, int]
    layer_by_group: dict[int, int]
    signature: tuple[int, ...]

    def group_of(self, handler: LayerHandler) -> int:
        if self.has(handler):
            return self.group_by_handler[id(handler)]
        (target,) = handler.targets  # of a shared value, which appears during a pass
        groups = {
            self.group_by_handler[id(h)]
            for h in self.handlers
            if any(t.parameter is target.parameter for t in h.targets)
        }
        if len(groups) != 1:
            raise LayerProblem(
                "", "a parameter that makes a value all rows share", tuple(target.parameter.shape),
                "one whose gradient is taken as a whole", "name its module in through_func=[...]",
            )  # fmt: skip
        return groups.pop()

    def has(self, handler: LayerHandler) -> bool:
        """Whether the handler was there when the model was walked."""
        return id(handler) in self.group_by_handler

    @functools.cached_property
    def parameter_names(self) -> dict[int, str]:
        """Names of the parameters by id."""
        return {id(p): name for name, p in self.parameters.items()}

    def is_current(self, model: nn.Module) -> bool:
        """Whether the same parameters are still the trainable ones."""
        return self.signature == _signature(model)


def _signature(model: nn.Module) -> tuple[int, ...]:
    parameters = [p for module in all_modules_of(model) for p in module._parameters.values()]
    return tuple(dict.fromkeys(id(p) for p in parameters if p is not None and p.requires_grad))


def find_layers(
    model: nn.Module,
    through_func: Collection[str] = (),
    rules: Mapping[type[nn.Module], LayerRule] | None = None,
    shared: Collection[str] = (),
) -> ModelLayers:
    """Walk the model once and decide how each trainable parameter is handled.

    `shared` names modules whose own parameters are values that all rows share.
    """
    if any(m._compiled_call_impl or "_orig_mod" in m._modules for m in model.modules()):
        raise InvalidArgument(
            "model", "compiled by torch.compile", "the model before it was compiled",
            "compiled code does not see the layers that record per-example gradients",
        )  # fmt: skip
    if any(isinstance(p, nn.UninitializedParameter) for p in model.parameters()):
        raise InvalidArgument(
            "model", "one with lazy layers that have no shape yet", "ready to be trained",
            "call it once on a batch (or on zeros of its shape), then make the optimizer",
        )  # fmt: skip
    unknown = sorted(set(through_func) - {name for name, _ in model.named_modules()})
    if unknown:
        raise InvalidArgument("through_func", unknown, "names of modules of the model")
    opened = [
        (holder, key, CopiedParameterHandler(name or type(model).__name__, p))
        for name, module in model.named_modules()
        if name in shared
        for holder in (module, *_parameter_lists(module))
        for key, p in holder.named_parameters(recurse=False)
        if p.requires_grad
    ]
    modules = tuple(_walk("", model, through_func, rules or {}, {id(m) for m, _, _ in opened}))
    handlers = [handler for _, layer in modules for handler in layer.handlers]
    handlers += [handler for _, _, handler in opened]
    groups = group_tied_handlers(handlers)
    names: list[str] = []
    layer_by_group: dict[int, int] = {}
    for handler in handlers:
        group = groups[id(handler)]
        if group not in layer_by_group:
            if handler.name not in names:
                names.append(handler.name)
            layer_by_group[group] = names.index(handler.name)
    return ModelLayers(
        modules=modules,
        shared_parameters=tuple((module, key) for module, key, _ in opened),
        handlers=tuple(handlers),
        parameters={name: p for name, p in model.named_parameters() if p.requires_grad},
        layer_names=tuple(names),
        group_by_handler=groups,
        layer_by_group=layer_by_group,
        signature=_signature(model),
    )


def _walk(
    name: str,
    module: nn.Module,
    through_func: Collection[str],
    rules: Mapping[type[nn.Module], LayerRule],
    opened: set[int],
    visited: set[int] | None = None,
) -> Iterator[tuple[nn.Module, RecordedLayer]]:
    visited = set() if visited is None else visited
    if id(module) in visited or not any(p.requires_grad for p in module.parameters()):
        return
    visited.add(id(module))
    label = name or type(module).__name__
    rule = next((rules[kind] for kind in type(module).__mro__ if kind in rules), None)
    record = None if id(module) in opened else _record_of(module)
    if name in through_func:
        yield module, record_any_module(label, module)
    elif rule is not None:
        yield module, record_by_rule(label, module, rule)
    elif record is not None:
        yield module, record(label, module)
    else:
        for child_name, child in module.named_children():
            full = f"{name}.{child_name}" if name else child_name
            yield from _walk(full, child, through_func, rules, opened, visited)


def _record_of(module: nn.Module) -> RecordLayer | None:
    """How a module is recorded as a whole; None where its children are recorded instead."""
    kinds = dict(KINDS)
    conv1d = getattr(sys.modules.get("transformers.pytorch_utils"), "Conv1D", None)  # if imported
    if conv1d is not None:
        kinds[conv1d] = record_transposed_linear
    for kind, record in kinds.items():
        if isinstance(module, kind) and _is_plain(module, kind):
            return record
    if is_supported_recurrent(module):
        return record_recurrent
    if is_supported_attention(module):
        return record_attention
    return record_any_module if _has_own(module) or _calls_no_child(module) else None


def _has_own(module: nn.Module) -> bool:
    """Whether the forward pass of a module uses trainable parameters itself."""
    own = [p for m in (module, *_parameter_lists(module)) for p in m.parameters(recurse=False)]
    return any(p.requires_grad for p in own)


def _parameter_lists(module: nn.Module) -> list[nn.Module]:
    return [m for m in module.children() if isinstance(m, nn.ParameterList | nn.ParameterDict)]


def _is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether the module behaves exactly like `kind`: same forward, parameters of its own.

    A weight, perhaps a bias, and not the same one twice, whose gradients would be one's sum.
    """
    parameters = module._parameters
    weight, bias = parameters.get("weight"), parameters.get("bias")
    return (
        type(module).forward is kind.forward
        and "forward" not in module.__dict__
        and "parametrizations" not in module._modules
        and "weight" in parameters
        and set(parameters) <= {"weight", "bias"}
        and (weight is not bias or weight is None)
    )


def _calls_no_child(module: nn.Module) -> bool:
    """Modules that read their children's parameters instead of calling them."""
    return isinstance(module, nn.MultiheadAttention) or "parametrizations" in module._modules
