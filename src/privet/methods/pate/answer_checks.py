"""Checks of the answers of all sites before they are added up: whose they are, and to what."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from privet.methods.pate.answer_files import (
    BLOCK,
    AnswerSource,
    CheckedAnswers,
    RefusedAnswers,
)


def inspect_answers(
    answers: Sequence[AnswerSource], *, allow_equal: bool
) -> tuple[CheckedAnswers, ...]:
    """Read all answers once; the same numbers under two names are refused unless allowed.

    A site that is counted twice moves the sum by twice what is paid for; zeros move nothing.
    """
    checked, seen = [], dict[bytes, str]()
    for source in answers:
        one = source.inspect(BLOCK)
        if not allow_equal and one.max_norm > 0.0 and one.digests in seen:
            raise RefusedAnswers(
                source.display_name,
                f"the same numbers as {seen[one.digests]}: one site under two names",
                "keep one; if you know that they are two sites: allow_equal (--allow-equal)",
            )
        seen[one.digests] = source.display_name
        checked.append(one)
    return tuple(checked)


def check_compatible(
    answers: Sequence[AnswerSource], *, radius: float, reducer: str | None = None
) -> None:
    """Raise `RefusedAnswers` by name unless all answer the same queries in the same way."""
    first, seen = answers[0].header, dict[str, str]()
    for source in answers:
        h = source.header
        site = _plain_name(h.site)
        if site in seen:
            problem = f"site {h.site!r} answered twice, also in {seen[site]}"
            raise RefusedAnswers(source.display_name, problem, "keep one file a site")
        seen[site] = source.display_name
        if h.reducer != (first.reducer if reducer is None else reducer):
            raise RefusedAnswers(source.display_name, "another reducer made its codes")
        if h.queries != first.queries:
            raise RefusedAnswers(source.display_name, "it answers other public inputs")
        if (h.rows, h.dimension) != (first.rows, first.dimension):
            problem = f"{h.rows} codes of {h.dimension}, not {first.rows} of {first.dimension}"
            raise RefusedAnswers(source.display_name, problem)
        if h.radius != radius or h.spacing != first.spacing:
            problem = f"clipped to {h.radius:g}, the aggregation expects {radius:g}"
            raise RefusedAnswers(source.display_name, problem)


def _plain_name(site: str) -> str:
    """A site's name without what the eye passes over: case, spaces, forms of one letter."""
    return "".join(unicodedata.normalize("NFKC", site).casefold().split())
