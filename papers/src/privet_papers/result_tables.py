"""Tables of results, written as Markdown and LaTeX, and results that are kept in papers/results.

A long run keeps what it found in one small JSON file: its date, command and processor hours, its
tables and remarks. The papers' pages show those files; `python -m privet_papers.result_tables`
writes them into the pages again, and a test holds the two together.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from privet.jobs import write_whole

_MARK = re.compile(r"<!-- results: (\S+) -->\n.*?<!-- end of results -->", re.DOTALL)


@final
@dataclass(frozen=True, kw_only=True)
class Table:
    """A title, the names of columns, and rows of words."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
        """A table of anything: None is an empty cell."""
        words = (tuple("" if cell is None else str(cell) for cell in row) for row in rows)
        return cls(title=title, head=tuple(head), rows=tuple(words))

    def markdown(self) -> str:
        """As Markdown.

        >>> print(Table.of("Squares", ("n", "n^2"), [(1, 1), (2, None)]).markdown())
        **Squares**
        <BLANKLINE>
        | n | n^2 |
        |---|---|
        | 1 | 1 |
        | 2 |  |
        <BLANKLINE>
        """
        lines = [self.head, *self.rows]
        text = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines]
        text.insert(1, "|" + "---|" * len(self.head))
        return "\n".join([f"**{self.title}**", "", *text, ""])

    def latex(self) -> str:
        """As LaTeX, a tabular with its title above."""
        rows = [" & ".join(map(_escape_latex, row)) + r" \\" for row in self.rows]
        head = " & ".join(map(_escape_latex, self.head)) + r" \\ \hline"
        columns = "l" + "r" * (len(self.head) - 1)
        return "\n".join([
            rf"\paragraph{{{_escape_latex(self.title)}}}", rf"\begin{{tabular}}{{{columns}}}",
            head, *rows, r"\end{tabular}", "",
        ])  # fmt: skip


def _escape_latex(text: str) -> str:
    plain = text.replace("\\", "/")
    plain = re.sub(r"([&%$#_{}])", r"\\\1", plain)
    for sign, word in (("±", r"$\pm$"), ("^", r"\^{}"), ("~", r"\~{}"), ("≥", r"$\ge$")):
        plain = plain.replace(sign, word)
    return plain


def mean_and_spread(values: Sequence[float], digits: int = 1) -> str:
    """The mean, with half of its 95% interval from three values on and the range of two.

    Student's interval of two values is 12.7 times their standard error: "54.1 ± 186.1" says less
    than the two values do.

    >>> mean_and_spread([54.0]), mean_and_spread([40.0, 68.0]), mean_and_spread([70.0, 72.0, 74.0])
    ('54.0', '54.0 (40.0 to 68.0)', '72.0 ± 5.0')
    """
    mean = float(np.mean(values)) if len(values) else math.nan
    if len(values) < 2:
        return f"{mean:.{digits}f}" if len(values) else ""
    if len(values) == 2:
        return f"{mean:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
    from scipy import stats

    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    half = float(stats.t.ppf(0.975, len(values) - 1)) * error
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


@final
@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """A run as papers/results keeps it."""

    command: str
    date: str
    processor_hours: float
    """Of all cells, those of earlier runs in the same folder included."""
    settings: dict[str, Any]
    tables: tuple[Table, ...]
    remarks: tuple[str, ...]

    def write(self, path: Path) -> None:
        """One JSON file, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> RunRecord:
        """From its file."""
        found = json.loads(path.read_text())
        tables = tuple(Table.of(t["title"], t["head"], t["rows"]) for t in found["tables"])
        return cls(**found | {"tables": tables, "remarks": tuple(found["remarks"])})

    def markdown(self) -> str:
        """As a page shows it."""
        said = f"`{self.command}`, {self.date}: {self.processor_hours:.2f} processor hours."
        notes = [f"- {remark}" for remark in self.remarks]
        return "\n".join([said, "", *(t.markdown() for t in self.tables), *notes])


def with_results(page: str, folder: Path) -> str:
    """The page with each marked place showing its file of papers/results as it is now."""

    def shown(mark: re.Match[str]) -> str:
        text = RunRecord.read(folder / mark[1]).markdown().rstrip()
        return f"<!-- results: {mark[1]} -->\n{text}\n<!-- end of results -->"

    return _MARK.sub(shown, page)


def update_pages(root: Path) -> list[Path]:
    """Write all results into the papers' pages of a checkout; returns the pages that changed."""
    changed = []
    for path in sorted((root / "docs" / "papers").glob("*.md")):
        before = path.read_text()
        after = with_results(before, root / "papers" / "results")
        if after != before:
            write_whole(path, after)
            changed.append(path)
    return changed


if __name__ == "__main__":
    print("\n".join(map(str, update_pages(Path.cwd()))))
