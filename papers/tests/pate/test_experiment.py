"""The PATE experiment on generated volumes: everything runs, is kept, goes on; nothing is lost."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from privet.data.volumes import spheres
from privet.errors import InvalidArgument
from privet.gradients import PerExampleGradients
from privet.guarantee import Adjacency, Unit
from privet.methods.dpsgd import Schedule
from privet.methods.pate import unit_noise
from privet_papers.cli import _expected
from privet_papers.pate import table_rows as rows_of
from privet_papers.pate.dpsgd_baseline import DPSGDBudget, PrivateRecipe, records, schedule_of
from privet_papers.pate.experiment import PATEExperiment
from privet_papers.pate.findings import compare_orderings, summarise
from privet_papers.pate.pooled_unet import PooledUNet
from privet_papers.pate.settings import GENERATED, PATESettings, load_volumes
from privet_papers.pate.training_runs import VolumeRuns

FEW = PrivateRecipe(steps=2, sample_rate=0.5, learning_rate=1e-2)
TINY = replace(
    GENERATED,
    steps=2,
    patch=8,
    channels=(4, 8),
    teachers=2,
    shard=2,
    public=3,
    test=2,
    reducer_steps=2,
    sweep=(2.0, math.inf),
    dpsgd=FEW,
    dpsgd_from_public=FEW,
    dpsgd_by_shard=replace(FEW, sample_rate=1.0, views=2),
    dpsgd_as_teachers=replace(GENERATED.dpsgd_as_teachers, steps=2),
    dpsgd_as_printed=replace(GENERATED.dpsgd_as_printed, steps=2),
)


pytestmark = [
    pytest.mark.skipif(find_spec("monai") is None, reason="needs the extra `segmentation`"),
    pytest.mark.usefixtures("one_thread"),
]


def trial_in(place, settings=TINY, seed=0):
    return VolumeRuns(load_volumes(settings, None), settings, seed, place)


@pytest.mark.slow
def test_everything_runs_once_and_is_kept(tmp_path):
    report = []
    first = PATEExperiment(TINY, tmp_path).run(lambda *a: report.append(a))
    files = {p: p.stat().st_mtime_ns for p in (tmp_path / "cells").rglob("*") if p.is_file()}
    assert not [p for p in files if p.suffix == ".part"]
    again = PATEExperiment(TINY, tmp_path).run()
    assert {p: p.stat().st_mtime_ns for p in files} == files
    assert again["rows"] == first["rows"]
    jobs = len(rows_of.METHODS) + len(rows_of.SWEEP_METHODS) * len(TINY.sweep) - 1
    few = len(rows_of.FEW_LABELS_METHODS) * len(TINY.few)
    assert len(first["rows"]) == jobs and report[-1] == ("done", jobs + few, jobs + few)
    assert len(first["few"]) == few and {r["labelled"] for r in first["few"]} == {2}
    assert "With labels for 2 public volumes" in (tmp_path / "tables.md").read_text()
    by = {(r["method"], r["epsilon"]): r for r in first["rows"]}
    assert all(0.0 <= d <= 1.0 and len(r["dice"]) == 2 for r in by.values() for d in r["dice"])
    for method in (
        "autoencoded PATE", "PCA-PATE", "autoencoded PATE about a public network",
        "autoencoded PATE, then public labels", "DP-SGD by shard", "PCA-PATE of logits",
        "Algorithm 2 as printed",
    ):  # fmt: skip
        stated = by[method, 8.0]["guarantee"]
        assert stated["epsilon"] <= 8.0 and stated["delta"] == 1e-3
        assert (stated["unit"], stated["adjacency"]) == ("teacher shard", "replace-one")
    for method in ("DP-SGD", "DP-SGD from public labels"):
        stated = by[method, 8.0]["guarantee"]
        assert 7.9 < stated["epsilon"] <= 8.0 and stated["unit"] == "record"
    for method in (
        "mean teacher", "public labels only", "public network's labels, no teacher",
        "non-private on everything",
    ):  # fmt: skip
        assert by[method, "inf"]["guarantee"] is None
    plain = by["Algorithm 2 as printed", 8.0]
    assert plain["claimed"] == 8.0 > plain["guarantee"]["epsilon"] > 6.0  # more noise than needed
    assert plain["noise"] > by["autoencoded PATE", 8.0]["noise"]
    assert "| Algorithm 2 as printed | 8 claimed, " in (tmp_path / "tables.md").read_text()
    assert [e["of"] for e in first["equation_7"]] == ["probabilities", "logits"]
    assert by["autoencoded PATE", 2.0]["noise"] > by["autoencoded PATE", 8.0]["noise"] > 0.0
    written = json.loads((tmp_path / "results.json").read_text())
    assert written["summary"] == json.loads(json.dumps(first["summary"]))
    assert "| DP-SGD | 8 |" in (tmp_path / "tables.md").read_text()
    assert {p.name for p in tmp_path.glob("*.png")} == {
        "slices.png", "dice-by-method.png", "dice-against-epsilon.png", "activation.png",
        "logistic-and-normal.png",
    }  # fmt: skip


@pytest.mark.slow
def test_an_interrupted_run_goes_on(tmp_path):
    class Stop(Exception):
        pass

    def stop(what, done, of):
        if what == "teacher-1":
            raise Stop

    with pytest.raises(Stop):
        PATEExperiment(TINY, tmp_path).run(stop)
    assert [p.name for p in tmp_path.rglob("*.safetensors")] == ["teacher-0.safetensors"]
    report = []
    place = tmp_path / "cells" / TINY.digest() / "seed-0"
    runs = trial_in(place)
    runs.report = report.append
    runs.teacher(0), runs.teacher(1)
    assert report == ["teacher-1"]


@pytest.mark.slow
def test_a_kept_network_is_the_trained_one(tmp_path):
    trained = trial_in(tmp_path).teacher(0)
    read = trial_in(tmp_path).teacher(0)
    assert read is not trained
    for a, b in zip(trained.parameters(), read.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_split_is_disjoint_and_shards_do_not_meet(tmp_path):
    runs = trial_in(tmp_path)
    parts = [runs.test.names, runs.public.names, runs.private.names]
    names = [n for part in parts for n in part]
    assert [len(p) for p in parts] == [2, 3, 4] and len(set(names)) == len(names)
    assert trial_in(tmp_path, seed=1).test.names != runs.test.names


@pytest.mark.slow
def test_teachers_see_their_shard_only(tmp_path):
    """Another shard's labels change nothing; its own do."""
    one, two = trial_in(tmp_path / "one"), trial_in(tmp_path / "two")
    changed = two.private.labels.copy()
    changed[2:] = 0
    two.private = replace(two.private, labels=changed)

    def same(k):
        pairs = zip(one.teacher(k).parameters(), two.teacher(k).parameters(), strict=True)
        return all(torch.equal(a, b) for a, b in pairs)

    assert same(0) and not same(1)


@pytest.mark.slow
def test_going_on_from_a_network_leaves_it_alone(tmp_path):
    runs = trial_in(tmp_path)
    student = runs.student("s", runs.truth)
    before = [p.clone() for p in student.parameters()]
    runs.with_public_labels("s", student)
    public_labels_network = [p.clone() for p in runs.public_labels_network().parameters()]
    runs.dpsgd_from_public(8.0)
    for then, now in ((before, student), (public_labels_network, runs.public_labels_network())):
        assert all(torch.equal(a, b) for a, b in zip(then, now.parameters(), strict=True))


def test_findings_compare_seed_by_seed():
    rows = []
    for seed, gap in ((0, 0.1), (1, -0.3)):
        for method, (_, private) in rows_of.METHODS.items():
            better = gap if method == "autoencoded PATE" else 0.0
            rows.append(
                {"method": method, "epsilon": 8.0 if private else "inf", "seed": seed,
                 "dice": [0.5 + better] * 2, "mean_dice": 0.5 + better, "guarantee": None}
            )  # fmt: skip
    sums = summarise(rows)
    assert next(r for r in sums if r["method"] == "autoencoded PATE")[
        "standard_error"
    ] == pytest.approx(np.std([0.6, 0.2], ddof=1) / np.sqrt(2))
    found = {f["claim"]: f for f in compare_orderings(sums, 8.0)}
    worse = found["autoencoded PATE above mean teacher"]
    assert not worse["holds"] and worse["difference"] == pytest.approx(-0.1)
    assert worse["by_seed"] == pytest.approx([0.1, -0.3])


def test_what_is_wrong_is_said(tmp_path, capsys):
    from privet.cli.main import main

    with pytest.raises(InvalidArgument, match="the folder of a Decathlon task"):
        load_volumes(replace(TINY, data="pigeons"), None)
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "pate", "--out", str(tmp_path), "--data", "pigeons"])
    assert stopped.value.code == 2 and "one of hippocampus; spheres" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["reproduce", "pate", "--out", str(tmp_path), "--folder", str(tmp_path)])
    assert "dataset.json" in capsys.readouterr().err


@pytest.mark.slow
def test_a_public_guess_never_saw_the_label_of_its_own_volume(tmp_path):
    """Another label for volume 0 changes the guesses of other folds, and not of its own."""
    one, two = trial_in(tmp_path / "one"), trial_in(tmp_path / "two")
    two.truth = two.truth.copy()
    two.truth[0] = two.truth[0][::-1]
    part = np.arange(len(one.public)) % TINY.folds
    own = part == 0
    np.testing.assert_array_equal(one.public_guess[own], two.public_guess[own])
    assert not np.array_equal(one.public_guess[~own], two.public_guess[~own])
    np.testing.assert_allclose(one.public_guess.sum(axis=1), 1.0, atol=1e-5)


@pytest.mark.slow
def test_a_swapped_shard_moves_the_codes_of_its_teacher_alone(tmp_path):
    """Reducer and centres are public: the same whatever the private volumes are."""
    one, two = trial_in(tmp_path / "one"), trial_in(tmp_path / "two")
    swapped = two.private.labels.copy()
    swapped[: TINY.shard] = 2
    two.private = replace(two.private, labels=swapped)
    first, second = (t.autoencoder(8.0, t.public_guess) for t in (one, two))
    assert first.name == second.name
    codes = [[r.encode(maps) for maps in t.answers] for r, t in ((first, one), (second, two))]
    assert not np.array_equal(codes[0][0], codes[1][0])
    np.testing.assert_array_equal(codes[0][1], codes[1][1])
    apart = np.linalg.norm(codes[0][0] - codes[1][0])
    assert apart <= 2.0 * np.sqrt(TINY.public)


@pytest.mark.slow
def test_dpsgd_by_shard_states_the_unit_of_pate(tmp_path):
    network, stated = trial_in(tmp_path).dpsgd_by_shard(8.0)
    assert 7.9 < stated.epsilon <= 8.0 and stated.delta == 1e-3
    assert (stated.unit.value, stated.adjacency.value) == ("teacher shard", "replace-one")
    read, again = trial_in(tmp_path).dpsgd_by_shard(8.0)
    assert again == stated
    for a, b in zip(network.parameters(), read.parameters(), strict=True):
        assert torch.equal(a, b)


def test_records_of_a_shard_are_its_volumes_in_a_row():
    images = np.arange(4 * 8.0).reshape(4, 2, 2, 2)
    maps = np.ones((4, 3, 2, 2, 2))
    packed = records(images, maps, volumes=2)
    assert packed.shape == (2, 2, 4, 2, 2, 2)
    np.testing.assert_array_equal(packed[1, 0, 0].numpy(), images[2])
    assert records(images, maps).shape == (4, 1, 4, 2, 2, 2)


@pytest.mark.slow
def test_codes_of_the_shape_reducer_stay_in_the_ball_and_tell_maps_apart():
    """Whatever a teacher answers; and unlike maps get unlike codes even when taught under noise."""
    from privet_papers.pate.shape_reducer import ShapeReducer

    made = load_volumes(replace(TINY, teachers=4, shard=3), None)
    maps = np.eye(3, dtype=np.float32)[made.labels].transpose(0, 4, 1, 2, 3)
    centre = maps.mean(axis=0, keepdims=True)
    settings = {
        "centre": centre, "noise": 0.5, "dimension": 3, "widths": (4, 8), "steps": 30, "seed": 0
    }  # fmt: skip
    reducer = ShapeReducer.fit(maps, **settings)
    wild = np.stack([maps[0] * 1e30, maps[0] * np.nan, -maps[0], np.zeros_like(maps[0])])
    codes = reducer.encode(np.concatenate([maps, wild]))
    assert np.isfinite(codes).all() and np.linalg.norm(codes, axis=1).max() <= 1.0
    assert np.linalg.norm(codes[: len(maps)].std(axis=0)) > 0.3
    decoded = reducer.decode(codes, noise=0.5)
    assert decoded.shape == (len(codes), 3, 16, 16, 16) and decoded.min() >= 0.0
    np.testing.assert_allclose(decoded.sum(axis=1), 1.0, atol=1e-5)
    names = [ShapeReducer.fit(maps, **(settings | {"steps": 1, "seed": s})).name for s in (0, 0, 1)]
    assert names[0] == names[1] != names[2]
    with pytest.raises(InvalidArgument, match="multiples of 2"):
        ShapeReducer.fit(maps[..., :5], **settings)
    with pytest.raises(InvalidArgument, match="one map for all or one each"):
        ShapeReducer.fit(maps, **(settings | {"centre": maps[:2]}))


def test_each_query_has_its_own_centre():
    """An answer equal to its centre has the code of no departure, wherever the centre is."""
    from privet_papers.pate.shape_reducer import ShapeReducer

    made = load_volumes(replace(TINY, teachers=2, shard=2), None)
    maps = np.eye(3, dtype=np.float32)[made.labels].transpose(0, 4, 1, 2, 3)
    centre = 0.5 * maps + 0.5 * maps.mean(axis=0)
    reducer = ShapeReducer.fit(
        maps, centre=centre, noise=0.1, dimension=2, widths=(4, 8), steps=5, seed=0
    )
    codes = reducer.encode(np.maximum(centre, 1e-3))
    np.testing.assert_allclose(codes, np.broadcast_to(codes[0], codes.shape), atol=1e-5)
    moved = reducer.encode(np.concatenate([maps[:1], np.maximum(centre[1:], 1e-3)]))
    assert not np.allclose(moved[0], codes[0], atol=1e-3)
    np.testing.assert_array_equal(moved[1:], codes[1:])
    with pytest.raises(InvalidArgument, match="one for each centre"):
        reducer.encode(maps[:2])


@pytest.mark.slow
def test_with_few_labels_the_others_are_asked_about_and_their_labels_never_read(tmp_path):
    """Teachers are those of the paper's reading; another truth of asked volumes changes nothing."""
    whole = load_volumes(TINY, None)
    one = VolumeRuns(whole, TINY, 0, tmp_path / "one", labelled=2)
    assert (len(one.labelled_volumes), len(one.query_volumes)) == (2, 1) and one.folds == 2
    assert not set(one.labelled_volumes.names) & set(one.query_volumes.names)
    two = VolumeRuns(whole, TINY, 0, tmp_path / "two", labelled=2)
    two.query_volumes = replace(two.query_volumes, labels=np.zeros_like(two.query_volumes.labels))
    for t in (one, two):
        t.public = t.labelled_volumes  # what is not known cannot be looked at
    names = [t.about_public(8.0).name for t in (one, two)]
    assert names[0] == names[1]
    assert one.unit_noise(8.0) == unit_noise(teachers=2, queries=1, epsilon=8.0, delta=1e-3)
    assert (tmp_path / "one" / "2 labelled" / "public labels only.safetensors").exists()
    one.teacher(0)
    assert (tmp_path / "one" / "teacher-0.safetensors").exists()
    with pytest.raises(InvalidArgument, match="labelled"):
        replace(TINY, few=(3,))


def task_folder(place, n=14, channels=2, classes=3):
    """Generated files in the layout of the Medical Segmentation Decathlon, 4-D."""
    nibabel = pytest.importorskip("nibabel")
    made = spheres(n, seed=0, grid=(12, 10, 9))
    for name, folder in (("images", "imagesTr"), ("labels", "labelsTr")):
        (place / folder).mkdir(parents=True)
        for k in range(n):
            voxels = made.labels[k] if name == "labels" else np.stack(
                [made.images[k] * (c + 1) for c in range(channels)], axis=-1
            )  # fmt: skip
            nibabel.save(
                nibabel.Nifti1Image(voxels, np.eye(4)), place / folder / f"a_{k:02}.nii.gz"
            )
    report = {
        "labels": {str(k): f"Part{k}" for k in range(classes)},
        "modality": {"0": "T1", "1": "T2"},
    }
    (place / "dataset.json").write_text(json.dumps(report))
    return place


@pytest.mark.slow
def test_any_task_of_the_decathlon_by_its_folder(tmp_path, capsys, monkeypatch):
    from privet.cli.main import main

    task = task_folder(tmp_path / "Task99_Toy")
    found = load_volumes(replace(TINY, data=str(task), grid=(16, 16, 16)), None)
    assert found.channels == 2 and found.classes == ("part0", "part1", "part2")
    assert len(found) == TINY.volumes and found.grid == (16, 16, 16)
    small = replace(TINY, few=(), sweep=())
    tried = PATEExperiment(replace(small, data=str(task), grid=(16, 16, 16)), tmp_path / "out")
    runs = tried.runs(0)
    assert runs.probabilities(runs.teacher(0), runs.query_volumes.images).shape == (
        3,
        3,
        16,
        16,
        16,
    )
    assert 0.0 <= np.mean(runs.score(runs.dpsgd(8.0)[0])) <= 1.0
    assert tried.expected_seconds() > 0.0
    chosen = PATEExperiment.from_folder(PATESettings(), str(task))
    assert chosen.data == str(task) and chosen.volumes == 260
    monkeypatch.setenv("PRIVET_DATA", str(tmp_path))
    for name in (str(task), task.name):  # where it lies, or among the data
        with pytest.raises(SystemExit) as stopped:
            main(["reproduce", "pate", "--data", name, "--out", str(tmp_path / "o")])
        assert stopped.value.code == 2 and "14 volumes" in capsys.readouterr().err


@pytest.mark.slow
def test_brain_tumours_through_every_command(tmp_path, capsys, monkeypatch):
    """Made-up volumes of Task01's layout (four channels, four labels), found by its name."""
    from privet.cli.main import main

    task_folder(tmp_path / "Task01_BrainTumour", n=9, channels=4, classes=4)
    monkeypatch.setenv("PRIVET_DATA", str(tmp_path))
    name, out = "Task01_BrainTumour", str(tmp_path / "out")
    sizes = {"grid": (16, 16, 16), "patch": (8,), "channels": (4, 8), "teachers": (2,), "shard": (2,),
             "public": (3,), "test": (2,), "steps": (2,), "plain-epochs": (1,), "jobs": (1,)}  # fmt: skip
    words = [w for k, v in sizes.items() for n in v for w in (f"--{k}", str(n))]
    rows = ("mean teacher", "autoencoded PATE", "DP-SGD")
    for command in (
        ["reproduce", "pate", *words, *(w for r in rows for w in ("--row", r)), "--out", out],
        ["train", "pate", "--grid", "16,16,16", "--public", "3", "--teachers", "2", "--epsilon", "8",
         "--anyway", "--delta", "1e-3", "--seed", "0", "--unet-steps", "2", "--patch", "8", "--out",
         out + "2"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as stopped:
            main([*command, "--data", name, "--json"])
        assert stopped.value.code == 0, capsys.readouterr().err
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {r["method"] for r in results["rows"]} >= set(rows)
    with pytest.raises(SystemExit) as stopped:
        main(["verify", out + "2"])
    assert stopped.value.code == 0
    with pytest.raises(SystemExit) as stopped:
        main(["data", "list"])
    assert name in capsys.readouterr().out


def test_the_papers_own_scale_is_stated():
    from privet_papers.pate.settings import PAPER

    assert (PAPER.teachers, PAPER.shard, PAPER.public, PAPER.test) == (8, 40, 80, 84)
    assert PAPER.volumes == 484 and len(PAPER.channels) - 1 == 4
    assert PAPER.recipe.patch == (64, 64, 64) and PAPER.dpsgd.channels is None  # the teachers'
    assert (PAPER.epsilon, PAPER.delta, PAPER.dpsgd.bound) == (8.0, 1e-3, 4.0)


@pytest.mark.slow
def test_layers_clipped_one_by_one_cost_what_they_cost(tmp_path):
    """4 a layer and variance 6: sqrt(6 / L) for L layers, not sqrt(6); noise as printed."""
    recipe = TINY.dpsgd_as_printed
    made = trial_in(tmp_path)
    (network, promise), once = made.dpsgd_as_printed(8.0)
    layers = len(PerExampleGradients(network).layers)
    budget = DPSGDBudget(epsilon=8.0, delta=1e-3, adjacency=Adjacency.ADD_REMOVE, unit=Unit.RECORD)
    planned = schedule_of(recipe, budget, layers)
    assert layers >= 3
    spread = planned.noise_multipliers * planned.bounds
    assert np.allclose(spread, 4.0 * math.sqrt(6.0))  # on the sum, in every coordinate
    exact = Schedule(steps=recipe.steps, sample_rate=recipe.sample_rate,
                     noise_multiplier=math.sqrt(6.0 / layers)).loss().epsilon(1e-3)  # fmt: skip
    assert promise.epsilon == pytest.approx(exact, rel=1e-9) and once < 0.6 * exact


def test_the_network_is_the_papers():
    """Four max-poolings, two convolutions a level, a skip at full resolution; none was there."""
    net = PooledUNet(classes=3, channels=PATESettings().channels)
    count = {kind: sum(isinstance(m, kind) for m in net.modules()) for kind in LAYERS}
    assert count[torch.nn.MaxPool3d] == 4 and count[torch.nn.Conv3d] == 2 * 9 + 1
    assert all(m.stride == (1, 1, 1) for m in net.modules() if isinstance(m, torch.nn.Conv3d))
    assert PATEExperiment.paper["Task01_BrainTumour"].channels == (16, 32, 64, 128, 256)
    x = torch.randn(1, 1, 32, 32, 32)
    assert net.up[0](torch.cat([net.down[0](x)] * 3, dim=1)).shape[2:] == x.shape[2:]


LAYERS = (torch.nn.MaxPool3d, torch.nn.Conv3d)


def test_channels_reach_dpsgd_and_one_row_starts_as_the_teachers_do(tmp_path):
    runs = trial_in(tmp_path, replace(TINY, channels=(2, 4, 4)))
    teacher, private = runs.new_network(0), runs._untrained(TINY.dpsgd_as_teachers)
    assert [p.shape for p in teacher.parameters()] == [p.shape for p in private.parameters()]
    assert torch.equal(runs.new_network(300).head.bias, private.head.bias)
    assert not torch.equal(runs._untrained(TINY.dpsgd).head.bias, private.head.bias)
    assert TINY.dpsgd_as_teachers.loss == "dice and entropy"


def test_algorithm_2_is_trained_to_the_end():
    """20 epochs left every map background, and the page called that the algorithm's."""
    assert PATESettings().plain_epochs >= 100
    assert all(s.plain_epochs >= 100 for s in PATEExperiment.paper.values())


def test_the_peak_of_memory_is_said(tmp_path):
    experiment = PATEExperiment(TINY, tmp_path)
    voxels = np.prod(TINY.grid)
    whole = experiment.expected_memory()
    assert whole > 4.0 * TINY.volumes * voxels
    assert "GB of memory" in _expected(experiment, 1)
