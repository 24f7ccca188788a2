"""Worker processes that read ahead change nothing but the time."""

import os

import numpy as np
import pytest
import torch

from privet.errors import InvalidArgument
from privet.ledger import Ledger
from privet.methods.dpsgd import mapped
from tests.methods.dpsgd.helpers import data, losses_of, start, weights


class Rows:
    """A map-style data set that notes who read it."""

    def __init__(self, path=None):
        self.x, self.y = data(60)
        self.path = path

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(f"{os.getpid()}\n")
        return self.x[i], self.y[i]


def jitter(row, generator):
    return row + 0.1 * torch.randn(row.shape, generator=generator)


def trained(**kw):
    with start(**kw) as training:
        for batch in training:
            training.step(losses_of(training.model, batch))
    return training


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        {"micro_batch": 5},
        {"micro_batch": 5, "augment": jitter, "views": 2},
        {"groups": np.arange(60) % 9, "rows_each": 3},
        {"check_mixing": False},  # how large parts are is known after the first only
    ],
)
def test_a_seeded_run_is_the_same_with_workers(more, tmp_path):
    alone = trained(tensors=Rows(), **more)
    ahead = trained(tensors=Rows(tmp_path / "read"), num_workers=2, **more)
    assert torch.equal(weights(alone.model), weights(ahead.model))
    assert alone.guarantee.to_dict() == ahead.guarantee.to_dict()
    readers = set((tmp_path / "read").read_text().split()) - {str(os.getpid())}
    assert len(readers) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 3])
def test_a_mapped_file_is_read_ahead_and_changes_nothing(offset, tmp_path, monkeypatch):
    """Rows that come next are asked for, by the number they have in the file's own part."""
    x, y = data(60)
    np.save(tmp_path / "x.npy", np.concatenate([np.zeros((offset, *x.shape[1:]), "f4"), x]))
    asked = []
    own = mapped.MappedRows.read
    monkeypatch.setattr(
        mapped.MappedRows, "read", lambda self, i: (asked.append(i), own(self, i))[1]
    )
    file = np.load(tmp_path / "x.npy", mmap_mode="r")[offset:]
    ahead = trained(tensors=(file, y.numpy()), micro_batch=7)
    assert len(asked) > 3 and max(i.max() for i in asked if len(i)) < 60
    alone = trained(tensors=(x, y), micro_batch=7)
    assert torch.equal(weights(alone.model), weights(ahead.model))


@pytest.mark.slow
def test_arrays_and_a_budget_that_ends():
    """What was read ahead of the end is thrown away; the steps made are those that were paid."""
    made = []
    for workers in (0, 2):
        ledger = Ledger.in_memory(cap_epsilon=2.2, cap_delta=1e-5)
        training = trained(
            tensors=data(60), ledger=ledger, charge_block=1, num_workers=workers, micro_batch=7
        )
        assert training.stopped_early and 0 < training.steps_done < 6
        made.append((training.steps_done, weights(training.model).tolist(), ledger.spent()))
    assert made[0] == made[1]


def test_a_reader_that_fails_is_heard():
    class Bad(Rows):
        def __getitem__(self, i):
            if i == 41:
                raise KeyError("row 41 is broken")
            return super().__getitem__(i)

    with pytest.raises(KeyError, match="row 41"):
        trained(tensors=Bad(), num_workers=1, micro_batch=5)
    with pytest.raises(InvalidArgument, match="num_workers"):
        trained(num_workers=-1)
