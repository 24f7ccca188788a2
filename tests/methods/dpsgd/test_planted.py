"""Properties that bugs planted by an outsider broke: of every step, coordinate, view and process."""

import math
from importlib import import_module

import numpy as np
import pytest
import torch
from torch import nn

from privet.gradients import PerLayerClipping
from privet.methods.dpsgd import AdaptiveBound, PoissonSampler, Schedule
from privet.methods.dpsgd.distributed import Processes
from privet.noise import secure, seeded
from tests.methods.dpsgd.helpers import Watch, data, losses_of, run, start

MANY = Schedule(steps=60, sample_rate=1.0, noise_multiplier=2.0, clipping_bound=0.5)


class FirstOf(Processes):
    """The first of several processes, whose fellows have no records."""

    def __init__(self, world):
        self.rank, self.world = 0, world

    def reduce_to_first_(self, tensor):
        pass

    def broadcast_(self, tensor):
        pass

    def broadcast_object(self, value):
        return value


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2, 8])
def test_the_noise_is_that_of_one_process(monkeypatch, world):
    """Noise is added once, for the whole sum: not a share of it for each process."""
    watch = Watch(monkeypatch)
    module = import_module("privet.methods.dpsgd.private")
    monkeypatch.setattr(module, "current_processes", lambda: FirstOf(world))
    run(schedule=MANY, block=60)
    noise = torch.stack(watch.noisy) - torch.stack(watch.clean)
    assert all(1.0 <= scale < 1.01 for scale in watch.scales)  # z C = 1
    spread = float(noise.std())
    assert pytest.approx(spread, rel=5.0 / math.sqrt(2 * noise.numel())) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("convolution", [False, True])
def test_every_coordinate_of_every_step_has_noise_of_its_own(monkeypatch, convolution):
    """A coordinate without noise is released exactly; one missed among all was not noticed."""
    watch = Watch(monkeypatch)
    x, y = data(30)
    model = None
    if convolution:
        layers = nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(6, 2)
        model = nn.Sequential(*layers)
    run(tensors=(x, y), model=model, schedule=MANY, lr=1e-6, block=60)
    noise = (torch.stack(watch.noisy) - torch.stack(watch.clean)).numpy()
    assert bool((noise != 0.0).all())
    # sums of 60 squares: chi-squared; false alarms once in 10^9 coordinates
    squares = (noise**2).sum(0)
    assert squares.min() > 14.0 and squares.max() < 150.0
    assert np.abs(np.corrcoef(noise.T) - np.eye(noise.shape[1])).max() < 0.8


@pytest.mark.slow
def test_a_step_remembers_nothing_of_the_sums_before_it(monkeypatch):
    """With weights that stay, every step has the same exact sum, and the optimiser gets its noise."""
    watch = Watch(monkeypatch)
    gradients = []
    with start(losses=losses_of, schedule=MANY, lr=0.0, block=60) as training:
        for _ in training:
            parameters = training.model.parameters()
            gradients.append(torch.cat([p.grad.reshape(-1) for p in parameters]).clone())
    for clean, noisy, given in zip(watch.clean, watch.noisy, gradients, strict=True):
        assert torch.equal(clean, watch.clean[0])
        torch.testing.assert_close(given, (noisy / 60.0).float())


def test_the_average_is_of_released_weights(monkeypatch):
    """Without any learning from data, the average must still move with the noise."""
    zeros = torch.zeros(20, 5), torch.zeros(20, dtype=torch.int64)
    model = nn.Linear(5, 2)
    nn.init.zeros_(model.weight)
    track = []
    with start(tensors=zeros, model=model, schedule=MANY, ema=0.5, block=60) as training:
        for batch in training:
            training.step(0.0 * losses_of(model, batch))
            if batch.last:
                track.append(model.weight.detach().clone())
    share = [0.5 ** (len(track) - k) for k in range(len(track))]
    expected = sum(s * w for s, w in zip(share, track, strict=True)) / sum(share)
    torch.testing.assert_close(training.averaged_model().weight, expected)
    assert float(expected.abs().min()) > 0.0


@pytest.mark.parametrize("views", [1, 4])
@pytest.mark.parametrize("clipping", [None, lambda c: PerLayerClipping(bound=c)])
def test_one_record_alone_moves_the_sum_by_no_more_than_c(monkeypatch, views, clipping):
    """Whatever its views, and over all layers together."""
    x, y = data(1)
    kw = {} if clipping is None else {"clipping": clipping}

    def shake(row, generator):
        return 30.0 * row + torch.randn(row.shape, generator=generator)

    watch = Watch(monkeypatch)
    schedule = Schedule(steps=5, sample_rate=1.0, noise_multiplier=1.0, clipping_bound=0.25)
    with start(tensors=(x, y), schedule=schedule, views=views, augment=shake, **kw) as training:
        for batch in training:
            training.step(1e3 * losses_of(training.model, batch))
    norms = [float(clean.norm()) for clean in watch.clean]
    assert max(norms) <= 0.25 and max(watch.sensitivities) < 0.25 * 1.003
    assert max(norms) > 0.2  # it was clipped


@pytest.mark.parametrize("count_noise", [None, 0.8, 3.0])
def test_gradient_and_count_together_cost_one_step(count_noise):
    """1 / z_g^2 + 1 / (2 s)^2 = 1 / z^2: the count is not free."""
    for z in (0.7, 1.0, 1.4):
        rule = AdaptiveBound(initial=1.0, count_noise=count_noise)
        z_g, s = rule.gradient_multiplier(z, 100.0), rule.noise_of_count(z, 100.0)
        assert z_g**-2 + (2.0 * s) ** -2 <= z**-2
        assert z_g**-2 + (2.0 * s) ** -2 == pytest.approx(z**-2, rel=1e-9)


def test_coins_come_from_the_source_that_is_given():
    def drawn(rng):
        sampler = PoissonSampler(n=200, rates=[0.5] * 2, rng=rng)
        return [tuple(sampler.indices(t)) for t in range(2)]

    assert drawn(seeded(0)) == drawn(seeded(0))
    assert len({drawn(seeded(s))[0] for s in range(5)} | {drawn(secure())[0]}) == 6
    first, second = drawn(secure())
    assert first != second
