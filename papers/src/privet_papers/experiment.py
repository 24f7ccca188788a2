"""One runner for the papers' experiments: settings by fields, cells kept on disk, a table, figures.

An experiment lists its cells (a network, a method at a budget with a seed), each of which is
computed once and kept in OUT/cells, so that the same command goes on after an interruption. What
they found is collected into tables and drawn.
"""

from __future__ import annotations

import dataclasses
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, final

from privet.errors import InvalidArgument
from privet.kept import Arrays, kept, kept_arrays, write_json, write_whole
from privet.threads import threads

Row = dict[str, Any]
Told = Callable[[str], None]
"""Told what a cell is at."""
Progress = Callable[[str, int, int], None]
"""Told what is being done, how many cells are done, and of how many."""


def seconds_of(steps: Callable[[], Any]) -> float:
    """What they take here: the shortest of three tries, since the first waits for caches."""
    tries = []
    for _ in range(3):
        began = time.perf_counter()
        steps()
        tries.append(time.perf_counter() - began)
    return min(tries)


def silent(what: str, done: int, of: int) -> None:
    """Is told and says nothing."""


def setting(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    option: str = "",
    least: float | None = None,
    among: Iterable[str] = (),
    picks: bool = False,
) -> Any:
    """A field of settings that the command line can give.

    - `option`: its name there, if it is not the field's (one of several: `epsilon`, `epsilons`);
    - `least`: the smallest value; `among`: the words allowed. Of each, where there are several;
    - `picks`: it decides which cells are run, and nothing about any of them.
    """
    told = {
        "help": help, "option": option, "least": least, "among": tuple(among), "picks": picks
    }  # fmt: skip
    return dataclasses.field(default=default, metadata=told)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an experiment runs: quick by default, the paper's own scale by name."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            for one in value if isinstance(value, tuple) else (value,):
                _check(f.metadata.get("option") or f.name, one, f.metadata)

    def given(self, **values: Any) -> Self:
        """The same with what somebody asked for; what picks cells twice picks them once."""
        for f in fields(self):
            if f.metadata.get("picks") and isinstance(values.get(f.name), tuple):
                values[f.name] = tuple(dict.fromkeys(values[f.name]))
        return dataclasses.replace(self, **values)

    def facts(self) -> dict[str, Any]:
        """All that a cell may depend on, ready for JSON."""
        return {
            f.name: plain(getattr(self, f.name))
            for f in fields(self)
            if not f.metadata.get("picks", False)
        }


def _check(name: str, value: Any, told: Mapping[str, Any]) -> None:
    least, among = told.get("least"), told.get("among")
    if least is not None and not least <= value:
        raise InvalidArgument(name, value, f"at least {least:g}")
    if among and value not in among:
        raise InvalidArgument(name, value, f"one of {'; '.join(among)}")


def plain(value: Any) -> Any:
    """The value as JSON can write it; infinity is a word."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, Enum):
        return value.value
    return "inf" if isinstance(value, float) and math.isinf(value) else value


@final
@dataclass(frozen=True)
class Cell:
    """One thing to compute: what it is called, and how; the experiment keeps what comes out."""

    name: str
    run: Callable[[Told], Any]
    needs: tuple[str, ...] = ()
    """Names of earlier cells whose results it reads from the disk."""
    shared: bool = False
    """Made for other cells alone: neither counted nor collected."""


@final
@dataclass(frozen=True, kw_only=True)
class Shown:
    """A table or figure that the paper prints, and where a run shows what we get."""

    of: str
    """As the paper calls it: "Table I", "Fig. 4a"."""
    data: str = ""
    """The data set that it needs; empty is any."""
    picture: str = ""
    """The file that is drawn, without its ending."""
    rows: str = ""
    """The word of results.json that its numbers stand under."""

    def made(self, results: Mapping[str, Any]) -> bool:
        """Whether a run has all of it: the picture drawn, the numbers there."""
        drawn = {Path(path).stem for path in results["pictures"]}
        return (not self.picture or self.picture in drawn) and (
            not self.rows or bool(results.get(self.rows))
        )


def _cores() -> int:
    """Of this machine, those that we may use."""
    from joblib import cpu_count

    return int(cpu_count())


S = TypeVar("S", bound=Settings)


class Experiment(ABC, Generic[S]):
    """A paper's experiment at these settings, in this folder."""

    name: ClassVar[str]
    """Its word on the command line, and its folder unless told."""
    version: ClassVar[int] = 1
    """Of what a cell means: cells of another version are run again."""
    quick: ClassVar[Mapping[str, Any]]
    """Settings for minutes on two cores, by data set."""
    paper: ClassVar[Mapping[str, Any]] = {}
    """The paper's own, which take days."""
    shows: ClassVar[tuple[Shown, ...]] = ()
    """Every table and figure of the paper."""
    brief: ClassVar[bool] = False
    """Seconds in all: starting a second process would take longer than it saves."""

    def __init__(self, settings: S, out: Path, folder: Path | None = None) -> None:
        self.settings, self.out, self.folder = settings, out, folder

    @abstractmethod
    def cells(self) -> Iterable[Cell]:
        """Everything to compute, in this order."""

    @abstractmethod
    def collect(self, found: list[Any]) -> Row:
        """What cells found, as the results that are written: rows and their summary."""

    @abstractmethod
    def draw(self, results: Row) -> Iterable[Path]:
        """Draw the figures; returns their paths."""

    @abstractmethod
    def text(self, results: Row) -> str:
        """The results for people: what is printed and written as tables.md."""

    @classmethod
    def from_folder(cls, settings: S, folder: str) -> S:
        """The settings for records in a folder of the user's own, where a paper's data allow it."""
        raise InvalidArgument("--data", folder, f"one of {'; '.join(cls.quick)}")

    def expected_seconds(self) -> float | None:
        """What all cells take on one core, from a step measured now; None: nobody knows."""
        return None

    def kept(self, key: Any, run: Callable[[], Row]) -> Row:
        """A row from its file, or computed and written: whole or not at all."""
        return kept(self.out / "cells", [self.version, self.settings.facts(), key], run)

    def kept_arrays(self, key: Any, run: Callable[[], Arrays]) -> Arrays:
        """The same for arrays."""
        return kept_arrays(self.out / "cells", [self.version, self.settings.facts(), key], run)

    def default_jobs(self) -> int:
        """How many cells are computed at once unless told: one a core, where that pays."""
        return 1 if self.brief else _cores()

    def expected_time(self, jobs: int) -> float | None:
        """What so many jobs need for all cells, in seconds by the clock; None: nobody knows."""
        with threads(1, numbers=0):
            seconds = self.expected_seconds()
        return None if seconds is None else seconds / min(jobs, _cores())

    def run(self, progress: Progress = silent, jobs: int = 1) -> Row:
        """Compute what is missing; write results.json, tables.md and figures; returns results.

        `jobs` cells are computed at once, each on one thread, with the same results for any number.
        Above 1 they are worker processes, which import the script that calls this.
        """
        if jobs < 1:
            raise InvalidArgument("jobs", jobs, "at least 1")
        self.out.mkdir(parents=True, exist_ok=True)
        cells = list(self.cells())
        of = sum(not cell.shared for cell in cells)
        with threads(1, numbers=0):
            found = self._found(cells, progress, jobs)
            progress("tables and figures", of, of)
            results = {"settings": plain(self.settings), **self.collect(found)}
            results["pictures"] = [str(path) for path in self.draw(results)]
        write_json(self.out / "results.json", results)
        write_whole(self.out / "tables.md", self.text(results) + "\n")
        progress("done", of, of)
        return results

    def _found(self, cells: list[Cell], progress: Progress, jobs: int) -> list[Any]:
        """What the cells found, one after another here, or several at once in workers."""
        if jobs > 1:
            from privet.papers.workers import run_cells

            make = partial(type(self), self.settings, self.out, self.folder)
            return run_cells(make, cells, jobs, progress)
        found: list[Any] = []
        of = sum(not cell.shared for cell in cells)
        for cell in cells:

            def told(what: str) -> None:
                progress(what, len(found), of)

            told(cell.name)
            value = cell.run(told)
            if not cell.shared:
                found.append(value)
        return found
