"""A network of the user's own, with public weights, as a feature extractor."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet.errors import InvalidArgument
from privet.nets.features.base import Array, Features, filled, in_parts

if TYPE_CHECKING:
    from torch import nn


class FromModule(Features):
    """The flattened outputs of a torch module in evaluation mode, on the unit ball.

    **Guarantee**: that of `Features`, given a module that treats the records of a batch apart. The
    first record of each call is computed alone as well, and a difference is an error. The module
    always gets `batch` records, the last ones with zeros behind them: the last bits of a row depend
    on the size of the batch, and must not tell how many records there are.

    **Assumes**: the weights are public: trained on public data, or released by a private method and
    paid for there.
    """

    def __init__(self, module: nn.Module, *, n_features: int, batch: int = 64) -> None:
        self.module = module
        self._n_features = _check.count("n_features", n_features)
        self.batch = _check.count("batch", batch)

    @property
    def n_features(self) -> int:
        """As declared."""
        return self._n_features

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
                out = in_parts(self._rows, x, size=self.batch)
                if len(x) > 1:
                    alone = self._rows(filled(x[:1], 1))[0]
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
