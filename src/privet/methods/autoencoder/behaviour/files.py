"""Own tables: users and days in a CSV file, friendships in another one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from privet import _check
from privet.data.behaviour import Panel, load_panel
from privet.data.dataset import Dataset
from privet.data.declared import declared_columns
from privet.errors import InvalidArgument
from privet.methods.contract import Array, Files, setting


@final
@dataclass(frozen=True, kw_only=True)
class BehaviourFiles(Files):
    """A table with a row for each user and day, and a list of friends."""

    record: ClassVar[str] = "user"

    edges: str | None = setting(None, help="CSV file of friendships, with a header or without.")
    user: str = setting("user", help="Column of the table that names the user.")
    day: str = setting("day", help="Column of the day: a date (2026-11-16) or a whole number.")
    target: str = setting("", help="Column whose rise is predicted.")
    events: tuple[str, ...] = setting((), help="Columns that are events, with commas between.")
    season: int = setting(7, help="Days of a public cycle; 0 for none.")
    test_days: int = setting(7, help="The last days, which are predicted and not learned from.")

    def __post_init__(self) -> None:
        if self.edges is not None:  # the run is asked from other folders too
            object.__setattr__(self, "edges", str(Path(self.edges).resolve()))

    def panel(self, data: Path, declaration: Path | None) -> Panel:
        """The table as declared."""
        bounds, categories = declared_columns(declaration)
        if not self.target:
            raise InvalidArgument("--target", "", f"one of {', '.join(bounds)}")
        return load_panel(
            data, self.edges, bounds=bounds, categories=categories, target=self.target,
            user=self.user, day=self.day, events=self.events, season=self.season,
        )  # fmt: skip

    def training(self, data: Path, declaration: Path | None, method: Any) -> tuple[Any, Dataset]:
        panel = self.panel(data, declaration)
        days = panel.days - _check.count("--test-days", self.test_days)
        if days < method.lags + 2:
            raise InvalidArgument(
                "--test-days", self.test_days, f"few enough to leave {method.lags + 2} days",
                f"the table has {panel.days}",
            )  # fmt: skip
        learned = panel.before(days)
        method = method.for_panel(learned)
        statuses = panel.statuses()
        test = [
            (_last(method.series(panel.before(t)), days)[there], statuses[there, t])
            for t in range(days, panel.days)
            if (there := statuses[:, t] >= 0).any()
        ]
        series = method.series(learned)
        none = np.zeros(len(series), dtype=np.int64)
        return method, Dataset(
            name=panel.name, about=panel.about, classes=("falls", "rises"),
            low=np.array(0.0), high=np.array(1.0), x_train=series, y_train=none,
            x_test=np.concatenate([series[:0], *(x for x, _ in test)]),
            y_test=np.concatenate([none[:0], *(y for _, y in test)]),
            split_assumes="",
        )  # fmt: skip

    def asked(
        self, data: Path, declaration: Path | None, method: Any, shape: tuple[int, ...]
    ) -> tuple[Array, list[str]]:
        panel = self.panel(data, declaration)
        return _last(method.series(panel), shape[0]), list(panel.users)


def _last(series: Array, days: int) -> Array:
    """The last so many days; those before the first are days without a record."""
    missing = max(0, days - series.shape[1])
    return np.pad(series, ((0, 0), (missing, 0), (0, 0)))[:, -days:]
