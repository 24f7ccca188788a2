"""Teachers on their shards, here or on a cluster: each is trained and asked for its answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from numpy.typing import NDArray

from privet._workers import workers
from privet.errors import InvalidArgument, PrivetError
from privet.methods.pate.learners import Learner

Array = NDArray[Any]
Shard = tuple[Any, Any]
"""Inputs and targets of one teacher."""
Watcher = Callable[[int, int], None]
"""Told how many teachers have answered, and of how many."""


class TeacherFailed(PrivetError):
    """Teachers that could not be trained; none was dropped, since that changes the guarantee.

    `failures` names each, with the type of its exception and no more: the text of one can hold
    values of private records.
    """

    def __init__(self, failures: dict[str, str], of: int) -> None:
        self.failures, self.of = failures, of
        shown = ", ".join(f"{site} ({problem})" for site, problem in failures.items())
        super().__init__(
            f"{len(failures)} of {of} teachers failed: {shown}; nothing was aggregated or charged: "
            "mend them, or plan with fewer teachers"
        )


def ask_teachers(
    learner: Learner,
    shards: Sequence[Shard],
    public_inputs: Any,
    read: Callable[[str, Array], Any],
    *,
    sites: Sequence[str],
    seed: int = 0,
    backend: str = "loky",
    n_workers: int = 1,
    watcher: Watcher | None = None,
) -> list[Any]:
    """What `read(site, predictions)` makes of each teacher's predictions: *private* until noised.

    Teacher k is trained with seed + k, by joblib's `backend` (loky, threading, ray, dask).
    """
    from joblib import Parallel, delayed

    if len(shards) == 0:
        raise InvalidArgument("shards", shards, "at least one (inputs, targets) pair")
    jobs = (
        delayed(_one_teacher)(learner, shard, public_inputs, read, site, seed + k)
        for k, (shard, site) in enumerate(zip(shards, sites, strict=True))
    )
    found: list[Any] = []
    as_they_come = "list" if backend == "ray" else "generator"  # Ray has no generator
    with workers(backend, n_workers):
        for one in Parallel(return_as=as_they_come)(jobs):
            found.append(one)
            if watcher is not None:
                watcher(len(found), len(shards))
    failed = {s: f.kind for s, f in zip(sites, found, strict=True) if isinstance(f, _Failure)}
    if failed:
        raise TeacherFailed(failed, len(shards))
    return found


@final
@dataclass(frozen=True, kw_only=True)
class _Failure:
    kind: str


def _one_teacher(
    learner: Learner,
    shard: Shard,
    public_inputs: Any,
    read: Callable[[str, Array], Any],
    site: str,
    seed: int,
) -> Any:
    """Train one teacher and read its answers; this is all that happens at a site.

    What it warns of and why it fails can quote its records: neither leaves the site.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read(site, learner.train(*shard, seed=seed)(public_inputs))
    except Exception as e:  # reported by its type, whatever it was
        return _Failure(kind=type(e).__name__)
