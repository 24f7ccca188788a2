"""The slow and obvious version: one backward pass an example, then clip, then add."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from privet.gradients import Clipping, PerExampleGradients

LossFn = Callable[..., Tensor]


def squared_outputs(model: nn.Module, x: Tensor) -> Tensor:
    """A loss with a gradient everywhere: weighted squares of the (first) output, one value a row."""
    y = model(x)
    y = y[0] if isinstance(y, tuple) else y
    ramp = torch.linspace(0.3, 1.0, y[0].numel(), dtype=y.dtype).view_as(y[0])
    return (y.square() * ramp + y.sin()).flatten(1).sum(1)


def example_gradients(
    model: nn.Module, loss_fn: LossFn, *tensors: Tensor, views: int = 1
) -> list[dict[str, Tensor]]:
    """Each example's gradient (mean over its views) in float64 arithmetic of the given model."""
    parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    out = []
    for start in range(0, tensors[0].shape[0], views):
        losses = loss_fn(model, *[t[start : start + views] for t in tensors])
        if not losses.requires_grad:
            out.append({n: torch.zeros_like(p) for n, p in parameters.items()})
            continue
        gradients = torch.autograd.grad(losses.mean(), list(parameters.values()), allow_unused=True)
        out.append(
            {
                n: torch.zeros_like(p) if g is None else g
                for (n, p), g in zip(parameters.items(), gradients, strict=True)
            }
        )
    return out


def oracle(
    engine: PerExampleGradients, clipping: Clipping, gradients: list[dict[str, Tensor]]
) -> dict[str, Tensor]:
    """The clipped sum of given per-example gradients, layer by layer of the engine."""
    owner = layer_of_parameters(engine)
    squares = torch.zeros(len(engine.layers), len(gradients), dtype=torch.float64)
    for i, gradient in enumerate(gradients):
        for name, g in gradient.items():
            squares[owner[name], i] += g.double().square().sum()
    weights = clipping.weights(squares, engine.layers)
    return {
        name: sum(weights[owner[name], i] * g[name].double() for i, g in enumerate(gradients))
        for name in gradients[0]
    }


def layer_of_parameters(engine: PerExampleGradients) -> dict[str, int]:
    """The index of the layer every parameter is clipped with."""
    layers, out = engine._layers, {}
    for handler in layers.handlers:
        for target in handler.targets:
            out[layers.parameter_names[id(target.parameter)]] = layers.layer_by_group[
                layers.group_of(handler)
            ]
    return out


def relative_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """||found - expected|| / ||expected||, over all parameters together."""
    assert set(found) == set(expected)
    off = sum(float((found[n].double() - e).square().sum()) for n, e in expected.items())
    return (off / max(sum(float(e.square().sum()) for e in expected.values()), 1e-60)) ** 0.5


def worst_relative_error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest over single parameters; one whose gradient is zero but for rounding counts not."""
    assert set(found) == set(expected)
    floor = 1e-6 * float(sum(e.square().sum() for e in expected.values())) ** 0.5
    return max(
        float((found[n].double() - e).norm()) / max(float(e.norm()), floor, 1e-30)
        for n, e in expected.items()
    )


def engine_sum(
    engine: PerExampleGradients, loss_fn: LossFn, *tensors: Tensor, **options: object
) -> dict[str, Tensor]:
    """The engine's clipped sum of one recorded batch."""
    with engine.recording():
        losses = loss_fn(engine.model, *tensors)
    return engine.clipped_sum(losses, **options).gradients  # type: ignore[arg-type]
