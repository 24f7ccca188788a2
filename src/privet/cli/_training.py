"""What every `privet train METHOD` shares: its options, its data, its folder and its last line."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import typer

from privet import _check
from privet.cli import _folder
from privet.cli._data import Bounds, Folder, Label, dataset, remembered
from privet.cli._run import Json, print_json
from privet.errors import InvalidArgument

if TYPE_CHECKING:
    from privet.data import Dataset
    from privet.guarantee import Adjacency, Guarantee, Unit
    from privet.ledger import Ledger

Features = Annotated[
    str, typer.Option(help="Public front end of pictures: auto, plain, scattering, strokes.")
]
Cache = Annotated[bool, typer.Option("--cache", help="Keep features on disk, unprotected.")]


@final
@dataclass(frozen=True, kw_only=True)
class Asked:
    """What every training is asked; each field is an option of the command."""

    data: Annotated[str, typer.Option(help="A data set's name (`privet data list`) or file.")]
    epsilon: Annotated[float, typer.Option(help="The budget, all of which is spent.")]
    out: Annotated[Path, typer.Option(help="Folder of the run.")]
    delta: Annotated[
        float, typer.Option(help="At this delta; 0 where a method can do without.")
    ] = 1e-5
    label: Label = None
    bounds: Bounds = None
    ledger: Annotated[
        Path | None, typer.Option(help="The budget to charge; see `privet ledger init`.")
    ] = None
    seed: Annotated[int | None, typer.Option(help="Repeatable noise, for experiments only.")] = None
    records: Annotated[
        int | None, typer.Option(help="Train on the first so many records only.")
    ] = None
    folder: Folder = None
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Train even where noise outweighs all records.")
    ] = False
    as_json: Json = False
    begun: float = field(default_factory=time.perf_counter, init=False)

    def check(self) -> None:
        """What can be told before any data is read."""
        _check.positive("--epsilon", self.epsilon)
        _check.delta_or_zero("--delta", self.delta)
        if self.seed is not None:
            _check.count("--seed", self.seed, minimum=0)
        if self.records is not None:
            _check.count("--records", self.records)
        _folder.has_no_run(self.out)

    def dataset(self) -> Dataset:
        """The data, or as many of its training records as were asked for."""
        found = dataset(self.data, self.folder, self.label, self.bounds)
        return found if self.records is None else found.subset(self.records)

    def check_enough(
        self, records: int, numbers: int, *, what: str = "records", growth: float = 1.0
    ) -> None:
        """Refuse a budget whose noise is longer than all records together, unless told to go on."""
        from privet.methods.enough import Signal, check_enough

        if not self.anyway:
            signal = Signal(units=records, numbers=numbers, what=what, growth=growth)
            hint = "--anyway trains all the same"
            check_enough(signal, epsilon=self.epsilon, delta=self.delta, hint=hint)

    @contextmanager
    def charged(self, **terms: Adjacency | Unit) -> Iterator[Ledger]:
        """The folder, made, and the ledger to charge; gone again if nothing was charged."""
        with _folder.begun(self.out):
            yield _folder.ledger_of(self.ledger, self.out, self.epsilon, self.delta, **terms)

    @contextmanager
    def uncharged(self) -> Iterator[None]:
        """The folder, made, for what nothing can be proved of: no ledger can be charged."""
        if self.ledger is not None:
            raise InvalidArgument(
                "--ledger", str(self.ledger), "left out for a published reading", "or take sound"
            )
        with _folder.begun(self.out):
            yield

    def leave(
        self,
        method: str,
        dataset: Dataset,
        model: Callable[[dict[str, str]], bytes],
        *,
        settings: dict[str, Any],
        accuracy: float,
        guarantee: Guarantee,
        claim: Guarantee | None,
        **metrics: Any,
    ) -> None:
        """Write the folder and say what came out; `model` is written with its settings in it."""
        config = {
            "method": method,
            "data": dataset.name,
            "shape": list(dataset.shape),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "seed": self.seed,
            "noise": "secure" if self.seed is None else "seeded",
            **settings,
            **({} if self.label is None else {"label": self.label}),
        }
        here = remembered(self.out, self.data, self.label, self.bounds)  # not for the model's users
        answer = _folder.leave(
            self.out,
            model=model({"privet": json.dumps(config)}),
            config=config,
            here=here,
            metrics={
                "test_accuracy": accuracy, "seconds": time.perf_counter() - self.begun, **metrics
            },
            guarantee=guarantee,
            claim=claim,
            split_assumes=dataset.split_assumes,
        )  # fmt: skip
        if self.as_json:
            print_json(answer)
        else:
            from privet.guarantee import Standing

            is_claim = claim is not None and claim.standing is Standing.CLAIMED
            claimed = f"; {claim}" if is_claim else ""
            typer.echo(f"{self.out}: test accuracy {accuracy:.2%}, {guarantee}{claimed}")


def training(command: Callable[..., None]) -> Callable[..., None]:
    """A command with its own options and with those that all trainings share, given as `Asked`."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    shared = inspect.signature(Asked, eval_str=True).parameters

    def run(**given: Any) -> None:
        asked = Asked(**{name: given.pop(name) for name in shared})
        asked.check()
        command(asked, **given)

    told: Any = run
    told.__name__, told.__doc__ = command.__name__, command.__doc__
    told.__signature__ = inspect.Signature(
        [*shared.values(), *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own)]
    )
    return run
