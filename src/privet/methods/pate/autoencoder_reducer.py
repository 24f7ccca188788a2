"""A convolutional autoencoder as reducer: codes in the unit ball, taught under noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, final

import numpy as np
import torch

from privet import _check
from privet.errors import InvalidArgument
from privet.methods.pate.reducers import Array, Codes, Reducer
from privet.methods.pate.target_spaces import ClassProbabilities
from privet.networks.convolutional_autoencoder import ConvolutionalAutoencoder

FitWatcher = Callable[[int, int, float], None]
"""Called with epochs done, epochs in all and the mean loss of the last one."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class AutoencoderReducer(Reducer):
    """Maps of class probabilities (classes, height, width[, depth]) as codes in the unit ball.

    Noise of the size that aggregation will add is put on the codes in training as well, so that the
    decoder knows what it will have to read.

    **Guarantee** codes have length at most 1 whatever a teacher answers
    (`privet.networks.bounded_layers`), so one shard moves the mean of K by at most 2/K.

    **Assumes** that the targets it is taught with are public.

    >>> maps = np.zeros((8, 2, 6, 6)); maps[:4, 0] = maps[4:, 1] = 1.0
    >>> reducer = AutoencoderReducer.fit(
    ...     maps, noise=0.1, dimension=2, widths=(4,), epochs=60, learning_rate=0.03)
    >>> decoded = reducer.decode(reducer.encode(maps), noise=0.1)
    >>> bool(((decoded > 0.5) == (maps > 0.5)).all()), reducer.radius
    (True, 1.0)

    Fay, Sjoelund and Oechtering (2020), algorithm 2.
    """

    network: ConvolutionalAutoencoder = field(repr=False)

    @classmethod
    def fit(
        cls,
        public_targets: Array,
        *,
        noise: float,
        dimension: int = 16,
        widths: tuple[int, ...] = (8, 16, 32),
        epochs: int = 50,
        batch_size: int = 16,
        learning_rate: float = 5e-3,
        seed: int = 0,
        watcher: FitWatcher | None = None,
    ) -> Self:
        """Teach a network with public maps (maps, classes, height, width[, depth]).

        How widths, epochs and rate were found was not recorded; try others on public maps.

        `noise`: what aggregation adds to codes of radius 1, from `unit_noise`.
        """
        noise = _check.non_negative("noise", noise)
        epochs = _check.count("epochs", epochs)
        targets = np.asarray(public_targets)
        if targets.ndim not in (4, 5) or len(targets) == 0:
            raise InvalidArgument(
                "public_targets", targets.shape, "of shape (maps, classes, height, width[, depth])"
            )
        maps = _tensor(targets)
        order = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = ConvolutionalAutoencoder(
                shape=tuple(maps.shape[2:]),
                classes=maps.shape[1],
                dimension=dimension,
                widths=tuple(widths),
            )
            optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
            steps = epochs * -(-len(maps) // _check.count("batch_size", batch_size))
            schedule = torch.optim.lr_scheduler.OneCycleLR(
                optimiser, max_lr=learning_rate, total_steps=steps
            )
            for epoch in range(epochs):
                total = 0.0
                for part in torch.randperm(len(maps), generator=order).split(batch_size):
                    optimiser.zero_grad()
                    logits = network(maps[part], noise)
                    loss = torch.nn.functional.cross_entropy(logits, maps[part])
                    loss.backward()
                    optimiser.step()
                    schedule.step()
                    total += float(loss.detach()) * len(part)
                if watcher is not None:
                    watcher(epoch + 1, epochs, total / len(maps))
        return cls(network=network.eval())

    @property
    def target_shape(self) -> tuple[int, ...]:
        return (self.network.classes, *self.network.shape)

    @property
    def dimension(self) -> int:
        return self.network.dimension

    @property
    def radius(self) -> float:
        return 1.0

    def _encode(self, answers: Array) -> Codes:
        with torch.no_grad():
            codes = [self.network.encode(part) for part in _tensor(answers).split(16)]
        return torch.cat(codes).double().numpy()

    def _decode(self, codes: Codes, noise: float) -> Array:
        z = torch.from_numpy(codes).float()
        with torch.no_grad():
            maps = [self.network.decode(part).softmax(dim=1) for part in z.split(16)]
        return torch.cat(maps).numpy()

    def tensors(self) -> dict[str, Array]:
        return {k: v.detach().numpy() for k, v in self.network.state_dict().items()}

    def settings(self) -> dict[str, Any]:
        return {
            "shape": list(self.network.shape),
            "classes": self.network.classes,
            "dimension": self.network.dimension,
            "widths": list(self.network.widths),
        }

    @classmethod
    def from_parts(cls, tensors: Mapping[str, Array], settings: Mapping[str, Any]) -> Self:
        """The inverse of `tensors` and `settings`."""
        network = ConvolutionalAutoencoder(
            shape=tuple(settings["shape"]),
            classes=settings["classes"],
            dimension=settings["dimension"],
            widths=tuple(settings["widths"]),
        )
        network.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in tensors.items()})
        return cls(network=network.eval())


def _tensor(maps: Array) -> torch.Tensor:
    return torch.from_numpy(ClassProbabilities().to_coordinates(maps).astype(np.float32))
