"""A ResNet for flat rows of pictures."""

from __future__ import annotations

from torch import Tensor, nn

from privet.errors import InvalidArgument
from privet.nets.residual.noise import Perturbation
from privet.nets.residual.resnet import ResNet


class Pictures(nn.Module):
    """A ResNet that takes pictures (height, width) or (height, width, colours), or rows of them.

    >>> import torch
    >>> Pictures(shape=(8, 8), classes=3)(torch.zeros(2, 64)).shape
    torch.Size([2, 3])
    """

    def __init__(
        self,
        *,
        shape: tuple[int, ...],
        classes: int,
        depth: int = 8,
        perturbation: Perturbation | None = None,
    ) -> None:
        super().__init__()
        if len(shape) not in (2, 3):
            raise InvalidArgument("shape", shape, "(height, width) or (height, width, colours)")
        law = Perturbation() if perturbation is None else perturbation
        self.description = {
            "name": "Pictures", "shape": list(shape), "classes": classes, "depth": depth,
            "perturbation": law.to_dict(),
        }  # fmt: skip
        self.shape = (*shape, 1) if len(shape) == 2 else tuple(shape)
        self.net = ResNet(channels=self.shape[2], classes=classes, depth=depth, perturbation=law)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        pictures = x.reshape(-1, *self.shape).permute(0, 3, 1, 2).contiguous()
        logits: Tensor = self.net(pictures)
        return logits
