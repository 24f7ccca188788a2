"""Which functions of privet a program calls: for tests of what loading and training go through.

python trace_calls.py load FOLDER...      loads runs, predicts, and prints the files that took part
python trace_calls.py train ARGUMENTS...  runs `privet train ARGUMENTS` and prints what was called
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import privet

HOME = str(Path(privet.__file__).parent) + "/"


@dataclass(kw_only=True)
class Calls:
    """What was called while `watching`: importing a module is no call."""

    functions: Counter[str] = field(default_factory=Counter)
    importing: int = 0

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """For `sys.setprofile`."""
        here = frame.f_code.co_filename
        if not here.startswith(HOME) or event not in ("call", "return"):
            return
        if frame.f_code.co_name == "<module>":
            self.importing += 1 if event == "call" else -1
        if event == "return" or self.importing:
            return
        self.functions[f"{here.removeprefix(HOME)}:{frame.f_code.co_qualname}"] += 1

    @property
    def files(self) -> list[str]:
        """The files of all functions called."""
        return sorted({name.split(":")[0] for name in self.functions})


@contextmanager
def watching() -> Iterator[Calls]:
    """All calls of functions of privet, in all threads that start meanwhile."""
    calls = Calls()
    threading.setprofile(calls.note)
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _load(folders: list[str]) -> dict[str, Any]:
    import numpy as np

    rows = np.load(Path(folders[0]).parent / "rows.npy")
    with watching() as calls:
        answers = [privet.load(folder).predict_proba(rows).tobytes().hex() for folder in folders]
    return {"answers": answers, "files": calls.files, "modules": sorted(sys.modules)}


def _train(arguments: list[str]) -> dict[str, Any]:
    from privet.cli.main import main

    with watching() as calls:
        try:
            main(["train", *arguments])
        except SystemExit as left:
            if left.code:
                raise
    return {"functions": calls.functions, "files": calls.files}


if __name__ == "__main__":
    what = {"load": _load, "train": _train}[sys.argv[1]]
    sys.stdout.write("\n" + json.dumps(what(sys.argv[2:])) + "\n")
