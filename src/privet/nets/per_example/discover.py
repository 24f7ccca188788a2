"""Which layers, sites and ties a model has."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from torch import nn

from privet.errors import InvalidArgument
from privet.nets.per_example import attention, layers, recurrent
from privet.nets.per_example.fallback import fallback
from privet.nets.per_example.layers import Recorded, Rule
from privet.nets.per_example.sites import Site
from privet.nets.ready import each_module


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The recorded modules of a model, and how their sites hang together.

    Sites that feed the same parameter form a component: their gradients add up before the norm is
    taken. A layer is what per-layer clipping clips by itself: the components named after a module.
    """

    modules: tuple[tuple[nn.Module, Recorded], ...]
    parameters: dict[str, nn.Parameter]
    layers: tuple[str, ...]
    components: dict[int, int]
    layer_by_component: dict[int, int]
    signature: tuple[int, ...]

    def component(self, site: Site) -> int:
        if self.knows(site):
            return self.components[id(site)]
        (target,) = site.targets  # of a shared value, found during a pass
        found = {
            self.components[id(s)]
            for _, recorded in self.modules
            for s in recorded.sites
            if any(t.parameter is target.parameter for t in s.targets)
        }
        if len(found) != 1:
            raise InvalidArgument(
                "a parameter that makes a value all rows share", tuple(target.parameter.shape),
                "one whose gradient is taken as a whole", "name its module in through_func=[...]",
            )  # fmt: skip
        return found.pop()

    def knows(self, site: Site) -> bool:
        """Whether the site was there when the model was walked."""
        return id(site) in self.components

    def layer_of(self, site: Site) -> int:
        return self.layer_by_component[self.components[id(site)]]

    @functools.cached_property
    def names(self) -> dict[int, str]:
        """Names of the parameters by id."""
        return {id(p): name for name, p in self.parameters.items()}

    def is_current(self, model: nn.Module) -> bool:
        """Whether the same parameters are still the trainable ones."""
        return self.signature == _signature(model)


def _signature(model: nn.Module) -> tuple[int, ...]:
    all_of = [p for module in each_module(model) for p in module._parameters.values()]
    return tuple(dict.fromkeys(id(p) for p in all_of if p is not None and p.requires_grad))


def discover(
    model: nn.Module,
    through_func: Collection[str] = (),
    rules: Mapping[type[nn.Module], Rule] | None = None,
) -> Plan:
    """Walk the model once and decide how each trainable parameter is handled."""
    if any(m._compiled_call_impl or "_orig_mod" in m._modules for m in model.modules()):
        raise InvalidArgument(
            "model", "compiled by torch.compile", "the model before it was compiled",
            "compiled code does not see the layers that record per-example gradients",
        )  # fmt: skip
    _check_names(model, through_func)
    modules = tuple(_walk("", model, through_func, rules or {}, set()))
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    sites = [site for _, recorded in modules for site in recorded.sites]
    components = _components(sites)
    names: list[str] = []
    by_component: dict[int, int] = {}
    for site in sites:
        component = components[id(site)]
        if component not in by_component:
            if site.name not in names:
                names.append(site.name)
            by_component[component] = names.index(site.name)
    return Plan(
        modules=modules,
        parameters=parameters,
        layers=tuple(names),
        components=components,
        layer_by_component=by_component,
        signature=_signature(model),
    )


def _walk(
    name: str,
    module: nn.Module,
    through_func: Collection[str],
    rules: Mapping[type[nn.Module], Rule],
    done: set[int],
) -> Iterator[tuple[nn.Module, Recorded]]:
    if id(module) in done or not any(p.requires_grad for p in module.parameters()):
        return
    done.add(id(module))
    shown = name or type(module).__name__
    if name in through_func:
        yield module, fallback(shown, module)
        return
    rule = next((rules[kind] for kind in type(module).__mro__ if kind in rules), None)
    if rule is not None:
        yield module, layers.by_rule(shown, module, rule)
        return
    known = layers.build(shown, module)
    if known is None and isinstance(module, nn.RNN | nn.GRU | nn.LSTM) and _plain_recurrent(module):
        known = recurrent.recurrent(shown, module)
    if (
        known is None
        and isinstance(module, nn.MultiheadAttention)
        and attention.is_supported(module)
    ):
        known = attention.attention(shown, module)
    if known is None and (
        any(True for _ in module.parameters(recurse=False)) or _calls_no_child(module)
    ):
        known = fallback(shown, module)
    if known is not None:
        yield module, known
        return
    for child_name, child in module.named_children():
        full = f"{name}.{child_name}" if name else child_name
        yield from _walk(full, child, through_func, rules, done)


def _check_names(model: nn.Module, through_func: Collection[str]) -> None:
    unknown = sorted(set(through_func) - {name for name, _ in model.named_modules()})
    if unknown:
        raise InvalidArgument("through_func", unknown, "names of modules of the model")


def _plain_recurrent(module: nn.Module) -> bool:
    kind = next(k for k in (nn.RNN, nn.GRU, nn.LSTM) if isinstance(module, k))
    weights = all(name.startswith(("weight_", "bias_")) for name in module._parameters)
    return type(module).forward is kind.forward and not module._modules and weights


def _calls_no_child(module: nn.Module) -> bool:
    """Modules that read their children's parameters instead of calling them."""
    return isinstance(module, nn.MultiheadAttention) or "parametrizations" in module._modules


def _components(sites: list[Site]) -> dict[int, int]:
    """Sites that share a parameter (the same rows, or any rows of a whole one) joined together."""
    whole = {id(t.parameter) for s in sites for t in s.targets if t.rows is None}
    owner: dict[tuple[int, int], int] = {}
    parent = list(range(len(sites)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for i, site in enumerate(sites):
        for target in site.targets:
            part = -1 if target.rows is None or id(target.parameter) in whole else target.rows.start
            key = (id(target.parameter), part)
            if key in owner:
                parent[root(i)] = root(owner[key])
            owner[key] = i
    return {id(site): root(i) for i, site in enumerate(sites)}
