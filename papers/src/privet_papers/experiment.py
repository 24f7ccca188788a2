"""One runner for the papers' experiments: settings by fields, cells kept on disk, a table, figures.

An experiment lists its cells (a network, a method at a budget with a seed), each of which is
computed once and kept in OUT/cells, so that the same command goes on after an interruption. What
they found is collected into tables and drawn.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import pickle
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, final

from privet.errors import InvalidArgument
from privet.jobs import (
    Arrays,
    Cell,
    Progress,
    Tell,
    cached_arrays,
    cached_json,
    no_progress,
    run_cells,
    write_json,
    write_whole,
)
from privet.settings import check_settings
from privet.settings import setting as setting
from privet.threads import threads
from privet_papers.result_tables import RunRecord, Table

Row = dict[str, Any]
TIMES = "processor_seconds.tsv"
"""A line for each cell that ended: what it took, which is nothing where it was kept."""


def seconds_of(steps: Callable[[], Any]) -> float:
    """What they take here: the shortest of three tries, since the first waits for caches."""
    tries = []
    for _ in range(3):
        began = time.perf_counter()
        steps()
        tries.append(time.perf_counter() - began)
    return min(tries)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an experiment runs: quick by default, the paper's own scale by name."""

    def __post_init__(self) -> None:
        check_settings(self)

    def given(self, **values: Any) -> Self:
        """The same with what somebody asked for; what picks cells twice picks them once."""
        for f in fields(self):
            if f.metadata.get("picks") and isinstance(values.get(f.name), tuple):
                values[f.name] = tuple(dict.fromkeys(values[f.name]))
        return dataclasses.replace(self, **values)

    def scaled(self, paper: Self, factor: int) -> Self:
        """All sizes so many times as large (or as small), none beyond the paper's.

        Sizes are the whole numbers in which the paper's settings differ: records, epochs, widths.
        What only picks cells (seeds, budgets) is left to options of its own.
        """
        sizes: dict[str, Any] = {}
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(paper, f.name)
            if f.metadata.get("picks"):
                continue
            if isinstance(mine, int) and not isinstance(mine, bool):
                sizes[f.name] = _towards(mine, theirs, factor)
            elif _whole_numbers(mine) and _whole_numbers(theirs) and len(mine) == len(theirs):
                pairs = zip(mine, theirs, strict=True)
                sizes[f.name] = tuple(_towards(a, b, factor) for a, b in pairs)
        return dataclasses.replace(self, **sizes)

    def facts(self) -> dict[str, Any]:
        """All that a cell may depend on, ready for JSON."""
        return {
            f.name: plain(getattr(self, f.name))
            for f in fields(self)
            if not f.metadata.get("picks", False)
        }


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(v) is int for v in value)


def _towards(mine: int, paper: int, factor: int) -> int:
    """Up to the paper's number, or down to it.

    >>> _towards(100, 1000, 3), _towards(100, 200, 3), _towards(4, 1, 2), _towards(5, 5, 9)
    (300, 200, 2, 5)
    """
    return min(paper, mine * factor) if paper > mine else max(paper, mine // factor)


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
    """Its word on the command line, and its default folder."""
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
    def tables(self, results: Row) -> Iterable[Table]:
        """The results for people: what is printed, and written as tables.md and tables.tex."""

    def remarks(self, results: Row) -> Iterable[str]:
        """Sentences below the tables."""
        return ()

    @final
    def text(self, results: Row) -> str:
        """Tables and remarks as Markdown."""
        notes = [f"- {remark}" for remark in self.remarks(results)]
        return "\n".join([*(t.markdown() for t in self.tables(results)), *notes])

    @final
    def record(self, results: Row, command: str) -> RunRecord:
        """The run as papers/results keeps it."""
        return RunRecord(
            command=command,
            date=datetime.date.today().isoformat(),
            processor_hours=round(self._processor_seconds() / 3600.0, 3),
            settings=results["settings"],
            tables=tuple(self.tables(results)),
            remarks=tuple(self.remarks(results)),
        )

    @classmethod
    def from_folder(cls, settings: S, folder: str) -> S:
        """The settings for records in a folder of the user's own, where a paper's data allow it."""
        raise InvalidArgument("--data", folder, f"one of {'; '.join(cls.quick)}")

    def expected_seconds(self) -> float | None:
        """What all cells take on one core, from a step measured now; None: nobody knows."""
        return None

    def expected_memory(self) -> float | None:
        """The most bytes that a job holds at once; None: nobody knows."""
        return None

    def kept(self, key: Any, run: Callable[[], Row]) -> Row:
        """A row from its file, or computed and written: whole or not at all."""
        return cached_json(self.out / "cells", [self.version, self.settings.facts(), key], run)

    def kept_arrays(self, key: Any, run: Callable[[], Arrays]) -> Arrays:
        """The same for arrays."""
        return cached_arrays(self.out / "cells", [self.version, self.settings.facts(), key], run)

    def default_jobs(self) -> int:
        """How many cells are computed at once by default: one a core, where that pays."""
        return 1 if self.brief else _cores()

    def expected_time(self, jobs: int) -> float | None:
        """What so many jobs need for all cells, in seconds by the clock; None: nobody knows."""
        with threads(1, numbers=0):
            seconds = self.expected_seconds()
        return None if seconds is None else seconds / min(jobs, _cores())

    def run(self, progress: Progress = no_progress, jobs: int = 1) -> Row:
        """Compute what is missing; write results.json, tables.md and figures; returns results.

        `jobs` cells are computed at once, each on one thread, with the same results for any number.
        """
        if jobs < 1:
            raise InvalidArgument("jobs", jobs, "at least 1")
        self.out.mkdir(parents=True, exist_ok=True)
        cells = self.timed_cells()
        of = sum(not cell.shared for cell in cells)
        if jobs > 1:
            cells = self._cells_for_workers(cells)
        values = run_cells(cells, jobs=jobs, progress=progress)
        with threads(1, numbers=0):
            progress("tables and figures", of, of)
            results = {"settings": plain(self.settings), **self.collect(values)}
            results["pictures"] = [str(path) for path in self.draw(results)]
        write_json(self.out / "results.json", results)
        write_whole(self.out / "tables.md", self.text(results) + "\n")
        latex = "\n".join(t.latex() for t in self.tables(results))
        write_whole(self.out / "tables.tex", latex + "\n")
        progress("done", of, of)
        return results

    def timed_cells(self) -> list[Cell]:
        """All cells, each of which adds a line to OUT/processor_seconds.tsv when it is done."""
        return [
            dataclasses.replace(cell, run=partial(self._run_timed, cell)) for cell in self.cells()
        ]

    def _run_timed(self, cell: Cell, tell: Tell) -> Any:
        began = time.process_time()
        found = cell.run(tell)
        with (self.out / TIMES).open("a") as file:  # one short line: workers do not mix theirs
            file.write(f"{time.process_time() - began:.2f}\t{cell.name}\n")
        return found

    def _processor_seconds(self) -> float:
        """Of all cells that ever ended in this folder."""
        path = self.out / TIMES
        lines = path.read_text().splitlines() if path.exists() else []
        return sum(float(line.split("\t")[0]) for line in lines)

    def _cells_for_workers(self, cells: list[Cell]) -> list[Cell]:
        """Cells by their numbers in an experiment that every worker makes once: it keeps data."""
        import cloudpickle  # joblib brings it

        recipe = cloudpickle.dumps(partial(type(self), self.settings, self.out, self.folder))
        return [
            dataclasses.replace(cell, run=partial(_run_numbered, recipe, number))
            for number, cell in enumerate(cells)
        ]


def _run_numbered(recipe: bytes, number: int, tell: Tell) -> Any:
    return _cells_of(recipe)[number].run(tell)


@lru_cache(maxsize=1)
def _cells_of(recipe: bytes) -> list[Cell]:
    make: Callable[[], Experiment[Any]] = pickle.loads(recipe)
    return make().timed_cells()
