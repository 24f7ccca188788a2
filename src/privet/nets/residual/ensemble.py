"""En_k: members whose probabilities are averaged, over draws of their noise too."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument
from privet.nets.residual.noise import standard_normal


class Ensemble(nn.Module):
    """The mean of members' probabilities over `noise_draws` draws; gives its logarithm.

    Members are trained by themselves (the paper does not say; Wang, Shi and Osher 2019, whom it
    follows, train them together). `input_noise` is added to what members are asked, at each draw.

    >>> net = Ensemble([nn.Linear(2, 3), nn.Linear(2, 3)])
    >>> net(torch.zeros(4, 2)).exp().sum(1).round(decimals=5).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    def __init__(
        self, members: Iterable[nn.Module], *, input_noise: float = 0.0, noise_draws: int = 1
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        if not len(self.members):
            raise InvalidArgument("members", 0, "at least one network")
        self.input_noise = _check.non_negative("input_noise", input_noise)
        self.noise_draws = _check.count("noise_draws", noise_draws)

    def forward(self, x: Tensor) -> Tensor:
        """Logarithms of the averaged probabilities."""
        answers = []
        for _ in range(self.noise_draws):
            for member in self.members:
                asked = x
                if self.input_noise > 0.0:
                    asked = torch.add(x, standard_normal(x), alpha=self.input_noise)
                answers.append(member(asked).log_softmax(1))
        total = torch.stack(answers).logsumexp(0)
        return total - torch.log(torch.tensor(float(len(answers))))
