"""The house rules that a tool can hold: layers, and what accounting must not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_import_contracts() -> None:
    pytest.importorskip("importlinter")
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", ["privet", "privet.accounting", "privet.ledger", "privet.accounting.calibration"]
)
def test_accounting_loads_no_torch(module: str) -> None:
    program = f"import sys, {module}; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.strip() == "False"


def test_tests_have_no_doctests() -> None:
    """`tests/conftest.py` does not look for any, so one would never be run."""
    mark = ">" * 3
    found = [p.name for p in (ROOT / "tests").rglob("*.py") if mark in p.read_text()]
    assert not found, found
