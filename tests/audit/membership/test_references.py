"""Reference models: who is in them, parallel, cached, resumed, and a folder that is not mixed up."""

import json
import os

import joblib
import numpy as np
import pytest

from privet.audit.membership import confidence_of_logits, random_halves, train_references
from privet.errors import InvalidArgument
from tests.audit.membership import overfitted

X, Y = overfitted.records(80)
trained = []


def counted(X, y, seed):
    trained.append(seed)
    return overfitted.train_probabilities(X, y, seed)


@pytest.fixture(autouse=True)
def _nothing_trained():
    trained.clear()


def test_every_record_is_in_half_of_the_models():
    inside = random_halves(101, 8, seed=1)
    assert (inside.sum(axis=0) == 4).all()
    assert set(inside.sum(axis=1)) == {50, 51}
    assert np.array_equal(random_halves(101, 4, seed=1), inside[:4])
    assert not np.array_equal(random_halves(101, 8, seed=2), inside)
    overlap = (inside[::2].astype(float) @ inside[::2].T)[np.triu_indices(4, 1)]
    assert (abs(overlap - 25) < 20).all()


def test_finished_models_are_not_trained_again(tmp_path):
    first = train_references(counted, X, Y, 2, seed=0, out=tmp_path)
    assert len(trained) == 2
    more = train_references(counted, X, Y, 5, seed=0, out=tmp_path)
    assert len(trained) == 5
    assert np.array_equal(more.confidence[:2], first.confidence)
    without = train_references(counted, X, Y, 5, seed=0)
    assert np.array_equal(without.confidence, more.confidence)
    assert len(without.seconds) == 5 and min(without.seconds) > 0


def test_a_crash_keeps_what_was_finished(tmp_path):
    def fails(X, y, seed):
        if len(trained) == 3:
            raise KeyboardInterrupt
        return counted(X, y, seed)

    with pytest.raises(KeyboardInterrupt):
        train_references(fails, X, Y, 5, seed=0, out=tmp_path)
    assert len(list(tmp_path.glob("reference-*.npz"))) == 3
    (tmp_path / "reference-0003.npz.1.part").write_bytes(b"half a fi")
    train_references(counted, X, Y, 5, seed=0, out=tmp_path)
    assert len(trained) == 5


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_workers_give_the_same_numbers(tmp_path, backend):
    alone = train_references(overfitted.train, X, Y, 3, seed=0, read=confidence_of_logits)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        together = train_references(
            overfitted.train, X, Y, 3, seed=0, read=confidence_of_logits, out=tmp_path
        )
    np.testing.assert_allclose(together.confidence, alone.confidence, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_dask_takes_the_training_by_name():
    distributed = pytest.importorskip("distributed")
    alone = train_references(overfitted.train, X, Y, 3, seed=0, read=confidence_of_logits)
    with (
        distributed.Client(processes=False, threads_per_worker=2, dashboard_address=None),
        joblib.parallel_config(backend="dask"),
    ):
        found = train_references(overfitted.train, X, Y, 3, seed=0, read=confidence_of_logits)
    np.testing.assert_allclose(found.confidence, alone.confidence, rtol=1e-9)


def test_nothing_is_pickled_into_the_folder(tmp_path):
    train_references(counted, X, Y, 1, seed=0, out=tmp_path)
    with np.load(tmp_path / "reference-0000.npz", allow_pickle=False) as file:
        assert set(file.files) == {"confidence", "members", "seconds"}
        assert file["confidence"].shape == (80,)
    assert set(os.listdir(tmp_path)) == {"reference-0000.npz", "references.json"}
    assert set(json.loads((tmp_path / "references.json").read_text())) == {"data", "seed", "what"}


def test_a_folder_holds_one_set(tmp_path):
    train_references(counted, X, Y, 1, seed=0, out=tmp_path, what="width 300")
    for change, message in (
        ({"what": "width 10"}, "same what"),
        ({"seed": 1, "what": "width 300"}, "same seed"),
        ({"y": 4 - Y, "what": "width 300"}, "same data"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            train_references(
                counted, X, change.pop("y", Y), 1, **({"seed": 0} | change), out=tmp_path
            )
    with pytest.raises(InvalidArgument, match="take another folder"):
        train_references(
            counted,
            X,
            Y,
            1,
            seed=0,
            out=tmp_path,
            what="width 300",
            members=~random_halves(80, 1, seed=0),
        )


def test_members_of_your_own_choice():
    inside = np.zeros((2, 80), bool)
    inside[:, :30] = True
    sizes = []

    def sized(X, y, seed):
        sizes.append(len(X))
        return counted(X, y, seed)

    refs = train_references(sized, X, Y, 2, seed=0, members=inside)
    assert sizes == [30, 30] and np.array_equal(refs.members, inside)
    with pytest.raises(InvalidArgument, match="some true in every row"):
        train_references(counted, X, Y, 1, seed=0, members=np.zeros((1, 80), bool))


def test_models_that_answer_wrongly_are_refused():
    def logits(X, y, seed):
        return overfitted.train(X, y, seed)

    with pytest.raises(InvalidArgument, match="confidence_of_logits"):
        train_references(logits, X, Y, 1, seed=0)
    with pytest.raises(InvalidArgument, match="one label for each of 80"):
        train_references(counted, X, Y[:3], 1, seed=0)
    refs = train_references(counted, X, Y, 1, seed=0)
    with pytest.raises(InvalidArgument, match="of two or more"):
        refs.without(0)
