"""Kin of loop bodies that look at the batch: padding, graphs, compiled and packed, held data sets."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from privet import premises
from privet.errors import InvalidArgument
from privet.guarantee import Backing
from privet.methods.dpsgd import Schedule
from tests.methods.dpsgd.helpers import Watch, data, losses_of, network, start

FULL = Schedule(steps=2, sample_rate=1.0, noise_multiplier=5.0)
LENGTH, WORDS = 8, 20


def stated(training):
    (found,) = [p.backing for p in training.guarantee.premises if p.about == "mixing"]
    return found


def finished(**kw):
    training = start(schedule=FULL, **kw)
    with training:
        for _ in training:
            pass
    return training


# What pads to the longest of a batch


class Words(nn.Module):
    """A mean over all places: `forgetful` of the mask, as a hand-written pooling often is."""

    def __init__(self, *, forgetful):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head, self.forgetful = nn.Embedding(WORDS, 4), nn.Linear(4, 2), forgetful

    def forward(self, ids, mask):
        mask = torch.ones_like(mask) if self.forgetful else mask
        found = (self.words(ids) * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
        return self.head(found)


def sentences(n=24):
    g = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, LENGTH // 2, (n,), generator=g)
    lengths[0] = LENGTH
    mask = (torch.arange(LENGTH) < lengths[:, None]).long()
    return {
        "ids": torch.randint(1, WORDS, (n, LENGTH), generator=g) * mask, "mask": mask,
        "labels": torch.arange(n) % 2,
    }  # fmt: skip


def of_one_length(model, batch):
    return F.cross_entropy(model(batch["ids"], batch["mask"]), batch["labels"], reduction="none")


def as_long_as_the_longest(model, batch):
    """What collators of Hugging Face do, with the mask that they make."""
    longest = max(1, int(batch["mask"].sum(1).max())) if len(batch) else LENGTH
    found = model(batch["ids"][:, :longest], batch["mask"][:, :longest])
    return F.cross_entropy(found, batch["labels"], reduction="none")


def moved(monkeypatch, losses, model, **kw):
    """By how much of what is paid the longest sentence moves the first sum."""
    sums = []
    for first in (0, 1):
        with monkeypatch.context() as patch:
            watch = Watch(patch)
            rows = {name: column[first:] for name, column in sentences().items()}
            finished(tensors=rows, model=model, losses=losses, n_public=24, lr=0.0, **kw)
        sums.append(watch.clean[0].double())
    return float((sums[0] - sums[1]).norm()) / watch.sensitivities[0]


@pytest.mark.slow
def test_where_a_loss_depends_on_the_padding_the_longest_moves_everybody(monkeypatch):
    """Attack: at one public length it moves nobody; where the mask is used neither does."""
    trimmed = {"losses": as_long_as_the_longest, "independence": "assumed"}
    assert moved(monkeypatch, model=Words(forgetful=True), **trimmed) > 1.5
    assert moved(monkeypatch, model=Words(forgetful=False), **trimmed) <= 1.0
    for forgetful in (False, True):
        assert moved(monkeypatch, of_one_length, Words(forgetful=forgetful)) <= 1.0


@pytest.mark.slow
def test_trimming_to_the_longest_is_refused_where_it_matters():
    kw = {"tensors": sentences(), "schedule": FULL}
    with pytest.raises(InvalidArgument, match="depend on"):
        start(model=Words(forgetful=True), **kw).check(as_long_as_the_longest)
    with pytest.raises(InvalidArgument, match="depend on"):
        next(iter(start(model=Words(forgetful=True), losses=as_long_as_the_longest, **kw)))
    start(model=Words(forgetful=False), **kw).check(as_long_as_the_longest)  # the way out
    assert stated(finished(tensors=sentences(), model=Words(forgetful=True), losses=of_one_length)) \
        is Backing.ENFORCED  # fmt: skip


# Graphs, and functions that hold the records


@pytest.mark.parametrize("independence", [None, "enforced"])
@pytest.mark.parametrize("users", [False, True])
def test_a_function_that_holds_the_data_set_is_refused(independence, users):
    """Attack: the mean of all records, a kernel or a graph over them, as a constant of the program."""
    x, y = data(24)
    groups = {"groups": [k // 2 for k in range(24)]} if users else {}
    whole = x  # as a script has it: one name for both

    def centred(model, batch):
        return F.cross_entropy(model(batch.x - whole.mean(0)), batch.y, reduction="none")

    def by_neighbours(model, batch):
        near = torch.softmax(-torch.cdist(batch.x, whole[1:]), 1)
        return F.cross_entropy(model(near @ whole[1:]), batch.y, reduction="none")

    for losses in (centred, by_neighbours):
        training = start(
            tensors=(x, y), losses=losses, schedule=FULL, independence=independence, **groups
        )
        with pytest.raises(InvalidArgument, match="holds the data set itself") as refused:
            next(iter(training))
        assert "\n" not in str(refused.value) and not training.entries
    assert "were chosen without these records" in premises.SETTINGS.text  # of copies of them


def test_a_table_that_is_no_record_is_a_constant():
    table = torch.randn(24, 5)

    def by_number(model, batch):
        return F.cross_entropy(model(table[batch.x]), batch.y, reduction="none")

    numbers = torch.arange(24), torch.arange(24) % 2
    assert stated(finished(tensors=numbers, losses=by_number)) is Backing.ENFORCED


# Compiled, packed, changed on the way


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_compiled_loss_is_enforced_and_a_compiled_model_has_a_way_out():
    loss = torch.compile(lambda out, y: F.cross_entropy(out, y, reduction="none"), backend="eager")
    found = finished(losses=lambda model, batch: loss(model(batch.x), batch.y))
    assert stated(found) is Backing.ENFORCED
    compiled = torch.compile(network(), backend="eager")
    with pytest.raises(InvalidArgument, match="before it was compiled"):
        start(model=compiled)


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.recurrent, self.head = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x):
        lengths = (x > 0).sum(1).clamp(min=1).cpu()
        rows = nn.utils.rnn.pack_padded_sequence(
            x[:, :, None], lengths, batch_first=True, enforce_sorted=False
        )
        return self.head(self.recurrent(rows)[1][-1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_packed_sequences_are_tested():
    assert stated(finished(model=Packed(), losses=losses_of)) is Backing.TESTED


def test_a_loss_that_a_callback_changes_is_traced_anew():
    """What is in a trainer's place at a step sees a made-up row there too, and no record."""
    seen = []

    def usual(model, batch):
        return losses_of(model, batch)

    def looks(model, batch):
        seen.append(len(batch))
        return losses_of(model, batch) * (batch.x[:, 0] > -9.0).cumsum(0)

    trainer = {"losses": usual}
    training = start(losses=lambda model, batch: trainer["losses"](model, batch), schedule=FULL)
    with training:
        for step in training:
            trainer["losses"] = looks if step.number == 1 else usual
    assert set(seen) == {1} and stated(training) is Backing.ENFORCED
