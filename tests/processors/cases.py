"""All cases; to add one, append a `Case` to the list of its file, or a file's list here."""

from __future__ import annotations

from tests.processors import rows, sums
from tests.processors.case import Case

CASES: tuple[Case, ...] = (*rows.CASES, *sums.CASES)
