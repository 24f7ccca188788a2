"""`privet attack`: who was in the training set of a run? Asked of the model that it released."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from privet import _check
from privet.cli._run import one_line_errors, print_json
from privet.errors import InvalidArgument, MissingFile

if TYPE_CHECKING:
    from privet.audit.membership import MembershipFinding
    from privet.audit.membership.references import Train
    from privet.data import Dataset

NOTE = "exact facts about private records, not covered by the run's guarantee: for the owner's eyes"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Attacked:
    """A run as an attacker sees it: records, who is a member, the model, and its recipe."""

    x: Any
    y: Any
    members: Any
    classes: tuple[str, ...]
    answer: Callable[[Any], Any]
    """Records to logits."""
    train: Train
    """The same recipe on other records, for reference models."""


@one_line_errors()
def attack(
    run: Annotated[Path, typer.Argument(help="Folder that `privet train` left.")],
    references: Annotated[
        int, typer.Option(help="Reference models to train: 0 for the loss attack alone, or 2, 4...")
    ] = 4,
    seed: Annotated[int, typer.Option(help="Of the reference models.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Reference models at a time.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where data sets lie.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps what references say, to go on with.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the ROC curves, log axes.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Attack the membership of a run: training records against test records.

    Runs the loss attack, RMIA and (with 4 references or more) LiRA. `auc` and `tpr_at_1pct_fpr` are
    RMIA's, or the loss attack's without references: fixed beforehand, never the best of several.
    """
    begun = time.perf_counter()
    _check.count("references", references, minimum=0)
    if references == 1:
        raise InvalidArgument("references", 1, "0, or 2 and more")
    config = _config(run)
    attacked = _open(run, config, folder)
    findings = _attack(attacked, references, seed, jobs, cache)
    headline = findings[-1]
    if plot is not None:
        from privet.report import membership, plots

        plots.save(membership.roc(findings, title=f"Members of {config['data']}"), plot)
    if as_json:
        found = headline.to_dict() | {
            "data": config["data"],
            "method": config["method"],
            "references": references,
            "attacks": [f.to_dict(points=0) for f in findings],
            "seconds": time.perf_counter() - begun,
            "note": NOTE,
        }
        print_json(found)
        return
    for finding in findings:
        typer.echo(str(finding))
    typer.echo(NOTE)


def _config(run: Path) -> dict[str, Any]:
    path = run / "config.json"
    if not path.exists():
        raise MissingFile(path, "give the folder of a finished `privet train` run")
    try:
        config = json.loads(path.read_text())
    except ValueError as e:
        raise InvalidArgument("config.json", str(path), "JSON", str(e)) from None
    if not isinstance(config, dict) or not {"method", "data"} <= set(config):
        raise InvalidArgument("config.json", str(path), "that of a run: with method and data")
    return config


def _open(run: Path, config: dict[str, Any], folder: Path | None) -> Attacked:
    dataset = _dataset(str(config["data"]), folder)
    match config["method"]:
        case "dpsgd":
            return _dpsgd(run, config, dataset)
        case other:
            raise InvalidArgument(
                "run", other, "one of dpsgd", "other models: privet.audit.membership in Python"
            )


def _dataset(name: str, folder: Path | None) -> Dataset:
    from privet.data import load

    part = re.fullmatch(r"(.*)\[:(\d+)\]", name)
    return load(name, folder) if part is None else load(part[1], folder).subset(int(part[2]))


def _dpsgd(run: Path, config: dict[str, Any], dataset: Dataset) -> Attacked:
    import numpy as np
    from safetensors.torch import load_file

    from privet.cli import train as recipe
    from privet.methods.base import PublicFacts
    from privet.methods.dpsgd import Wishes
    from privet.methods.dpsgd.linear import LinearHead
    from privet.methods.dpsgd.networks import SmallCNN
    from privet.noise import seeded

    path = run / "model.safetensors"
    if not path.exists():
        raise MissingFile(path, "the run has not finished; go on with privet train --resume")
    rows = recipe._rows(dataset, config["model"], config["features"], False)
    wishes = Wishes(
        steps=config["steps"],
        sample_rate=config["sample_rate"],
        clipping_bound=config["clipping_bound"],
        learning_rate=config["learning_rate"],
        momentum=config["momentum"],
    )

    def train(x: Any, y: Any, seed: int) -> Callable[[Any], Any]:
        method = recipe._method(config["model"], dataset, wishes)
        facts = PublicFacts(
            records=len(x),
            features=x.shape[1],
            outputs=dataset.n_classes,
            epsilon=config["epsilon"],
            delta=config["delta"],
        )
        release = method.fit(x, y, method.plan(facts), ledger=None, rng=seeded(seed))
        return _logits(release.model)

    model: Any
    if config["model"] == "linear":
        model = LinearHead(features=rows[0].shape[1], outputs=dataset.n_classes, constant=0.0)
    else:
        model = SmallCNN(shape=dataset.shape, classes=dataset.n_classes)
    model.load_state_dict(load_file(path))
    n = len(rows[0])
    return Attacked(
        x=np.concatenate(rows),
        y=np.concatenate([dataset.y_train, dataset.y_test]),
        members=np.arange(n + len(rows[1])) < n,
        classes=dataset.classes,
        answer=_logits(model),
        train=train,
    )


def _logits(model: Any) -> Callable[[Any], Any]:
    """A torch model's answers, a thousand records at a time."""
    import numpy as np
    import torch

    model.eval()

    def answer(x: Any) -> Any:
        with torch.no_grad():
            parts = [
                model(torch.from_numpy(np.ascontiguousarray(x[i : i + 1000])))
                for i in range(0, len(x), 1000)
            ]
        return torch.cat(parts).double().numpy()

    return answer


def _attack(
    attacked: Attacked, count: int, seed: int, jobs: int | None, cache: Path | None
) -> tuple[MembershipFinding, ...]:
    """All attacks, the one that gives the headline last."""
    import numpy as np

    from privet.audit import membership as m

    references = None
    if count:
        references = m.train_references(
            attacked.train,
            attacked.x,
            attacked.y,
            count,
            seed=seed,
            out=cache,
            what="privet attack",
            jobs=jobs,
            read=m.confidence_of_logits,
        )
    return m.attack(
        attacked.answer,
        attacked.x,
        attacked.y,
        attacked.members,
        references=references,
        read=m.confidence_of_logits,
        classes=np.array(attacked.classes)[attacked.y],
    )
