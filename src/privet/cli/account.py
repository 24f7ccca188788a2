"""`privet account`: what training costs, by every accountant."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check
from privet.cli._quick_start import leave_out_fortran
from privet.cli.console import one_line_errors, print_json
from privet.errors import InvalidArgument, MissingFile
from privet.guarantee import Adjacency, Standing

if TYPE_CHECKING:
    from privet.accounting import SampledGaussian
    from privet.accounting.accountant_comparison import AccountantComparison

NAMES = {
    "exact": "exact",
    "closed_form": "closed form",
    "rdp": "Renyi (RDP)",
    "moments": "moments accountant",
}

SampleRate = Annotated[
    float | None, typer.Option(help="Probability that a record joins a step, in [0, 1].")
]
NoiseMultiplier = Annotated[
    float | None, typer.Option(help="Noise / largest contribution of one record.")
]
Steps = Annotated[int | None, typer.Option(help="How many steps.")]
Delta = Annotated[float, typer.Option(help="The delta at which epsilon is stated.")]
Schedule = Annotated[
    Path | None,
    typer.Option(
        help="CSV, a line a phase: sample_rate, noise_multiplier (or sigma, clipping_bound), steps."
    ),
]
Count = Annotated[
    int | None, typer.Option("--records", help="N, for a schedule with sigma on the mean over q N.")
]
Neighbours = Annotated[Adjacency, typer.Option(help="Which data sets are neighbours.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@one_line_errors()
def account(
    sample_rate: SampleRate = None,
    noise_multiplier: NoiseMultiplier = None,
    steps: Steps = None,
    delta: Delta = 1e-5,
    schedule: Schedule = None,
    records: Count = None,
    adjacency: Neighbours = Adjacency.ADD_REMOVE,
    table: Annotated[
        bool, typer.Option("--table", help="Six settings where the closed form holds or fails.")
    ] = False,
    validity_map: Annotated[
        Path | None,
        typer.Option(
            "--map", help="Draw where the closed form is valid, for --steps (.png, .svg or .json)."
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw epsilon over the run (.png, .svg or .pdf).")
    ] = None,
    trade_off: Annotated[
        bool, typer.Option("--trade-off", help="What attackers find, at most, at each false alarm.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What Poisson-sampled Gaussian training costs: exact, closed form, RDP, moments.

    Give --sample-rate, --noise-multiplier and --steps, or a --schedule.
    """
    leave_out_fortran()
    from privet.accounting import accountant_comparison

    _check.open_unit("delta", delta)
    if table:
        _table(accountant_comparison.table(delta), delta, as_json)
        return
    if validity_map is not None:
        _map(validity_map, 10_000 if steps is None else steps, delta, as_json)
        return
    loss = read_loss(sample_rate, noise_multiplier, steps, schedule, adjacency, records)
    if plot is not None:
        check_picture_path(plot)
    found = accountant_comparison.accountants(loss, delta)
    if plot is not None:
        from privet.report import plots

        plots.save(plots.accountants(loss, delta), plot)
    attacks = loss.trade_off().to_dict() if trade_off else None
    if as_json:
        more = {} if attacks is None else {"trade_off": attacks}
        print_json(found.to_dict() | {"steps": loss.releases, "plot": plot and str(plot)} | more)
    else:
        _show(loss, found)
        if attacks is not None:
            _show_trade_off(attacks)
        if plot is not None:
            typer.echo(f"picture: {plot}")


def read_loss(
    sample_rate: float | None,
    noise_multiplier: float | None,
    steps: int | None,
    schedule: Path | None,
    adjacency: Adjacency,
    records: int | None = None,
) -> SampledGaussian:
    """The loss that the options describe, given in exactly one way."""
    from privet.accounting import SampledGaussian
    from privet.accounting.schedule_file import load_phases

    single = {"sample-rate": sample_rate, "noise-multiplier": noise_multiplier, "steps": steps}
    given = [name for name, value in single.items() if value is not None]
    if schedule is not None:
        if given:
            raise InvalidArgument(
                "the steps", f"--schedule and --{given[0]}", "given in one way", "drop one of them"
            )
        return load_phases(schedule).loss(records, adjacency)
    missing = [f"--{name}" for name in single if name not in given]
    if missing:
        raise InvalidArgument(
            "the steps",
            f"no {', '.join(missing)}",
            "given by --sample-rate, --noise-multiplier and --steps, or by --schedule",
        )
    return SampledGaussian(
        sample_rate=_check.unit("sample-rate", sample_rate),
        noise_multiplier=_check.positive("noise-multiplier", noise_multiplier),
        steps=_check.count("steps", steps),
        adjacency=adjacency,
    )


def check_picture_path(path: Path, *more: str) -> None:
    """Refuse a picture file of an unknown kind or in a folder that is not there."""
    kinds = (".png", ".svg", ".pdf", *more)
    if path.suffix.lower() not in kinds:
        raise InvalidArgument("picture", str(path), f"a file ending in {', '.join(kinds)}")
    if not path.parent.is_dir():
        raise MissingFile(path.parent, "make the folder first")


def _show(loss: SampledGaussian, comparison: AccountantComparison) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    q, z, _ = loss.groups
    kinds = "the same" if len(q) <= 1 else f"{len(q)} kinds of"
    rates, noises = _span(q), _span(z)
    console = Console(highlight=False)
    console.print(
        f"{loss.releases:,} steps, {kinds} sample rate {rates} and noise multiplier {noises}; "
        f"delta {comparison.delta:g}, {comparison.exact.adjacency.value}",
        soft_wrap=True,
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("accountant", no_wrap=True)
    table.add_column("epsilon", justify="right", no_wrap=True)
    table.add_column("standing", no_wrap=True)
    table.add_column("")
    for name, g in comparison.rows():
        note = ""
        if name == "exact":
            note = f"the truth is at least {comparison.low:.4f}"
        if name == "closed_form":
            note = comparison.explain()
        colour = {Standing.PROVED: "green", Standing.CLAIMED: "yellow"}.get(g.standing, "red")
        table.add_row(NAMES[name], f"{g.epsilon:.4f}", f"[{colour}]{g.standing.value}[/]", note)
    console.print(table)


def _show_trade_off(attacks: dict[str, Any]) -> None:
    """What the best attack finds of those who took part, between two bounds."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("false alarms", "found, at most", "the best attack, at least"):
        table.add_column(name, justify="right", no_wrap=True)
    for point in attacks["points"]:
        table.add_row(f"{point['fpr']:g}", f"{point['tpr']:.4g}", f"{point['tpr_low']:.4g}")
    console = Console(highlight=False)
    console.print(table)
    mu = float(attacks["mu"])
    console.print(
        f"advantage (found less false alarms) at most {attacks['advantage']:.4g}; like one "
        f"Gaussian release of mu {mu:.4g} at rates from {attacks['mu_floor']:g} on",
        soft_wrap=True,
    )


def _span(values: Any) -> str:
    if len(values) == 0:
        return "0"
    low, high = float(min(values)), float(max(values))
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _table(
    rows: list[tuple[SampledGaussian, AccountantComparison]], delta: float, as_json: bool
) -> None:
    if as_json:
        print_json(
            {"delta": delta, "rows": [loss.fields() | found.to_dict() for loss, found in rows]}
        )
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("rate", "noise", "steps", "closed form", "exact", "RDP", "moments"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("closed form is", no_wrap=True)
    for loss, found in rows:
        f = loss.fields()
        claimed = found.closed_form.epsilon if found.closed_form else math.nan
        table.add_row(
            f"{f['sample_rate']:g}",
            f"{f['noise_multiplier']:g}",
            str(f["steps"]),
            f"{claimed:.4f}",
            f"{found.exact.epsilon:.4f}",
            f"{found.rdp.epsilon:.4f}",
            f"{found.moments.epsilon:.4f}",
            _brief(found),
        )
    console = Console(highlight=False, width=100)
    console.print(f"epsilon at delta {delta:g}, add-remove")
    console.print(table)


def _brief(comparison: AccountantComparison) -> str:
    if comparison.closed_form is None or comparison.verdict is None:
        return ""
    if comparison.verdict.value == "valid bound":
        return f"valid, {comparison.closed_form.epsilon / comparison.exact.epsilon - 1:.0%} loose"
    if comparison.verdict.value == "undecided":
        return "too close to tell"
    return f"{comparison.ratio:.2f}x too small"


def _map(out: Path, steps: int, delta: float, as_json: bool) -> None:
    from privet.accounting import closed_form_validity

    check_picture_path(out, ".json")
    _check.count("steps", steps)
    found = closed_form_validity.validity_map(steps=steps, delta=delta)
    if out.suffix.lower() == ".json":
        import json

        out.write_text(json.dumps(found.to_dict(), indent=1) + "\n")
    else:
        from privet.report import plots

        plots.save(plots.validity_map(found), out)
    share = float(found.valid.mean())
    if as_json:
        print_json(found.to_dict() | {"file": str(out), "share_valid": share})
    else:
        typer.echo(f"{out}: the closed form is a valid bound at {share:.0%} of the grid")
