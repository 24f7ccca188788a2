"""Coins of data sets, augmentations and losses are a record's own, whoever else takes part."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from privet.methods.dpsgd import Schedule
from privet.methods.dpsgd.dataset_rows import TensorRows, as_rows, make_views
from privet.methods.dpsgd.generator_states import kept, place, seed_all
from privet.methods.dpsgd.samplers import PoissonSampler
from privet.noise import secure, seeded
from tests.methods.dpsgd.helpers import Watch, data, losses_of, network, start

FULL = Schedule(steps=2, sample_rate=1.0, noise_multiplier=5.0)
DRAWS = {
    "torch": lambda: torch.rand(5),
    "numpy": lambda: torch.from_numpy(np.random.rand(5)).float(),  # noqa: NPY002
    "python": lambda: torch.tensor([random.random() for _ in range(5)]),
}


class Augmenting(torch.utils.data.Dataset):
    """As torchvision's transforms do it: a row is changed when it is read, by everybody's coins."""

    def __init__(self, x, y, draw):
        self.x, self.y, self.draw = x, y, draw

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + 5.0 * self.draw(), self.y[i]


class Chosen(PoissonSampler):  # type: ignore[misc]
    """Who takes part is said, so that one record can be left out and all others keep their place."""

    def indices(self, step):
        return np.arange(self.first, self.n)


def moved(monkeypatch, dataset, losses=losses_of, **kw):
    """By how much of what is paid a sum moves when the first record does not take part."""
    sums = []
    for first in (0, 1):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        random.seed(0)
        rng = seeded(0)
        sampler = Chosen(n=len(dataset), rates=FULL.rates, rng=rng)
        object.__setattr__(sampler, "first", first)
        with monkeypatch.context() as patch:
            watch = Watch(patch)
            training = start(
                tensors=dataset, sampler=sampler, rng=rng, schedule=FULL, lr=0.0, losses=losses,
                **kw,
            )  # fmt: skip
            with training:
                for _ in training:
                    pass
        sums.append(watch.clean)
    far = [float((a.double() - b.double()).norm()) for a, b in zip(*sums, strict=True)]
    return max(far) / watch.sensitivities[0]


@pytest.mark.parametrize("way", ["data set", "augmentation", "users"])
@pytest.mark.parametrize("coins", DRAWS)
def test_a_row_draws_coins_of_its_own(monkeypatch, coins, way):
    """Attack: without the first record everybody drew what their neighbour had (7 times the price)."""
    x, y = data(24)
    draw = DRAWS[coins]
    if way == "augmentation":

        def greedy(row, generator):  # who has more draws more
            for _ in range(int(row[0, 0] > 0)):
                draw()
            return row + draw()

        changed = [
            make_views((torch.cat([first, x[1:]]),), 1, greedy, seeded(1))[0][1:]
            for first in (x[:1].abs(), -x[:1].abs())
        ]
        assert torch.equal(*changed)
    elif way == "users":
        users = as_rows(Augmenting(x, y, draw))
        drawn = [users.draw(np.arange(k, 5), seeded(1))[0][-1] for k in (0, 2)]
        assert torch.equal(*drawn)
    else:
        assert moved(monkeypatch, Augmenting(x, y, draw)) <= 1.0


@pytest.mark.parametrize("coins", ["numpy", "python"])
def test_a_loss_draws_the_same_whoever_was_read_before(monkeypatch, coins):
    """Attack: how far numpy's generator is tells how many rows of the steps before drew from it."""
    draw = DRAWS[coins]

    def losses(model, batch):
        return losses_of(model, batch) * (0.1 + draw()[0])

    assert moved(monkeypatch, Augmenting(*data(24), draw), losses) <= 1.0


def test_coins_of_rows_are_secret_in_a_secure_run():
    rows = as_rows(Augmenting(*data(4), DRAWS["torch"]))
    torch.manual_seed(0)
    one, other = (rows.draw(np.arange(4), secure())[0] for _ in range(2))
    assert not torch.equal(one, other)
    same = [rows.draw(np.arange(4), seeded(1))[0] for _ in range(2)]
    assert torch.equal(*same)


def test_generators_are_given_back():
    (x, y), model = data(6), network()
    torch.manual_seed(5)
    before = place()
    with kept():
        seed_all(torch.device("cpu"), 2**62)
        assert place() != before
    for losses in (losses_of, None):
        training = start(
            tensors=Augmenting(x, y, DRAWS["python"]), model=model, losses=losses, schedule=FULL
        )
        with training:
            for batch in training:
                if losses is None:
                    training.step(losses_of(training.model, batch))
        assert place() == before


def test_what_a_loop_writes_into_a_batch_does_not_reach_the_records():
    """Attack: where neighbours were drawn together a batch was a view of the records themselves."""
    x, y = data(12)
    before = x.clone()
    with start(tensors=(x, y), schedule=FULL) as training:
        for batch in training:
            batch.x.mul_(2.0)
            training.step(losses_of(training.model, batch))
    assert torch.equal(x, before)
    assert TensorRows([x]).take(np.arange(3))[0].data_ptr() != x.data_ptr()
