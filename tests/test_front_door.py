"""`import privet`: what a newcomer sees, and what it costs."""

from __future__ import annotations

import subprocess
import sys

import privet


def test_names_can_be_found_by_tab() -> None:
    shown = dir(privet)
    for name in (
        "__version__",
        "load",
        "Ledger",
        "PrivateClassifier",
        "nets",
        "audit",
        "bounds",
        "errors",
    ):
        assert name in shown, name
    for name in privet.__all__:
        assert getattr(privet, name) is not None
    assert set(shown) == set(privet.__all__)


def test_light_names_do_not_wait_for_torch() -> None:
    code = (
        "import sys, privet; privet.Ledger; privet.loss; privet.errors; privet.Guarantee; "
        "privet.bounds; privet.audit; print('torch' in sys.modules, 'sklearn' in sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=120
    )
    assert said.stdout.split() == ["False", "False"]
