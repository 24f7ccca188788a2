"""Cells in worker processes, so that a run takes all cores.

A worker makes the experiment again from its settings and computes the cells that it is given, one
after another on one thread: what a cell finds depends on its settings and its seed alone, and is
the same whoever computes it. It keeps what it found in the experiment's folder, as it would alone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, final

from privet.errors import PrivetError
from privet.papers.experiment import Cell, Experiment, Progress
from privet.threads import threads

GOES_ON = "what is done is kept, and the same command goes on"
_PATIENCE = 5.0
"""Seconds that a worker has to end by itself."""
Make = Callable[[], Experiment[Any]]
"""Makes the experiment; a worker gets it as bytes."""


def run_cells(make: Make, cells: Sequence[Cell], jobs: int, progress: Progress) -> list[Any]:
    """What each cell found, but those that are made for others, computed by so many workers.

    A cell starts when those that it needs are done, otherwise in order. Workers end with this
    process, however it ends: a cell that is not whole by then is computed again next time.
    """
    crew = [_Worker(make) for _ in range(min(jobs, len(cells)))]
    try:
        return _handed_out(crew, cells, progress)
    finally:
        for worker in crew:
            worker.ask_to_end()
        for worker in crew:
            worker.end()


def _handed_out(crew: list[_Worker], cells: Sequence[Cell], progress: Progress) -> list[Any]:
    counted = [i for i, cell in enumerate(cells) if not cell.shared]
    waiting, found = list(range(len(cells))), dict[int, Any]()

    def told(what: str) -> None:
        progress(what, sum(i in found for i in counted), len(counted))

    while len(found) < len(cells):
        done = {cells[i].name for i in found}
        for worker in (w for w in crew if w.at is None):
            ready = next((i for i in waiting if done.issuperset(cells[i].needs)), None)
            if ready is None:
                break
            waiting.remove(ready)
            told(cells[ready].name)
            worker.start(ready)
        busy = {w.connection: w for w in crew if w.at is not None}
        assert busy, f"{cells[waiting[0]].name} needs a cell that is not there"
        for connection in wait(list(busy)):
            worker = busy[connection]  # type: ignore[index]
            assert worker.at is not None
            kind, value = worker.heard(cells[worker.at].name)
            if kind == "told":
                told(value)
            else:
                found[worker.at], worker.at = value, None
    return [found[i] for i in counted]


@final
class _Worker:
    """A process, seen from the one that started it: `at` is the number of the cell it computes."""

    def __init__(self, make: Make) -> None:
        self.at: int | None = None
        # a new interpreter: one that is copied may hold locks of threads that it does not have
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_work, args=(make, theirs))
        self._process.start()
        theirs.close()

    def start(self, number: int) -> None:
        """The cell of this number; whether it is still there `heard` will tell."""
        self.at = number
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(number)

    def heard(self, name: str) -> tuple[str, Any]:
        """What it says about the cell of this name; raises its errors, in one line."""
        try:
            kind, value = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            raise PrivetError(
                f"{name}: its worker process ended (exit code {self._process.exitcode}; is there "
                f"enough memory? try --jobs 1); {GOES_ON}"
            ) from None
        if kind == "error":
            raise value
        return kind, value

    def ask_to_end(self) -> None:
        """Soon, so that a file that is being written can be taken back."""
        self._process.terminate()

    def end(self) -> None:
        """At once, if it did not end by itself."""
        self._process.join(_PATIENCE)
        self._process.kill()
        self._process.join()
        self.connection.close()


def _work(make: Make, connection: Connection) -> None:
    """A worker's life: cells by number, until the other side is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: who started us ends us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    name = "the start of a worker process"
    try:
        cells = list(make().cells())
        with threads(1, numbers=0):
            while True:
                number = connection.recv()
                name = cells[number].name
                value = cells[number].run(lambda at: connection.send(("told", at)))
                connection.send(("done", value))
    except (EOFError, BrokenPipeError):
        return
    except Exception as e:
        connection.send(("error", _sendable(e, name)))


def _end_with_parent() -> None:
    """Killed or not, when the process that started us is gone nobody wants the cell."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


def _sendable(error: Exception, name: str) -> Exception:
    """Errors that are reported in one line as they are; others, which are bugs, named in one."""
    if isinstance(error, PrivetError | ModuleNotFoundError | OSError):
        return error
    text = f"{name}: {type(error).__name__}: {error}"
    return PrivetError(f"{' '.join(text.split())}; --jobs 1 shows where; {GOES_ON}")
