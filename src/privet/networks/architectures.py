"""Networks that privet trains, with a description from which each can be built again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
class FlatStudent(nn.Module):
    """A linear map (`hidden=0`), or one with a hidden layer, to logits of the target's shape.

    >>> FlatStudent(shape=(4,), targets=(3, 2, 2), hidden=5)(torch.zeros(7, 4)).shape
    torch.Size([7, 3, 2, 2])
    """

    def __init__(
        self, *, shape: tuple[int, ...], targets: tuple[int, ...], hidden: int = 0, seed: int = 0
    ) -> None:
        super().__init__()
        self.description = _student_description("FlatStudent", shape, targets, hidden)
        inputs, outputs = math.prod(shape), math.prod(targets)
        hidden = _check.count("hidden", hidden, minimum=0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            body = [nn.Linear(inputs, hidden), nn.ReLU()] if hidden else []
            last = nn.Linear(hidden or inputs, outputs)
        self.layers = nn.Sequential(nn.Flatten(), *body, last, nn.Unflatten(1, tuple(targets)))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        out: Tensor = self.layers(x)
        return out


@final
class GridStudent(nn.Module):
    """Convolutions for maps on the grid of the inputs: pictures or volumes, one channel or several.

    Four of 3 voxels a side with steps of 1, 2, 4 and 1 voxels between them, so that a voxel's class
    is decided by what lies within eight voxels of it. As many weights for a volume as for a patch.

    >>> GridStudent(shape=(6, 5, 4), targets=(3, 6, 5, 4), hidden=2)(torch.zeros(2, 6, 5, 4)).shape
    torch.Size([2, 3, 6, 5, 4])
    """

    def __init__(
        self, *, shape: tuple[int, ...], targets: tuple[int, ...], hidden: int = 8, seed: int = 0
    ) -> None:
        super().__init__()
        self.description = _student_description("GridStudent", shape, targets, hidden)
        sides = len(targets) - 1
        self.channels = shape[0] if len(shape) > sides else 1
        layer: Any = nn.Conv3d if sides == 3 else nn.Conv2d
        widths = [self.channels, *[_check.count("hidden", hidden)] * 3]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            body: list[nn.Module] = []
            for a, b, step in zip(widths, widths[1:], (1, 2, 4), strict=False):
                body += [layer(a, b, 3, padding=step, dilation=step), nn.ReLU()]
            self.layers = nn.Sequential(*body, layer(widths[-1], targets[0], 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        sides = x.shape[2:] if x.shape[1] == self.channels and self.channels > 1 else x.shape[1:]
        out: Tensor = self.layers(x.reshape(len(x), self.channels, *sides))
        return out


@final
class VolumeStudent(nn.Module):
    """MONAI's U-Net for volumes of the box [0, 1], which it sees centred; a volume at a time.

    >>> student = VolumeStudent(shape=(8, 8, 8), targets=(3, 8, 8, 8), channels=(2, 4))
    >>> student.eval()(torch.zeros(2, 8, 8, 8)).shape
    torch.Size([2, 3, 8, 8, 8])
    """

    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        targets: tuple[int, ...],
        channels: Sequence[int],
        seed: int = 0,
    ) -> None:
        from privet.networks.segmentation import unet

        super().__init__()
        self.description = {
            "name": "VolumeStudent", "shape": list(shape), "targets": list(targets),
            "channels": list(channels),
        }  # fmt: skip
        self.inputs = shape[0] if len(shape) == 4 else 1
        self.unet = unet(
            classes=targets[0], channels=tuple(channels), seed=seed, inputs=self.inputs
        )

    @staticmethod
    def centred(x: Any) -> Any:
        """From [0, 1] to [-5, 5], as standardised voxels are."""
        return 10.0 * x - 5.0

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        volumes = self.centred(x).reshape(len(x), self.inputs, *x.shape[-3:]).float()
        return torch.cat([self.unet(one) for one in volumes.split(1)])


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
        """For `build_network`; the inner network may be one of the user's own."""
        return {
            "name": "ShapedNetwork", "shape": list(self.shape.shape),
            "network": describe_network(self.network),
        }  # fmt: skip

    def scale(self, x: Tensor) -> Tensor:
        """What the network is fed for these rows."""
        return 2.0 * self.shape * (x - self.centre)

    def forward(self, x: Tensor) -> Tensor:
        """The network's outputs for rows in [0, 1]."""
        out: Tensor = self.network(self.scale(x))
        return out


def describe_network(network: nn.Module) -> dict[str, Any] | None:
    """What `build_network` needs to make it again; None for a network of the user's own."""
    description = getattr(network, "description", None)
    return dict(description) if isinstance(description, Mapping) else None


def build_network(
    description: Mapping[str, Any] | None, user_network: nn.Module | None = None
) -> nn.Module:
    """The network of a description, with whatever weights; `user_network` is one that you bring.

    >>> build_network({"name": "SmallMLP", "features": 2, "classes": 2, "hidden": 3})(
    ...     __import__("torch").zeros(1, 2)).shape
    torch.Size([1, 2])
    """
    from privet.networks.residual import DenseResidual, Perturbation, PictureResNet

    kinds: dict[str, Any] = {
        "SmallCNN": SmallCNN, "SmallMLP": SmallMLP, "DenseResidual": DenseResidual,
        "Pictures": PictureResNet, "FlatStudent": FlatStudent, "GridStudent": GridStudent,
        "VolumeStudent": VolumeStudent,
    }  # fmt: skip
    if description is not None and description["name"] == "ShapedNetwork":
        size = tuple(description["shape"])
        inner = build_network(description["network"], user_network)
        return ShapedNetwork(inner, centre=torch.zeros(size), shape=torch.ones(size))
    if user_network is not None:
        return user_network
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


def on_one_grid(shape: tuple[int, ...], targets: tuple[int, ...]) -> bool:
    """Whether targets are maps (classes, sides) on the grid of the inputs.

    >>> on_one_grid((6, 5, 4), (3, 6, 5, 4)), on_one_grid((2, 6, 5, 4), (3, 6, 5, 4))
    (True, True)
    >>> on_one_grid((4,), (3,)), on_one_grid((2,), (2, 4, 4))
    (False, False)
    """
    sides = targets[1:]
    return len(sides) in (2, 3) and shape in (sides, (*shape[: len(shape) - len(sides)], *sides))


def _student_description(
    name: str, shape: tuple[int, ...], targets: tuple[int, ...], hidden: int
) -> dict[str, Any]:
    return {"name": name, "shape": list(shape), "targets": list(targets), "hidden": hidden}
