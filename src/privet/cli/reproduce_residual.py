"""`privet reproduce residual`: accuracy and membership attacks against noise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from privet import _check
from privet.cli._data import Folder
from privet.cli._run import Json, one_line_errors, print_json, progress_bar
from privet.errors import InvalidArgument


@one_line_errors()
def residual(
    out: Annotated[Path, typer.Option(help="Folder of results and pictures.")] = Path("residual"),
    data: Annotated[str, typer.Option(help="cifar10, mnist, breastmnist or idc.")] = "cifar10",
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's settings (days), not the quick ones.")
    ] = False,
    gamma: Annotated[float | None, typer.Option(help="Noise of the main comparison.")] = None,
    records: Annotated[int | None, typer.Option(help="The first so many records only.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of every network.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many targets of each kind.")] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Tables I-III and V, Figs. 1-12 but for CIFAR-100, and LiRA and RMIA on the same models.

    The same command goes on after an interruption: trained networks are kept in OUT/models.
    """
    from privet.papers import residual as experiment

    if data not in experiment.QUICK:
        raise InvalidArgument("--data", data, f"one of {', '.join(experiment.QUICK)}")
    settings = experiment.paper_settings(data) if paper else experiment.QUICK[data]
    given: dict[str, Any] = {"gamma": gamma, "records": records, "epochs": epochs, "seeds": seeds}
    for name in ("records", "epochs", "seeds"):
        if given[name] is not None:
            _check.count(f"--{name}", given[name])
    settings = replace(settings, **{k: v for k, v in given.items() if v is not None})
    out.mkdir(parents=True, exist_ok=True)
    with progress_bar(show=not as_json) as progress:
        results = experiment.reproduce(out, settings, folder=folder, progress=progress)
    if as_json:
        print_json(results)
        return
    typer.echo(f"{'model':<30} {'AUC':>6} {'train':>6} {'test':>6} {'LiRA':>6} {'RMIA':>6}")
    for row in results["rows"]:
        keys = ("shadow_auc", "train_accuracy", "test_accuracy", "lira_auc", "rmia_auc")
        numbers = [f"{row[k]:6.3f}" if k in row else f"{'':6}" for k in keys]
        typer.echo(f"{row['name']:<30} {' '.join(numbers)}")
    for name, (auc, train, test) in results["printed"].items():
        typer.echo(f"{'paper: ' + name:<30} {auc:6.3f} {train:6.3f} {test:6.3f}")
    for row in results["inversion"]:
        typer.echo(
            f"inversion of {row['equation']}, {row['way']}: {row['psnr']:.1f} dB, "
            f"SSIM {row['ssim']:.2f}"
        )
    found = results["budgets"]
    if found is not None:
        typer.echo(
            f"Theorem 1 at the paper's settings for {found['of']}: epsilon "
            f"{found['theorem_1']:.2g}; the paper prints {found['theorem_1_as_printed']:.2g}"
        )
    typer.echo(f"pictures and results.json in {out}")
