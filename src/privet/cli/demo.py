"""`privet demo`: accounting, private releases, their ledger and pictures, on built-in data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet._atomic_files import write_json
from privet.cli.console import one_line_errors
from privet.errors import BudgetExceeded, InvalidArgument

if TYPE_CHECKING:
    from rich.console import Console

    from privet.ledger import Ledger

CAP_EPSILON, CAP_DELTA = 1.0, 1e-5
BINS = 14  # two histograms of 14 bars can be read side by side


@one_line_errors()
def demo(
    out: Annotated[Path, typer.Option(help="The folder to fill.")] = Path("demo-output"),
) -> None:
    """What privet does today: account, calibrate, release under a ledger, and draw it."""
    from rich.console import Console

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise InvalidArgument("out", str(out), "a folder that can be made", str(e)) from None
    console = Console(highlight=False)
    _account(console, out)
    ledger = _release(console, out)
    _refuse(console, ledger, out)
    console.rule("[bold]4. Look at it")
    for file in sorted(out.iterdir()):
        if not file.name.startswith("."):
            console.print(f"   {file}", soft_wrap=True)


def _account(console: Console, out: Path) -> None:
    from privet.accounting import (
        SampledGaussian,
        accountant_comparison,
        calibration,
        closed_form_validity,
    )
    from privet.cli.account import _table
    from privet.report import plots

    console.rule("[bold]1. What would training cost?")
    _table(accountant_comparison.table(CAP_DELTA), CAP_DELTA, as_json=False)
    found = calibration.noise_multiplier(
        epsilon=CAP_EPSILON, delta=CAP_DELTA, sample_rate=0.01, steps=10_000
    )
    console.print(
        f"10,000 steps at rate 0.01 stay within epsilon {CAP_EPSILON:g} with noise multiplier "
        f"[bold]{found.value:.4f}[/] (epsilon {found.epsilon:.5f})\n"
    )
    loss = SampledGaussian(sample_rate=0.01, noise_multiplier=1.0, steps=10_000)
    plots.save(plots.accountants(loss, CAP_DELTA), out / "accounting.png")
    chart = closed_form_validity.validity_map(steps=10_000, delta=CAP_DELTA)
    plots.save(plots.validity_map(chart), out / "closed-form-map.png")


def _release(console: Console, out: Path) -> Ledger:
    import numpy as np

    from privet.data.builtin_datasets import breast_cancer
    from privet.ledger import Ledger, fingerprint
    from privet.mechanisms import DiscreteLaplaceMechanism, GaussianMechanism
    from privet.noise import secure
    from privet.report import plots
    from privet.sensitivity import categories, clip_range

    console.rule("[bold]2. A private release")
    data = breast_cancer()
    x = np.asarray(data.x_train, dtype=np.float64)
    y = np.asarray(data.y_train)
    low, high = float(data.low[0]), float(data.high[0])
    path = out / "budget.ledger"
    for old in out.glob("budget.ledger*"):
        old.unlink()
    ledger = Ledger.create(
        path, cap_epsilon=CAP_EPSILON, cap_delta=CAP_DELTA, dataset=fingerprint(x, y)
    )
    rng = secure()

    # one cell for each (kind of mass, size): a record is in exactly one
    size = np.clip(((x[:, 0] - low) / (high - low) * BINS).astype(int), 0, BINS - 1)
    counts = categories(y * BINS + size, 2 * BINS).histogram()
    noisy = DiscreteLaplaceMechanism(scale=3.0).release(
        counts, rng=rng.child("sizes"), ledger=ledger, what="sizes of masses by kind"
    )
    # means of all thirty measurements, each on its public range
    unit = (x - data.low) / (data.high - data.low)
    total = clip_range(2.0 * unit - 1.0, -1.0, 1.0).mean(records=len(x))
    mechanism = GaussianMechanism.for_budget(total, epsilon=0.6, delta=CAP_DELTA)
    means = mechanism.release(
        total, rng=rng.child("means"), ledger=ledger, what="means of thirty measurements"
    )
    error = float(np.abs(means - total.value).mean() / 2.0)
    console.print(
        f"{len(x)} breast masses (public data, treated as if they were private)\n"
        f"   sizes of masses by kind: {2 * BINS} counts, discrete Laplace noise of scale 3\n"
        f"   thirty means: Gaussian noise {mechanism.scale:.4f}, "
        f"off by {error:.1%} of the range on average\n"
    )
    names = tuple(str(n) for n in data.feature_names or ())
    edges = np.linspace(low, high, BINS + 1)
    plots.save(
        plots.release(
            edges=edges,
            truth=counts.value.reshape(2, BINS),
            released=noisy.reshape(2, BINS),
            classes=tuple(data.classes),
            names=names[:10],
            true_means=(total.value[:10] + 1.0) / 2.0,
            released_means=(means[:10] + 1.0) / 2.0,
            spread=mechanism.scale / 2.0,
            guarantee=str(ledger.guarantee()),
        ),
        out / "release.png",
    )
    return ledger


def _refuse(console: Console, ledger: Ledger, out: Path) -> None:
    from privet.accounting import Pure
    from privet.cli._ledger_lines import draw

    console.rule("[bold]3. Its ledger")
    exported: dict[str, Any] = ledger.export()
    draw(ledger, exported, 20)
    try:
        ledger.charge(Pure(epsilon_each=0.8), what="one more look")
    except BudgetExceeded as refusal:
        console.print(f"refused, as it should be: {refusal}", soft_wrap=True)
    checked = ledger.verify()
    console.print(f"verified: {checked.count} entries, chain intact\n")
    guarantee = ledger.guarantee()
    write_json(out / "guarantee.json", guarantee.to_dict())
    console.print(f"[bold]{guarantee}[/]")
    for premise in guarantee.premises:
        console.print(f"   {premise.backing.value}: {premise.text}", soft_wrap=True)
    console.print()
