"""Linear heads: the clipped sum in closed form, which is all that a public feature extractor needs.

For logits W x the gradient of example i is r_i x_i^T with r_i = softmax(W x_i) - e_{y_i} (or the
residual of a regression), so its norm is ||r_i|| ||x_i|| and the clipped sum is one product.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from privet.methods.dpsgd.records import Batch
from privet.nets import ClippedSum, FlatClipping

_LAYER = ("weight",)


class LinearHead(nn.Module):
    """W (x - m, c): a linear map of centred rows with a constant last feature.

    `mean` is public or was released privately; the weights start at zero.
    """

    mean: Tensor
    constant: Tensor

    def __init__(self, *, features: int, outputs: int, constant: float) -> None:
        super().__init__()
        self.linear = nn.Linear(features + 1, outputs, bias=False)
        nn.init.zeros_(self.linear.weight)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("constant", torch.tensor(float(constant)))

    def rows(self, x: Tensor) -> Tensor:
        """(x - m, c), the input of the linear map."""
        out = torch.empty(len(x), x.shape[1] + 1, dtype=x.dtype)
        torch.sub(x, self.mean, out=out[:, :-1])
        out[:, -1] = self.constant
        return out

    def tensors(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the closed form needs of every record: its row, its target, its squared norm."""
        rows = self.rows(x)
        squares = torch.cat([part.double().square().sum(1) for part in rows.split(8192)])
        return rows, y, squares

    def forward(self, x: Tensor) -> Tensor:
        """Logits, or scaled targets."""
        logits: Tensor = self.linear(self.rows(x))
        return logits


@torch.no_grad()
def add_softmax(weight: Tensor, batch: Batch, bound: float, total: ClippedSum) -> float:
    """Add the clipped cross-entropy gradients of a batch; returns the sum of the losses."""
    logits = batch.x @ weight.T
    log_p = torch.log_softmax(logits, dim=1)
    losses = -log_p.gather(1, batch.y[:, None])[:, 0]
    residual = log_p.exp_()
    residual[torch.arange(len(batch)), batch.y] -= 1.0
    _add(residual, batch, bound, total)
    return float(losses.double().sum())


@torch.no_grad()
def add_squares(weight: Tensor, batch: Batch, bound: float, total: ClippedSum) -> float:
    """Add the clipped gradients of (W x - y)^2 / 2; returns the sum of the losses."""
    residual = batch.x @ weight.T - batch.y
    losses = 0.5 * residual.square().sum(1)
    _add(residual, batch, bound, total)
    return float(losses.double().sum())


def _add(residual: Tensor, batch: Batch, bound: float, total: ClippedSum) -> None:
    """Add sum_i w_i r_i x_i^T with w_i = min(1, C / (||r_i|| ||x_i||))."""
    x = batch.x
    squares = residual.square().sum(1).double() * batch.tensors[2]
    clipping = FlatClipping(bound=bound)
    weights = clipping.weights(squares[None], _LAYER)[0]
    bad = ~squares.isfinite()
    if bool(bad.any()):
        weights = weights.masked_fill(bad, 0.0)
        residual = residual.masked_fill(bad[:, None], 0.0)
        x = x.masked_fill(bad[:, None], 0.0)
    total.gradients["linear.weight"].addmm_((residual * weights.float()[:, None]).T, x)
    total.sensitivity = max(total.sensitivity, bound)
    total.examples_unprotected += len(x)
    total.non_finite_unprotected += int(bad.sum())
    total.norms.append(squares.sqrt())
