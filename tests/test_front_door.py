"""`import privet`: what a newcomer sees, and what it costs."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import privet


def test_names_can_be_found_by_tab() -> None:
    shown = dir(privet)
    for name in (
        "__version__",
        "load",
        "Ledger",
        "PrivateClassifier",
        "networks",
        "audit",
        "sensitivity",
        "errors",
    ):
        assert name in shown, name
    for name in privet.__all__:
        assert getattr(privet, name) is not None
    assert set(shown) == set(privet.__all__)


def test_what_rooms_export_is_there() -> None:
    """`from privet.methods import *` stopped at a name that had moved."""
    for room in walk_packages(privet.__path__, "privet."):
        if room.ispkg:
            module = import_module(room.name)
            missing = [n for n in getattr(module, "__all__", ()) if not hasattr(module, n)]
            assert not missing, (room.name, missing)


@pytest.mark.slow
def test_light_names_do_not_wait_for_torch() -> None:
    code = (
        "import sys, privet; privet.Ledger; privet.accounting; privet.errors; privet.Guarantee; "
        "privet.sensitivity; privet.audit; print('torch' in sys.modules, 'sklearn' in sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    assert said.stdout.split() == ["False", "False"]


def test_the_reference_knows_every_room() -> None:
    """What exports names is in the reference, which is made from the exports."""
    root = Path(__file__).parents[1]
    listed = re.search(
        r"^ROOMS = \{(.*?)^\}", (root / "docs/conf.py").read_text(), re.DOTALL | re.M
    )
    assert listed is not None
    rooms = set(re.findall(r'"([\w.]+)"', listed[1]))
    home = root / "src/privet"
    exporting = {
        ".".join(path.parent.relative_to(home).parts)
        for path in home.rglob("__init__.py")
        if "__all__ = [" in path.read_text()
    }
    elsewhere = {"", "methods.dpsgd"}  # the top is listed by its rooms; DP-SGD's is privet.dpsgd
    left_out = {r for r in exporting if not r.startswith("cli")} - elsewhere
    assert left_out <= rooms, left_out - rooms
    assert set(privet.dpsgd.__all__) >= set(import_module("privet.methods.dpsgd").__all__)
