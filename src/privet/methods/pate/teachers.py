"""Teachers: records are dealt into shards, and one teacher is trained on each and asked."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.data.records import Records
from privet.errors import InvalidArgument, PrivetError
from privet.jobs import use_backend
from privet.methods.pate.learner_adapters import Learner

Array = NDArray[Any]
Shard = tuple[Any, Any]
"""Inputs and targets of one teacher."""
TeacherWatcher = Callable[[int, int], None]
"""Called with how many teachers have answered, and of how many."""


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


def deal_shards(records: Records, teachers: int) -> list[Shard]:
    """Rows and class numbers of each teacher; a null record keeps its place and is left out.

    Record i goes to teacher i mod K; where records have users, all of user u to teacher u mod K, so
    that a user is in one shard.
    """
    places = np.arange(len(records)) if records.groups is None else records.groups
    if records.groups is not None and (users := int(places.max(initial=-1)) + 1) < teachers:
        raise InvalidArgument("teachers", teachers, f"at most {users}, the number of groups")
    whose = np.where(records.null, -1, places % teachers)
    rows = records.rows.box()
    rows_of = [np.flatnonzero(whose == k) for k in range(teachers)]
    return [(rows[place].astype(np.float64), records.targets[place]) for place in rows_of]


def ask_teachers(
    learner: Learner,
    shards: Sequence[Shard],
    public_inputs: Any,
    encode: Callable[[str, Array], Any],
    *,
    sites: Sequence[str],
    seed: int = 0,
    backend: str = "loky",
    n_workers: int = 1,
    watcher: TeacherWatcher | None = None,
) -> list[Any]:
    """What `encode(site, predictions)` makes of each teacher's predictions: *private* until noised.

    Teacher k is trained with seed + k, by joblib's `backend` (loky, threading, ray, dask).
    """
    from joblib import Parallel, delayed

    if len(shards) == 0:
        raise InvalidArgument("shards", shards, "at least one (inputs, targets) pair")
    jobs = (
        delayed(_one_teacher)(learner, shard, public_inputs, encode, site, seed + k)
        for k, (shard, site) in enumerate(zip(shards, sites, strict=True))
    )
    answers: list[Any] = []
    as_they_come = "list" if backend == "ray" else "generator"  # Ray has no generator
    with use_backend(backend, n_workers):
        for one in Parallel(return_as=as_they_come)(jobs):
            answers.append(one)
            if watcher is not None:
                watcher(len(answers), len(shards))
    failed = {s: f.kind for s, f in zip(sites, answers, strict=True) if isinstance(f, _Failure)}
    if failed:
        raise TeacherFailed(failed, len(shards))
    return answers


@final
@dataclass(frozen=True, kw_only=True)
class _Failure:
    kind: str


def _one_teacher(
    learner: Learner,
    shard: Shard,
    public_inputs: Any,
    encode: Callable[[str, Array], Any],
    site: str,
    seed: int,
) -> Any:
    """Train one teacher and encode its answers; this is all that happens at a site.

    What it warns of and why it fails can quote its records: neither leaves the site.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return encode(site, learner.train(*shard, seed=seed)(public_inputs))
    except Exception as e:  # reported by its type, whatever it was
        return _Failure(kind=type(e).__name__)
