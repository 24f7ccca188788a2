"""Networks that privet trains, each with a description from which it can be built again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument


class SmallCNN(nn.Module):
    """Two convolutions and two dense layers with tanh, 26,010 parameters on 28x28 grey pictures.

    Tanh bounds activations and so gradients, which loses less to clipping than ReLU does (Papernot,
    Thakurta, Song, Chien and Erlingsson, *Tempered sigmoid activations*, 2021). Takes pictures
    (height, width) or (height, width, colours), or flat rows of them.

    >>> import torch
    >>> SmallCNN(shape=(28, 28), classes=10)(torch.zeros(2, 784)).shape
    torch.Size([2, 10])
    """

    def __init__(self, *, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        if len(shape) not in (2, 3) or min(shape[:2]) < 16:
            raise InvalidArgument("shape", shape, "pictures of 16 pixels or more on each side")
        self.description = {"name": "SmallCNN", "shape": list(shape), "classes": classes}
        self.shape = (*shape, 1) if len(shape) == 2 else shape
        height, width, colours = self.shape
        self.body = nn.Sequential(
            nn.Conv2d(colours, 16, 8, stride=2, padding=3),
            nn.Tanh(),
            nn.MaxPool2d(2, stride=1),
            nn.Conv2d(16, 32, 4, stride=2),
            nn.Tanh(),
            nn.MaxPool2d(2, stride=1),
            nn.Flatten(),
        )
        h, w = (((side // 2 - 1) - 4) // 2 + 1 - 1 for side in (height, width))
        self.head = nn.Sequential(
            nn.Linear(32 * h * w, 32), nn.Tanh(), nn.Linear(32, _check.count("classes", classes))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        pictures = x.reshape(-1, *self.shape).permute(0, 3, 1, 2)
        logits: Tensor = self.head(self.body(pictures))
        return logits


class SmallMLP(nn.Module):
    """One hidden layer with tanh, for rows that are no pictures.

    >>> import torch
    >>> SmallMLP(features=5, classes=3)(torch.zeros(2, 5)).shape
    torch.Size([2, 3])
    """

    def __init__(self, *, features: int, classes: int, hidden: int = 64) -> None:
        super().__init__()
        self.description = {
            "name": "SmallMLP", "features": features, "classes": classes, "hidden": hidden,
        }  # fmt: skip
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(features, hidden), nn.Tanh(), nn.Linear(hidden, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        logits: Tensor = self.layers(x)
        return logits


@final
class ShapedNetwork(nn.Module):
    """network(2 D (x - m)): a trained network behind the scaling that shaped its noise.

    >>> net = ShapedNetwork(nn.Identity(), centre=torch.zeros(2), shape=torch.tensor([2.0, 0.5]))
    >>> net(torch.ones(1, 2)).tolist()
    [[4.0, 1.0]]
    """

    centre: Tensor
    shape: Tensor

    def __init__(self, network: nn.Module, *, centre: Tensor, shape: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("centre", centre)
        self.register_buffer("shape", shape)

    @property
    def description(self) -> dict[str, Any]:
        """For `build`; the inner network may be one of the user's own."""
        return {
            "name": "ShapedNetwork", "shape": list(self.shape.shape),
            "network": describe(self.network),
        }  # fmt: skip

    def shaped(self, x: Tensor) -> Tensor:
        """What the network is fed for these rows."""
        return 2.0 * self.shape * (x - self.centre)

    def forward(self, x: Tensor) -> Tensor:
        """The network's outputs for rows in [0, 1]."""
        out: Tensor = self.network(self.shaped(x))
        return out


def describe(network: nn.Module) -> dict[str, Any] | None:
    """What `build` needs to make this network again; None for a network of the user's own."""
    found = getattr(network, "description", None)
    return dict(found) if isinstance(found, Mapping) else None


def build(description: Mapping[str, Any] | None, own: nn.Module | None = None) -> nn.Module:
    """The network of a description, with whatever weights; `own` is one that you bring.

    >>> build({"name": "SmallMLP", "features": 2, "classes": 2, "hidden": 3})(
    ...     __import__("torch").zeros(1, 2)).shape
    torch.Size([1, 2])
    """
    from privet.nets.residual import DenseResidual, Perturbation, Pictures
    from privet.nets.students import FlatStudent, GridStudent, VolumeStudent

    known = (SmallCNN, SmallMLP, DenseResidual, Pictures, FlatStudent, GridStudent, VolumeStudent)
    kinds: dict[str, Any] = {kind.__name__: kind for kind in known}
    if description is not None and description["name"] == "ShapedNetwork":
        size = tuple(description["shape"])
        inner = build(description["network"], own)
        return ShapedNetwork(inner, centre=torch.zeros(size), shape=torch.ones(size))
    if own is not None:
        return own
    if description is None:
        raise InvalidArgument(
            "module",
            None,
            "given: the network is one of your own",
            "privet.load(folder, module=network)",
        )
    settings = dict(description)
    name = settings.pop("name")
    if name not in kinds:
        raise InvalidArgument("network", name, f"one of {', '.join(kinds)}")
    for key in {"shape", "targets"} & settings.keys():
        settings[key] = tuple(settings[key])
    if "perturbation" in settings:
        settings["perturbation"] = Perturbation.from_dict(settings["perturbation"])
    module: nn.Module = kinds[name](**settings)
    return module
