"""What `pip install` gets: a wheel and an sdist that hold the package, and nothing they should not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="builds the package; pip install 'privet[test]'")
ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_wheel_and_sdist(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    there = {n.removeprefix("privet/") for n in names if n.startswith("privet/")}
    for needed in (
        "py.typed",
        "__init__.py",
        "report/guarantee.schema.json",
        "compare/measured.json",
        "report/templates/run.html.j2",
        "report/templates/page.css",
    ):
        assert needed in there, needed
    source = {
        str(p.relative_to(ROOT / "src" / "privet")) for p in (ROOT / "src" / "privet").rglob("*.py")
    }
    assert source <= there
    points = next(n for n in names if n.endswith("entry_points.txt"))
    assert "privet = privet.cli.main:main" in zipfile.ZipFile(wheel).read(points).decode()
    with tarfile.open(sdist) as archive:
        inside = archive.getnames()
    assert any(n.endswith("/LICENSE") for n in inside)
    for name in (*names, *inside):
        assert not name.endswith((".npz", ".nii.gz", ".pt", ".ckpt", ".ledger")), name
        assert "/.venv/" not in name and "/shared/" not in name


@pytest.mark.slow
def test_pip_installs_it_by_name_from_the_index(tmp_path: Path) -> None:
    """What `make dist` does, and what it prints."""
    from tools.index import write_index

    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    simple = write_index(tmp_path)
    target = tmp_path / "target"
    install = [
        sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check",
        "--index-url", simple.resolve().as_uri(), "--target", str(target), "privet",
    ]  # fmt: skip
    done = subprocess.run(install, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert (target / "privet" / "cli" / "main.py").exists()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install .` leaves, beside everybody else's packages: ours of the papers is hidden."""
    folder = tmp_path_factory.mktemp("alone")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=300)
    site = folder / "site"
    zipfile.ZipFile(next(folder.glob("*.whl"))).extractall(site)
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not path.name.lower().lstrip("_").startswith(("privet", "editable")):
            (site / path.name).symlink_to(path)
    return site


@pytest.mark.slow
def test_every_command_works_without_the_papers(alone: Path, tmp_path: Path) -> None:
    quiet = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}

    def run(*words: str, code: int = 0) -> tuple[str, str]:
        done = subprocess.run(  # -S: no site-packages but these, no editable installations
            [sys.executable, "-S", "-m", "privet.cli.main", *words], cwd=tmp_path, timeout=300,
            env=quiet | {"PYTHONPATH": str(alone)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, (words, done.stderr)
        return done.stdout, done.stderr

    where = (
        "import privet, importlib.util as u; print(privet.__file__, u.find_spec('privet_papers'))"
    )
    told = subprocess.run(
        [sys.executable, "-S", "-c", where], env=quiet | {"PYTHONPATH": str(alone)},
        capture_output=True, text=True, check=True, cwd=tmp_path,
    ).stdout  # fmt: skip
    assert str(alone) in told and told.strip().endswith("None")

    privacy = ("--sample-rate", "0.01", "--steps", "100", "--delta", "1e-5")
    assert (
        "exact"
        in json.loads(run("account", *privacy, "--noise-multiplier", "1", "--json")[0])[
            "accountants"
        ]
    )
    assert json.loads(run("calibrate", "--epsilon", "1", *privacy, "--json")[0])["epsilon"] <= 1.0
    run("ledger", "init", "b.ledger", "--epsilon", "4", "--delta", "1e-5")
    assert "digits" in run("data", "list")[0]
    run("plan", "--records", "1000", "--kind", "table", "--epsilon", "1")
    budget = ("--data", "digits", "--epsilon", "4", "--seed", "0")
    done = json.loads(run("train", "dpsgd", *budget, "--out", "run", "--json")[0])
    assert done["test_accuracy"] > 0.8 and done["guarantee"]["epsilon"] <= 4.0
    assert {"run.html", "README.md"} <= {p.name for p in (tmp_path / "run").iterdir()}
    assert "nothing contradicts it" in run("verify", "run")[0]
    assert 0.3 < json.loads(run("attack", "run", "--references", "0", "--json")[0])["auc"] < 0.7
    assert json.loads(run("audit", "adaptive-laplace", "--trials", "100", "--json")[0])["verdict"]
    rows = json.loads(
        run("compare", "--data", "digits", "--records", "300", "--methods", "adaptive-laplace",
            "--references", "0", "--jobs", "1", "--out", "page", "--json")[0]
    )["rows"]  # fmt: skip
    assert [row["method"] for row in rows] == ["not private", "adaptive-laplace"]
    assert (tmp_path / "page" / "report.html").exists()
    for words in (("pate", "--help"), ("predict", "--help"), ("record", "--help")):
        run(*words)
    run("demo", "--out", "demo")
    for words in (("reproduce",), ("reproduce", "pate", "--quick"), ("audit", "residual",
                  "--reading", "published")):  # fmt: skip
        _, error = run(*words, code=2)
        assert "pip install privet-papers" in error and error.count("\n") == 1
