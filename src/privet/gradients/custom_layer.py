"""A layer of your own: a rule gives the per-row gradients from its input and output gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from privet.errors import InvalidArgument
from privet.gradients.layer_protocol import (
    BackwardCall,
    LayerHandler,
    ParameterSlice,
    RecordedLayer,
    constant,
    fold_views,
)
from privet.gradients.tape import Tape

LayerRule = Callable[[Any, Tensor, Tensor], Mapping[str, Tensor]]
"""`rule(module, x, g)`: per-row gradients of a layer, (rows, *shape of the parameter), by name.

x is the layer's input and g the gradient of its output, both with rows in front. The gradient of
row i may depend on row i only; the checks before the first step look at that, and at the values.
"""


@final
class RuleHandler(LayerHandler):
    """The trainable parameters of a layer, with per-row gradients by somebody's own rule."""

    def __init__(self, name: str, module: nn.Module, rule: LayerRule) -> None:
        parameters = {key: p for key, p in module.named_parameters() if p.requires_grad}
        super().__init__(name, [ParameterSlice(p) for p in parameters.values()])
        self.module, self.rule, self.parameters = module, rule, parameters

    def per_example(self, call: BackwardCall) -> list[Tensor]:
        with torch.no_grad():
            gradients = self.rule(self.module, call.a, call.g)
        expected = {key: (len(call.g), *p.shape) for key, p in self.parameters.items()}
        shapes = {key: tuple(gradients[key].shape) for key in expected if key in gradients}
        if shapes != expected:
            raise InvalidArgument(f"the rule for layer {self.name!r}", shapes, f"{expected}")
        return [fold_views(gradients[key], call.views) for key in expected]


def record_by_rule(name: str, module: nn.Module, rule: LayerRule) -> RecordedLayer:
    """A layer whose per-row gradients somebody's rule gives; its forward is its own."""
    handler = RuleHandler(name, module, rule)
    plain = module.forward

    def forward(tape: Tape, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        values = {key: constant(p) for key, p in module.named_parameters()}
        recording, module.__dict__["forward"] = module.__dict__.get("forward"), plain
        try:
            y = functional_call(module, values, (input, *args), kwargs)
        finally:
            module.__dict__["forward"] = recording
        return tape.tap(y, handler, input)

    return RecordedLayer.of(forward, handler)
