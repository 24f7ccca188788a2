"""The mistakes of a newcomer, on every command: one line, a next step, code 2, nothing left behind."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from privet.cli.main import main
from privet.guarantee import Adjacency, Unit
from privet.ledger import Ledger

METHODS = ("dpsgd", "adaptive-laplace", "autoencoder", "residual", "pate")
ONE_QUICK = ["dpsgd", *(pytest.param(m, marks=pytest.mark.slow) for m in METHODS[1:])]
DECLARED = {
    "bounds": {"age": [0, 120], "marker": [-5, 5]},
    "categories": {"sex": ["f", "m"]},
    "classes": ["ill", "well"],
    "ignore": ["id"],
}
HEADER = "id,age,marker,sex,outcome"


def lines(label: str | None = None) -> list[str]:
    rng = np.random.default_rng(0)
    found = []
    for i in range(300):
        marker = rng.normal()
        state = label or ("ill" if marker + 0.3 * rng.normal() > 0 else "well")
        found.append(f"{i},{rng.integers(20, 90)},{marker:.3f},{'fm'[i % 2]},{state}")
    return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    def table(name: str, rows: list[str]) -> None:
        (tmp_path / name).write_text("\n".join([HEADER, *rows]) + "\n")

    def declared(name: str, **changes: object) -> None:
        (tmp_path / name).write_text(json.dumps(DECLARED | changes))

    good = lines()
    table("patients.csv", good)
    table("one_class.csv", lines("ill"))
    table("nan.csv", [*good[:50], "999,nan,0.1,f,ill", *good[50:]])
    table("blank.csv", [*good[:50], "999,,0.1,f,ill", *good[50:]])
    table("header.csv", [])
    table("two.csv", good[:2])
    (tmp_path / "empty.csv").write_text("")
    declared("bounds.json")
    declared("column.json", bounds=DECLARED["bounds"] | {"weight": [0, 9]})
    declared("text.json", bounds=DECLARED["bounds"] | {"sex": [0, 1]}, categories={})
    declared("one_class.json", classes=["ill"])
    declared("open.json", bounds={"age": [None, None], "marker": [-5, 5]})
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / "a.nii.gz").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# what is changed in a good command (None: left out), and what the error must say
COMMON = {
    "a missing column": ({"--bounds": "column.json"}, "no column 'weight'"),
    "text in a numeric column": ({"--bounds": "text.json"}, "'f' is not a number"),
    "one class declared": ({"--bounds": "one_class.json"}, "two or more"),
    "a label with one class": ({"--data": "one_class.csv"}, "all its labels are 'ill'"),
    "bounds left open": ({"--bounds": "open.json"}, "two numbers known without the data"),
    "a label that is no column": ({"--label": "outcom"}, "no column 'outcom'"),
    "no label": ({"--label": None}, "the column to predict"),
    "no bounds": ({"--bounds": None}, "privet data describe patients.csv` writes"),
    "no such declaration": ({"--bounds": "none.json"}, "no such file: none.json"),
    "an unwritable folder": ({"--out": "/proc/x"}, "a folder that can be made"),
    "a file as folder": ({"--out": "bounds.json"}, "a folder that can be made"),
    "a missing value": ({"--data": "blank.csv"}, "line 52, column 'age': '' is not a number"),
    "a value that is NaN": ({"--data": "nan.csv"}, "line 52, column 'age': 'nan' is not finite"),
    "an empty file": ({"--data": "empty.csv"}, "it is empty"),
    "a file without records": ({"--data": "header.csv"}, "it has no records"),
    "two records": ({"--data": "two.csv"}, "too few"),
    "no such file": ({"--data": "none.csv"}, "no such file: none.csv"),
    "a typo in a data set's name": ({"--data": "digit"}, "one of digits, "),
    "volumes": ({"--data": "scans"}, "volumes go through Python"),
    "delta 1": ({"--delta": "1"}, "delta must be a number in"),
    "delta below 0": ({"--delta": "-1"}, "delta must be a number in"),
    "too small an epsilon for n": ({"--epsilon": "0.001"}, "for 0.001, got 0.001; noise would"),
    "more records than there are": ({"--records": "9999"}, "training records"),
    "an unknown option": ({"--epsilno": "1"}, "No such option"),
}  # fmt: skip
OF_COMPARING = {
    "epsilon 0": ({"--epsilon": "0"}, "epsilon must be a number above 0, or several"),
    "epsilon in words": ({"--epsilon": "little"}, "a number above 0, or several with commas, got 'little'"),
}  # fmt: skip
OF_TRAINING = {
    "epsilon 0": ({"--epsilon": "0"}, "epsilon must be a finite number above 0"),
    "epsilon in words": ({"--epsilon": "little"}, "not a valid float"),
    "no such ledger": ({"--ledger": "none.ledger"}, "privet ledger init"),
    "a file that is no ledger": ({"--ledger": "bounds.json"}, "not an SQLite database"),
    "a seed below 0": ({"--seed": "-1"}, "seed must be a whole number"),
}
WITHOUT_DELTA_0 = ("dpsgd", "residual", "pate")


def command(words: list[str], changes: dict[str, str | None]) -> list[str]:
    options = {
        "--data": "patients.csv", "--label": "outcome", "--bounds": "bounds.json",
        "--epsilon": "4", "--out": "run",
    }  # fmt: skip
    if words[-1] == "pate":
        options["--public"] = "20"
    kept = {k: v for k, v in (options | changes).items() if v is not None}
    return [*words, *(part for pair in kept.items() for part in pair)]


def refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> str:
    """One line that says what is wrong, and code 2; nothing new in the folder."""
    before = sorted(Path().rglob("*"))
    capsys.readouterr()
    with pytest.raises(SystemExit) as leaving:
        main(words)
    out, err = capsys.readouterr()
    assert leaving.value.code == 2 and not out, out
    assert err.startswith("error: ") and err.count("\n") == 1 and err.endswith("\n"), err
    assert says in err, err
    assert len(err) < 600
    assert sorted(Path().rglob("*")) == before
    return err


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [*COMMON, *OF_TRAINING])
@pytest.mark.parametrize("method", ONE_QUICK)
def test_training(
    method: str, mistake: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, says = (COMMON | OF_TRAINING)[mistake]
    refused(command(["train", method], changes), says, capsys)


SETTINGS = {
    "dpsgd": ("--steps 0", "--sample-rate 0", "--sample-rate 2", "--clipping-bound 0", "--learning-rate nan", "--features x", "--resume", "--public 5"),
    "adaptive-laplace": ("--epochs 0", "--features strokes", "--objective x"),
    "autoencoder": ("--layers 0", "--layers many"),
    "residual": ("--labels x", "--members 0", "--noise-draws 0", "--epochs 0", "--learning-rate 0", "--epsilon 1e9"),
    "pate": ("--teachers 0", "--teachers 9999", "--queries 0", "--queries 9999", "--workers 0", "--backend x", "--public 0"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "option"), [(m, option) for m, options in SETTINGS.items() for option in options]
)
def test_settings(
    method: str, option: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Known before anything is charged."""
    refused([*command(["train", method], {}), *option.split()], "", capsys)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", [*COMMON, *OF_COMPARING])
def test_compare(mistake: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changes, says = (COMMON | OF_COMPARING)[mistake]
    refused(command(["compare", "--method", "dpsgd"], changes), says, capsys)


@pytest.mark.parametrize("method", WITHOUT_DELTA_0)
def test_delta_0_where_it_cannot_be(
    method: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(command(["train", method], {"--delta": "0"}), "a number in (0, 1)", capsys)


@pytest.mark.parametrize("method", ONE_QUICK)
def test_a_budget_that_is_spent(
    method: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ledger stays as it was, and no folder is begun."""
    terms = {} if method != "pate" else {"adjacency": Adjacency.REPLACE_ONE, "unit": Unit.SHARD}
    Ledger.create(place / "clinic.ledger", cap_epsilon=1.0, cap_delta=1e-5, **terms)
    words = command(["train", method], {"--ledger": "clinic.ledger"})
    refused(words, "nothing was spent", capsys)
    assert Ledger.open(place / "clinic.ledger").spent() == 0.0


@pytest.mark.parametrize("method", ONE_QUICK)
def test_a_ledger_that_another_process_holds(
    method: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = {} if method != "pate" else {"adjacency": Adjacency.REPLACE_ONE, "unit": Unit.SHARD}
    Ledger.create(place / "clinic.ledger", cap_epsilon=9.0, cap_delta=1e-5, **terms)
    monkeypatch.setattr(Ledger, "open", partial(Ledger.open, timeout=0.05))
    holder = sqlite3.connect(place / "clinic.ledger", isolation_level=None)
    try:
        holder.execute("BEGIN IMMEDIATE")
        words = command(["train", method], {"--ledger": "clinic.ledger"})
        refused(words, "still locked by another process", capsys)
    finally:
        holder.execute("ROLLBACK")
        holder.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "dpsdg"], "No such command 'dpsdg'"),
        (["trian", "dpsgd"], "No such command 'trian'"),
        (["train", "dpsgd"], "Missing option '--data'"),
        (["compare", "--method", "dpsdg"], "methods must be one of"),
        (["audit", "dpsdg"], "a run folder, or one of dpsgd"),
        (["audit", "dpsgd", "--epsilon", "0"], "epsilon must be"),
        (["audit", "dpsgd", "--delta", "1"], "delta must be"),
        (["audit", "none/run"], "no such file: none/run"),
        (["audit", "scans"], "privet train"),
        (["attack", "none"], "privet train"),
        (["attack", "scans"], "privet train"),
        (["attack", "bounds.json"], "privet train"),
        (["predict", "none", "patients.csv"], "privet train"),
        (["plan", "--records", "0", "--kind", "table", "--epsilon", "1"], "records must be"),
        (["plan", "--records", "9", "--kind", "tabel", "--epsilon", "1"], "one of pictures, table"),
        (["plan", "--records", "9", "--kind", "table", "--epsilon", "0"], "epsilon must be"),
        (["plan", "--records", "9", "--kind", "table", "--epsilon", "1e-3"], "noise would"),
        (["data", "describe", "none.csv"], "no such file: none.csv"),
        (["data", "describe", "empty.csv"], "it is empty"),
        (["data", "describe", "patients.csv", "--label", "x"], "one of the columns"),
        (["data", "describe", "patients.csv", "--out", "no/x.json"], "cannot be read or written"),
    ],
)  # fmt: skip
def test_other_commands(
    words: list[str], says: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(words, says, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "extra", "words"),
    [
        ("ray", "cluster", ["train", "pate", "--public", "20", "--backend", "ray"]),
        ("torch", "train", ["train", "dpsgd"]),
        ("sklearn", "train", ["train", "pate", "--public", "20"]),
    ],
)
def test_a_package_that_is_not_installed(
    module: str, extra: str, words: list[str], place: Path
) -> None:
    start = f"import sys; sys.modules[{module!r}] = None; from privet.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", start, *command(words, {})],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]  # a slow machine has a line of progress before
    assert last == f"error: this needs {module}: pip install 'privet[{extra}]'"
    assert not (place / "run").exists()


PATE_OPTIONS = ["--teachers", "4", "--queries", "3", "--epsilon", "8"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["reducer", "--targets", "none.npy", "--out", "r", *PATE_OPTIONS], "no such file"),
        (["reducer", "--targets", "bounds.json", "--out", "r", *PATE_OPTIONS], ".npy or .npz"),
        (["reducer", "--targets", "y.npy", "--out", "r", *PATE_OPTIONS, "--epsilon", "0"], "epsilon"),
        (["reducer", "--targets", "y.npy", "--out", "r", *PATE_OPTIONS, "--delta", "2"], "delta"),
        (["reducer", "--targets", "y.npy", "--out", "r", *PATE_OPTIONS, "--kind", "pac"], "one of pca"),
        (["reducer", "--targets", "nan.npy", "--out", "r", *PATE_OPTIONS], "finite numbers"),
        (["reducer", "--targets", "y.npy", "--out", "/proc/x/r", *PATE_OPTIONS], "cannot be read or written"),
        (["answer", "--reducer", "none", "--inputs", "x.npy", "--site", "a", "--out", "o", "--predictions", "y.npy"], "no such file"),
        (["answer", "--reducer", "bounds.json", "--inputs", "x.npy", "--site", "a", "--out", "o", "--predictions", "y.npy"], ""),
        (["aggregate", "--reducer", "none", "--epsilon", "1", "--out", "l", "a.safetensors"], "no such file"),
        (["student", "--labels", "none", "--inputs", "x.npy", "--out", "s"], "no such file"),
        (["student", "--labels", "bounds.json", "--inputs", "x.npy", "--out", "s"], ""),
    ],
)  # fmt: skip
def test_pate_by_files(
    words: list[str], says: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    np.save("y.npy", rng.dirichlet(np.ones(3), size=20))
    np.save("x.npy", rng.normal(size=(3, 2)))
    np.save("nan.npy", np.full((20, 3), np.nan))
    refused(["pate", *words], says, capsys)


@pytest.mark.slow
def test_drowned_records_can_be_trained_on_anyway(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = command(["train", "dpsgd", "--anyway", "--json"], {"--epsilon": "0.001"})
    with pytest.raises(SystemExit) as leaving:
        main(words)
    assert leaving.value.code == 0
    assert json.loads(capsys.readouterr().out)["guarantee"]["epsilon"] <= 0.001


@pytest.mark.slow
def test_what_a_refusal_advises_is_accepted(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for method in METHODS:
        changes = {"--epsilon": "0.001"}
        said = refused(command(["train", method], changes), "at least ", capsys)
        needed = said.split("at least ")[1].split()[0]
        words = command(["train", method], {"--epsilon": needed, "--out": method})
        with pytest.raises(SystemExit) as leaving:
            main(words)
        assert leaving.value.code == 0, capsys.readouterr().err
