"""papers/ITEMS.md names files that exist, and commands and options that exist."""

from __future__ import annotations

import re
import shlex
from datetime import date
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from privet.cli.main import app
from privet_papers.result_tables import RunRecord

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in (ROOT / "papers" / "ITEMS.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| item ")
]


def test_every_item_has_a_file_a_command_and_a_standing() -> None:
    assert len(ROWS) > 150
    for row in ROWS:
        item, file, command, standing = row
        assert item and (ROOT / file).is_file(), row
        assert command.startswith("`privet ") and command.endswith("`"), row
        assert standing.startswith(("right", "scaled", "not run")), row
        if standing.startswith("not run"):
            assert ":" in standing or " at scale" in standing, row  # it says why


def missing(words: list[str]) -> list[str]:
    """Commands and options among the words of a command line that do not exist."""
    command: Any = typer.main.get_command(app)
    context = click.Context(command)
    words = words[1:]
    while hasattr(command, "get_command") and words:
        found = command.get_command(context, words[0])
        if found is None:
            return [words[0]]
        command, words = found, words[1:]
    options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    return [w for w in words if w.startswith("--") and w not in options]


@pytest.mark.parametrize("command", sorted({row[2].strip("`") for row in ROWS}))
def test_every_command_and_its_options_exist(command: str) -> None:
    assert missing(shlex.split(command)) == []


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert missing(["privet", "reproduce", "residual", "--crops"]) == ["--crops"]
    assert missing(["privet", "reproduce", "moon"]) == ["moon"]
    assert missing(["privet", "imagine"]) == ["imagine"]


def test_kept_results_have_date_command_and_hours() -> None:
    """Three at least, each by a command that exists and that a page shows."""
    files = sorted((ROOT / "papers" / "results").glob("*.json"))
    pages = "".join(p.read_text() for p in (ROOT / "docs" / "papers").glob("*.md"))
    assert len(files) >= 3
    for file in files:
        kept = RunRecord.read(file)
        assert date.fromisoformat(kept.date) and kept.processor_hours > 0.0 and kept.tables
        words = shlex.split(kept.command)
        assert missing(words) == [] and words[words.index("--record") + 1] == file.name
        assert f"<!-- results: {file.name} -->" in pages
