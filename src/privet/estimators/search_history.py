"""Notice a search from inside an estimator that it clones: who compares clones, and how many.

A loop that clones an estimator, scores the clones and keeps the best chooses by the records, and so
does cross validation. None of them calls `fit` from a meta-estimator that could be seen there, and
some fit in other processes. But an estimator and its clones can share what they know.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import Any

from privet import premises
from privet.guarantee import Backing, Guarantee

MODEL_SELECTION = "sklearn.model_selection"


@dataclass(eq=False)
class SearchHistory:
    """What happened to an estimator and to its clones, and theirs: all share one of these."""

    compared_by: str = ""
    """What of scikit-learn's model selection cloned one of them, to fit and score it."""
    uncharged: set[str] = field(default_factory=set)
    """The settings of those that were fitted without a ledger."""

    def note_clone(self) -> None:
        """Look who is cloning: cross validation may fit the clone in another process, unseen."""
        frame = inspect.currentframe()
        while frame is not None:
            if str(frame.f_globals.get("__name__", "")).startswith(MODEL_SELECTION):
                caller = frame.f_locals.get("self")  # the outermost one is what was called
                name = frame.f_code.co_name
                self.compared_by = type(caller).__name__ if hasattr(caller, "fit") else name
            frame = frame.f_back

    def note_fit(self, settings: str, *, charged: bool) -> None:
        """Note a fit; one that was charged to a ledger is a release that was paid for."""
        if not charged:
            self.uncharged.add(settings)

    def describe_choice(self, settings: str) -> str:
        """What compared these settings with others, so far; empty if nothing is known to."""
        others = len(self.uncharged - {settings})
        if self.compared_by or not others:
            return self.compared_by
        return f"a loop over {others} other settings, none of them charged,"

    def restate(self, guarantee: Guarantee, settings: str) -> Guarantee:
        """The guarantee of a fit with these settings by what is known now: later fits count too."""
        choice = self.describe_choice(settings)
        about = {p.about: p for p in guarantee.premises}
        if not choice or about["settings"].backing is Backing.NOT_MET:
            return guarantee
        stated = premises.fitted_around(choice)
        return replace(
            guarantee,
            premises=tuple(stated if p.about == "settings" else p for p in guarantee.premises),
        )


def settings_text(estimator: Any) -> str:
    """What was set, as text that tells settings apart; weights of classes are free."""
    given = estimator.get_params(deep=False).items()
    return repr(sorted((k, repr(v)) for k, v in given if k != "class_weight"))
