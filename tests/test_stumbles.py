"""Every stumble of docs/stumbles.md names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_stumble_has_its_test() -> None:
    page = (ROOT / "docs" / "stumbles.md").read_text()
    rows = re.findall(
        r"^\| (\d+) \|.*\| `((?:papers/)?tests/[\w/]+\.py)::(\w+)` \|$", page, flags=re.MULTILINE
    )
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1)) and len(
        rows
    ) >= 25
    for _, path, name in rows:
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), flags=re.MULTILINE), name
