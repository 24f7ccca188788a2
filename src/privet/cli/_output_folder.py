"""The folder of a run: model, config, guarantee, metrics and card, each written whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from privet.errors import InvalidArgument

if TYPE_CHECKING:
    pass


OWN_LEDGER = "run.ledger"


@contextmanager
def begun(out: Path) -> Iterator[None]:
    """The folder of a new run; gone again if it is refused before anything was charged."""
    there = out.exists()
    make(out)
    try:
        yield
    except Exception:
        _forget_unused(out / OWN_LEDGER)
        if not there:
            with suppress(OSError):  # not empty: something was spent, and is kept
                out.rmdir()
        raise


def _forget_unused(ledger: Path) -> None:
    from privet.ledger import Ledger

    if ledger.exists() and len(Ledger.open(ledger)) == 0:
        for file in ledger.parent.glob(f"{ledger.name}*"):
            file.unlink()


def make(out: Path) -> None:
    """Make the folder, or say why not."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InvalidArgument("--out", str(out), "a folder that can be made", str(e)) from None
    if not os.access(out, os.W_OK):
        raise InvalidArgument("--out", str(out), "a folder that can be written to")
