"""Step time and memory of private training against non-private SGD and against peers.

    python -m benchmarks.dpsgd [--json] [--quick] [--cases mlp-512 ...] [--methods ours ...]

One thread. Every method of a case has a process of its own, so that none works in another's heap;
they take turns, round after round, so that a busy machine slows all of them alike. A turn is one
step that is not timed, to warm the caches, and two that are. The median step is reported as a
multiple of the plain step in channels-first layout in the same run. Peak memory growth is measured
in a fresh process per method: the highest resident size during steps over the size just before
them, again as a multiple of plain channels-first's.
`cpu_ratio` compares processor time instead, which a busy machine disturbs less.
Noise and the optimiser's step are part of every private step. `ours` is the training loop itself,
`privet.dpsgd.private`: sampling, float64 sums over micro-batches, secure noise on a grid, the
diagnostics; the peers use what they bring, torch's generator.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.networks import CASES, Case
from privet.methods.dpsgd import Schedule, private
from privet.noise import secure

Step = Callable[[], None]
NOISE_MULTIPLIER = 1.0
LEARNING_RATE = 1e-3


def losses_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy, one value an example (averaged over voxels for segmentation)."""
    return (
        F.cross_entropy(model(x), y, reduction="none").flatten(1).mean(1)
        if y.dim() > 1
        else (F.cross_entropy(model(x), y, reduction="none"))
    )


def _noise_into(total: Tensor, std: float, divisor: float) -> None:
    """Add Gaussian noise to the sum and divide by the batch size, a cache-sized piece at a time."""
    flat = total.view(-1)
    buffer = torch.empty(min(len(flat), 2**16), dtype=flat.dtype)
    for piece in flat.split(2**16):
        noise = buffer[: len(piece)].normal_(0.0, std / divisor)
        torch.add(noise, piece, alpha=1.0 / divisor, out=piece)


def plain(case: Case, *, channels_last: bool) -> Step:
    """Non-private SGD."""
    model, x, y = case.build()
    if channels_last:
        layout = torch.channels_last_3d if x.dim() == 5 else torch.channels_last
        if x.dim() < 4:
            raise NotApplicable("no images")
        model, x = model.to(memory_format=layout), x.contiguous(memory_format=layout)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def step() -> None:
        optimizer.zero_grad()
        losses_of(model, x, y).mean().backward()
        optimizer.step()

    return step


def ours(case: Case, *, declared: bool = False, alone: bool = False) -> Step:
    """privet's own training loop, `privet.dpsgd.private`, with nothing left out.

    At rate 1 every step takes the whole batch, so all methods work on the same rows. `declared`:
    the number of records is a secret (add-remove), so products of matrices are in float64. `alone`:
    every record is computed by itself (`batch_invariant`), the price of exactness to the last bit.
    """
    model, x, y = case.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    schedule = Schedule(steps=10_000, sample_rate=1.0, noise_multiplier=NOISE_MULTIPLIER)
    training = private(
        model,
        optimizer,
        (x, y),
        schedule,
        delta=1e-5,
        rng=secure(),
        micro_batch=case.micro_batch,
        n_public=len(x) if declared else None,
        batch_invariant=alone,
    )
    batches = iter(training)

    def step() -> None:
        last = False
        while not last:
            batch = next(batches)
            last = batch.last
            training.step(losses_of(model, batch.x, batch.y))

    return step


def opacus(case: Case, mode: str) -> Step:
    """Opacus: hooks, ghost or functorch."""
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    model, x, y = case.build()
    inner = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    options = {"noise_multiplier": NOISE_MULTIPLIER, "max_grad_norm": 1.0}
    if mode == "ghost":
        ghost = GradSampleModuleFastGradientClipping(
            model, max_grad_norm=1.0, use_ghost_clipping=True, loss_reduction="mean"
        )
        ghost_optimizer = DPOptimizerFastGradientClipping(
            inner, expected_batch_size=len(x), loss_reduction="mean", **options
        )
        criterion = DPLossFastGradientClipping(
            ghost, ghost_optimizer, _PerExampleLoss(), loss_reduction="mean"
        )

        def ghost_step() -> None:
            ghost_optimizer.zero_grad()
            criterion(ghost(x), y).backward()
            ghost_optimizer.step()

        return ghost_step
    wrapped = GradSampleModule(model, force_functorch=mode == "functorch", loss_reduction="mean")
    optimizer = DPOptimizer(inner, expected_batch_size=len(x), loss_reduction="mean", **options)

    def step() -> None:
        optimizer.zero_grad()
        losses_of(wrapped, x, y).mean().backward()
        optimizer.step()
        optimizer.zero_grad()  # frees the per-example gradients: gigabytes on the MLP

    return step


class _PerExampleLoss(nn.Module):
    """Cross-entropy in the form Opacus' ghost clipping wants."""

    def __init__(self) -> None:
        super().__init__()
        self.reduction = "mean"  # Opacus checks this, and then sets it to "none"

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        losses = F.cross_entropy(output, target, reduction=self.reduction)
        return losses.flatten(1).mean(1) if losses.dim() > 1 else losses


def vmap(case: Case) -> Step:
    """torch.func: vmap(grad), clipping and noise written out."""
    model, x, y = case.build()
    names = [n for n, _ in model.named_parameters()]
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    def loss(p: dict[str, Tensor], one_x: Tensor, one_y: Tensor) -> Tensor:
        output = torch.func.functional_call(model, p, (one_x.unsqueeze(0),))
        return F.cross_entropy(output, one_y.unsqueeze(0))

    gradients_of = torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def step() -> None:
        detached = {n: p.detach() for n, p in parameters.items()}
        gradients = gradients_of(detached, x, y)
        norms = torch.stack([gradients[n].flatten(1).norm(dim=1) for n in names]).norm(dim=0)
        weights = (1.0 / norms).clamp(max=1.0)
        for n in names:
            total = torch.tensordot(weights, gradients[n], dims=1)
            _noise_into(total, NOISE_MULTIPLIER, len(x))
            parameters[n].grad = total
        optimizer.step()

    return step


class NotApplicable(Exception):
    """The method makes no sense for this case."""


METHODS: dict[str, Callable[[Case], Step]] = {
    "plain": lambda case: plain(case, channels_last=False),
    "plain-channels-last": lambda case: plain(case, channels_last=True),
    "ours": ours,
    "ours-add-remove": lambda case: ours(case, declared=True),
    "ours-alone": lambda case: ours(case, alone=True),
    "opacus-hooks": lambda case: opacus(case, "hooks"),
    "opacus-ghost": lambda case: opacus(case, "ghost"),
    "opacus-functorch": lambda case: opacus(case, "functorch"),
    "torch.func": vmap,
}


class Row(NamedTuple):
    """One line of the table."""

    net: str
    method: str
    time_ratio: float | None = None
    memory_ratio: float | None = None
    cpu_ratio: float | None = None
    milliseconds: float | None = None
    megabytes: float | None = None
    note: str = ""


class Seconds(NamedTuple):
    """Median duration of a step by the clock, and the processor time it took."""

    wall: float
    cpu: float


class Worker:
    """A process that has built one method for one case, and makes steps when told to."""

    def __init__(self, case: Case, method: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(case.name, method, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def turn(self) -> list[Seconds] | str:
        """The durations of a turn's steps, or why there are none."""
        try:
            self._pipe.send("go")
            answer: list[Seconds] | str = self._pipe.recv()
        except (EOFError, BrokenPipeError):
            return "the process ended (out of memory?)"
        return answer

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join()


def _work(case: str, method: str, pipe: Connection) -> None:
    """What a worker does: a turn for every message, until there are no more."""
    _quietly()
    step: Step | None = None
    while True:
        try:
            pipe.recv()
        except EOFError:
            return
        try:
            if step is None:
                step = METHODS[method](CASES[case])
            pipe.send(_turn(step))
        except NotApplicable:
            pipe.send([])
        except Exception as error:  # a peer that cannot do this net is a result
            pipe.send(f"{type(error).__name__}: {str(error).splitlines()[0][:80]}")


def _turn(step: Step) -> list[Seconds]:
    step()
    out = []
    for _ in range(2):
        gc.collect()
        start, start_cpu = time.perf_counter(), time.process_time()
        step()
        cpu = time.process_time() - start_cpu
        out.append(Seconds(time.perf_counter() - start, cpu))
    return out


def time_case(case: Case, methods: list[str], budget: float) -> dict[str, Seconds | str]:
    """Median seconds a step for each method, or why it failed; the methods take turns."""
    workers = {name: Worker(case, name) for name in methods}
    out: dict[str, Seconds | str] = {}
    seen: dict[str, list[Seconds]] = {}
    for name in methods:  # the first turn, which builds, is not counted
        answer = workers[name].turn()
        if isinstance(answer, str):
            out[name] = answer
        elif answer:
            seen[name] = []
    deadline = time.perf_counter() + budget
    rounds = 0
    while rounds < 2 or (time.perf_counter() < deadline and rounds < 60):
        for name, some in seen.items():
            slow = rounds >= 2 and _median(some).wall > 20 * _median(seen["plain"]).wall
            answer = [] if slow else workers[name].turn()
            assert isinstance(answer, list), answer
            some += answer
        rounds += 1
    for worker in workers.values():
        worker.close()
    return out | {name: _median(some) for name, some in seen.items()}


def _median(some: list[Seconds]) -> Seconds:
    return Seconds(*(statistics.median(column) for column in zip(*some, strict=True)))


def _quietly() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")


def peak_growth(case: Case, method: str) -> float:
    """Megabytes by which the resident size grows at most during three steps, in this process."""
    step = METHODS[method](case)
    gc.collect()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(3):
        step()
    return max(0.0, _status("VmHWM") - before)


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


def _memory_in_child(case: str, method: str) -> float | None:
    command = [sys.executable, "-m", "benchmarks.dpsgd", "--memory-of", case, method]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


def rows_of(case: Case, methods: list[str], budget: float, with_memory: bool) -> list[Row]:
    """The table's rows for one case."""
    seconds = time_case(case, methods, budget)
    base = seconds["plain"]
    assert isinstance(base, Seconds), base
    memory = {m: _memory_in_child(case.name, m) for m in seconds} if with_memory else {}
    floor = memory.get("plain")
    rows = []
    for method, value in seconds.items():
        grown = memory.get(method)
        share = grown / floor if grown is not None and floor else None
        if isinstance(value, str):
            rows.append(Row(case.name, method, note=value))
        else:
            ratios = value.wall / base.wall, share, value.cpu / base.cpu
            rows.append(Row(case.name, method, *ratios, value.wall * 1e3, grown))
    return rows


def main() -> None:
    """Run the benchmark and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a few rounds, no memory")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seconds", type=float, default=60.0, help="time for each case")
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    _quietly()
    if options.memory_of:
        case, method = options.memory_of
        print(peak_growth(CASES[case], method))
        return
    methods = list(dict.fromkeys(["plain", *options.methods]))
    rows: list[Row] = []
    for name in options.cases:
        budget = 5.0 if options.quick else options.seconds
        new = rows_of(CASES[name], methods, budget, with_memory=not options.quick)
        rows += new
        if not options.json:
            for row in new:
                print(_line(row), flush=True)
    if options.json:
        print(json.dumps({"threads": 1, "rows": [row._asdict() for row in rows]}, indent=1))


def _line(row: Row) -> str:
    def show(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    return (
        f"{row.net:12} {row.method:20} time {show(row.time_ratio, '6.2f')}  "
        f"cpu {show(row.cpu_ratio, '6.2f')}  memory {show(row.memory_ratio, '6.2f')}  "
        f"{show(row.milliseconds, '8.1f')} ms  {row.note}"
    )


if __name__ == "__main__":
    main()
