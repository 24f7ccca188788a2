"""Finds another way to take the gradients of modules that the engine cannot record as it would.

A module that mixes what has rows with what has none, reads another layer's parameters or sorts its
rows by content is refused by the check on made-up rows. Before the model is refused, the module and
all of its kind are tried in other ways: with their own parameters as values that all rows share,
then as a whole by torch.func, then what calls them, in the end the whole model one row at a time.
Every way has to pass the same check.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from typing import final

from torch import nn

from privet.errors import PrivetError
from privet.gradients import PerExampleGradients
from privet.gradients.layer_protocol import LayerProblem

_ATTEMPTS = 12
"""Checks until the whole model is tried: a model has few kinds of modules that need help."""
_NEVER_CALLED = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def check_with_fallbacks(engine: PerExampleGradients, check: Callable[[], None]) -> None:
    """Run a check; where a module does not pass, choose another way for it, and say so once.

    Raises what the first check raised where no way passes.
    """
    given = engine.through_func
    routes = _Routes(engine.model, given)
    first: Exception | None = None
    for attempt in range(_ATTEMPTS):
        try:
            check()
        except Exception as error:
            if first is None and not _may_be_mended(error, engine):
                raise
            first = error if first is None else first
            known = isinstance(error, LayerProblem) and attempt < _ATTEMPTS - 2
            if not routes.widen(error.layer if known else ""):  # type: ignore[attr-defined]
                break
            engine.reroute(through_func=routes.through_func, shared=routes.shared)
        else:
            if first is not None:
                routes.tell(first)
            return
    assert first is not None
    engine.reroute(through_func=given)
    raise first


def _may_be_mended(error: Exception, engine: PerExampleGradients) -> bool:
    """Whether another way to record a module may help: not the losses' fault, nor a user's rule."""
    if not isinstance(error, LayerProblem):
        return not isinstance(error, PrivetError) and not engine.rules
    module = dict(engine.model.named_modules()).get(error.layer or "?")
    by_rule = module is None or isinstance(module, tuple(engine.rules))
    return not (engine.rules and by_rule)


@final
class _Routes:
    """Which modules go another way, by name ('' is the whole model)."""

    def __init__(self, model: nn.Module, through_func: Collection[str]) -> None:
        self._modules = dict(model.named_modules())
        self.through_func = set(through_func)
        self.shared: set[str] = set()

    def widen(self, layer: str) -> bool:
        """Choose the next way for a layer and all of its kind; False where there is none left."""
        name = layer if layer in self._modules else ""
        if "" in self.through_func:
            return False
        inside = [n for n in self.through_func if name == n or name.startswith(f"{n}.")]
        if inside:
            self._go_whole(_caller(min(inside, key=len), self._modules))
        elif name not in self.shared and self._is_container(name):
            self.shared |= self._alike(name)
        else:
            self._go_whole(name)
        return True

    def _is_container(self, name: str) -> bool:
        module = self._modules[name]
        own = [p for p in module.parameters(recurse=False) if p.requires_grad]
        return bool(own) and any(True for _ in module.children())

    def _go_whole(self, name: str) -> None:
        names = self._alike(name)
        self.through_func = {n for n in self.through_func if not _within(n, names)} | names
        self.shared = {n for n in self.shared if not _within(n, names)}

    def _alike(self, name: str) -> set[str]:
        if not name:
            return {""}
        kind = type(self._modules[name])
        if kind is nn.Sequential or kind.__module__.startswith("torch.nn"):
            return {name}
        return {n for n, module in self._modules.items() if type(module) is kind}

    def tell(self, problem: Exception) -> None:
        """Warn of what goes by torch.func."""
        if not self.through_func:
            return
        name, *more = sorted(self.through_func)
        kind = type(self._modules[name]).__name__
        also = f" and {len(more)} more" if more else ""
        what = f"{name or 'the whole model'} ({kind}){also}"
        warnings.warn(
            f"{what} runs by torch.func, which is slower, since otherwise: {problem}; a rule in "
            "StepOptions(layers=...) is faster, and through_func=... the same without this line",
            stacklevel=6,
        )


def _within(name: str, others: set[str]) -> bool:
    return any(name == other or name.startswith(f"{other}.") or not other for other in others)


def _caller(name: str, modules: dict[str, nn.Module]) -> str:
    """The module around one that has a forward pass of its own."""
    name = name.rpartition(".")[0]
    while name and isinstance(modules[name], _NEVER_CALLED):
        name = name.rpartition(".")[0]
    return name
