"""The papers use privet as an outsider would."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "privet_papers"


def test_papers_import_only_public_names() -> None:
    """No module and no name with a leading underscore, but from a paper's own folder."""
    private = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("privet"):
                parts = [*(node.module or "").split("."), *(a.name for a in node.names)]
            elif isinstance(node, ast.Import):
                parts = [
                    p for a in node.names if a.name.startswith("privet") for p in a.name.split(".")
                ]
            else:
                continue
            private += [f"{path.relative_to(SOURCE)}: {p}" for p in parts if p.startswith("_")]
    assert not private, private
