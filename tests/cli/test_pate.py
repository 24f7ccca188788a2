"""`privet pate`: four commands on eight simulated sites, against the one call; refusals by name."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import privet
from privet.cli._pate_inputs import local_teacher
from privet.cli.main import app as whole
from privet.cli.pate import app
from privet.data.volumes import spheres
from privet.ledger import Ledger
from privet.methods.pate import (
    PATE,
    AnswerFile,
    EstimatorLearner,
    LabelFile,
    PCAReducer,
    read_reducer,
    shard_ledger,
    unit_noise,
)
from privet.methods.pate.classification_pate import MeanPATE
from privet.methods.pate.students import default_student
from privet.methods.pate.volume_pate import VolumePATE
from privet.noise import seeded
from privet.runs.guarantee_record import read_record
from privet.runs.run_folder import write_record

runner = CliRunner()
K, N = 8, 12
BUDGET = {"epsilon": 8.0, "delta": 1e-3}
FLAGS = ["--epsilon", "8", "--delta", "1e-3"]


def run(*words, code=0):
    result = runner.invoke(app, [str(w) for w in words])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def toy_maps(n, rng):
    """Inputs and maps of two classes on 4 x 4 pixels: a bright half that the input names."""
    x = rng.uniform(size=(n, 2))
    grid = np.linspace(0, 1, 4)
    inside = (grid[None, :, None] < x[:, 0, None, None]) & (grid[None, None] < x[:, 1, None, None])
    y = np.stack([~inside, inside], axis=1).astype(np.float64)
    return x, y


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Files of the coordinator and of eight sites; the answers are written once."""
    folder = tmp_path_factory.mktemp("sites")
    rng = np.random.default_rng(0)
    np.save(folder / "public.npy", toy_maps(N, rng)[0])
    np.save(folder / "targets.npy", toy_maps(60, rng)[1])
    run("reducer", "--targets", folder / "targets.npy", "--teachers", K, "--queries", N, *FLAGS,
        "--out", folder / "reducer.safetensors", "--picture", folder / "curve.png", "--json")  # fmt: skip
    for k in range(K):
        x, y = toy_maps(40, rng)
        np.savez(folder / f"shard{k}.npz", x=x, y=y)
        answer(folder, k)
    return folder


def answer(folder, k, *more, out=None):
    return run("answer", "--reducer", folder / "reducer.safetensors", "--inputs", folder / "public.npy",
               "--shard", folder / f"shard{k}.npz", "--teacher", "tree", "--seed", k, "--site", f"site-{k}",
               "--out", out or folder / f"answers{k}.safetensors", *more)  # fmt: skip


def aggregate(folder, out, *more, files=None, code=0):
    files = [folder / f"answers{k}.safetensors" for k in range(K)] if files is None else files
    return run("aggregate", *files, "--reducer", folder / "reducer.safetensors", *FLAGS, "--out", out,
               "--seed", 5, *more, code=code)  # fmt: skip


@pytest.mark.slow
def test_repeatable_noise_is_stated_as_an_experiment(place, tmp_path):
    aggregate(place, tmp_path / "labels.safetensors")
    premises = LabelFile.read(tmp_path / "labels.safetensors").guarantee.premises
    assert any("an experiment, not a release" in a.text for a in premises)


@pytest.mark.slow
def test_no_paper_speaks_of_shares(place, tmp_path):
    said = aggregate(place, tmp_path / "labels.safetensors", "--missing", 1, "--reading", "published",
                     code=2)  # fmt: skip
    assert "sound when sites add shares" in said


@pytest.mark.slow
def test_four_commands_are_the_one_call_bit_for_bit(place, tmp_path):
    told = json.loads(aggregate(place, tmp_path / "labels.safetensors", "--json"))
    run("student", "--labels", tmp_path / "labels.safetensors", "--inputs", place / "public.npy",
        "--out", tmp_path / "student", "--epochs", 5, "--json")  # fmt: skip

    from sklearn.tree import DecisionTreeRegressor

    public, targets = np.load(place / "public.npy"), np.load(place / "targets.npy")
    from privet.methods.pate import ClassProbabilities

    reducer = PCAReducer.fit(
        targets, noise=unit_noise(teachers=K, queries=N, **BUDGET), space=ClassProbabilities()
    )
    shards = [(s["x"], s["y"]) for s in (np.load(place / f"shard{k}.npz") for k in range(K))]
    pate = PATE(
        teachers=EstimatorLearner(estimator=DecisionTreeRegressor()),
        student=default_student(input_shape=(2,), target_shape=(2, 4, 4), epochs=5),
        reducer=reducer,
        ledger=shard_ledger(**BUDGET),
        **BUDGET,
    )
    release = pate.fit(shards, public, rng=seeded(5))

    labels = LabelFile.read(tmp_path / "labels.safetensors")
    assert np.array_equal(labels.labels, release.model.labels)
    assert np.array_equal(labels.codes, release.model.codes)
    assert labels.guarantee == release.guarantee
    assert told["guarantee"]["epsilon"] == release.guarantee.epsilon <= 8.0
    found = privet.load(tmp_path / "student")
    scaled = found.domain.rows(public).cube()  # by the range of the public inputs
    taught = pate.student.train(scaled, labels.labels, seed=0)
    assert np.allclose(found.predict_proba(public), taught(scaled), atol=1e-6)
    assert found.guarantee == release.guarantee and found.method == "pate"
    assert found.predict(public).shape == (N, 4, 4)
    assert read_reducer(place / "reducer.safetensors").name == reducer.name
    assert (place / "curve.png").stat().st_size > 5_000


def test_answers_hold_clipped_codes_and_nothing_else(place):
    file = place / "answers3.safetensors"
    reducer = read_reducer(place / "reducer.safetensors")
    tensors = load_file(file)
    assert list(tensors) == ["units"] and tensors["units"].size == N * reducer.dimension
    header = AnswerFile(file).header
    assert header.site == "site-3" and header.reducer == reducer.name
    assert AnswerFile(file).inspect().max_norm <= reducer.radius


def test_ledger_is_charged_once_and_refuses_more(place, tmp_path):
    out = tmp_path / "labels.safetensors"
    aggregate(place, out)
    ledger = Ledger.open(tmp_path / "labels.ledger")
    assert len(ledger) == 1 and ledger.spent() == pytest.approx(8.0, rel=1e-6)
    before = out.read_bytes()
    assert "over the cap" in aggregate(place, out, "--round", 1, code=2)
    assert out.read_bytes() == before and len(ledger) == 1


def test_rounds_share_a_budget(place, tmp_path):
    for number in range(2):
        aggregate(place, tmp_path / f"{number}.safetensors", "--queries", 2 * N, "--round", number,
                  *(["--ledger", tmp_path / "0.ledger"] if number else []))  # fmt: skip
    ledger = Ledger.open(tmp_path / "0.ledger")
    assert len(ledger) == 2 and ledger.spent() == pytest.approx(8.0, rel=1e-6)


def with_one_changed(place, tmp_path, change):
    """The eight files, of which number 3 is a changed copy; its path and all of them."""
    bad = tmp_path / "answers3.safetensors"
    shutil.copy(place / "answers3.safetensors", bad)
    change(bad)
    return bad, [bad if k == 3 else place / f"answers{k}.safetensors" for k in range(K)]


def rewritten(path, *, factor=1, **changes):
    """Somebody edits the file: its numbers, or its note; the checksum is computed anew on request."""
    from safetensors import safe_open

    from privet.methods.pate.answer_files import Answers, Header

    with safe_open(path, framework="np") as file:
        note = json.loads(file.metadata()["privet"])
        units = file.get_tensor("units") * factor
    forge = changes.pop("forge", False)
    note.update(changes)
    if forge:
        known = {k: v for k, v in note.items() if k not in ("format", "checksum")}
        Answers(header=Header(**known), units=units).write(path)
        return
    save_file({"units": units}, path, metadata={"privet": json.dumps(note)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda p: rewritten(p, factor=0), "content and checksum disagree"),
        (lambda p: rewritten(p, site="site-9"), "content and checksum disagree"),
        (lambda p: rewritten(p, factor=1000, forge=True), "over the radius"),
        (lambda p: rewritten(p, radius=1e9, forge=True), "clipped to 1e+09"),
        (lambda p: rewritten(p, reducer="other", forge=True), "another reducer"),
        (lambda p: rewritten(p, queries="other", forge=True), "other public inputs"),
        (lambda p: rewritten(p, site="site-4", forge=True), "answered twice"),
        (lambda p: rewritten(p, rows=float(N)), "is not a file of answers"),
        (lambda p: rewritten(p, site=["site-3"]), "is not a file of answers"),
        (lambda p: p.write_bytes(p.read_bytes()[:-100]), "is not a file of answers"),
        (lambda p: p.write_bytes(b"\x80\x04cos\nsystem\n."), "is not a file of answers"),
    ],
)
def test_a_bad_file_is_refused_by_name(place, tmp_path, change, why):
    bad, files = with_one_changed(place, tmp_path, change)
    said = aggregate(place, tmp_path / "labels.safetensors", files=files, code=2)
    named = bad.name if "twice" not in why else "site-4"
    assert why in said and named in said and said.startswith("error: ") and said.count("\n") == 1
    assert not (tmp_path / "labels.safetensors").exists()
    ledger = tmp_path / "labels.ledger"
    assert not ledger.exists() or len(Ledger.open(ledger)) == 0


def test_a_missing_site_is_refused_unless_planned(place, tmp_path):
    files = [place / f"answers{k}.safetensors" for k in range(K - 1)]
    said = aggregate(place, tmp_path / "a.safetensors", "--teachers", K, files=files, code=2)
    assert "all 8 teachers" in said and "site-6" in said
    seven = json.loads(aggregate(place, tmp_path / "b.safetensors", "--json", files=files))
    eight = json.loads(aggregate(place, tmp_path / "c.safetensors", "--json"))
    assert seven["noise"] == pytest.approx(eight["noise"] * 8 / 7)


@pytest.mark.slow
def test_shares_of_noise_and_missing_sites(place, tmp_path):
    files = []
    for k in range(K):
        files.append(tmp_path / f"share{k}.safetensors")
        answer(place, k, "--teachers", K, "--missing", 2, *FLAGS, "--noise-seed", k, out=files[-1])
    plain = AnswerFile(place / "answers0.safetensors").read(0, 5)
    assert not np.array_equal(AnswerFile(files[0]).read(0, 5), plain)
    told = json.loads(
        aggregate(
            place,
            tmp_path / "l.safetensors",
            "--missing",
            2,
            "--teachers",
            K,
            "--json",
            files=files[:6],
        )
    )
    assert told["guarantee"]["epsilon"] <= 8.0
    few = aggregate(
        place, tmp_path / "m.safetensors", "--missing", 2, "--teachers", K, files=files[:5], code=2
    )
    assert "those of 6 to 8 teachers" in few
    mixed = aggregate(place, tmp_path / "n.safetensors", files=files, code=2)
    assert "noise of its own" in mixed


def test_own_predictions_and_own_function(place, tmp_path):
    x = np.load(place / "public.npy")
    np.save(tmp_path / "said.npy", np.full((N, 2, 4, 4), 0.5))
    common = [
        "--reducer",
        place / "reducer.safetensors",
        "--inputs",
        place / "public.npy",
        "--site",
        "own",
    ]
    run(
        "answer",
        *common,
        "--predictions",
        tmp_path / "said.npy",
        "--out",
        tmp_path / "a.safetensors",
    )
    run("answer", *common, "--shard", place / "shard0.npz", "--teacher", "tests.cli.test_pate:half",
        "--out", tmp_path / "b.safetensors")  # fmt: skip
    same = [AnswerFile(tmp_path / f"{n}.safetensors").read(0, len(x)) for n in "ab"]
    assert np.array_equal(*same)
    said = run("answer", *common, "--out", tmp_path / "c.safetensors", code=2)
    assert "or else --shard" in said


def half(x, y, seed):
    """A site's own teacher that knows nothing."""
    return lambda inputs: np.full((len(inputs), *y.shape[1:]), 0.5)


def test_wrong_inputs_and_targets_are_told(place, tmp_path):
    aggregate(place, tmp_path / "labels.safetensors")
    np.save(tmp_path / "other.npy", np.zeros((N, 2)))
    said = run("student", "--labels", tmp_path / "labels.safetensors", "--inputs", tmp_path / "other.npy",
               "--out", tmp_path / "s", code=2)  # fmt: skip
    assert "the labels belong to" in said
    said = run("reducer", "--targets", tmp_path / "none.npy", "--teachers", 8, "--queries", 3, *FLAGS,
               "--out", tmp_path / "r.safetensors", code=2)  # fmt: skip
    assert "no such file" in said
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    said = run("reducer", "--targets", tmp_path / "o.npy", "--teachers", 8, "--queries", 3, *FLAGS,
               "--out", tmp_path / "r.safetensors", code=2)  # fmt: skip
    assert "a .npy or .npz file" in said


@pytest.mark.parametrize("kind", ["identity", "autoencoder"])
def test_every_reducer_travels(place, tmp_path, kind):
    run("reducer", "--targets", place / "targets.npy", "--teachers", K, "--queries", N, *FLAGS, "--kind", kind,
        "--epochs", 2, "--out", tmp_path / "r.safetensors")  # fmt: skip
    reducer = read_reducer(tmp_path / "r.safetensors")
    y = np.load(place / "targets.npy")[:3]
    assert reducer.decode(reducer.encode(y)).shape == y.shape


@pytest.mark.slow
def test_a_student_is_a_run_with_its_card_and_its_ledger(place, tmp_path):
    aggregate(place, tmp_path / "labels.safetensors")
    out = tmp_path / "student"
    told = json.loads(
        run(
            "student",
            "--labels",
            tmp_path / "labels.safetensors",
            "--inputs",
            place / "public.npy",
            "--out",
            out,
            "--epochs",
            2,
            "--json",
        )
    )
    assert told["guarantee"]["unit"] == "teacher shard" and told["queries"] == N
    assert "per teacher shard" in (out / "README.md").read_text()

    def command(*words, code=0):
        done = runner.invoke(whole, [str(w) for w in words])
        assert done.exit_code == code, done.output
        return done.output

    assert "error" not in command("verify", out, "--ledger", tmp_path / "labels.ledger")
    command("predict", out, place / "public.npy", "--out", tmp_path / "maps.npy")
    maps = np.load(tmp_path / "maps.npy")
    assert maps.shape == (N, 4, 4) and maps.dtype == np.uint8
    assert "a .npy file" in command("predict", out, place / "public.npy", code=2)
    again = run("student", "--labels", tmp_path / "labels.safetensors", "--inputs",
                place / "public.npy", "--out", out, code=2)  # fmt: skip
    assert "a folder without a run" in again


@pytest.mark.slow
def test_volumes_get_convolutions(tmp_path):
    """A flat student of 24^3 voxels and 3 classes would have 573 million weights, 2.3 GB."""
    made = spheres(9, seed=0, grid=(24, 24, 24))
    np.save(tmp_path / "x.npy", made.images[:6])
    np.save(tmp_path / "y.npy", made.labels)
    run("reducer", "--targets", tmp_path / "y.npy", "--teachers", 9, "--queries", 6, *FLAGS,
        "--out", tmp_path / "r", "--dimension", 1)  # fmt: skip
    for k in range(9):
        np.save(tmp_path / f"{k}.npy", made.labels[:6])  # class numbers, as a site would have them
        run("answer", "--reducer", tmp_path / "r", "--inputs", tmp_path / "x.npy", "--site", f"s{k}",
            "--predictions", tmp_path / f"{k}.npy", "--out", tmp_path / f"a{k}")  # fmt: skip
    run("aggregate", *(tmp_path / f"a{k}" for k in range(9)), "--reducer", tmp_path / "r", *FLAGS,
        "--out", tmp_path / "labels", "--seed", 1, "--allow-equal")  # fmt: skip
    for out, most, *told in (("student", 50_000), ("plain", 10_000, "--hidden", 8)):
        run("student", "--labels", tmp_path / "labels", "--inputs", tmp_path / "x.npy", "--epochs",
            1, "--out", tmp_path / out, "--names", "none,core,shell", *told)  # fmt: skip
        found = privet.load(tmp_path / out)
        assert sum(w.size for w in found.model.state()[0].values()) < most
        assert set(np.unique(found.predict(made.images[:1]))) <= {"none", "core", "shell"}


def test_noise_that_drowns_all_answers_is_told_before_anything_is_charged(tmp_path):
    """Thirty questions to three hospitals: everything was spent on nothing."""
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.uniform(size=(30, 2)))
    np.save(tmp_path / "y.npy", rng.integers(3, size=30))
    budget = ["--epsilon", "8", "--delta", "1e-5"]
    run("reducer", "--targets", tmp_path / "y.npy", "--teachers", 3, "--queries", 30, *budget,
        "--kind", "identity", "--classes", 3, "--out", tmp_path / "r")  # fmt: skip
    for k in range(3):
        run("answer", "--reducer", tmp_path / "r", "--inputs", tmp_path / "x.npy", "--site", f"s{k}",
            "--predictions", tmp_path / "y.npy", "--out", tmp_path / f"a{k}")  # fmt: skip
    words = ["aggregate", *(tmp_path / f"a{k}" for k in range(3)), "--reducer", tmp_path / "r",
             *budget, "--out", tmp_path / "labels"]  # fmt: skip
    said = run(*words, code=2)
    assert "could be heard" in said and "--anyway" in said and said.count("\n") == 1
    assert not (tmp_path / "labels").exists() and not (tmp_path / "labels.ledger").exists()
    assert "one site under two names" in run(*words, "--anyway", code=2)
    run(*words, "--anyway", "--allow-equal")
    assert len(Ledger.open(tmp_path / "labels.ledger")) == 1


def test_a_ledger_for_shards_by_that_word(tmp_path):
    done = runner.invoke(
        whole, ["ledger", "init", str(tmp_path / "l"), "--epsilon", "8", "--delta", "1e-3",
                "--adjacency", "replace-one", "--unit", "shard"],
    )  # fmt: skip
    assert done.exit_code == 0 and "per teacher shard" in done.output
    wrong = runner.invoke(whole, ["ledger", "init", str(tmp_path / "m"), "--epsilon", "8", "--delta",
                                  "1e-3", "--unit", "town"])  # fmt: skip
    assert wrong.exit_code == 2 and "shard" in wrong.output


@pytest.mark.parametrize(("shape", "kind"), [((3, 8, 8, 8), "function"), ((3, 4, 4), "estimator")])
def test_a_teacher_that_nobody_named_suits_the_targets(shape, kind):
    """A forest of 71,680 voxels did not end: volumes get the network that is made for them."""
    teacher = local_teacher(None, np.zeros((2, *shape)), SimpleNamespace(target_shape=shape))
    assert hasattr(teacher, kind)


@pytest.mark.slow
def test_folders_of_nifti_files(tmp_path):
    """Two channels, as the Decathlon lays them out; what comes back is a map for every volume."""
    nibabel = pytest.importorskip("nibabel")
    made = spheres(8, seed=0, grid=(12, 10, 8))
    for k in range(8):
        both = np.stack([made.images[k]] * 2, axis=-1)
        for folder, voxels in (("imagesTr", both), ("labelsTr", made.labels[k])):
            (tmp_path / "task" / folder).mkdir(parents=True, exist_ok=True)
            nibabel.save(
                nibabel.Nifti1Image(voxels, np.eye(4)), tmp_path / "task" / folder / f"{k}.nii"
            )
    task, grid = tmp_path / "task", ["--grid", "12,12,8"]
    run("reducer", "--targets", task, "--teachers", 6, "--queries", 8, *FLAGS, *grid,
        "--dimension", 1, "--out", tmp_path / "r")  # fmt: skip
    for k in range(6):
        run("answer", "--reducer", tmp_path / "r", "--inputs", task, "--site", f"s{k}", *grid,
            "--shard", task, "--teacher", "tree", "--out", tmp_path / f"a{k}")  # fmt: skip
    run("aggregate", *(tmp_path / f"a{k}" for k in range(6)), "--reducer", tmp_path / "r", *FLAGS,
        "--out", tmp_path / "labels", "--allow-equal")  # fmt: skip
    run("student", "--labels", tmp_path / "labels", "--inputs", task, *grid, "--epochs", 1,
        "--out", tmp_path / "student")  # fmt: skip
    assert privet.load(tmp_path / "student").domain.shape == (2, 12, 12, 8)
    done = runner.invoke(whole, ["predict", str(tmp_path / "student"), str(task / "imagesTr"),
                                 "--out", str(tmp_path / "maps.npy")])  # fmt: skip
    assert done.exit_code == 0 and np.load(tmp_path / "maps.npy").shape == (8, 12, 12, 8)
    said = run("reducer", "--targets", task, "--teachers", 6, "--queries", 8, *FLAGS, "--out",
               tmp_path / "q", code=2)  # fmt: skip
    assert "--grid" in said and "32,56,40" in said


@pytest.mark.slow
def test_training_on_a_folder_of_volumes(tmp_path, monkeypatch):
    """`privet train pate` takes a Decathlon folder; predict and verify take what it leaves."""
    nibabel = pytest.importorskip("nibabel")
    pytest.importorskip("monai")
    made, task = spheres(12, seed=0, grid=(8, 6, 8)), tmp_path / "task"
    for k in range(12):
        both = np.stack([made.images[k]] * 2, axis=-1)
        for folder, voxels in (("imagesTr", both), ("labelsTr", made.labels[k])):
            (task / folder).mkdir(parents=True, exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), task / folder / f"{k:02}.nii")
    named = {str(k): name for k, name in enumerate(made.classes)}
    (task / "dataset.json").write_text(json.dumps({"labels": named}))

    def train(out, *more):
        return runner.invoke(whole, [
            "train", "pate", "--data", str(task), "--teachers", "3", "--epsilon", "8", "--delta",
            "1e-3", "--channels", "2,4", "--unet-steps", "2", "--patch", "8", "--dimension", "1",
            "--seed", "0", "--backend", "threading", "--anyway", "--json", "--out",
            str(tmp_path / out), *more,
        ])  # fmt: skip

    grid, public = ("--grid", "8,8,8"), ("--public", "3")
    odd = (*public, "--grid", "8,7,8")
    for less, told in ((grid, "--public"), (public, "--grid"), (odd, "--grid")):
        refused = train("no", *less)
        assert refused.exit_code == 2 and told in refused.output
    done = train("run", *grid, *public)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)  # progress is on the other stream
    assert set(found["dice"]) == {"core", "shell"}
    monkeypatch.setenv("PRIVET_DATA", str(tmp_path))
    named_task = train("named", *grid, *public, "--data", "task")  # by its name, as data sets are
    assert named_task.exit_code == 0, named_task.output
    assert json.loads(named_task.stdout)["dice"] == found["dice"]
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["plan"]["queries"] == 3 and config["files"]["grid"] == [8, 8, 8]
    assert found["guarantee"]["unit"] == "teacher shard" and found["guarantee"]["epsilon"] <= 8.0
    assert len(privet.load(tmp_path / "run").outputs(np.zeros((2, 2, 8, 8, 8)))) == 2
    told = runner.invoke(whole, ["predict", str(tmp_path / "run"), str(task / "imagesTr"),
                                 "--out", str(tmp_path / "maps.npy")])  # fmt: skip
    assert told.exit_code == 0 and np.load(tmp_path / "maps.npy").shape == (12, 8, 8, 8)
    assert runner.invoke(whole, ["verify", str(tmp_path / "run")]).exit_code == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["method"] == VolumePATE.name
    monkeypatch.setattr(MeanPATE, "plan", None)  # what the run is not
    audited = runner.invoke(whole, ["audit", str(tmp_path / "run"), "--trials", "100", "--json"])
    assert audited.exit_code == 0, audited.output
    finding = json.loads(audited.stdout)
    assert finding["verdict"] == "consistent" and finding["audited"] > 0.5 * finding["proved"]
    config["settings"]["patience"] = 3  # of a method that has our name and is not ours
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    write_record(tmp_path / "run", read_record(tmp_path / "run"))  # sealed anew
    refused = runner.invoke(whole, ["audit", str(tmp_path / "run")])
    assert refused.exit_code == 2 and "patience" in refused.output
    assert refused.output.count("\n") == 1


@pytest.mark.slow
def test_the_list_of_data_shows_decathlon_tasks(tmp_path):
    def listed():
        done = runner.invoke(whole, ["data", "list", "--folder", str(tmp_path), "--json"])
        return {row["name"]: row["here"] for row in json.loads(done.output)}

    assert listed()["Task04_Hippocampus"] is False
    (tmp_path / "Task09_Spleen" / "imagesTr").mkdir(parents=True)
    assert listed()["Task09_Spleen"] is True
