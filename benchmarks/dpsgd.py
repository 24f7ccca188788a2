"""Step time and memory of private training against non-private SGD and against peers.

    python -m benchmarks.dpsgd [--json] [--quick] [--cases mlp-512 ...] [--methods ours ...]
                               [--resume FILE]

One thread. Every method of a case has a process of its own, so that none works in another's heap.
Its first two steps give the peak memory growth: the highest resident size during them over the size
just before, as a multiple of plain channels-first's. Then the methods take turns, round after
round, so that a busy machine slows all of them alike. A turn is one step that is not timed, to warm
the caches, and two that are; of a step over two seconds the first counts, and a method 20 times
slower than plain has one turn. The median step is reported as a multiple of the plain step in
channels-first layout in the same run. `--resume` keeps finished cases in a file and skips them.
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
from privet.gradients import keep_freed_memory
from privet.methods.dpsgd import Sampling, Schedule, StepOptions, private
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


def ours(case: Case, *, declared: bool = False, alone: bool = False, batched: bool = False) -> Step:
    """privet's own training loop, `privet.dpsgd.private`, with nothing left out.

    At rate 1 every step takes the whole batch, so all methods work on the same rows. `declared`:
    the number of records is a secret (add-remove), so products of matrices are in float64. `alone`:
    every record is computed by itself (`batch_invariant`), the price of exactness to the last bit.
    `batched`: the loss function sees the whole batch, *tested*; else it is traced, *enforced*.
    The allocator keeps freed memory, as in `privet train`.
    """
    keep_freed_memory()
    model, x, y = case.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    schedule = Schedule(steps=10_000, sample_rate=1.0, noise_multiplier=NOISE_MULTIPLIER)
    training = private(
        model,
        optimizer,
        (x, y),
        schedule,
        delta=1e-5,
        losses=lambda model, batch: losses_of(model, batch.x, batch.y),
        rng=secure(),
        sampling=Sampling(n_public=len(x) if declared else None),
        step=StepOptions(
            micro_batch=case.micro_batch,
            batch_invariant=alone,
            independence="tested" if batched else "enforced",
        ),
    )
    steps = iter(training)

    def step() -> None:
        next(steps)

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
    "ours-batched": lambda case: ours(case, batched=True),
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


class Grown(NamedTuple):
    """Megabytes by which the resident size grew at most in the first steps."""

    megabytes: float


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

    def turn(self) -> Grown | list[Seconds] | str:
        """At first the memory, then the durations of a turn's steps; or why there are none."""
        try:
            self._pipe.send("go")
            answer: Grown | list[Seconds] | str = self._pipe.recv()
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
                pipe.send(_first_steps(step))
            else:
                pipe.send(_turn(step))
        except NotApplicable:
            pipe.send([])
        except Exception as error:  # a peer that cannot do this net is a result
            pipe.send(f"{type(error).__name__}: {str(error).splitlines()[0][:80]}")


def _first_steps(step: Step) -> Grown:
    gc.collect()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(2):
        step()
    return Grown(max(0.0, _status("VmHWM") - before))


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} in /proc/self/status")


def _turn(step: Step) -> list[Seconds]:
    warming = _timed(step)
    return [warming] if warming.wall > 2.0 else [_timed(step), _timed(step)]


def _timed(step: Step) -> Seconds:
    gc.collect()
    start, start_cpu = time.perf_counter(), time.process_time()
    step()
    cpu = time.process_time() - start_cpu
    return Seconds(time.perf_counter() - start, cpu)


def measure(
    case: Case, methods: list[str], budget: float
) -> tuple[dict[str, Seconds | str], dict[str, float]]:
    """Median seconds a step for each method, or why it failed, and megabytes; all take turns."""
    workers = {name: Worker(case, name) for name in methods}
    out: dict[str, Seconds | str] = {}
    seen: dict[str, list[Seconds]] = {}
    memory: dict[str, float] = {}
    for name in methods:
        answer = workers[name].turn()
        if isinstance(answer, str):
            out[name] = answer
        elif isinstance(answer, Grown):
            seen[name], memory[name] = [], answer.megabytes
    deadline = time.perf_counter() + budget
    rounds = 0
    while rounds < 3 or (time.perf_counter() < deadline and rounds < 60):
        for name, some in seen.items():
            slow = rounds > 0 and _median(some).wall > 20 * _median(seen["plain"]).wall
            answer = [] if slow else workers[name].turn()
            assert isinstance(answer, list), answer
            some += answer
        rounds += 1
    for worker in workers.values():
        worker.close()
    return out | {name: _median(some) for name, some in seen.items()}, memory


def _median(some: list[Seconds]) -> Seconds:
    return Seconds(*(statistics.median(column) for column in zip(*some, strict=True)))


def _quietly() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")


def rows_of(case: Case, methods: list[str], budget: float) -> list[Row]:
    """The table's rows for one case."""
    seconds, memory = measure(case, methods, budget)
    base = seconds["plain"]
    assert isinstance(base, Seconds), base
    rows = []
    for method, value in seconds.items():
        if isinstance(value, str):
            rows.append(Row(case.name, method, note=value))
        else:
            ratios = value.wall / base.wall, memory[method] / memory["plain"], value.cpu / base.cpu
            rows.append(Row(case.name, method, *ratios, value.wall * 1e3, memory[method]))
    return rows


def main() -> None:
    """Run the benchmark and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="three rounds a case")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each case's rounds")
    parser.add_argument("--resume", type=Path, help="a file of finished cases, to go on with")
    options = parser.parse_args()
    _quietly()
    methods = list(dict.fromkeys(["plain", *options.methods]))
    kept = options.resume.read_text() if options.resume and options.resume.exists() else ""
    rows = [Row(**json.loads(line)) for line in kept.splitlines()]
    for name in options.cases:
        new = [row for row in rows if row.net == name]
        if not new:
            new = rows_of(CASES[name], methods, 0.0 if options.quick else options.seconds)
            rows += new
            if options.resume:
                with options.resume.open("a") as file:
                    file.writelines(json.dumps(row._asdict()) + "\n" for row in new)
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
