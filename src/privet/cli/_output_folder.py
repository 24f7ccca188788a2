"""Make the folder of a new run, and remove it again if the run is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from privet.errors import InvalidArgument

OWN_LEDGER = "run.ledger"


@contextmanager
def new_run_folder(out: Path) -> Iterator[None]:
    """Make the folder of a new run; remove it if the run is refused before anything was charged."""
    existed = out.exists()
    make(out)
    try:
        yield
    except Exception:
        _forget_unused(out / OWN_LEDGER)
        if not existed:
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
