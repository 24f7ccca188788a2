"""The peer: a stacked denoising auto-encoder by gradient descent, not private, with fine-tuning.

Tied sigmoid layers trained one after the other on inputs with a fifth of them set to zero, cross
entropy of the reconstruction; then a softmax output and all of it together (Adam). Vincent et al.,
"Stacked Denoising Autoencoders" (2010).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

BATCH = 128


class DenoisingStack(nn.Module):
    """Layers, an output, and how they are trained."""

    def __init__(self, *, layers: tuple[int, ...], classes: int, seed: int) -> None:
        super().__init__()
        self.layers, self.classes = layers, classes
        self.generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)

    def fit(self, x: NDArray[Any], y: NDArray[Any], *, epochs: int, tuning_epochs: int) -> int:
        """Train on rows in [0, 1]; returns the passes that were made over the data."""
        rows, labels = (
            torch.from_numpy(np.array(x, dtype=np.float32)),
            torch.from_numpy(np.array(y)),
        )
        sizes = (rows.shape[1], *self.layers)
        self.encoders = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.output = nn.Linear(sizes[-1], self.classes)
        passes = 0
        for k, layer in enumerate(self.encoders):
            back = nn.Parameter(torch.zeros(sizes[k]))
            optimiser = torch.optim.Adam([*layer.parameters(), back], lr=1e-3)
            for _ in range(epochs):
                passes += 1
                for batch in self._batches(len(rows)):
                    with torch.no_grad():
                        clean = self.encode(rows[batch], k)
                        mask = torch.rand(clean.shape, generator=self.generator) > 0.2
                    hidden = torch.sigmoid(layer(clean * mask))
                    made = hidden @ layer.weight + back
                    optimiser.zero_grad()
                    F.binary_cross_entropy_with_logits(made, clean).backward()
                    optimiser.step()
        optimiser = torch.optim.Adam(self.parameters(), lr=1e-3)
        for _ in range(tuning_epochs):
            passes += 1
            for batch in self._batches(len(rows)):
                optimiser.zero_grad()
                F.cross_entropy(self(rows[batch]), labels[batch]).backward()
                optimiser.step()
        return passes

    def encode(self, x: Tensor, layers: int) -> Tensor:
        for layer in list(self.encoders)[:layers]:
            x = torch.sigmoid(layer(x))
        return x

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.output(self.encode(x, len(self.layers)))
        return out

    @torch.no_grad()
    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Class numbers."""
        return np.asarray(self(torch.from_numpy(np.array(x, dtype=np.float32))).argmax(1).numpy())

    def _batches(self, n: int) -> Any:
        return torch.randperm(n, generator=self.generator).split(BATCH)
