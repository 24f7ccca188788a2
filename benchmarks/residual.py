"""Step time of a perturbed ResNet8 against the plain one and against DP-SGD.

    python -m benchmarks.residual [--json] [--rounds 15] [--batch 128]
    python -m benchmarks.residual --queries [--json]

One thread, pictures of 32x32 in colour, batches of 128 as in the paper. The methods take turns,
round after round, so that a busy machine slows all of them alike; the median step is reported as a
multiple of the plain step of the same run (`time_ratio`), and processor time likewise
(`cpu_ratio`). DP-SGD is Opacus' (per-example gradients of a ResNet8 with group normalisation; torch
noise) and privet's; `group-norm` is the plain step of that network, the fair denominator for them.

`--queries`: what an answer of a served Strategy II model costs and how good it is, on the digits of
scikit-learn (1,438 training records, 10 epochs; accuracy on the test part).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from privet import data
from privet.gradients import FlatClipping, PerExampleGradients
from privet.guarantee import Adjacency
from privet.methods.dpsgd.noise_addition import EngineSummation, release_sum_, with_rounding
from privet.methods.noisy_inputs import PlainTraining, QueryNet, mean_probabilities
from privet.networks.residual import Perturbation, ResNet, Strategy
from privet.noise import secure
from privet_papers.residual.theorems import TheoremTwo

Step = Callable[[], None]


def _pictures(batch: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    return x, torch.randint(0, 10, (batch,))


def plain(batch: int, law: Perturbation | None = None, **kw: object) -> Step:
    """SGD with momentum on a ResNet8, perturbed or not."""
    torch.manual_seed(0)
    net = ResNet(perturbation=law, **kw)  # type: ignore[arg-type]
    net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x, y = _pictures(batch)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    return step


def opacus(batch: int) -> Step:
    """DP-SGD by Opacus."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    torch.manual_seed(0)
    net = GradSampleModule(ResNet(normalisation="group"))
    x, y = _pictures(batch)
    optimizer = DPOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
        noise_multiplier=1.1,
        max_grad_norm=1.0,
        expected_batch_size=batch,
    )

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x.contiguous()), y).backward()
        optimizer.step()

    return step


def _losses(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    losses: Tensor = F.cross_entropy(net(x), y, reduction="none")
    return losses


def privet_dpsgd(batch: int) -> Step:
    """DP-SGD by privet: clipped sums and secure noise on a grid."""
    torch.manual_seed(0)
    net = ResNet(normalisation="group")
    engine = PerExampleGradients(net, clipping=FlatClipping(bound=1.0))
    x, y = _pictures(batch)
    (x,) = engine.prepare(x.contiguous())
    total, source = engine.zeros(), secure()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    summation = EngineSummation(
        relation=Adjacency.ZERO_OUT, records=batch, micro_batch=64, convolutions=True
    )

    def step() -> None:
        engine.accumulate(_losses, x, y, micro_batch=64, into=total.reset())
        bound = with_rounding(total.sensitivity, summation)
        release_sum_(
            total.flat, sensitivity=bound, noise_multiplier=1.1, source=source.child("noise", 0)
        )
        total.assign_to(net, divisor=batch)
        optimizer.step()

    return step


def measure(batch: int, rounds: int) -> list[dict[str, float | str]]:
    """Median ratios to the plain step of the same run."""
    two = Strategy.MULTIPLICATIVE
    steps: dict[str, Step] = {
        "plain": plain(batch),
        "perturbed, I": plain(batch, Perturbation(gamma=0.5), input_noise=0.25),
        "perturbed, II": plain(batch, Perturbation(gamma=0.5, strategy=two)),
        "group-norm": plain(batch, normalisation="group"),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps["Opacus DP-SGD"] = opacus(batch)
        steps["privet DP-SGD"] = privet_dpsgd(batch)
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
        for round_ in range(rounds + 1):
            for name, step in steps.items():
                wall, cpu = time.perf_counter(), time.process_time()
                step()
                spent = (time.perf_counter() - wall, time.process_time() - cpu)
                if round_:  # the first is to warm up
                    taken[name].append(spent)
    return [_row(name, own, taken["plain"]) for name, own in taken.items()]


def _row(
    name: str, own: list[tuple[float, float]], base: list[tuple[float, float]]
) -> dict[str, float | str]:
    """Ratios within a round, and their medians: what slows a round slows all of it."""
    both = list(zip(own, base, strict=True))
    return {
        "method": name,
        "milliseconds": 1e3 * statistics.median(wall for wall, _ in own),
        "time_ratio": statistics.median(a[0] / b[0] for a, b in both),
        "cpu_ratio": statistics.median(a[1] / b[1] for a, b in both),
    }


def queries() -> list[dict[str, float]]:
    """Cost and accuracy of one answer of a `QueryNet`, for five levels of noise."""
    digits = data.load("digits")
    x, x_test = (
        torch.from_numpy(rows.reshape(-1, 1, 8, 8))
        for rows in (digits.train_rows(), digits.test_rows())
    )
    rows = []
    for noise, bound in ((4.0, 20.0), (1.0, 20.0), (0.5, 20.0), (0.25, 20.0), (0.25, 40.0)):
        torch.manual_seed(0)
        net = QueryNet(
            channels=1, classes=10, bound=bound, floor=1.0, gamma=noise, last=bound,
            output_noise=noise, widths=(8, 8, 16),
        )  # fmt: skip
        training = PlainTraining(epochs=10, learning_rate=0.02 if noise > 0.3 else 0.05)
        training.run(net, lambda _: x, torch.from_numpy(digits.y_train.copy()))
        found = mean_probabilities(net, x_test, seed=0).argmax(1) == digits.y_test
        one = net.cost
        rows.append(
            {
                "mu": one.mu,
                "epsilon": one.loss().epsilon(1e-5),
                "claimed_epsilon": TheoremTwo.of(one).claim(1e-5).epsilon,
                "accuracy": float(found.mean()),
            }
        )
    return rows


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--queries", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.queries:
        costs = queries()
        if given.json:
            print(json.dumps({"rows": costs}, indent=2))
        for cost in costs if not given.json else ():
            print(
                f"mu {cost['mu']:6.4g} an answer: epsilon {cost['epsilon']:.3g} at delta 1e-5 "
                f"(Theorem 2: {cost['claimed_epsilon']:.3g}), accuracy {cost['accuracy']:.3f}"
            )
        return
    rows = measure(given.batch, given.rounds)
    if given.json:
        print(json.dumps({"rows": rows}, indent=2))
        return
    for row in rows:
        print(
            f"{row['method']:<15} {row['milliseconds']:8.1f} ms  {row['time_ratio']:6.3f} x plain "
            f"(processor {row['cpu_ratio']:.3f})"
        )


if __name__ == "__main__":
    main()
