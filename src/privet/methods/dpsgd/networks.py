"""A small network for private training from scratch."""

from __future__ import annotations

from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument


class SmallCNN(nn.Module):
    """Two convolutions and two dense layers with tanh, 26,010 parameters on 28x28 grey pictures.

    Tanh bounds activations and so gradients, which loses less to clipping than ReLU does (Papernot,
    Thakurta, Song, Chien and Erlingsson, *Tempered sigmoid activations*, 2021). Takes pictures
    (height, width) or (height, width, colours), or flat rows of them.

    >>> import torch
    >>> SmallCNN(shape=(28, 28), classes=10)(torch.zeros(2, 784)).shape
    torch.Size([2, 10])
    """

    def __init__(self, *, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        if len(shape) not in (2, 3) or min(shape[:2]) < 16:
            raise InvalidArgument("shape", shape, "pictures of 16 pixels or more on each side")
        self.shape = (*shape, 1) if len(shape) == 2 else shape
        height, width, colours = self.shape
        self.body = nn.Sequential(
            nn.Conv2d(colours, 16, 8, stride=2, padding=3),
            nn.Tanh(),
            nn.MaxPool2d(2, stride=1),
            nn.Conv2d(16, 32, 4, stride=2),
            nn.Tanh(),
            nn.MaxPool2d(2, stride=1),
            nn.Flatten(),
        )
        h, w = (((side // 2 - 1) - 4) // 2 + 1 - 1 for side in (height, width))
        self.head = nn.Sequential(
            nn.Linear(32 * h * w, 32), nn.Tanh(), nn.Linear(32, _check.count("classes", classes))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        pictures = x.reshape(-1, *self.shape).permute(0, 3, 1, 2)
        logits: Tensor = self.head(self.body(pictures))
        return logits
