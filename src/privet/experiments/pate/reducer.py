"""The autoencoder of the volume experiment: label maps at half size, as departures from a mean."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from privet import _check
from privet.errors import InvalidArgument
from privet.methods.pate import ClassProbabilities, Reducer
from privet.nets.convolutional_autoencoder import ConvolutionalAutoencoder

Array = NDArray[Any]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ShapeReducer(Reducer):
    """The paper's autoencoder, told the mean public map m beforehand.

    A map y is pooled by `factor`, encoded as z = f_enc((y - m) / s) in the unit ball, and decoded
    as softmax(log m + f_dec(z)), blown up again. Label maps of one organ are nearly equal: an
    encoder that sees them whole gives all of them one code, and under noise it never leaves that
    state. Departures from the mean do not have that problem. m and s come from public maps.

    **Guarantee** codes have length at most 1 (`privet.nets.unit_ball`), whatever a teacher answers.

    **Assumes** that the targets it is taught with are public.

    >>> from privet.data.nifti import spheres
    >>> from privet.nets.segmentation import soft_targets
    >>> maps = soft_targets(spheres(4, seed=0).labels, 3).numpy()
    >>> reducer = ShapeReducer.fit(maps, noise=0.1, dimension=2, widths=(4,), steps=3, seed=0)
    >>> reducer.decode(reducer.encode(maps)).shape, reducer.radius
    ((4, 3, 16, 16, 16), 1.0)
    """

    network: ConvolutionalAutoencoder = field(repr=False)
    mean: Tensor = field(repr=False)
    spread: float
    factor: int

    @classmethod
    def fit(
        cls,
        public_targets: Array,
        *,
        noise: float,
        dimension: int,
        widths: tuple[int, ...],
        steps: int,
        seed: int,
        factor: int = 2,
        batch_size: int = 8,
        learning_rate: float = 3e-3,
    ) -> Self:
        """Teach it with public maps (maps, classes, x, y, z) under noise that grows to `noise`."""
        steps, noise = _check.count("steps", steps), _check.non_negative("noise", noise)
        targets = np.asarray(public_targets)
        if targets.ndim != 5 or len(targets) == 0 or any(n % factor for n in targets.shape[2:]):
            raise InvalidArgument(
                "public_targets",
                targets.shape,
                f"(maps, classes, x, y, z), sides that are multiples of {factor}",
            )
        maps = _pooled(targets, factor)
        mean = maps.mean(dim=0).clamp(min=1e-3)
        order = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = ConvolutionalAutoencoder(
                shape=tuple(maps.shape[2:]), classes=maps.shape[1], dimension=dimension,
                widths=tuple(widths),
            )  # fmt: skip
            made = cls(
                network=network, mean=mean, factor=factor,
                spread=max(float((maps - mean).std()), 1e-3),
            )  # fmt: skip
            optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate)
            rates = torch.optim.lr_scheduler.OneCycleLR(
                optimizer, max_lr=learning_rate, total_steps=steps
            )
            for step in range(steps):
                # a third without noise, a third in which it grows, a third with all of it
                now = noise * min(1.0, max(0.0, 3.0 * step / steps - 1.0))
                batch = maps[torch.randint(len(maps), (batch_size,), generator=order)]
                codes = made._codes(batch)
                logits = made._logits(codes + now * torch.randn_like(codes))
                loss = F.cross_entropy(logits, batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                rates.step()
        network.eval()
        return made

    def _codes(self, maps: Tensor) -> Tensor:
        return self.network.encode((maps - self.mean) / self.spread)

    def _logits(self, codes: Tensor) -> Tensor:
        return self.mean.log() + self.network.decode(codes)

    @property
    def target_shape(self) -> tuple[int, ...]:
        classes, *sides = self.mean.shape
        return (classes, *(n * self.factor for n in sides))

    @property
    def dimension(self) -> int:
        return self.network.dimension

    @property
    def radius(self) -> float:
        return 1.0

    @torch.no_grad()
    def _encode(self, answers: Array) -> NDArray[np.float64]:
        codes = [self._codes(part) for part in _pooled(answers, self.factor).split(16)]
        return torch.cat(codes).double().numpy()

    @torch.no_grad()
    def _decode(self, codes: NDArray[np.float64], noise: float) -> Array:
        parts = [
            self._logits(part).softmax(dim=1) for part in torch.tensor(codes).float().split(16)
        ]
        sides = self.target_shape[1:]
        grown = F.interpolate(torch.cat(parts), size=sides, mode="trilinear", align_corners=False)
        return grown.numpy()

    def tensors(self) -> dict[str, Array]:
        weights = {k: v.detach().numpy() for k, v in self.network.state_dict().items()}
        return {"mean map": self.mean.numpy(), **weights}

    def settings(self) -> dict[str, Any]:
        return {"spread": self.spread, "factor": self.factor, "dimension": self.dimension}


def _pooled(maps: Array, factor: int) -> Tensor:
    bounded = ClassProbabilities().bounded(maps).astype(np.float32)
    return F.avg_pool3d(torch.from_numpy(bounded), factor)
