"""Make a network fit for private training: nothing in it may mix examples."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from privet.errors import InvalidArgument


def named_modules_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """`model.named_modules()`, in a tenth of its time."""
    found: dict[int, tuple[str, nn.Module]] = {}
    todo = [("", model)]
    while todo:
        name, module = todo.pop()
        if id(module) in found:
            continue
        found[id(module)] = name, module
        start = f"{name}." if name else ""
        for key, child in reversed(module._modules.items()):
            if child is not None:
                todo.append((f"{start}{key}", child))
    return list(found.values())


def all_modules_of(model: nn.Module) -> list[nn.Module]:
    """All modules of a model, without their names and in another order."""
    found, todo = {id(model): model}, [model]
    while todo:
        for child in todo.pop()._modules.values():
            if child is not None and id(child) not in found:
                found[id(child)] = child
                todo.append(child)
    return list(found.values())


def _mixes(module: nn.Module) -> str | None:
    """Why a module mixes examples, or None."""
    if not isinstance(module, _InstanceNorm | _BatchNorm | nn.Embedding | nn.EmbeddingBag):
        return None
    trains = module.training or any(p.requires_grad for p in module.parameters(recurse=False))
    if isinstance(module, _InstanceNorm):
        return "running statistics over examples" if module.track_running_stats else None
    if isinstance(module, _BatchNorm) and trains:
        return "statistics over the batch"
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and (
        module.max_norm is not None or module.scale_grad_by_freq
    ):
        return "max_norm or scale_grad_by_freq"
    return None


def refuse_cross_example(model: nn.Module) -> None:
    """Raise if a layer mixes examples, naming it.

    A BatchNorm that is frozen and in evaluation mode treats examples separately and is let pass.
    """
    if all(_mixes(module) is None for module in all_modules_of(model)):
        return
    for name, module in named_modules_of(model):
        why = _mixes(module)
        if why is not None:
            raise InvalidArgument(
                f"layer {name or type(model).__name__!r}",
                type(module).__name__,
                f"a layer without {why}, which mix examples",
                "call model = privet.gradients.make_private_ready(model), which replaces it",
            )


def make_private_ready(model: nn.Module) -> nn.Module:
    """Replace the layers of a model that mix examples, in place, and return the model.

    The parameters stay the same objects, so an optimiser made before is as good as one made after.
    (Of a model that is a single BatchNorm the result is another module.) BatchNorm becomes
    GroupNorm (keeping scale and shift; at most 32 groups, of at least two channels where their
    number allows), InstanceNorm loses its running statistics, Embedding its max_norm and
    scale_grad_by_freq.

    >>> norm = make_private_ready(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))[1]
    >>> type(norm).__name__, norm.num_groups, norm.num_channels
    ('GroupNorm', 4, 8)
    """
    if _mixes(model) is not None:
        return _replacement(model)
    replacements: dict[int, nn.Module] = {}
    for module in all_modules_of(model):
        for name, child in list(module._modules.items()):
            if child is not None and _mixes(child) is not None:
                if id(child) not in replacements:
                    replacements[id(child)] = _replacement(child)
                setattr(module, name, replacements[id(child)])
    return model


def _replacement(module: nn.Module) -> nn.Module:
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        module.max_norm, module.scale_grad_by_freq = None, False
        return module
    if isinstance(module, _InstanceNorm):
        module.track_running_stats = False
        module.running_mean = module.running_var = module.num_batches_tracked = None
        return module
    assert isinstance(module, _BatchNorm)
    channels = module.num_features
    norm = nn.GroupNorm(_groups(channels), channels, module.eps, affine=module.affine)
    norm.train(module.training)
    if module.affine:
        norm.weight, norm.bias = module.weight, module.bias
    return norm


def _groups(channels: int) -> int:
    """The largest number of groups up to 32 that divides the channels and leaves two in each."""
    most = min(32, channels // 2)  # 32 as in Wu and He, Group Normalization (2018)
    return next((g for g in range(most, 0, -1) if channels % g == 0), 1)
