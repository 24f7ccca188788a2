"""What `pip install` gets: a wheel and an sdist that hold the package, and nothing they should not."""

from __future__ import annotations

import subprocess
import sys
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
