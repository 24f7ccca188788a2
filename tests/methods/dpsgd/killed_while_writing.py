"""Kill a private training at every stage of writing every checkpoint; print what was lost.

Started as a script by test_resume.py, so that the forks are not pytest's. Every attempt goes on
from the last whole checkpoint and ends by SIGKILL at one stage of writing the next one, in the
middle of a charge, or by a full disk. Every release writes its step, before the noise is drawn, and
then a line "step sum noise" to a file that survives.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import torch

from privet import _atomic_files
from privet.errors import PrivetError
from privet.ledger import Ledger
from privet.methods.dpsgd import Checkpoints, Schedule, dpsgd_loop
from privet.noise import secure, seeded
from tests.methods.dpsgd.helpers import data, losses_of, network, run, start, weights

STEPS, EVERY = 9, 3
STAGES = (
    "before it is made", "when it is made", "half written", "before it is on disk",
    "before it is renamed",
)  # fmt: skip
"""The old checkpoint stays: the next attempt begins where this one did."""
WRITTEN = ("after it is renamed", "after it is written")
CHARGES = ("before a charge", "after a charge")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class FileThatDies:
    """A file of which half of the first write reaches the disk."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __enter__(self) -> FileThatDies:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, content: bytes) -> int:
        self._file.write(content[: len(content) // 2])
        self._file.flush()
        os.fsync(self._file.fileno())
        die()
        return 0


class DyingSystem:
    """The `os` of the module that writes files, which kills the process at one stage."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Any, flags: int, *mode: int) -> int:
        making = bool(flags & os.O_CREAT)
        if making and self._stage == "before it is made":
            die()
        handle = os.open(path, flags, *mode)
        if making and self._stage == "when it is made":
            die()
        return handle

    def fdopen(self, handle: int, mode: str) -> Any:
        file = os.fdopen(handle, mode)
        return FileThatDies(file) if self._stage == "half written" else file

    def fsync(self, handle: int) -> None:
        if self._stage == "before it is on disk":
            die()
        os.fsync(handle)

    def replace(self, source: Any, target: Any) -> None:
        if self._stage == "before it is renamed":
            die()
        os.replace(source, target)
        if self._stage == "after it is renamed":
            die()


def before(original: Callable[..., Any]) -> Callable[..., Any]:
    def dying(*a: Any, **k: Any) -> Any:
        die()
        return original(*a, **k)

    return dying


def after(original: Callable[..., Any]) -> Callable[..., Any]:
    def dying(*a: Any, **k: Any) -> Any:
        original(*a, **k)
        die()

    return dying


def arm(stage: str | None) -> None:
    """Make this process die at the stage; it was forked for that."""
    if stage is None:
        return
    if stage in CHARGES:
        Ledger.charge = (before if stage == CHARGES[0] else after)(Ledger.charge)  # type: ignore[method-assign]
    elif stage == "after it is written":
        Checkpoints.write = after(Checkpoints.write)  # type: ignore[method-assign]
    else:
        _atomic_files.os = DyingSystem(stage)  # type: ignore[assignment]


def train(folder: Path, *, secret: bool) -> torch.Tensor:
    """One attempt: from the last checkpoint to the end, unless killed."""
    log = os.open(folder / "released", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    real, now = dpsgd_loop.release_sum_, {"step": 0}

    def watched(flat: torch.Tensor, **more: Any) -> float:
        os.write(log, f"{now['step']}\n".encode())
        exact = flat.clone()
        scale = real(flat, **more)
        noise = (flat.double() - exact.double())[:4].tolist()
        drawn = " ".join(f"{x:.3f}" for x in noise)  # of a scale of 50: no two are alike
        named = [
            hashlib.sha256(x).hexdigest()[:12] for x in (exact.numpy().tobytes(), drawn.encode())
        ]
        os.write(log, f"{now['step']} {' '.join(named)}\n".encode())
        return scale

    dpsgd_loop.release_sum_ = watched  # type: ignore[assignment]
    model = network()
    training = start(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        tensors=data(40),
        schedule=Schedule(steps=STEPS, sample_rate=1.0, noise_multiplier=50.0),
        rng=secure() if secret else seeded(3),
        ledger=Ledger.open(folder / "run.ledger"),
        checkpoints=Checkpoints(folder=folder, every=EVERY),
        block=EVERY,
        micro_batch=40,
    )
    with training:
        for batch in training:
            now["step"] = batch.step
            training.step(losses_of(training.model, batch))
    dpsgd_loop.release_sum_ = real
    return weights(model)


def attempt(folder: Path, *, secret: bool, stage: str | None, room: int | None = None) -> int:
    """How a process that trains ended: 0 whole, 9 killed, 3 by a line of ours."""
    child = os.fork()
    if child == 0:
        if room is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        arm(stage)
        try:
            train(folder, secret=secret)
        except PrivetError as error:
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def releases(folder: Path) -> list[list[str]]:
    path = folder / "released"
    return [line.split(" ") for line in path.read_text().splitlines()] if path.exists() else []


def charged_steps(ledger: Ledger) -> int:
    """How many steps the entries speak of, a step charged twice counted twice."""
    found = (entry.token.rsplit(" ", 1)[1].split("-") for entry in ledger.entries() if entry.token)
    return sum(int(last) - int(first) + 1 for first, last in found)


def lost(folder: Path, *, secret: bool) -> int:
    """Steps that were begun and are not paid for; a seeded one that is repeated is paid once."""
    begun = [line[0] for line in releases(folder) if len(line) == 1]
    paid = charged_steps(Ledger.open(folder / "run.ledger"))
    return max(0, (len(begun) if secret else len(set(begun))) - paid)


def noise_drawn_twice(folder: Path) -> int:
    """How often noise that was drawn before met another sum."""
    met: dict[str, set[str]] = {}
    for line in releases(folder):
        if len(line) == 3:
            met.setdefault(line[2], set()).add(line[1])
    return sum(len(sums) - 1 for sums in met.values())


def main(folder: Path, mode: str, kill: bool) -> None:
    torch.set_num_threads(1)
    secret = mode == "secure"
    folder.mkdir(parents=True)
    Ledger.create(folder / "run.ledger", cap_epsilon=1e6, cap_delta=1e-5)
    run(schedule=Schedule(steps=2, sample_rate=0.5, noise_multiplier=50.0))  # import everything
    kills = charges_lost = 0
    full: list[int] = []
    for k in range(STEPS // EVERY + 1 if kill else 0):
        full.append(attempt(folder, secret=secret, stage=None, room=512))  # a full disk
        charges_lost += lost(folder, secret=secret)
        for stage in (*(CHARGES if k else ()), *STAGES, WRITTEN[k % 2]):  # 0: before any step
            head = Ledger.open(folder / "run.ledger").head
            ended = attempt(folder, secret=secret, stage=stage)
            assert ended == signal.SIGKILL, (k, stage, ended)
            kills += 1
            Ledger.open(folder / "run.ledger").verify(head=head)  # no entry is gone
            charges_lost += lost(folder, secret=secret)
            step = Checkpoints(folder=folder).read()
            assert (step is None) == (k == 0 and stage in STAGES)
    final = train(folder, secret=secret)
    print(json.dumps({
        "kills": kills, "full": full, "charges lost": charges_lost,
        "noise drawn twice": noise_drawn_twice(folder),
        "releases": len([line for line in releases(folder) if len(line) == 3]),
        "charged": charged_steps(Ledger.open(folder / "run.ledger")),
        "left behind": len(list(folder.glob(".*.part"))),
        "weights": hashlib.sha256(final.numpy().tobytes()).hexdigest(),
    }))  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "kill")
