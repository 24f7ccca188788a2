"""Behaviour data from files: Copenhagen (calls, texts, friends), Fitbit, and s50."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privet.data.data_folder import damaged_file, data_folder, find
from privet_papers.autoencoder.behaviour.panel_data import Panel, read_table

Folder = str | os.PathLike[str] | None
Array = NDArray[np.float64]

_DAY = 86_400
_FITBIT = ("3.12.16-4.11.16", "4.12.16-5.12.16")
_DAILY_BOUNDS = {
    "TotalSteps": (0.0, 30_000.0),
    "TotalDistance": (0.0, 25.0),
    "VeryActiveMinutes": (0.0, 180.0),
    "FairlyActiveMinutes": (0.0, 180.0),
    "LightlyActiveMinutes": (0.0, 600.0),
    "SedentaryMinutes": (0.0, 1_440.0),
    "Calories": (0.0, 5_000.0),
}


def copenhagen(folder: Folder = None) -> Panel:
    """Calls and texts of 800 students over 28 days, with their Facebook friendships.

    The target is the number of calls made and texts sent in a day: who will be more active
    tomorrow? A user is observed from the first to the last day of the study; a day without an event
    is a day of zeros. Users who never called or texted are left out of the panel: that someone is
    in it is public. Counts are taken as log(1 + count).

    Sapiezynski, Stopczynski, Lassen and Lehmann, "Interaction data from the Copenhagen Networks
    Study" (2019).
    """
    place = data_folder(folder)
    calls = _whole_numbers(find("copenhagen-networks/calls.csv", folder=place))
    texts = _whole_numbers(find("copenhagen-networks/sms.csv", folder=place))
    friends = _whole_numbers(find("copenhagen-networks/fb_friends.csv", folder=place))
    active = np.unique(np.concatenate([calls[:, 1:3].ravel(), texts[:, 1:3].ravel()]))
    number = np.full(int(max(active.max(), friends.max())) + 1, -1)
    number[active] = np.arange(len(active))
    counts = np.zeros((len(active), 28, 6))
    answered = calls[:, 3] >= 0
    for column, (events, who, share) in enumerate(
        (
            (calls, 1, np.ones(len(calls))),
            (calls, 2, np.ones(len(calls))),
            (calls, 1, np.where(answered, calls[:, 3], 0) / 60.0),
            (texts, 1, np.ones(len(texts))),
            (texts, 2, np.ones(len(texts))),
        ),
        start=1,
    ):
        cell = number[events[:, who]] * 28 + np.minimum(events[:, 0] // _DAY, 27)
        total = np.bincount(cell, weights=share, minlength=28 * len(active))
        counts[:, :, column] = total.reshape(len(active), 28)
    counts[:, :, 0] = counts[:, :, 1] + counts[:, :, 4]
    pairs = number[friends[:, :2]]
    return Panel(
        name="copenhagen",
        about=f"Copenhagen Networks Study: {len(active)} users, 28 days of calls and texts",
        values=np.log1p(counts),
        attributes=(
            "contacts made", "calls made", "calls received", "minutes called", "texts sent",
            "texts received",
        ),
        target="contacts made",
        low=0.0,  # type: ignore[arg-type]
        high=np.log1p([100.0, 20.0, 20.0, 120.0, 100.0, 100.0]),
        users=tuple(str(u) for u in active),
        edges=pairs[(pairs >= 0).all(axis=1)],
        season=7,
    )  # fmt: skip


def fitbit_daily(folder: Folder = None) -> Panel:
    """Daily activity of 35 people over two months (no friendships); the target is steps.

    Furberg, Brinton, Keating and Ortiz, "Crowd-sourced Fitbit datasets" (2016).
    """
    rows = _fitbit(folder, "dailyActivity_merged.csv")
    when = [datetime.strptime(r["ActivityDate"], "%m/%d/%Y").toordinal() for r in rows]
    cells = [[float(r[name]) for name in _DAILY_BOUNDS] for r in rows]
    return _fitbit_panel(
        "fitbit daily", rows, np.array(when), np.array(cells), dict(_DAILY_BOUNDS), 7
    )


def fitbit_hourly(folder: Folder = None) -> Panel:
    """Hourly steps of the same people: a "day" of this panel is an hour, its season 24."""
    rows = _fitbit(folder, "hourlySteps_merged.csv")
    when = [_hour(r["ActivityHour"]) for r in rows]
    cells = [[float(r["StepTotal"])] for r in rows]
    bounds = {"StepTotal": (0.0, 10_000.0)}
    return _fitbit_panel("fitbit hourly", rows, np.array(when), np.array(cells), bounds, 24)


def s50(folder: Folder = None) -> Panel:
    """Fifty pupils in three yearly waves: alcohol (the target), smoking, and who named whom.

    A "day" of this panel is a year; friendships of any wave count, in either direction.

    West and Sweeting, "Background, rationale and design of the West of Scotland 11 to 16 study"
    (1995), as shipped with RSiena.
    """
    place = data_folder(folder)
    columns, ties = [], np.zeros((50, 50), dtype=bool)
    for name in ("alcohol", "smoke"):
        path = find(f"s50-teenage-friends/s50-{name}.csv", folder=place)
        columns.append(_matrix(path, skip=1, shape=(50, 3)))
    for wave in (1, 2, 3):
        path = find(f"s50-teenage-friends/s50-network{wave}.csv", folder=place)
        ties |= _matrix(path, skip=0, shape=(50, 50)) > 0
    return Panel(
        name="s50",
        about="Teenage Friends and Lifestyle Study, 50 girls: three yearly waves",
        values=np.stack(columns, axis=2),
        attributes=("alcohol", "smoke"),
        target="alcohol",
        low=np.array([1.0, 1.0]),
        high=np.array([5.0, 3.0]),
        users=tuple(str(i) for i in range(50)),
        edges=np.argwhere(ties),
    )


def _whole_numbers(path: Path) -> NDArray[np.int64]:
    try:
        return np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.int64, ndmin=2)
    except ValueError as error:
        raise damaged_file(path, str(error)) from None


def _matrix(path: Path, *, skip: int, shape: tuple[int, int]) -> Array:
    try:
        found = np.loadtxt(path, delimiter=",", skiprows=skip, ndmin=2)
    except ValueError as error:
        raise damaged_file(path, str(error)) from None
    if found.shape != shape:
        raise damaged_file(path, f"its shape is {found.shape}, not {shape}")
    return np.asarray(found, dtype=np.float64)


def _fitbit(folder: Folder, name: str) -> list[dict[str, str]]:
    place = data_folder(folder)
    months = [find(f"fitbit-mturk/{month}/{name}", folder=place) for month in _FITBIT]
    return [row for path in months for row in read_table(path)]


def _fitbit_panel(
    name: str,
    rows: list[dict[str, str]],
    when: NDArray[np.int64],
    cells: Array,
    bounds: dict[str, tuple[float, float]],
    season: int,
) -> Panel:
    users, who = np.unique([r["Id"] for r in rows], return_inverse=True)
    values = np.full((len(users), int(when.max() - when.min()) + 1, len(bounds)), np.nan)
    values[who, when - when.min()] = cells  # the later month has the last word on a shared day
    return Panel(
        name=name,
        about=f"Fitbit trackers (MTurk 2016): {len(users)} users, {values.shape[1]} steps of time",
        values=values,
        attributes=tuple(bounds),
        target=next(iter(bounds)),
        low=np.array([low for low, _ in bounds.values()]),
        high=np.array([high for _, high in bounds.values()]),
        users=tuple(str(u) for u in users),
        edges=np.zeros((0, 2), dtype=np.int64),
        season=season,
    )


def _hour(text: str) -> int:
    """Hours since year 1, from either of the two ways the files write them."""
    kind = "%Y-%m-%d %H:%M:%S" if text[4] == "-" else "%m/%d/%Y %I:%M:%S %p"
    moment = datetime.strptime(text, kind)
    return moment.toordinal() * 24 + moment.hour
