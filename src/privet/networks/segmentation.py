"""Segmentation of volumes: MONAI's U-Net, training on patches, sliding windows, Dice.

Symbols: n volumes, c classes, (x, y, z) the grid; images (n, 1, x, y, z), targets and predictions
(n, c, x, y, z), probabilities over the second axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from privet import _check
from privet.errors import InvalidArgument, PrivetError

Grid = tuple[int, int, int]
LossWatcher = Callable[[int, float], None]
"""Called with the step and its loss; the loss is not protected."""
Predictor = Callable[[NDArray[Any]], NDArray[np.float32]]
"""From images (n, x, y, z) to class probabilities (n, c, x, y, z)."""


def ignore_loss(step: int, loss: float) -> None:
    """The watcher that does nothing."""


def unet(
    *, classes: int, channels: tuple[int, ...] = (16, 32, 64, 128), seed: int = 0, inputs: int = 1
) -> nn.Module:
    """A 3-D U-Net: one level for each number of channels, halving the grid between levels.

    Instance normalisation without running statistics, so that examples do not mix and the same
    network can be trained by DP-SGD.

    >>> net = unet(classes=3, channels=(4, 8))
    >>> tuple(net(torch.zeros(1, 1, 8, 8, 8)).shape)
    (1, 3, 8, 8, 8)
    """
    try:
        from monai.networks.nets.unet import UNet
    except ImportError:
        raise PrivetError("the U-Net needs MONAI: pip install 'privet[segmentation]'") from None
    if len(channels) < 2:
        raise InvalidArgument("channels", channels, "at least two levels")
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        net: nn.Module = UNet(
            spatial_dims=3,
            in_channels=inputs,
            out_channels=_check.count("classes", classes, minimum=2),
            channels=channels,
            strides=(2,) * (len(channels) - 1),
            act="RELU",
            norm="INSTANCE",
        )
    return net


def soft_targets(labels: NDArray[Any], classes: int) -> Tensor:
    """One-hot targets (n, c, x, y, z) of label maps (n, x, y, z).

    >>> soft_targets(np.array([[[[0, 1]]]]), 2).ravel().tolist()
    [1.0, 0.0, 0.0, 1.0]
    """
    numbers = torch.as_tensor(np.asarray(labels, dtype=np.int64))
    if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < classes:
        raise InvalidArgument("labels", int(numbers.max()), f"class numbers below {classes}")
    return F.one_hot(numbers, classes).movedim(-1, 1).float()


def dice_and_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """For each volume: cross-entropy plus 1 - mean soft Dice of the classes but the background.

    With p = softmax(logits) and targets t, the Dice of class c is
    (2 sum p_c t_c + s) / (sum p_c + sum t_c + s), s = 1 voxel. Each number depends on its own
    volume only, as DP-SGD needs.
    """
    axes = (2, 3, 4)
    probabilities = logits.softmax(1)
    entropy = -(targets * logits.log_softmax(1)).sum(1).mean((1, 2, 3))
    overlap_mass = (probabilities * targets).sum(axes)
    dice = (2.0 * overlap_mass + 1.0) / (probabilities.sum(axes) + targets.sum(axes) + 1.0)
    out: Tensor = entropy + 1.0 - dice[:, 1:].mean(1)
    return out


@final
@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a segmentation network is trained: AdamW on random patches, rate along a cosine.

    A share of the patches (`augmented`) is turned by up to `turn` radians about each axis and, half
    of the time, mirrored left to right; an independent share has its brightness and contrast
    changed a little. The other axes are not mirrored: front and back of an organ are not alike.
    """

    steps: int = 800
    batch_size: int = 2
    patch: Grid = (32, 32, 32)
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    augmented: float = 0.5
    turn: float = 0.25

    def __post_init__(self) -> None:
        _check.count("steps", self.steps)
        _check.count("batch_size", self.batch_size)
        _check.positive("learning_rate", self.learning_rate)
        _check.non_negative("weight_decay", self.weight_decay)
        _check.unit("augmented", self.augmented)
        _check.non_negative("turn", self.turn)


SMALL_CHANNELS = (8, 16, 32)
SHORT_RECIPE = Recipe(steps=400, learning_rate=1e-2)
"""The U-Net of teachers and students that nobody configured: half the width, one level and half the
steps of the defaults, so that a site trains one in minutes on a processor; with half the steps the
rate may be higher."""


def random_patch(
    volume: Tensor, recipe: Recipe, generator: torch.Generator, inputs: int = 1
) -> Tensor:
    """A patch of an image with its targets, (inputs + c, x, y, z), cut and augmented together."""
    where = [slice(None)]
    for side, whole in zip(recipe.patch, volume.shape[1:], strict=True):
        start = int(torch.randint(max(whole - side, 0) + 1, (), generator=generator))
        where.append(slice(start, start + side))
    patch = volume[tuple(where)]
    chances = torch.rand(3, generator=generator)
    bends = 2.0 * torch.rand(5, generator=generator) - 1.0
    if chances[0] < recipe.augmented:
        patch = _rotate(patch.flip(1) if chances[1] < 0.5 else patch, recipe.turn * bends[:3])
    if chances[2] < recipe.augmented:
        # contrast and brightness of standardised voxels, a fifth up or down, as is usual
        image = patch[:inputs] * (1.0 + 0.2 * bends[3]) + 0.2 * bends[4]
        patch = torch.cat([image, patch[inputs:]])
    return patch


def random_patches(
    volumes: Tensor, recipe: Recipe, generator: torch.Generator, inputs: int = 1
) -> Tensor:
    """One patch of each of the volumes (n, inputs + c, x, y, z)."""
    return torch.stack([random_patch(volume, recipe, generator, inputs) for volume in volumes])


def _rotate(volume: Tensor, angles: Tensor) -> Tensor:
    """A volume (channels, x, y, z) turned about its middle; the edge voxels go on outside it."""
    generators = torch.zeros(3, 3)
    for a, (i, j) in zip(angles, ((0, 1), (0, 2), (1, 2)), strict=True):
        generators[i, j], generators[j, i] = a, -a
    # affine_grid counts axes backwards and scales each to [-1, 1]
    sides = torch.tensor(volume.shape[:0:-1], dtype=torch.float32)
    turn = torch.linalg.matrix_exp(generators) * sides[None, :] / sides[:, None]
    where = F.affine_grid(F.pad(turn, (0, 1))[None], [1, *volume.shape], align_corners=False)
    return F.grid_sample(volume[None], where, padding_mode="border", align_corners=False)[0]


def train(
    network: nn.Module,
    images: Tensor,
    targets: Tensor,
    recipe: Recipe,
    *,
    seed: int,
    watcher: LossWatcher = ignore_loss,
) -> nn.Module:
    """Train the network in place on soft targets, and hand it back in evaluation mode.

    **Guarantee** none: what comes out depends on the records. Not for private data unless it is a
    teacher whose answers are released through `privet.methods.pate`.
    """
    _check_volumes(images, targets)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.steps)
    network.train()
    inputs = images.shape[1]
    for step in range(recipe.steps):
        picks = torch.randint(len(images), (recipe.batch_size,), generator=generator)
        volumes = torch.cat([images[picks], targets[picks]], dim=1)
        batch = random_patches(volumes, recipe, generator, inputs)
        loss = dice_and_entropy(network(batch[:, :inputs]), batch[:, inputs:]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rates.step()
        watcher(step, float(loss.detach()))
    return network.eval()


@torch.no_grad()
def predict(
    network: nn.Module, images: Tensor, *, window: Grid, overlap: float = 0.25, batch_size: int = 4
) -> Tensor:
    """Class probabilities of whole volumes, from overlapping windows blended by a Gaussian.

    A window that holds the volume is one plain pass; an overlap of a quarter is MONAI's default.
    """
    from monai.inferers.utils import sliding_window_inference

    network.eval()
    whole = all(w >= g for w, g in zip(window, images.shape[2:], strict=True))
    parts = []
    for volumes in images.split(batch_size):
        logits: Any
        if whole:
            logits = network(volumes)
        else:
            logits = sliding_window_inference(
                volumes, window, batch_size, network, overlap=overlap, mode="gaussian"
            )
        parts.append(logits.softmax(1))
    return torch.cat(parts)


@final
@dataclass(frozen=True, kw_only=True)
class Segmenter:
    """How a teacher or a student learns to segment: give it to `privet.methods.pate.PATE`.

    `Segmenter(...)(images, targets, seed)` trains a U-Net and returns a function from images
    (n, x, y, z) to class probabilities (n, c, x, y, z). Targets are such probabilities, soft or
    not, or label maps (n, x, y, z).

    >>> from privet.data.volumes import spheres
    >>> volumes = spheres(4, seed=0)
    >>> learn = Segmenter(classes=3, channels=(4, 8), recipe=Recipe(steps=2, patch=(8, 8, 8)))
    >>> learn(volumes.images, volumes.labels, 0)(volumes.images[:2]).shape
    (2, 3, 16, 16, 16)
    """

    classes: int
    channels: tuple[int, ...] = (16, 32, 64, 128)
    recipe: Recipe = field(default_factory=Recipe)

    def __call__(self, images: NDArray[Any], targets: NDArray[Any], seed: int) -> Predictor:
        maps = np.asarray(targets)
        soft = (
            soft_targets(maps, self.classes)
            if maps.ndim == 4
            else torch.as_tensor(maps, dtype=torch.float32)
        )
        inputs = volumes_of(images).shape[1]
        network = unet(classes=self.classes, channels=self.channels, seed=seed, inputs=inputs)
        trained = train(network, volumes_of(images), soft, self.recipe, seed=seed)
        return self.predictor(trained)

    def predictor(self, network: nn.Module) -> Predictor:
        """The function from images to probabilities that a trained network is."""

        def probabilities(images: NDArray[Any]) -> NDArray[np.float32]:
            return predict(network, volumes_of(images), window=self.recipe.patch).numpy()

        return probabilities


def volumes_of(images: NDArray[Any]) -> Tensor:
    """Images (n, x, y, z) as the network takes them, (n, 1, x, y, z); channels stay."""
    volumes = torch.as_tensor(np.asarray(images), dtype=torch.float32)
    return volumes[:, None] if volumes.dim() == 4 else volumes


def dice(predicted: NDArray[Any], truth: NDArray[Any], classes: int) -> NDArray[np.float64]:
    """Dice of every volume and every class but the background, (n, c - 1): 2|A B| / (|A| + |B|).

    A class that is in neither map counts as found: 1.

    >>> truth = np.array([[[[0, 1, 1, 2]]]])
    >>> dice(np.array([[[[0, 1, 2, 2]]]]), truth, 3).round(3).tolist()
    [[0.667, 0.667]]
    """
    a, b = np.asarray(predicted), np.asarray(truth)
    if a.shape != b.shape:
        raise InvalidArgument("predicted", a.shape, f"label maps of shape {b.shape}")
    out = np.empty((len(a), classes - 1))
    for k in range(1, classes):
        first, second = (a == k).reshape(len(a), -1), (b == k).reshape(len(b), -1)
        total = first.sum(1) + second.sum(1)
        common = (first & second).sum(1)
        out[:, k - 1] = np.where(total > 0, 2.0 * common / np.maximum(total, 1), 1.0)
    return out


def _check_volumes(images: Tensor, targets: Tensor) -> None:
    if images.ndim != 5 or 0 in images.shape:
        expected = "volumes (n, channels, x, y, z), n above 0"
        raise InvalidArgument("images", tuple(images.shape), expected)
    if targets.ndim != 5 or targets.shape[::2] != images.shape[::2]:
        raise InvalidArgument(
            "targets", tuple(targets.shape), "probabilities (n, classes, x, y, z) on the same grid"
        )
    if not (torch.isfinite(images).all() and torch.isfinite(targets).all()):
        raise InvalidArgument("images or targets", "NaN or infinity", "finite voxels")
