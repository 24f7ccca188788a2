"""The experiments: cells run, are kept and not run again; the audit says falsified."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from privet.networks.bounded_layers import LocalResponseNorm, MinMax
from privet.noise import seeded
from privet_papers.adaptive_laplace import audit_record, figures
from privet_papers.adaptive_laplace.experiment import QUICK, AdaptiveLaplaceExperiment
from privet_papers.adaptive_laplace.findings import noise_against_signal, paired_t_tests, summarise
from privet_papers.adaptive_laplace.noise import (
    CROSS_ENTROPY,
    perturb_coefficients,
    perturb_records,
)
from privet_papers.adaptive_laplace.public_features import sound_rows
from privet_papers.adaptive_laplace.training_runs import (
    ACTIVATIONS,
    METHODS,
    WITH_PROOF,
    AdaptiveLaplaceRuns,
    DPSGDNetwork,
)

TINY = replace(
    QUICK, data="digits", records=400, epochs=1, released_epochs=1, pretraining_epochs=1,
    psgd_steps=3, batch_size=100, maps=(2, 2), hidden=4, epsilons=(2.0,), larger=(1e6,),
    curves=(2.0,), audit_trials=400, methods=METHODS, wide=(2, 3), wide_epochs=1,
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.slow
def test_everything_runs_once_and_is_kept(tmp_path):
    first = AdaptiveLaplaceExperiment(TINY, tmp_path).run()
    cells = {p: p.stat().st_mtime_ns for p in (tmp_path / "cells").iterdir()}
    progress = []
    again = AdaptiveLaplaceExperiment(TINY, tmp_path).run(lambda *a: progress.append(a))
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "cells").iterdir()} == cells
    assert again["rows"] == first["rows"] and progress[0][1:] == (0, 18)
    assert {r["method"] for r in first["rows"]} == set(METHODS)
    by = {(r["method"], r["epsilon"]): r for r in first["rows"]}
    assert by["AdLM", 2.0]["proved"] == by["AdLM as released", 2.0]["proved"] == "inf"
    assert by["ILM", 2.0]["proved"] > by["ILM", 2.0]["claimed"] == 2.0
    assert all(by[method, 2.0]["proved"] <= 2.0 for method in WITH_PROOF)
    assert all(0.0 <= r["accuracy"] <= 1.0 for r in first["rows"])
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["rows"] == json.loads(json.dumps(first["rows"]))
    assert len(first["pictures"]) >= 4
    assert all((tmp_path / p.split("/")[-1]).stat().st_size > 1000 for p in first["pictures"])


def test_the_expected_time_counts_what_was_chosen(tmp_path, monkeypatch):
    monkeypatch.setattr(AdaptiveLaplaceExperiment, "_seconds_a_row", lambda self: (1.0, 0.5))

    def seconds(**chosen):
        return AdaptiveLaplaceExperiment(replace(TINY, **chosen), tmp_path).expected_seconds()

    assert seconds(methods=("ILM",)) == seconds(methods=("ILM",), larger=()) * 2 == 400 * 1.0 * 2
    assert seconds(methods=("ILM as released",), released_epochs=3) == 400 * 0.5 * 3
    assert seconds(methods=("pSGD",), psgd_steps=300) == 400 * 3.0
    assert seconds(methods=("sound",)) > 0.0  # it said 0 seconds


@pytest.mark.slow
def test_an_interrupted_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "draw", lambda *_: [])
    settings = replace(TINY, methods=("ILM",))

    class Stop(Exception):
        pass

    def stop(what, done, of):
        if done == 1:
            raise Stop

    with pytest.raises(Stop):
        AdaptiveLaplaceExperiment(settings, tmp_path).run(stop)
    assert len(list((tmp_path / "cells").glob("*.json"))) == 1
    assert len(AdaptiveLaplaceExperiment(settings, tmp_path).run()["rows"]) == 2


def test_colour_pictures_are_put_channels_first():
    settings = replace(TINY, maps=(4,), kernel=(3,))
    runs = AdaptiveLaplaceRuns(settings, keep=lambda key, run: run())
    runs.data = replace_shape(runs.data)
    rows = np.arange(2 * 4 * 4 * 3, dtype=np.float32).reshape(2, -1)
    turned = runs._channels_first(rows)
    assert turned.reshape(2, 3, 4, 4)[0, 1, 2, 3] == rows.reshape(2, 4, 4, 3)[0, 2, 3, 1]


def replace_shape(data):
    from privet.data import Dataset

    x = np.zeros((2, 4, 4, 3))
    return Dataset(
        name="colour", about="", classes=("a", "b"), low=0.0, high=1.0,
        x_train=x, y_train=np.array([0, 1]), x_test=x, y_test=np.array([0, 1]),
    )  # fmt: skip


@pytest.mark.slow
def test_the_audit_of_a_record():
    found = audit_record(
        epsilon=1.0, trials=4000, rng=seeded(0), features=100, h0=4, batch_size=400
    )
    assert found.verdict.value == "falsified" and found.claimed < found.audited <= found.proved
    sound = audit_record(  # |L| = 2 |h0|: the local epsilon is the claimed one
        epsilon=1.0, trials=4000, rng=seeded(0), features=100, h0=4, batch_size=8
    )
    assert sound.verdict.value == "consistent" and sound.proved == 1.0


def test_command_line(tmp_path, capsys):
    from privet.cli.main import main

    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "adaptive-laplace", "--out", str(tmp_path), "--method", "magic"])
    assert stopped.value.code == 2
    assert "one of AdLM" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["reproduce", "adaptive-laplace", "--out", str(tmp_path), "--data", "pigeons"])
    assert "one of mnist; cifar10" in capsys.readouterr().err
    assert QUICK.given(maps=(0,)).maps == ()  # an empty list cannot be said on a command line


def test_seeds_are_summed_up():
    rows = [
        {"method": m, "epsilon": 1.0, "accuracy": a, "claimed": None, "proved": 1.0, "seconds": 2.0}
        for m, a in (("sound", 0.8), ("sound", 0.9), ("ILM", 0.1))
    ]
    sound, ilm = summarise(rows)
    assert sound["accuracy"] == 85.0 and sound["seeds"] == 2 and sound["standing"] == "proved"
    assert sound["std"] == pytest.approx(7.07, abs=0.01)
    assert ilm["std"] is None and ilm["standing"] == "claimed"


def test_t_tests_tell_a_difference_from_chance():
    def rows(*gaps):
        return [
            {"method": m, "epsilon": 0.5, "seed": k, "accuracy": 0.5 + (g if m == "AdLM" else 0.0)}
            for k, g in enumerate(gaps)
            for m in ("AdLM", "ILM")
        ]

    (clear,), (chance,) = (
        paired_t_tests(rows(0.1, 0.11, 0.09)),
        paired_t_tests(rows(0.1, -0.11, 0.02)),
    )
    assert clear["p"] < 0.01 < 0.3 < chance["p"] and clear["printed"] == "p < .05"
    assert clear["difference"] == pytest.approx(10.0)
    assert paired_t_tests(rows(0.1)) == []  # one seed is no test
    assert paired_t_tests(rows(0.1, 0.1))[0]["p"] is None
    # over two budgets one seed is a test, as the paper has it; other budgets do not count
    both = [r | {"epsilon": e} for e, g in ((0.5, 0.1), (2.0, 0.12), (1e6, -0.9)) for r in rows(g)]
    (over,) = paired_t_tests(both, (0.5, 2.0))
    assert over["epsilon"] is None and over["seeds"] == 2 and over["p"] < 0.05
    assert over["difference"] == pytest.approx(11.0)


def test_noise_against_signal_is_what_draws_show():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 2000)
    x = np.clip(rng.uniform(size=(2000, 12)) + 0.2 * (y[:, None] == np.arange(12) % 3), 0.0, 1.0)
    b, s = 3.0, 1.5
    found = noise_against_signal(
        x, y, classes=3, loss=CROSS_ENTROPY, feature_scale=b, label_scale=s
    )

    def covariances(records, coefficients):
        phi = coefficients[:, :, 1] - coefficients[:, :, 1].mean(axis=0)
        return phi.T @ (records - records.mean(axis=0)) / len(x)

    exact = CROSS_ENTROPY.coefficients(y, 3)
    true = covariances(x, exact)
    off = []
    for k in range(40):
        own = seeded(k)
        noisy_x = perturb_records(x, np.full(12, b), own.child("x"))
        noisy_phi = perturb_coefficients(exact, s, own.child("phi"))
        off.append(np.sum((covariances(noisy_x, noisy_phi) - true) ** 2))
    drawn = np.linalg.norm(true) / np.sqrt(np.mean(off))
    assert found["ratio"] == pytest.approx(drawn, rel=0.08)
    # twice the records, the same law: half of what is needed is there
    again = noise_against_signal(
        np.tile(x, (2, 1)), np.tile(y, 2), classes=3, loss=CROSS_ENTROPY, feature_scale=b,
        label_scale=s,
    )  # fmt: skip
    assert again["records_needed"] == pytest.approx(found["records_needed"])
    assert again["ratio"] == pytest.approx(np.sqrt(2.0) * found["ratio"])


def test_the_papers_settings_are_the_papers():
    mnist, cifar = (AdaptiveLaplaceExperiment.paper[data] for data in ("mnist", "cifar10"))
    assert (mnist.batch_size, mnist.maps, mnist.kernel, mnist.hidden) == (
        1800,
        (32, 64),
        (5, 5),
        25,
    )
    assert (mnist.epochs, mnist.pretraining_epochs, mnist.curves) == (500, 12, (0.5, 2.0))
    assert (cifar.batch_size, cifar.maps, cifar.hidden) == (7200, (128, 128, 256), 30)
    assert (cifar.kernel, cifar.epochs, cifar.pretraining_epochs) == ((3, 5, 5), 800, 50)


def test_the_sound_cell_has_features_in_front(tmp_path, monkeypatch):
    """Pictures of 16 pixels or more get scattering, small ones their pixels, rows of length 1."""
    from privet.data import Dataset

    monkeypatch.setenv("PRIVET_CACHE", str(tmp_path))

    def grey(side: int) -> Dataset:
        x = np.random.default_rng(0).random((3, side, side))
        return Dataset(
            name="grey", about="", classes=("a", "b"), low=0.0, high=1.0,
            x_train=x, y_train=np.array([0, 1, 0]), x_test=x[:1], y_test=np.array([0]),
        )  # fmt: skip

    train, test = sound_rows(grey(16))
    assert train.shape == (3, 500) and test.shape == (1, 500)
    assert np.allclose(np.linalg.norm(train, axis=1), 1.0, atol=1e-5)
    assert sound_rows(grey(8))[0].shape == (3, 64)


@pytest.mark.parametrize("activation", ["ReLU", "sigmoid", "softplus"])
@pytest.mark.parametrize("maps", [(2, 2), ()])
def test_psgd_has_the_same_design(activation, maps):
    """Every activation and LRN of AdLM's network; sigmoid and softplus left it with none."""
    settings = replace(TINY, activation=activation, maps=maps, dense_bound="min-max")
    net = AdaptiveLaplaceRuns(settings, keep=lambda key, run: run()).network(0)
    same = DPSGDNetwork(net)
    kind = ACTIVATIONS[activation]

    def count(model, what):
        return sum(isinstance(m, what) for m in model.modules())

    assert count(same, kind) == count(net, kind) == len(maps or (1,)) + 1
    assert count(same, LocalResponseNorm) == len(maps or (1,)) + 1 and not count(same, MinMax)
    assert same(torch.zeros(0, 64)).shape == (0, 10)  # a sample may be empty


@pytest.mark.slow
def test_options_of_the_paper_by_command(tmp_path, capsys, monkeypatch):
    """Plain SGD (line 29), min-max for dense layers, a simpler network for relevance."""
    from privet.cli.main import main

    monkeypatch.setattr(
        AdaptiveLaplaceExperiment, "quick", {"digits": replace(TINY, methods=("AdLM",))}
    )
    words = ["--optimizer", "SGD", "--dense-bound", "min-max", "--relevance-model", "dense",
             "--maps", "0", "--epsilon", "1", "--out", str(tmp_path), "--jobs", "1", "--json"]  # fmt: skip
    with pytest.raises(SystemExit) as leaving:
        main(["reproduce", "adaptive-laplace", *words])
    found = json.loads(capsys.readouterr().out)
    assert leaving.value.code == 0 and found["settings"]["optimizer"] == "SGD"
    runs = AdaptiveLaplaceRuns(
        replace(TINY, relevance_model="dense", optimizer="SGD"), keep=lambda key, run: run()
    )
    assert not isinstance(runs.relevance_network(0).first, torch.nn.Conv2d)
    assert isinstance(runs.network(0).first, torch.nn.Conv2d)
    assert runs.published("AdLM", 1.0, 0)[0].optimizer is torch.optim.SGD
