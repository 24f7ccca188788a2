"""A small private run, and one that can be watched."""

import torch
from torch import nn

from privet.methods.dpsgd import Schedule, linear_method, loop, private
from privet.noise import seeded


def data(n=60, seed=3):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=g)
    return x, (x[:, 0] + 0.3 * x[:, 1] > 0).long()


def network(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))


def losses_of(model, batch):
    return nn.functional.cross_entropy(model(batch.x), batch.y, reduction="none")


def start(
    *, tensors=None, model=None, schedule=None, seed=0, lr=0.5, optimizer=None, rng=None, **kw
):
    model = network() if model is None else model
    schedule = (
        Schedule(steps=6, sample_rate=0.3, noise_multiplier=1.5) if schedule is None else schedule
    )
    optimizer = (
        torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9) if optimizer is None else optimizer
    )
    kw.setdefault("delta", 1e-5)
    rng = seeded(seed) if rng is None else rng
    return private(
        model, optimizer, data() if tensors is None else tensors, schedule, rng=rng, **kw
    )


def run(**kw):
    with start(**kw) as training:
        for batch in training:
            training.step(losses_of(training.model, batch))
    return training


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


class Watch:
    """Keeps every sum before and after its noise, and its scale."""

    def __init__(self, monkeypatch):
        self.clean, self.noisy, self.scales, self.sensitivities = [], [], [], []
        real = loop.release_sum_

        def watched(flat, *, sensitivity, **rest):
            self.clean.append(flat.clone())
            scale = real(flat, sensitivity=sensitivity, **rest)
            self.noisy.append(flat.clone())
            self.scales.append(scale)
            self.sensitivities.append(sensitivity)
            return scale

        monkeypatch.setattr(loop, "release_sum_", watched)
        monkeypatch.setattr(linear_method, "release_sum_", watched)
