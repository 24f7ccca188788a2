"""A small convolutional network taught on drawn strokes to recognise the glyph behind a drawing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.nets.features.base import (
    Array,
    Features,
    cache_folder,
    content_key,
    images,
    in_parts,
    stored,
)
from privet.nets.features.strokes import draw_glyphs

if TYPE_CHECKING:
    from torch import Tensor, nn

_GRID = 3  # the last feature map is 3x3
_EMBEDDING = 128


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

    def __init__(
        self,
        *,
        side: int = 28,
        width: int = 32,
        steps: int = 800,
        batch: int = 256,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.side = _check.count("side", side, minimum=12)
        self.width = _check.count("width", width)
        self.steps = _check.count("steps", steps)
        self.batch = _check.count("batch", batch, minimum=2)
        self.seed = int(seed)
        self.folder = cache_folder(folder) / "public"
        self._body: nn.Module | None = None

    @property
    def n_features(self) -> int:
        """Channels of the last layer times positions."""
        return 4 * self.width * _GRID**2

    @property
    def recipe(self) -> str:
        """Every setting of the pre-training."""
        kind = f"side={self.side} width={self.width} steps={self.steps} batch={self.batch}"
        return f"stroke-net-1 {kind} seed={self.seed}"

    def _raw(self, x: NDArray[Any]) -> Array:
        import torch

        pictures = images(x, (self.side, self.side))
        body = self._trained()
        with torch.no_grad():
            return in_parts(
                lambda part: body(_batch(torch.tensor(part))).flatten(1).numpy(), pictures
            )

    def _trained(self) -> nn.Module:
        import torch

        if self._body is None:
            path = self.folder / f"{content_key(self.recipe, np.empty(0))}.npy"
            weights = stored(path, self._pretrain)
            body = _network(self.width)
            torch.nn.utils.vector_to_parameters(torch.from_numpy(weights), body.parameters())
            self._body = body.eval()
        return self._body

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
        optimiser = torch.optim.AdamW(parameters, lr=3e-3, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, max_lr=3e-3, total_steps=self.steps + 1
        )
        partner = torch.arange(self.batch)
        for _ in range(self.steps):
            drawn = draw_glyphs(glyphs=self.batch, views=2, rng=rng, side=self.side)
            pictures = torch.from_numpy(np.concatenate([drawn[:, 0], drawn[:, 1]]))
            z = functional.normalize(head(body(_batch(pictures))), dim=1)
            match = z[: self.batch] @ z[self.batch :].T / 0.1
            loss = functional.cross_entropy(match, partner)
            loss = loss + functional.cross_entropy(match.T, partner)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        return torch.nn.utils.parameters_to_vector(body.parameters()).detach().numpy()


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
