"""A network of the user's own, with public weights, as a feature extractor."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet.errors import InvalidArgument
from privet.features.extractor import Array, Features
from privet.guarantee import Premise

if TYPE_CHECKING:
    from torch import nn


class FromModule(Features):
    """The flattened outputs of a torch module in evaluation mode, on the unit ball.

    Each record goes through the module by itself, in one shape and at one alignment: torch's
    kernels round by the size of a batch and by a record's place in it, so that records would
    otherwise move each other's rows in their last bits. `batch` above 1 is faster (see
    `batch_error`), always of that size, the last one with zeros behind it; then that premise is
    assumed, and a module whose first record differs when computed alone is refused.

    **Guarantee**: that of `Features`, with the premise that `premise` states.

    **Assumes**: the weights are public: trained on public data, or released by a private method and
    paid for there. The module is a function of its input (no randomness, no memory of calls).
    """

    def __init__(self, module: nn.Module, *, n_features: int, batch: int = 1) -> None:
        self.module = module
        self.n_features = _check.count("n_features", n_features)
        self.batch = _check.count("batch", batch)

    @property
    def premise(self) -> Premise:
        """Tested where records go alone, assumed where they share a batch."""
        return premises.ROWS_ALONE if self.batch == 1 else premises.ROWS_IN_BATCHES

    @property
    def sees_number_type(self) -> bool:
        """No: the module is given float32 numbers as they are, whatever type they come in."""
        return False

    def batch_error(self, shape: tuple[int, ...], *, tries: int = 20, seed: int = 0) -> float:
        """The largest change of an entry of a row by who shares its batch, on public random inputs.

        A figure for this machine and this module, not a bound.
        """
        rng = np.random.default_rng(seed)
        records = rng.random((tries, *shape), dtype=np.float32)
        alone = FromModule(self.module, n_features=self.n_features).transform(records)
        worst = 0.0
        for k in range(tries):
            others = rng.random((self.batch, *shape), dtype=np.float32)
            others[k % self.batch] = records[k]
            row = self.transform(others)[k % self.batch]
            worst = max(worst, float(np.abs(row - alone[k]).max()))
        return worst

    @property
    def recipe(self) -> str:
        """The module's description and a hash of its weights and buffers."""
        digest = hashlib.sha256(repr(self.module).encode())
        for name, value in self.module.state_dict().items():
            digest.update(name.encode() + value.detach().cpu().numpy().tobytes())
        return f"module {digest.hexdigest()} by {self.batch}"

    def _raw(self, x: NDArray[Any]) -> Array:
        import torch

        was_training = self.module.training
        self.module.eval()
        try:
            with torch.no_grad():
                out = np.empty((len(x), self.n_features), dtype=np.float32)
                for start in range(0, len(x), self.batch):
                    part = np.zeros((self.batch, *x.shape[1:]), dtype=np.float32)
                    count = len(x[start : start + self.batch])
                    part[:count] = x[start : start + self.batch]
                    out[start : start + count] = self._rows(part)[:count]
                if self.batch > 1 and len(x) > 1:
                    alone = self._rows(x[:1])[0]
                    # float32 kernels of other shapes differ by 1e-6; rows that mix by much more
                    if not np.allclose(alone, out[0], rtol=1e-3, atol=1e-4, equal_nan=True):
                        expected = "a module that treats each record apart"
                        raise InvalidArgument("module", type(self.module).__name__, expected)
        finally:
            self.module.train(was_training)
        return out

    def _rows(self, x: NDArray[Any]) -> Array:
        import torch

        rows: Array = self.module(torch.tensor(x, dtype=torch.float32)).flatten(1).numpy()
        if rows.shape[1] != self.n_features:
            raise InvalidArgument(
                "n_features", self.n_features, f"{rows.shape[1]}, what it returns"
            )
        return rows
