"""Independent jobs by joblib: each result kept on disk once, resumed after a kill, with progress.

A `Cell` is one thing to compute. `run_cells` computes cells here, or in workers of any joblib
backend (this machine's processes, Ray, Dask). What a cell finds it keeps in a file by
`cached_json` or `cached_arrays`, written whole or not at all, so that the same call goes on after
an interruption. What a cell finds must not depend on who computes it, nor on when.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet._atomic_files import replacing, write_json, write_whole
from privet.errors import InvalidArgument, PrivetError
from privet.threads import threads

__all__ = [
    "Arrays", "Cell", "Progress", "Tell", "cache_path", "cached_arrays", "cached_json",
    "no_progress", "run_cells", "use_backend", "write_json", "write_whole",
]  # fmt: skip

Arrays = dict[str, NDArray[Any]]
Tell = Callable[[str], None]
"""Called by a cell with what it is at."""
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much is done, and of how much; never told of records."""
GOES_ON = "what is done is kept, and the same command goes on"
_WATCH = 0.2
"""Seconds between a worker's looks at its parent: a kill leaves nothing running for longer."""


def no_progress(what: str, done: int, of: int) -> None:
    """A `Progress` that ignores what it is called with."""


@final
@dataclass(frozen=True)
class Cell:
    """One thing to compute: its name, and how; it keeps its own result."""

    name: str
    run: Callable[[Tell], Any]
    needs: tuple[str, ...] = ()
    """Names of earlier cells whose results it reads from the disk."""
    shared: bool = False
    """Made for other cells alone: neither counted nor returned."""


def cache_path(folder: Path, key: Any, ending: str = "json") -> Path:
    """The file for the result of these settings; `key` is anything that JSON can write."""
    text = json.dumps(key, sort_keys=True, allow_nan=False)
    return folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.{ending}"


def cached_json(folder: Path, key: Any, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result from its file, or computed by `run` and written.

    >>> place = Path(tempfile.mkdtemp())
    >>> cached_json(place, ["dpsgd", 1.0], lambda: {"accuracy": 0.9})
    {'accuracy': 0.9}
    >>> cached_json(place, ["dpsgd", 1.0], lambda: {"accuracy": 0.1})
    {'accuracy': 0.9}
    """
    path = cache_path(folder, key)
    if path.exists():
        value: dict[str, Any] = json.loads(path.read_text())
        return value
    value = run()
    write_whole(path, json.dumps(value, allow_nan=False))
    return value


def cached_arrays(folder: Path, key: Any, run: Callable[[], Arrays]) -> Arrays:
    """Arrays by name from their file, or computed by `run` and written.

    >>> place = Path(tempfile.mkdtemp())
    >>> cached_arrays(place, "squares", lambda: {"x": np.arange(3) ** 2})["x"].tolist()
    [0, 1, 4]
    >>> cached_arrays(place, "squares", lambda: {})["x"].tolist()
    [0, 1, 4]
    """
    path = cache_path(folder, key, "npz")
    if not path.exists():
        arrays = run()
        with replacing(path) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


@contextmanager
def use_backend(backend: str, workers: int) -> Iterator[None]:
    """Send everything that joblib runs inside to `workers` workers of this backend.

    Ray and Dask get a cluster on this machine, which ends with the context, unless one is running.
    """
    from joblib import parallel_config

    workers = _check.count("workers", workers)
    with ExitStack() as stack:
        if backend == "ray":
            _start_ray(workers, stack)
        if backend == "dask":
            _start_dask(workers, stack)
        try:
            stack.enter_context(parallel_config(backend=backend, n_jobs=workers))
        except ValueError as e:
            raise InvalidArgument(
                "backend", backend, "loky, threading, ray or dask, and ready to be used", str(e)
            ) from None
        yield


def _start_ray(workers: int, stack: ExitStack) -> None:
    import ray
    from ray.util import joblib as ray_joblib

    register: Any = ray_joblib.register_ray
    register()
    if not ray.is_initialized():
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        stack.callback(ray.shutdown)


def _start_dask(workers: int, stack: ExitStack) -> None:
    import distributed

    dask: Any = distributed  # not typed
    try:
        dask.get_client()
    except ValueError:
        local = dask.LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
        stack.enter_context(dask.Client(stack.enter_context(local)))


def run_cells(
    cells: Sequence[Cell],
    *,
    jobs: int = 1,
    backend: str = "loky",
    progress: Progress = no_progress,
) -> list[Any]:
    """Compute cells, `jobs` at once and each on one thread; returns their results in order.

    With one job on "loky" they are computed here, one after another. Cells that are `shared` are
    left out of the results; a cell starts after those that it needs. Workers on this machine end
    with this process, however it ends: a cell that is not whole by then is computed again.

    >>> run_cells([Cell("two", lambda tell: 2), Cell("three", lambda tell: 3)])
    [2, 3]
    """
    counted = [i for i, cell in enumerate(cells) if not cell.shared]
    values = dict[int, Any]()
    lock = threading.Lock()  # several threads tell, and counts must not go back

    def tell(what: str) -> None:
        with lock:
            progress(what, sum(i in values for i in counted), len(counted))

    with threads(1, numbers=0):
        if _check.count("jobs", jobs) == 1 and backend == "loky":
            for i, cell in enumerate(cells):
                tell(cell.name)
                values[i] = cell.run(tell)
        elif cells:
            _run_in_workers(cells, jobs, backend, tell, values)
    return [values[i] for i in counted]


def _run_in_workers(
    cells: Sequence[Cell], jobs: int, backend: str, tell: Tell, values: dict[int, Any]
) -> None:
    """Fill `values`: the cells that need nothing first, then those that need them, and so on."""
    from joblib import Parallel, delayed

    processes = backend == "loky"
    waiting, begun = list(range(len(cells))), list[int]()

    def tasks(ready: list[int], address: str | None) -> Iterator[Any]:
        for i in ready:
            begun.append(i)
            tell(cells[i].name)
            yield delayed(_compute)(i, cells[i], os.getpid(), address)

    # Ray's backend can only return everything at the end
    order = "list" if backend == "ray" else "generator_unordered"
    with use_backend(backend, jobs), _messages(tell) if processes else nullcontext() as address:
        try:
            while waiting:
                names = {cells[i].name for i in values}
                ready = [i for i in waiting if names.issuperset(cells[i].needs)]
                assert ready, f"{cells[waiting[0]].name} needs a cell that is not there"
                waiting = [i for i in waiting if i not in ready]
                # only what workers are at is handed out, so that an error can say what that was
                run = Parallel(return_as=order, batch_size=1, pre_dispatch="n_jobs")
                for i, value in run(tasks(ready, address)):
                    values[i] = value  # noqa: PERF403
        except BrokenProcessPool as e:
            names_at = ", ".join(cells[i].name for i in begun if i not in values)
            codes = ", ".join(re.findall(r"\((-?\d+)\)", str(e)))
            raise PrivetError(
                f"{names_at}: a worker process ended (exit code {codes or 'unknown'}; is there "
                f"enough memory? try --jobs 1); {GOES_ON}"
            ) from None
        finally:
            if processes:
                from joblib.externals.loky import get_reusable_executor

                executor: Any = get_reusable_executor(reuse=True)
                # joblib's own also removes the arrays that it put on the disk for workers
                getattr(executor, "terminate", executor.shutdown)(kill_workers=True)


def _compute(number: int, cell: Cell, parent: int, address: str | None) -> tuple[int, Any]:
    """One cell, in a worker; errors that are bugs come back as one line."""
    here = os.getpid() == parent
    if address is not None:
        _end_with(parent)

    def tell(what: str) -> None:
        if address is not None:
            _send(address, what)

    try:
        with nullcontext() if here else threads(1, numbers=0):
            return number, cell.run(tell)
    except (PrivetError, ModuleNotFoundError, OSError):
        raise
    except Exception as e:
        text = " ".join(f"{cell.name}: {type(e).__name__}: {e}".split())
        raise PrivetError(f"{text}; --jobs 1 shows where; {GOES_ON}") from e


@cache
def _end_with(parent: int) -> None:
    """Make this worker end when its parent has ended; once for each worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: the parent ends us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # half-written files are taken back

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _messages(tell: Tell) -> Iterator[str]:
    """The address of a socket of this machine: `tell` is called with what workers send there."""
    with tempfile.TemporaryDirectory() as folder, Listener(f"{folder}/progress") as listener:

        def listen() -> None:
            while True:
                with suppress(EOFError, OSError), listener.accept() as connection:
                    text = connection.recv_bytes().decode()
                    if not text:
                        return
                    tell(text)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        try:
            yield str(listener.address)
        finally:
            _send(str(listener.address), "")
            thread.join()


def _send(address: str, text: str) -> None:
    with suppress(OSError), Client(address) as connection:
        connection.send_bytes(text.encode())
