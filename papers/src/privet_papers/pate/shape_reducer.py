"""The autoencoder of the volume experiment: how label maps depart from what is publicly known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from privet.errors import InvalidArgument
from privet.methods.pate import ClassProbabilities, Reducer
from privet.networks.convolutional_autoencoder import ConvolutionalAutoencoder
from privet_papers.argument_checks import check_counts

Array = NDArray[Any]
SMALLEST = 1e-3
"""The least probability of a centre, and the least spread."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ShapeReducer(Reducer):
    """The paper's autoencoder of how maps depart from what is publicly known, their centres m.

    A map y is pooled by `factor`, encoded as z = f_enc((y - m) / s) in the unit ball, and decoded
    as softmax(log m + f_dec(z)), f_dec blown up to the grid. The centre is one map for all queries
    (the mean public map), or one for each query, in their order (what a network trained on public
    labels says about it): codes then carry only what teachers say beyond it.

    Label maps of one organ are nearly equal: an encoder that sees them whole gives all of them one
    code, and under noise it never leaves that state. Departures do not have that problem.

    **Guarantee** codes have length at most 1 (`privet.networks.bounded_layers`), whatever a
    teacher answers; the code of a query depends on the answer to it, and otherwise on public
    things alone.

    **Assumes** that centres, and the targets it is taught with, are public.

    >>> from privet.data.volumes import spheres
    >>> from privet.networks.segmentation import soft_targets
    >>> maps = soft_targets(spheres(4, seed=0).labels, 3).numpy()
    >>> reducer = ShapeReducer.fit(
    ...     maps, centre=maps.mean(axis=0, keepdims=True), noise=0.1, dimension=2, widths=(4,),
    ...     steps=3, seed=0)
    >>> reducer.decode(reducer.encode(maps)).shape, reducer.radius
    ((4, 3, 16, 16, 16), 1.0)
    """

    network: ConvolutionalAutoencoder = field(repr=False)
    centre: Tensor = field(repr=False)
    """(1 or queries, classes, x, y, z), probabilities."""
    spread: float
    factor: int

    @classmethod
    def fit(
        cls,
        public_targets: Array,
        *,
        centre: Array,
        noise: float,
        dimension: int,
        widths: tuple[int, ...],
        steps: int,
        seed: int,
        factor: int = 2,
        batch_size: int = 8,
        learning_rate: float = 3e-3,
    ) -> Self:
        """Teach it with public maps (maps, classes, x, y, z) under noise that grows to `noise`.

        `centre`: (1, classes, x, y, z), or one for each map; it must not have been made with the
        map that it is the centre of, or departures look smaller than teachers' will be.
        """
        check_counts(steps=steps)
        if not 0.0 <= noise < math.inf:
            raise InvalidArgument("noise", noise, "a finite number of at least 0")
        targets, middle = np.asarray(public_targets), np.asarray(centre)
        if targets.ndim != 5 or len(targets) == 0 or any(n % factor for n in targets.shape[2:]):
            raise InvalidArgument(
                "public_targets",
                targets.shape,
                f"(maps, classes, x, y, z), sides that are multiples of {factor}",
            )
        if middle.shape not in (targets.shape, (1, *targets.shape[1:])):
            raise InvalidArgument(
                "centre", middle.shape, f"one map for all or one each, {targets.shape}"
            )
        maps = _pooled(targets, factor)
        about = _pooled(middle, factor).clamp(min=SMALLEST).expand(len(maps), -1, -1, -1, -1)
        spread = max(float((maps - about).std()), SMALLEST)
        order = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = ConvolutionalAutoencoder(
                shape=tuple(maps.shape[2:]), classes=maps.shape[1], dimension=dimension,
                widths=tuple(widths),
            )  # fmt: skip
            optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
            rates = torch.optim.lr_scheduler.OneCycleLR(
                optimizer, max_lr=learning_rate, total_steps=steps
            )
            for step in range(steps):
                # a third without noise, a third in which it grows, a third with all of it
                now = noise * min(1.0, max(0.0, 3.0 * step / steps - 1.0))
                rows = torch.randint(len(maps), (batch_size,), generator=order)
                codes = network.encode((maps[rows] - about[rows]) / spread)
                logits = about[rows].log() + network.decode(codes + now * torch.randn_like(codes))
                loss = F.cross_entropy(logits, maps[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                rates.step()
        whole = _bounded(middle).clamp(min=SMALLEST)
        return cls(network=network.eval(), centre=whole, spread=spread, factor=factor)

    def with_centre(self, centre: Array) -> Self:
        """The same about other centres: those of the queries, in their order."""
        return replace(self, centre=_bounded(np.asarray(centre)).clamp(min=SMALLEST))

    @property
    def target_shape(self) -> tuple[int, ...]:
        return tuple(self.centre.shape[1:])

    @property
    def dimension(self) -> int:
        return self.network.dimension

    @property
    def radius(self) -> float:
        return 1.0

    @torch.no_grad()
    def _encode(self, answers: Array) -> NDArray[np.float64]:
        codes = [
            self.network.encode(
                (_pooled(answers[i], self.factor) - F.avg_pool3d(m, self.factor)) / self.spread
            )
            for i, m in self._parts(len(answers))
        ]
        return torch.cat(codes).double().numpy()

    @torch.no_grad()
    def _decode(self, codes: NDArray[np.float64], noise: float) -> Array:
        z, sides = torch.tensor(codes).float(), self.target_shape[1:]
        maps = []
        for i, m in self._parts(len(z)):
            moved = F.interpolate(
                self.network.decode(z[i]), size=sides, mode="trilinear", align_corners=False
            )
            maps.append((m.log() + moved).softmax(dim=1))
        return torch.cat(maps).numpy()

    def _parts(self, queries: int) -> Iterator[tuple[slice, Tensor]]:
        """Sixteen queries at a time, with their centres."""
        if len(self.centre) not in (1, queries):
            raise InvalidArgument("queries", queries, f"{len(self.centre)}, one for each centre")
        every = self.centre.expand(queries, -1, -1, -1, -1)
        for start in range(0, queries, 16):
            part = slice(start, start + 16)
            yield part, every[part]

    def tensors(self) -> dict[str, Array]:
        weights = {k: v.detach().numpy() for k, v in self.network.state_dict().items()}
        return {"centre": self.centre.numpy(), **weights}

    def settings(self) -> dict[str, Any]:
        return {"spread": self.spread, "factor": self.factor, "dimension": self.dimension}


def _bounded(maps: Array) -> Tensor:
    return torch.from_numpy(ClassProbabilities().to_coordinates(maps).astype(np.float32))


def _pooled(maps: Array, factor: int) -> Tensor:
    return F.avg_pool3d(_bounded(maps), factor)
