"""A small private run, and one that can be watched."""

import dataclasses

import torch
from torch import nn

from privet.methods.dpsgd import Charging, Sampling, Schedule, StepOptions, dpsgd_loop, private
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
    tensors = data() if tensors is None else tensors
    return private(model, optimizer, tensors, schedule, rng=rng, **grouped(kw))


GROUPS = {"sampling": Sampling, "step": StepOptions, "charging": Charging}


def grouped(options):
    """The options of `private`, each put into its group."""
    fields = {f.name: name for name, group in GROUPS.items() for f in dataclasses.fields(group)}
    out, some = {}, {}
    for name, value in options.items():
        if name in fields:
            some.setdefault(fields[name], {})[name] = value
        else:
            out[name] = value
    return out | {name: GROUPS[name](**values) for name, values in some.items()}


def run(losses=losses_of, **kw):
    with start(losses=losses, **kw) as training:
        for _ in training:
            pass
    return training


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


class Watch:
    """Keeps every sum before and after its noise, and its scale."""

    def __init__(self, monkeypatch):
        self.clean, self.noisy, self.scales, self.sensitivities = [], [], [], []
        real = dpsgd_loop.release_sum_

        def watched(flat, *, sensitivity, **rest):
            self.clean.append(flat.clone())
            scale = real(flat, sensitivity=sensitivity, **rest)
            self.noisy.append(flat.clone())
            self.scales.append(scale)
            self.sensitivities.append(sensitivity)
            return scale

        monkeypatch.setattr(dpsgd_loop, "release_sum_", watched)
