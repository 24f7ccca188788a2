"""Worker processes that read ahead change nothing but the time."""

import os
import threading

import numpy as np
import pytest
import torch

from privet.errors import InvalidArgument
from privet.ledger import Ledger
from privet.methods.dpsgd import prefetch
from privet.methods.dpsgd.checkpoints import Checkpoints
from privet.methods.dpsgd.dataset_rows import TensorRows
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
        {"groups": np.arange(60) % 9, "max_rows_per_user": 3},
        {"independence": "assumed"},  # how large parts are is known after the first only
    ],
)
def test_a_seeded_run_is_the_same_with_workers(more, tmp_path):
    alone = trained(tensors=Rows(), **more)
    ahead = trained(tensors=Rows(tmp_path / "read"), num_workers=2, **more)
    assert torch.equal(weights(alone.model), weights(ahead.model))
    assert alone.guarantee.to_dict() == ahead.guarantee.to_dict()
    readers = set((tmp_path / "read").read_text().split()) - {str(os.getpid())}
    assert len(readers) >= 1


def mapped_file(folder, x, offset=0):
    np.save(folder / "x.npy", np.concatenate([np.zeros((offset, *x.shape[1:]), "f4"), x]))
    return np.load(folder / "x.npy", mmap_mode="r")[offset:]


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("more", [{"micro_batch": 7}, {"augment": jitter, "prefetch": 5}])
def test_a_mapped_file_is_read_ahead_and_changes_nothing(offset, more, tmp_path, monkeypatch):
    """Rows that come next are asked for, by the number they have in the file's own part."""
    x, y = data(60)
    asked, threads = [], set()
    own, take = prefetch.MappedRows.ask, TensorRows.take
    monkeypatch.setattr(
        prefetch.MappedRows, "ask", lambda self, i: (asked.append(i), own(self, i))[1]
    )
    monkeypatch.setattr(
        TensorRows,
        "take",
        lambda self, i: (threads.add(threading.current_thread().name), take(self, i))[1],
    )
    ahead = trained(tensors=(mapped_file(tmp_path, x, offset), y.numpy()), **more)
    assert len(asked) > 3 and max(i.max() for i in asked if len(i)) < 60
    assert any(name.startswith("privet-reading") for name in threads)
    alone = trained(tensors=(x, y), **more)
    assert torch.equal(weights(alone.model), weights(ahead.model))
    assert not any(t.name.startswith("privet-reading") for t in threading.enumerate())


@pytest.mark.parametrize("together", [True, False])
def test_pages_are_asked_for_at_once_or_one_by_one(together, tmp_path, monkeypatch):
    """Where the system forbids the one call, rows are asked for in many; all of their bytes."""
    file = mapped_file(tmp_path, np.zeros((3000, 1024), "f4"))
    asked, one_by_one = [], prefetch._ONE_BY_ONE

    def note(start, length, advice):
        asked.append((start.value, length.value))
        return one_by_one(start, length, advice)

    monkeypatch.setattr(prefetch, "_ONE_BY_ONE", note)
    if not together:
        monkeypatch.setattr(prefetch, "_TOGETHER", lambda *_: -1)
    rows = np.arange(0, 3000, 2)
    ask = prefetch.rows_ahead([file])
    ask(rows)
    ask(rows[:0])
    if together and not asked:
        return
    page = prefetch.mmap.PAGESIZE
    for i, (low, length) in zip(rows, asked, strict=True):
        first = file.ctypes.data + i * 4096
        assert low % page == 0 and first - page < low <= first
        assert low + length == first + 4096


def test_a_mapped_file_that_cannot_be_read_is_heard(tmp_path, monkeypatch):
    x, y = data(60)
    file = mapped_file(tmp_path, x)

    def broken(self, indices):
        if len(indices) and threading.current_thread().name.startswith("privet-reading"):
            raise OSError("the disk is gone")
        return take(self, indices)

    take = TensorRows.take
    monkeypatch.setattr(TensorRows, "take", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        trained(tensors=(file, y.numpy()), micro_batch=7)
    assert not any(t.name.startswith("privet-reading") for t in threading.enumerate())


def test_a_mapped_run_goes_on_bit_for_bit(tmp_path):
    """Samples and rows are ahead of the checkpoint; a resumed run draws and reads them again."""
    x, y = data(60)
    file = mapped_file(tmp_path, x)
    whole = trained(tensors=(file, y.numpy()), micro_batch=7, prefetch=6)
    kept = Checkpoints(folder=tmp_path / "kept", every=1)
    with start(tensors=(file, y.numpy()), micro_batch=7, prefetch=6, checkpoints=kept) as first:
        for batch in first:
            first.step(losses_of(first.model, batch))
            if first.steps_done == 3:
                break
    again = trained(tensors=(file, y.numpy()), micro_batch=7, prefetch=6, checkpoints=kept)
    assert again.steps_done == whole.steps_done > 3
    assert torch.equal(weights(whole.model), weights(again.model))


@pytest.mark.slow
def test_arrays_and_a_budget_that_ends():
    """What was read ahead of the end is thrown away; the steps made are those that were paid."""
    made = []
    for workers in (0, 2):
        ledger = Ledger.in_memory(cap_epsilon=2.2, cap_delta=1e-5)
        training = trained(
            tensors=data(60), ledger=ledger, block=1, num_workers=workers, micro_batch=7
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
