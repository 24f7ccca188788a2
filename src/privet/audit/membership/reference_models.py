"""Reference models: what models of the same kind say of each record, trained with and without it.

They go through joblib, so that Ray or Dask take them by a backend's name, and what is finished
stays on disk. Only numbers are kept (confidence and membership), never models: nothing is pickled
into the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check
from privet._atomic_files import replacing, write_whole
from privet.audit.membership.input_checks import Floats, Mask
from privet.audit.membership.model_confidence import Read, confidence_of_model
from privet.errors import InvalidArgument
from privet.noise import seeded

Train = Callable[[NDArray[Any], NDArray[Any], int], Any]
"""(X, y, seed) to a trained model of a kind that `confidence_of_model` takes."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class References:
    """For every reference model (row) and record (column): its confidence phi, and membership.

    >>> References(confidence=[[1.0, 2.0]], members=[[True, False]]).count
    1
    """

    confidence: Floats
    members: Mask
    seconds: tuple[float, ...] = ()
    """What training and asking each model took, where known."""

    def __post_init__(self) -> None:
        phi = np.asarray(self.confidence, dtype=np.float64)
        inside = np.asarray(self.members)
        if phi.ndim != 2 or not phi.size or not np.isfinite(phi).all():
            raise InvalidArgument(
                "confidence", phi.shape, "finite, one row a model and one column a record"
            )
        if inside.shape != phi.shape or inside.dtype != np.bool_:
            expected = f"true or false for each of {phi.shape}, models and records"
            raise InvalidArgument("members", (inside.shape, str(inside.dtype)), expected)
        object.__setattr__(self, "confidence", phi)
        object.__setattr__(self, "members", inside)

    @property
    def count(self) -> int:
        """How many reference models there are."""
        return len(self.confidence)

    @property
    def records(self) -> int:
        """How many records each of them was asked about."""
        return int(self.confidence.shape[1])

    def without(self, model: int) -> tuple[Floats, Mask, References]:
        """One model as a target (its confidences and members), and the references that remain.

        The way to try an attack, or choose its settings, without touching the real target.
        """
        rest = np.arange(self.count) != model
        if rest.all() or not rest.any():
            raise InvalidArgument("model", model, f"one of {self.count} models, of two or more")
        left = References(confidence=self.confidence[rest], members=self.members[rest])
        return self.confidence[model], self.members[model], left

    def only(self, chosen: Any) -> References:
        """The same models on some of the records (a mask or indices)."""
        return References(confidence=self.confidence[:, chosen], members=self.members[:, chosen])


def random_halves(records: int, count: int, *, seed: int) -> Mask:
    """Who is in which model's training set: random halves, in pairs that complement each other.

    So every record is in exactly half of an even number of models, and the first models stay the
    same when more are added.

    >>> random_halves(6, 4, seed=0).sum(axis=0).tolist()
    [2, 2, 2, 2, 2, 2]
    """
    n = _check.count("records", records, minimum=2)
    count = _check.count("count", count)
    inside = np.zeros((count, n), dtype=np.bool_)
    for k in range(0, count, 2):
        chosen = seeded(seed).child("halves", k // 2).sample(n, n // 2)
        inside[k, chosen] = True
        if k + 1 < count:
            inside[k + 1] = ~inside[k]
    return inside


def train_references(
    train: Train,
    X: NDArray[Any],
    y: NDArray[Any],
    count: int,
    *,
    seed: int,
    out: str | os.PathLike[str] | None = None,
    what: str = "",
    jobs: int | None = None,
    read: Read | None = None,
    members: Mask | None = None,
) -> References:
    """Train `count` models on random halves of the records, and ask each about all of them.

    `train(X, y, seed)` returns a model of any kind that `attack` takes. With `out`, each finished
    model's numbers are kept in that folder and a later call with the same data, seed and `what` (a
    name for the recipe, which cannot be seen from outside) goes on from there; more models may be
    asked for. `jobs` and the backend are joblib's. `members` (models by records) replaces the
    random halves: all false for records that no reference may be trained on.

    >>> def train(X, y, seed):  # always says what is most frequent
    ...     share = np.bincount(y, minlength=2) / len(y)
    ...     return lambda records: np.tile(share, (len(records), 1))
    >>> train_references(train, np.zeros((8, 1)), np.arange(8) % 2, 2, seed=0).confidence.shape
    (2, 8)
    """
    X, y = np.asarray(X), np.asarray(y)
    count = _check.count("count", count)
    if y.ndim != 1 or len(X) != len(y) or len(y) < 2:
        raise InvalidArgument("y", y.shape, f"one label for each of {len(X)} records, two or more")
    inside = random_halves(len(y), count, seed=seed) if members is None else np.asarray(members)
    if inside.shape != (count, len(y)) or inside.dtype != np.bool_ or not inside.any(axis=1).all():
        expected = f"true or false for each of {(count, len(y))}, some true in every row"
        raise InvalidArgument("members", (inside.shape, str(inside.dtype)), expected)
    cache = None if out is None else _Cache.open(Path(out), X, y, seed, what)
    done: dict[int, tuple[Floats, float]] = {}
    if cache is not None:
        done = {k: v for k in range(count) if (v := cache.read(k, inside[k])) is not None}
    missing = [k for k in range(count) if k not in done]
    if jobs is not None and (not isinstance(jobs, int) or jobs == 0):
        raise InvalidArgument("jobs", jobs, "a whole number other than 0; -1 takes all processors")
    joblib: Any = _joblib() if missing else None
    size = max(1, int(joblib.effective_n_jobs(jobs))) if missing else 1
    with _progress(len(missing)) as advance:
        for start in range(0, len(missing), size):  # after each batch the results are on disk
            part = missing[start : start + size]
            work = [joblib.delayed(_one)(train, read, X, y, inside[k], k, seed) for k in part]
            for k, phi, seconds in joblib.Parallel(n_jobs=jobs)(work):
                done[k] = (phi, seconds)
                if cache is not None:
                    cache.write(k, phi, inside[k], seconds)
            advance(len(part))
    return References(
        confidence=np.stack([done[k][0] for k in range(count)]),
        members=inside,
        seconds=tuple(done[k][1] for k in range(count)),
    )


def _one(
    train: Train, read: Read | None, X: Any, y: Any, inside: Mask, k: int, seed: int
) -> tuple[int, Floats, float]:
    """Train model k and ask it; runs in a worker."""
    began = time.perf_counter()
    own = int(seeded(seed).child("model", k).uint64(1)[0] % 2**31)
    model = train(X[inside], y[inside], own)
    phi = np.asarray(confidence_of_model(model, X, y, read=read), dtype=np.float64)
    if phi.shape != y.shape or not np.isfinite(phi).all():
        raise InvalidArgument(
            "read", phi.shape, f"a finite confidence for each of {len(y)} records"
        )
    return k, phi, time.perf_counter() - began


def _joblib() -> Any:
    try:
        import joblib
    except ImportError:
        raise InvalidArgument(
            "joblib", None, "installed for reference models", "pip install 'privet[train]'"
        ) from None
    return joblib


@contextmanager
def _progress(models: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, else nothing."""
    if not models or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("reference models", total=models)
        yield lambda done: bar.advance(task, done)


@final
@dataclass(frozen=True, kw_only=True)
class _Cache:
    """The folder of one set of reference models."""

    folder: Path

    @classmethod
    def open(cls, folder: Path, X: Any, y: Any, seed: int, what: str) -> _Cache:
        """The folder, made if need be; refused if it belongs to something else."""
        digest = hashlib.sha256()
        for array in (X, y):
            digest.update(f"{array.dtype.str} {array.shape}\n".encode())
            plain = array.astype(str) if array.dtype == object else array  # not addresses of words
            digest.update(np.ascontiguousarray(plain).tobytes())
        own = {"data": digest.hexdigest()[:32], "seed": int(seed), "what": what}
        path = folder / "references.json"
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists():
            found = json.loads(path.read_text())
            other = [name for name in own if found.get(name) != own[name]]
            if other:
                raise InvalidArgument(
                    "out",
                    str(folder),
                    f"a folder of references with the same {', '.join(other)}",
                    "take another folder, or delete this one",
                )
        else:
            write_whole(path, json.dumps(own, indent=2))
        return cls(folder=folder)

    def read(self, k: int, inside: Mask) -> tuple[Floats, float] | None:
        """The numbers of model k if they are there and belong to this training set."""
        path = self._path(k)
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as file:
            if not np.array_equal(np.unpackbits(file["members"], count=len(inside)), inside):
                raise InvalidArgument(
                    "members", str(path), "those the model was trained with", "take another folder"
                )
            return file["confidence"], float(file["seconds"])

    def write(self, k: int, phi: Floats, inside: Mask, seconds: float) -> None:
        """Keep the numbers of model k; the file is whole or not there."""
        packed = np.packbits(inside)
        with replacing(self._path(k)) as file:
            np.savez(file, confidence=phi, members=packed, seconds=seconds)

    def _path(self, k: int) -> Path:
        return self.folder / f"reference-{k:04d}.npz"
