"""Run a private training, kill it at random moments, go on; prints what was released and charged.

Started as a script by test_charging.py, so that the forks are not pytest's. Every release writes a line
"step hash" to a file that survives SIGKILL, its step before the noise is drawn.
"""

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from privet.ledger import Ledger
from privet.methods.dpsgd import Checkpoints, Schedule, dpsgd_loop
from privet.noise import secure, seeded
from tests.methods.dpsgd.helpers import data, losses_of, network, run, start, weights

STEPS, EVERY = 400, 5


def train(folder: Path, *, secret: bool) -> torch.Tensor:
    """One attempt: from the last checkpoint to the end, unless killed."""
    torch.set_num_threads(1)
    log = os.open(folder / "released", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    real = dpsgd_loop.release_sum_
    done = {"step": 0}

    def watched(flat, **kw):
        os.write(log, f"{done['step']}\n".encode())
        scale = real(flat, **kw)
        name = hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16]
        os.write(log, f"{done['step']} {name}\n".encode())
        return scale

    dpsgd_loop.release_sum_ = watched
    rate = 1.0 if secret else 0.5  # sampled rates make charging slow: kills hit it too
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    training = start(
        model=model,
        optimizer=optimizer,
        tensors=data(200),
        schedule=Schedule(steps=STEPS, sample_rate=rate, noise_multiplier=50.0),
        rng=secure() if secret else seeded(3),
        ledger=Ledger.open(folder / "run.ledger"),
        checkpoints=Checkpoints(folder=folder, every=EVERY),
        block=2 * EVERY,
        ema=0.9,
        micro_batch=40,
    )
    with training:
        for batch in training:
            done["step"] = batch.step
            training.step(losses_of(training.model, batch))
    dpsgd_loop.release_sum_ = real
    return torch.cat([weights(model), weights(training.averaged_model())])


def charged_steps(folder: Path) -> int:
    """How many steps the ledger's entries speak of, a step charged twice counted twice."""
    total = 0
    for entry in Ledger.open(folder / "run.ledger").entries():
        a, b = entry.token.rsplit(" ", 1)[1].split("-")
        total += int(b) - int(a) + 1
    return total


def lines(folder: Path) -> list[str]:
    """The lines of the file of releases, none where there is no file yet."""
    path = folder / "released"
    return path.read_text().splitlines() if path.exists() else []


def wait(folder: Path, moments: random.Random) -> None:
    """Until some random number of further releases, and a little more; or only a random time."""
    target = len(lines(folder)) + 2 * moments.randint(1, 20)
    if moments.random() < 0.3:
        time.sleep(moments.uniform(0.0, 0.2))  # most likely in starting, resuming or charging
        return
    until = time.monotonic() + 20.0
    while len(lines(folder)) < target and time.monotonic() < until:
        time.sleep(0.0005)
    time.sleep(moments.uniform(0.0, 0.004))


def main(folder: Path, mode: str, kills: int) -> None:
    secret = mode == "secure"
    folder.mkdir(parents=True)
    Ledger.create(folder / "run.ledger", cap_epsilon=1e6, cap_delta=1e-5)
    run(schedule=Schedule(steps=2, sample_rate=0.5, noise_multiplier=50.0))  # import everything
    moments = random.Random(5)
    killed = finished = 0
    trail = []
    while killed < kills and not finished:
        child = os.fork()
        if child == 0:
            train(folder, secret=secret)
            os._exit(0)
        wait(folder, moments)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            killed += 1
        elif os.WEXITSTATUS(status) == 0:
            finished = 1
        else:
            raise SystemExit("an attempt failed by itself")
        begun = [int(line) for line in lines(folder) if " " not in line]
        trail.append(
            {
                "released": len(begun) if secret else len(set(begun)),
                "charged": charged_steps(folder),
            }
        )
    final = train(folder, secret=secret)
    hashes = [line.split(" ") for line in lines(folder) if " " in line]
    by_step: dict[str, set[str]] = {}
    for step, name in hashes:
        by_step.setdefault(step, set()).add(name)
    ledger = Ledger.open(folder / "run.ledger")
    ledger.verify()
    print(
        json.dumps(
            {
                "killed": killed,
                "finished_early": finished,
                "trail": trail,
                "steps": len(by_step),
                "releases": len(hashes),
                "distinct": sum(len(names) for names in by_step.values()),
                "charged": charged_steps(folder),
                "weights": hashlib.sha256(final.numpy().tobytes()).hexdigest(),
            }
        )
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
