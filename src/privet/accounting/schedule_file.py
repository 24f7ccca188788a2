"""A schedule of training as a table: q_t, C_t, the noise and eta_t, one line a phase.

The columns are those of HeterogeneousDPDL (tight-privacy-cost, Fig. 1): `sample_rate`, the noise as
`noise_multiplier` or as the paper's `sigma`, `clipping_bound`, `learning_rate`, and `steps`, how
long a line lasts. sigma is absolute, on the gradient averaged over q N: z = sigma q N / C.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from privet import _check
from privet.accounting.poisson_sampling import SampledGaussian
from privet.errors import InvalidArgument, MissingFile
from privet.guarantee import Adjacency

_CHECKS = {
    "sample_rate": _check.unit,
    "noise_multiplier": _check.positive,
    "sigma": _check.positive,
    "clipping_bound": _check.positive,
    "learning_rate": _check.positive,
    "steps": _check.count,
}


@final
@dataclass(frozen=True, kw_only=True)
class SchedulePhases:
    """A schedule as columns by name, one number a line; columns that were not given are left out.

    >>> read_phases("sample_rate,sigma,clipping_bound,steps\\n0.1,0.02,2,3").loss(1000).releases
    3
    """

    columns: dict[str, tuple[float, ...]]
    name: str = "schedule"

    @property
    def steps(self) -> tuple[int, ...]:
        """How long each line lasts; 1 where the table does not say."""
        return tuple(int(n) for n in self.columns.get("steps", (1,) * len(self.rates)))

    @property
    def rates(self) -> tuple[float, ...]:
        """The sample rate of each line."""
        return self.columns["sample_rate"]

    def each_step(self, values: Sequence[float]) -> list[float]:
        """A column with one number for each step."""
        return [v for v, n in zip(values, self.steps, strict=True) for _ in range(n)]

    def noise_multipliers(self, records: int | None) -> tuple[float, ...]:
        """z of each line; from sigma it takes the number of records."""
        if "noise_multiplier" in self.columns:
            return self.columns["noise_multiplier"]
        if records is None:
            raise InvalidArgument(
                "--records",
                None,
                "the number of records N",
                "sigma is on a mean over q N",
            )
        columns = (self.columns[n] for n in ("sigma", "sample_rate", "clipping_bound"))
        return tuple(s * q * records / c for s, q, c in zip(*columns, strict=True))

    def loss(
        self, records: int | None = None, adjacency: Adjacency = Adjacency.ADD_REMOVE
    ) -> SampledGaussian:
        """What it all costs under Poisson sampling."""
        return SampledGaussian(
            sample_rate=self.rates, noise_multiplier=self.noise_multipliers(records),
            steps=self.steps, adjacency=adjacency,
        )  # fmt: skip


def load_phases(path: Path) -> SchedulePhases:
    """Read a schedule from a CSV file."""
    return read_phases(load_text(path), str(path))


def load_text(path: Path) -> str:
    """Read the text of a file; an error says in one line why it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise MissingFile(path) from None
    except (OSError, UnicodeDecodeError) as e:
        raise InvalidArgument("schedule", str(path), "a readable CSV file", str(e)) from None


def read_phases(text: str, name: str = "schedule") -> SchedulePhases:
    """Read a schedule from the text of its CSV file; a bad line is named."""
    reader = csv.reader(io.StringIO(text))
    try:
        header = [h.strip() for h in next(reader, [])]
        _check_header(header, name)
        known = [n for n in header if n in _CHECKS]
        columns: dict[str, list[float]] = {n: [] for n in known}
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            at = f"{name} line {reader.line_num}"
            if len(row) != len(header):
                raise InvalidArgument(at, ",".join(row), f"{len(header)} values")
            for n in known:
                columns[n].append(_CHECKS[n](f"{at}: {n}", row[header.index(n)]))
    except csv.Error as e:
        raise InvalidArgument("schedule", name, "a readable CSV file", str(e)) from None
    if not columns["sample_rate"]:
        raise InvalidArgument(name, "no lines", "a schedule with at least one line of steps")
    return SchedulePhases(columns={n: tuple(v) for n, v in columns.items()}, name=name)


def _check_header(header: list[str], name: str) -> None:
    wanted = "sample_rate, noise_multiplier (or sigma and clipping_bound), steps"
    noise = [n for n in ("noise_multiplier", "sigma") if n in header]
    missing = "sample_rate" if "sample_rate" not in header else ""
    if not noise:
        missing = missing or "noise_multiplier"
    if noise == ["sigma"] and "clipping_bound" not in header:
        missing = "clipping_bound"
    problem = f"{missing} is missing" if missing else ""
    if len(noise) == 2:
        problem = "noise_multiplier and sigma say the same"
    if problem:
        expected = f"the names of the columns: {wanted}"
        raise InvalidArgument(f"{name}: the first line", ",".join(header), expected, problem)
