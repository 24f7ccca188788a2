"""A small convolutional network taught on drawn strokes to recognise the glyph behind a drawing."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises, tuned_defaults
from privet.features.disk_cache import cache_folder, content_key, load_or_compute
from privet.features.extractor import Array, Features, images, patches
from privet.features.synthetic_strokes import draw_glyphs
from privet.guarantee import Premise
from privet.rowwise_arithmetic import Product, round_to_grid, row_sums, scale_by_power_of_two

if TYPE_CHECKING:
    from torch import Tensor, nn

_GRID = 3  # the last feature map is 3x3
_EMBEDDING = 128  # outputs of the projection that is trained and thrown away (as in SimCLR)
_CHUNK = 16  # pictures at a time, whose maps stay near the processor


class StrokeNet(Features):
    """Feature maps of a three-layer network pre-trained on procedurally drawn glyphs, no data read.

    Pre-training is contrastive: two views of each of `batch` fresh random glyphs are embedded on
    the sphere, z_i and z'_i, and the network learns to find the partner,
        loss = -mean_i log( exp(<z_i, z'_i>/t) / sum_j exp(<z_i, z'_j>/t) ),   t = .1,
    and the same with the roles exchanged. The embedding head is thrown away. A few minutes on one
    core the first time; the weights are a public artefact, kept in the cache folder by their
    recipe.

    **Guarantee**: that of `Features`. **Assumes** line drawings on a dark ground, about centred;
    state the prior. Results agree to rounding, not to the bit, between machines; privacy does not
    depend on them.

    van den Oord et al. 2018 (the loss); Tang et al. 2023, "Differentially private image
    classification by learning priors from random processes" (the idea of such priors).
    """

    premise: ClassVar[Premise] = premises.EXACT_ROWS

    def __init__(
        self,
        *,
        side: int = 28,
        width: int = tuned_defaults.STROKE_NET_WIDTH,
        steps: int = tuned_defaults.STROKE_NET_STEPS,
        batch: int = 256,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.side = _check.count("side", side, minimum=12)  # 3 x 3 places after two halvings
        self.width = _check.count("width", width)
        self.n_features = 4 * self.width * _GRID**2  # channels of the last layer times positions
        self.steps = _check.count("steps", steps)
        self.batch = _check.count("batch", batch, minimum=2)
        self.seed = _check.count("seed", seed, minimum=0)
        self.folder = cache_folder(folder) / "public"

    @property
    def recipe(self) -> str:
        """Every setting of the pre-training."""
        kind = f"side={self.side} width={self.width} steps={self.steps} batch={self.batch}"
        return f"stroke-net-2 {kind} seed={self.seed}"

    def _raw(self, x: NDArray[Any]) -> Array:
        pictures = images(x, (self.side, self.side))
        out = np.empty((len(pictures), self.n_features), dtype=np.float32)
        for start in range(0, len(pictures), _CHUNK):
            out[start : start + _CHUNK] = self._forward(pictures[start : start + _CHUNK])
        return out

    @cached_property
    def _forward(self) -> _ExactForward:
        import torch

        path = self.folder / f"{content_key(self.recipe, np.empty(0))}.npy"
        weights = load_or_compute(path, self._pretrain)
        body = _network(self.width)
        torch.nn.utils.vector_to_parameters(torch.from_numpy(weights), body.parameters())
        return _ExactForward(body)

    def _pretrain(self) -> Array:
        import torch
        from torch.nn import functional

        rng = np.random.default_rng(self.seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            body = _network(self.width)
            head = torch.nn.Sequential(
                torch.nn.Flatten(),
                torch.nn.Linear(self.n_features, 4 * _EMBEDDING),
                torch.nn.ReLU(),
                torch.nn.Linear(4 * _EMBEDDING, _EMBEDDING),
            )
        parameters = [*body.parameters(), *head.parameters()]
        # rate and decay: found while the library was written (docs/guide/settings.md)
        optimiser = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, max_lr=3e-3, total_steps=self.steps + 1
        )
        partner = torch.arange(self.batch)
        for _ in range(self.steps):
            drawn = draw_glyphs(glyphs=self.batch, views=2, rng=rng, side=self.side)
            pictures = torch.from_numpy(np.concatenate([drawn[:, 0], drawn[:, 1]]))
            z = functional.normalize(head(body(_batch(pictures))), dim=1)
            match = z[: self.batch] @ z[self.batch :].T / 0.1  # t, as in SimCLR
            loss = functional.cross_entropy(match, partner)
            loss = loss + functional.cross_entropy(match.T, partner)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        return torch.nn.utils.parameters_to_vector(body.parameters()).detach().numpy()


class _ExactForward:
    """The network of `_network` without torch: products are exact, sums in a fixed order.

    What torch returns depends in its last bits on the batch; what this returns, on the picture.
    """

    def __init__(self, body: nn.Module) -> None:
        values = [value.detach().double().numpy() for value in body.parameters()]
        self.one = _Convolution(values[0], values[1], stride=2)
        self.two = _Convolution(values[2], values[3], stride=1)
        self.norm_two = values[4], values[5]
        self.three = _Convolution(values[6], values[7], stride=1)
        self.norm_three = values[8], values[9]

    def __call__(self, pictures: Array) -> NDArray[np.float64]:
        """Rows of the last feature map, in torch's order: channels, then positions."""
        maps = np.maximum(self.one(pictures[..., None]), 0.0)
        maps = np.maximum(_normalised(self.two(maps), *self.norm_two), 0.0)
        even = maps[:, : maps.shape[1] // 2 * 2, : maps.shape[2] // 2 * 2]
        maps = np.maximum(even[:, ::2], even[:, 1::2])
        maps = np.maximum(maps[:, :, ::2], maps[:, :, 1::2])
        maps = np.maximum(_normalised(self.three(maps), *self.norm_three), 0.0)
        rows, columns = ([_region(k, side) for k in range(_GRID)] for side in maps.shape[1:3])
        top = np.stack([maps[:, at].max(axis=1) for at in rows], axis=1)
        top = np.stack([top[:, :, at].max(axis=2) for at in columns], axis=2)
        return top.transpose(0, 3, 1, 2).reshape(len(pictures), -1)


class _Convolution:
    """A convolution with zeros around the map, exact but for the cut of its factors."""

    def __init__(
        self, weight: NDArray[np.float64], bias: NDArray[np.float64], *, stride: int
    ) -> None:
        filters, _, self.side, _ = weight.shape
        self.product = Product(weight.transpose(2, 3, 1, 0).reshape(-1, filters))
        self.bias, self.stride = bias, stride

    def __call__(self, maps: NDArray[Any]) -> NDArray[np.float64]:
        part, size = scale_by_power_of_two(maps)
        edge = self.side // 2
        part = np.pad(
            round_to_grid(part, self.product.step), ((0, 0), (edge, edge), (edge, edge), (0, 0))
        )
        out = self.product.of_cut(patches(part, self.side, stride=self.stride))
        out *= size
        out += self.bias
        return out


def _normalised(
    maps: NDArray[np.float64], gain: NDArray[np.float64], shift: NDArray[np.float64]
) -> NDArray[np.float64]:
    """torch's GroupNorm with one group: mean 0 and variance 1 within each record."""
    flat = maps.reshape(len(maps), -1)
    flat = flat - (row_sums(flat) / flat.shape[1])[:, None]
    flat /= np.sqrt(row_sums(flat * flat) / flat.shape[1] + 1e-5)[:, None]  # torch's default
    out = flat.reshape(maps.shape)
    out *= gain
    out += shift
    return out


def _region(k: int, side: int) -> slice:
    """The k-th of the `_GRID` regions that torch's adaptive pooling divides a side into."""
    return slice(k * side // _GRID, -(-(k + 1) * side // _GRID))


def _network(width: int) -> nn.Module:
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, width, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.GroupNorm(1, 2 * width),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 4 * width, 3, padding=1),
        nn.GroupNorm(1, 4 * width),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(_GRID),
    )


def _batch(pictures: Tensor) -> Tensor:
    import torch

    return pictures[:, None].contiguous(memory_format=torch.channels_last)
