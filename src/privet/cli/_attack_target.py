"""The folder of a run as an attacker sees it: records, members, the model, and its recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from privet.audit.membership import confidence_of_logits
from privet.cli.data_options import of_run
from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.audit.membership.model_confidence import Read
    from privet.audit.membership.reference_models import Train
    from privet.runs import Run


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class AttackTarget:
    """Who is attacked: training records (the members), then test records; `x` are their places."""

    x: Any
    y: Any
    members: Any
    classes: Any
    """The class of each record by its name; None for numbers to predict."""
    answer: Callable[[Any], Any]
    train: Train
    """The same recipe on other records, for reference models."""
    name: str
    """Of the records, for what is kept about them."""
    read: Read = confidence_of_logits


def attack_target(run: Run, folder: Path | None) -> AttackTarget:
    """The run with its data, its released model and its recipe."""
    from privet.data.records import Records, to_unit
    from privet.methods.catalogue import method_type
    from privet.methods.train_method import make_plan, train
    from privet.noise import seeded
    from privet.settings import settings_from_json

    config = run.config
    if "seed" not in config:
        raise InvalidArgument(
            "run", str(run.folder), "one of `privet train`, with its data",
            "models saved in Python are target there: see the guide on membership attacks",
        )  # fmt: skip
    if "files" in config:
        raise InvalidArgument(
            "run", str(run.folder), "one whose test records are other people's",
            f"{run.method} reads such files in its own way: try `privet audit`",
        )  # fmt: skip
    dataset = of_run(run.folder, config, folder)
    public = int(config.get("public", 0))
    n = len(dataset.x_train) - public  # public questions are neither members nor others
    rows = run.domain.rows(np.concatenate([dataset.x_train[:n], dataset.x_test]))
    asked = method_type(run.method).public_inputs_field
    more = {} if asked is None else {asked: dataset.x_train[n:]}
    kind = method_type(run.method)
    method = kind(**settings_from_json(kind, config["settings"]), **more).for_domain(run.domain)

    y, outputs, read = (
        np.concatenate([dataset.y_train[:n], dataset.y_test]),
        dataset.n_classes,
        None,
    )
    if dataset.target_bounds is not None:
        y, outputs, read = to_unit(y, dataset.target_bounds), 1, _small_errors

    prior = config["plan_inputs"]["facts"].get("prior")

    def train_reference(places: Any, y: Any, seed: int) -> Callable[[Any], Any]:
        records = Records(
            rows=rows.part(places), targets=np.asarray(y), outputs=outputs,
            prior=prior and tuple(prior),
        )  # fmt: skip
        plan = make_plan(method, records.facts(epsilon=config["epsilon"], delta=config["delta"]))
        model = train(method, records, plan, rng=seeded(seed)).model
        return lambda asked: model.outputs(rows.part(asked))

    return AttackTarget(
        x=np.arange(len(rows)),
        y=y,
        members=np.arange(len(rows)) < n,
        classes=np.array(dataset.classes)[y] if read is None else None,
        answer=lambda asked: run.model.outputs(rows.part(asked)),
        train=train_reference,
        name=dataset.fingerprint[:16],
        read=read or confidence_of_logits,
    )


def _small_errors(answers: Any, y: Any) -> Any:
    """What speaks for a member of a regression: minus the logarithm of its squared error."""
    return -np.log(np.square(np.asarray(answers) - np.asarray(y)) + 1e-12)
