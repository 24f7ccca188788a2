"""Find what else is fitted on the same records: warn of it, and state it in the guarantee.

A step that is fitted on the records (a mean, a variance, principal components) is a release of its
own, without noise: it goes out with the model. So is what a search, a threshold or a calibration
around the estimator chooses. Both are noticed (`search_history` has what clones tell of a search);
`declared_scaler` has a scaler that knows nothing but what was declared.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from numpy.typing import NDArray
from sklearn.base import MetaEstimatorMixin
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags

from privet import premises
from privet.estimators.search_history import settings_text
from privet.guarantee import Premise

Array = NDArray[Any]
FITS = ("fit", "fit_transform", "fit_predict")


class FittedInFront(UserWarning):
    """A step in front of a private estimator was fitted on the same records, without noise."""


def preparation(estimator: Any) -> tuple[Premise, ...]:
    """The premises to state where something else is fitted on the same records."""
    steps, around = other_fits(estimator)
    extra_premises: tuple[Premise, ...] = ()
    history = estimator.search_history
    history.note_fit(settings_text(estimator), charged=estimator.ledger is not None)
    named = ", ".join(type(other).__name__ for other in around) or history.compared_by
    if named:
        _warn(
            f"{named} around {type(estimator).__name__} chooses by the private records without "
            "noise: this is an experiment, not a release. Choose on public records and charge "
            "every fit to a ledger=; for other people's records make a new estimator"
        )
        extra_premises = (premises.fitted_around(named),)
    if not steps:
        return extra_premises
    bare = [type(step).__name__ for step in steps if not hasattr(step, "guarantee_")]
    if bare:
        named = ", ".join(bare)
        _warn(
            f"{named} in front of {type(estimator).__name__} was fitted on the private records "
            "without noise, and is released with the model: this is an experiment, not a release. "
            "Use privet.DeclaredScaler(bounds=...), or fit the step on public records and freeze "
            "it (sklearn.frozen.FrozenEstimator)"
        )
        return (*extra_premises, premises.fitted_before(named))
    last = steps[-1]
    return (*extra_premises, premises.released_before(type(last).__name__, str(last.guarantee_)))


def _warn(text: str) -> None:
    warnings.warn(text, FittedInFront, stacklevel=5)


def other_fits(estimator: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The steps that a Pipeline, now fitting, has fitted before; and what else fits around it.

    Neither tells an estimator about the others, so that this looks at who is calling.
    """
    found: list[Any] = []
    around: list[Any] = []
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if caller is not estimator and frame.f_code.co_name in FITS:
            if isinstance(caller, Pipeline):
                steps = [step for _, step in caller.steps]
                mine = [k for k, step in enumerate(steps) if step is estimator]
                before = steps[: mine[0] if mine else len(steps) - 1]
                found = [*filter(_learns, before), *found]
            elif isinstance(caller, MetaEstimatorMixin) and caller not in around:
                around.append(caller)
        frame = frame.f_back
    return tuple(found), tuple(around)


def _learns(step: Any) -> bool:
    if step is None or isinstance(step, str) or type(step).__name__ == "FrozenEstimator":
        return False
    return bool(get_tags(step).requires_fit)
