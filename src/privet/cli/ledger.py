"""`privet ledger`: keep the budget of a data set in a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privet import _check
from privet._atomic_files import write_whole
from privet.cli._ledger_lines import draw
from privet.cli.console import one_line_errors, print_json
from privet.errors import InvalidArgument, LedgerError
from privet.guarantee import Adjacency, Unit, number_to_json

if TYPE_CHECKING:
    from privet.accounting import PrivacyLoss
    from privet.ledger import Ledger

app = typer.Typer(
    name="ledger",
    help="What has been spent on a data set: charged before every release, never over its cap.",
    no_args_is_help=True,
)

File = Annotated[Path, typer.Argument(help="The ledger file.", show_default=False)]
Copy = Annotated[Path, typer.Argument(help="The new file.", show_default=False)]


WORDS = "|".join(u.value.split()[-1] for u in Unit)


def _unit(word: str) -> Unit:
    """A unit by its name, or by the last word of it: "shard"."""
    found = [u for u in Unit if word in (u.value, u.value.split()[-1])]
    if not found:
        raise InvalidArgument("--unit", word, f"one of {WORDS.replace('|', ', ')}")
    return found[0]


Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait while another process writes.")]
Who = Annotated[str | None, typer.Option(help="Who spends; by default user@host.")]


@app.command()
@one_line_errors()
def init(
    file: File,
    epsilon: Annotated[float, typer.Option(help="The most that may ever be spent.")],
    delta: Annotated[float, typer.Option(help="At this delta; 0 for pure privacy.")],
    adjacency: Annotated[
        Adjacency, typer.Option(help="Which data sets are neighbours.")
    ] = Adjacency.ZERO_OUT,
    unit: Annotated[
        str, typer.Option(help="Whose contribution is protected.", metavar=WORDS)
    ] = "record",
    dataset: Annotated[
        str | None,
        typer.Option(help="What you call the data; the first training binds it to them."),
    ] = None,
    sub_cap: Annotated[
        list[str] | None,
        typer.Option(help="The most that one may spend: person:NAME=1.5 or purpose:NAME=2."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start a ledger; refuses to overwrite."""
    from privet.ledger import Ledger, SubCap

    ledger = Ledger.create(
        file,
        cap_epsilon=epsilon,
        cap_delta=delta,
        adjacency=adjacency,
        unit=_unit(unit),
        dataset=dataset,
        sub_caps=[SubCap.parse(text) for text in sub_cap or ()],
    )
    if as_json:
        print_json(_summary(ledger))
    else:
        typer.echo(
            f"{file}: at most epsilon {epsilon:g} at delta {delta:g} per {_unit(unit).value}, "
            f"{adjacency.value}\nhead {ledger.head}"
        )


@app.command()
@one_line_errors()
def key(
    file: Annotated[
        Path | None,
        typer.Argument(help="Where; by default $PRIVET_CURATOR_KEY, or in your own settings."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make your curator's key, once, or say where it is; keep it, and give it to nobody.

    Under it the same data have the same name in every record and ledger of yours, so that you can
    tell which of them are about the same people. To others these names say nothing.
    """
    from privet.ledger.curator_key import key_path, make_key, read_key

    path = file or key_path()
    there = path.exists()
    found = read_key(path) if there else make_key(path)
    if as_json:
        print_json({"file": str(path), "name": found.name, "made": not there})
    else:
        typer.echo(f"{path}: {'your' if there else 'a new'} curator's key, {found.name}")


@app.command()
@one_line_errors()
def show(
    file: File,
    last: Annotated[int, typer.Option(help="How many lines to show.")] = 20,
    run: Annotated[
        str | None, typer.Option(help="Only this run, each of its charges by itself.")
    ] = None,
    timeout: Timeout = 30.0,
    as_json: Json = False,
) -> None:
    """What was spent, and what is left."""
    from privet.ledger import Ledger

    _check.count("last", last, minimum=0)
    ledger = Ledger.open(file, timeout=timeout)
    exported = ledger.export()
    entries = [e for e in exported["entries"] if run is None or e.get("run") == run]
    if run is not None and not entries:
        known = ", ".join(dict.fromkeys(e["run"] for e in exported["entries"] if "run" in e))
        raise InvalidArgument("run", run, "a run of this ledger", known or "it has none")
    if as_json:
        print_json(_summary(ledger) | {"entries": entries})
    else:
        draw(ledger, exported, last, run=run)


@app.command()
@one_line_errors()
def spend(
    file: File,
    what: Annotated[str, typer.Option(help="What is about to be released.")],
    epsilon: Annotated[float | None, typer.Option(help="A pure release.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="With --epsilon: an (epsilon, delta) release.")
    ] = None,
    gaussian_mu: Annotated[
        float | None, typer.Option(help="A Gaussian release: sensitivity / noise.")
    ] = None,
    sample_rate: Annotated[
        float | None, typer.Option(help="Poisson-sampled Gaussian steps: the rate,")
    ] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="the noise,")] = None,
    steps: Annotated[int | None, typer.Option(help="and their number.")] = None,
    unit: Annotated[
        str,
        typer.Option(
            help="Whose contribution this bounds; refused unless the ledger's.", metavar=WORDS
        ),
    ] = "record",
    seeded: Annotated[bool, typer.Option("--seeded", help="The noise comes from a seed.")] = False,
    who: Who = None,
    run: Annotated[
        str | None, typer.Option(help="The training or analysis that this is a part of.")
    ] = None,
    purpose: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Refused unless it is the ledger's data set.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Charged once however often it is repeated.")
    ] = None,
    timeout: Timeout = 30.0,
    as_json: Json = False,
) -> None:
    """Charge a release BEFORE making it; exit code 2 and nothing written when over the cap."""
    from privet.ledger import Ledger, Scope

    ledger = Ledger.open(file, timeout=timeout)
    loss = _loss(
        ledger.adjacency.of_losses,
        epsilon=epsilon,
        delta=delta,
        gaussian_mu=gaussian_mu,
        sample_rate=sample_rate,
        noise_multiplier=noise_multiplier,
        steps=steps,
    )
    ledger.purpose = purpose
    entry = ledger.charge(
        loss,
        what=what,
        scope=Scope(unit=_unit(unit), secret=False if seeded else None),
        who=who,
        run=run,
        dataset=dataset,
        token=token,
    )
    if as_json:
        print_json(_summary(ledger) | {"entry": entry.to_dict()})
    else:
        typer.echo(
            f"entry {entry.sequence}: {what}\n"
            f"spent {entry.spent:.6g} of {ledger.cap_epsilon:.6g} at delta {ledger.cap_delta:g}"
        )


@app.command()
@one_line_errors()
def verify(
    file: File,
    head: Annotated[
        str | None, typer.Option(help="A head noted earlier; must be in the chain.")
    ] = None,
    timeout: Timeout = 30.0,
    as_json: Json = False,
) -> None:
    """Check that nothing was changed; exit code 2 and the first wrong entry otherwise."""
    from privet.ledger import Ledger

    found = Ledger.open(file, timeout=timeout).verify(head=head)
    if as_json:
        print_json(found.to_dict())
    else:
        since = "" if found.since is None else f", {found.since} since the noted head"
        typer.echo(f"{file}: intact, {found.count} entries{since}\nhead {found.head}")


@app.command()
@one_line_errors()
def export(
    file: File,
    out: Annotated[Path | None, typer.Option(help="Write here instead of standard output.")] = None,
    timeout: Timeout = 30.0,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="A line for each release, for a spreadsheet.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --out: print JSON about what was written.")
    ] = False,
) -> None:
    """The whole ledger as JSON, or its releases as CSV; note its head for `verify --head`."""
    from privet.ledger import Ledger

    ledger = Ledger.open(file, timeout=timeout)
    if as_csv:
        from privet.report.ledger_export import releases_as_csv

        text = releases_as_csv(ledger)
        if out is None:
            typer.echo(text, nl=False)
        else:
            write_whole(out, text)
            typer.echo(f"{out}: {len(ledger.releases())} releases\nhead {ledger.head}")
        return
    exported = ledger.export()
    if out is None:
        print_json(exported)
        return
    try:
        out.write_text(json.dumps(exported, indent=2, allow_nan=False) + "\n")
    except OSError as e:
        raise LedgerError(file, f"cannot write {out}: {e.strerror}") from None
    if as_json:
        print_json({"file": str(out), "count": exported["count"], "head": exported["head"]})
    else:
        typer.echo(f"{out}: {exported['count']} entries\nhead {exported['head']}")


@app.command()
@one_line_errors()
def page(
    file: File,
    out: Annotated[
        Path | None, typer.Option(help="The page; by default beside the ledger, .html.")
    ] = None,
    timeout: Timeout = 30.0,
    as_json: Json = False,
) -> None:
    """A page to read and print: the promise, spending over time, by person, purpose and release."""
    from privet.ledger import Ledger
    from privet.report.ledger_page import ledger_page

    ledger = Ledger.open(file, timeout=timeout)
    place = file.with_name(f"{file.name}.html") if out is None else out
    write_whole(place, ledger_page(ledger))
    if as_json:
        print_json({"file": str(place), "head": ledger.head})
    else:
        typer.echo(f"{place}: {len(ledger.releases())} releases; for whoever keeps the ledger")


@app.command()
@one_line_errors()
def backup(file: File, out: Copy, timeout: Timeout = 30.0, as_json: Json = False) -> None:
    """A copy that can be read and verified but not charged; note the head that it prints."""
    from privet.ledger import Ledger

    head = Ledger.open(file, timeout=timeout).backup(out)
    if as_json:
        print_json({"file": str(out), "head": head})
    else:
        typer.echo(f"{out}: a backup, which takes no charges\nhead {head}")


@app.command()
@one_line_errors()
def restore(
    saved: Annotated[Path, typer.Argument(help="The backup.", show_default=False)],
    file: File,
    head: Annotated[str, typer.Option(help="The last head that anybody noted.")],
    timeout: Timeout = 30.0,
    as_json: Json = False,
) -> None:
    """A ledger again from its backup, when the ledger itself is lost."""
    from privet.ledger import Ledger

    ledger = Ledger.restore(saved, file, head=head, timeout=timeout)
    if as_json:
        print_json(_summary(ledger))
    else:
        typer.echo(f"{file}: {len(ledger)} entries\nhead {ledger.head}")


def _loss(
    adjacency: Adjacency,
    *,
    epsilon: float | None,
    delta: float | None,
    gaussian_mu: float | None,
    sample_rate: float | None,
    noise_multiplier: float | None,
    steps: int | None,
) -> PrivacyLoss:
    from privet import accounting

    sampled = (sample_rate, noise_multiplier, steps)
    kinds = [epsilon is not None, gaussian_mu is not None, any(x is not None for x in sampled)]
    if sum(kinds) != 1 or (delta is not None and epsilon is None):
        raise InvalidArgument(
            "the cost",
            ", ".join(k for k, given in zip(_KINDS, kinds, strict=True) if given) or "nothing",
            "given in one way",
            "by --epsilon [--delta], --gaussian-mu, or --sample-rate --noise-multiplier --steps",
        )
    if gaussian_mu is not None:
        return accounting.Gaussian(
            mu=_check.positive("gaussian-mu", gaussian_mu), adjacency=adjacency
        )
    if epsilon is None:
        for name, value in zip(("sample-rate", "noise-multiplier", "steps"), sampled, strict=True):
            if value is None:
                raise InvalidArgument(name, value, "given", "a sampled release needs all three")
        return accounting.SampledGaussian(
            sample_rate=_check.unit("sample-rate", sample_rate),
            noise_multiplier=_check.positive("noise-multiplier", noise_multiplier),
            steps=_check.count("steps", steps),
            adjacency=adjacency,
        )
    _check.positive("epsilon", epsilon)
    if delta is None:
        return accounting.Pure(epsilon_each=epsilon, adjacency=adjacency)
    return accounting.ApproximateDP(
        epsilon_each=epsilon, delta_each=_check.open_unit("delta", delta), adjacency=adjacency
    )


_KINDS = ("--epsilon", "--gaussian-mu", "--sample-rate")


def _summary(ledger: Ledger) -> dict[str, Any]:
    return {
        "file": ledger.name,
        "cap": {"epsilon": number_to_json(ledger.cap_epsilon), "delta": ledger.cap_delta},
        "dataset": ledger.dataset,
        "count": len(ledger),
        "head": ledger.head,
        "spent": {"epsilon": number_to_json(ledger.spent()), "delta": ledger.cap_delta},
        "remaining": number_to_json(ledger.remaining),
        "odometer": ledger.odometer().to_dict(),
        "sub_caps": [
            {**cap.to_dict(), "spent": number_to_json(spent)} for cap, spent in ledger.sub_caps
        ],
        "guarantee": ledger.guarantee().to_dict(),
    }
