"""How sure a model is of each record's label, whatever kind of model it is.

A classifier of scikit-learn's kind (ours too) is asked for probabilities, or for the values of its
decision function; a torch module for logits, in evaluation mode and without gradients; anything
else that can be called is a function of the records. Neither library is imported here: a module can
only be handed in by somebody who has torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.audit.membership.input_checks import Floats
from privet.audit.membership.logit_confidence import SMALLEST, confidence, confidence_of_logits
from privet.errors import InvalidArgument, PrivetError

Read = Callable[[Any, Any], Floats]
"""(answers, labels) to confidences: `confidence` or `confidence_of_logits`."""
BATCH = 1000  # records that a torch module is asked about at a time
KINDS = "a fitted classifier, a torch module, or a function from records to probabilities"


def confidence_of_model(model: Any, X: Any, y: Any, *, read: Read | None = None) -> Floats:
    """phi of each record, from a classifier, a torch module or a function.

    `y` are labels as a classifier knows them (`classes_`), else class numbers: columns of the
    answers. `read` says what the answers are where the kind of model does not: `confidence` for
    probabilities (the default), `confidence_of_logits` for logits (that of torch modules, unless
    their answers are probabilities).

    >>> confidence_of_model(lambda x: np.array([[0.9, 0.1]] * len(x)), [[1.0]], [0]).round(3)
    array([2.197])
    """
    if isinstance(model, type):
        raise InvalidArgument("model", model.__name__, KINDS, "this is a class, not an instance")
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(model, torch.nn.Module):
            answers = _with_two_columns(_of_module(model, X, torch))
            kind: Read = confidence if _are_probabilities(answers) else confidence_of_logits
        elif hasattr(model, "predict_proba"):
            answers, kind = model.predict_proba(X), confidence
        elif hasattr(model, "decision_function"):
            answers, kind = _with_two_columns(model.decision_function(X)), confidence_of_logits
        elif callable(model):
            answers, kind = model(X), confidence
        else:
            raise InvalidArgument("model", model, KINDS)
    except PrivetError:
        raise
    except Exception as error:  # of somebody else's code
        text = (str(error).splitlines() or [""])[0]
        raise InvalidArgument(
            "model", type(model).__name__, "one that answers for X",
            f"it raised {type(error).__name__}: {text}",
        ) from error  # fmt: skip
    classes = getattr(model, "classes_", getattr(model, "classes", None))
    if classes is not None and np.ndim(classes) == 1:
        answers, y = _by_column(answers, np.asarray(y), np.asarray(classes), kind)
    return (read or kind)(answers, y)


def _of_module(module: Any, X: Any, torch: Any) -> NDArray[Any]:
    """Logits of all records, in batches; the module is left in the mode that it was in."""
    weight = next(chain(module.parameters(), module.buffers()), torch.zeros(()))
    rows = torch.as_tensor(X if isinstance(X, torch.Tensor) else np.asarray(X))
    words = any(isinstance(part, torch.nn.Embedding) for part in module.modules())
    if weight.is_floating_point() and not words:  # words of a text stay whole numbers
        rows = rows.to(weight.dtype)
    in_training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.no_grad():
            parts = [module(part.to(weight.device)) for part in rows.split(BATCH)]
    finally:
        for part in in_training:
            part.training = True
    found = torch.cat([getattr(part, "logits", part) for part in parts])
    return np.asarray(found.double().cpu().numpy())


def _with_two_columns(logits: Any) -> NDArray[Any]:
    """One number a record speaks for the second of two classes."""
    z = np.asarray(logits)
    if z.ndim == 2 and z.shape[1] == 1:
        z = z[:, 0]
    return np.stack([np.zeros_like(z), z], axis=1) if z.ndim == 1 else z


def _are_probabilities(answers: NDArray[Any]) -> bool:
    """Whether a module ends in a softmax: rows of numbers from 0 that sum to 1."""
    return bool((answers >= 0.0).all() and (np.abs(answers.sum(axis=1) - 1.0) < 1e-3).all())


def _by_column(
    answers: Any, y: NDArray[Any], classes: NDArray[Any], kind: Read
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Labels as columns; one more for labels that the model was never trained on.

    A reference model may not have met a rare class. It gives that no probability.
    """
    if y.ndim != 1:
        raise InvalidArgument("y", y.shape, "one label for each record")
    answers = np.asarray(answers, dtype=np.float64)
    same = y[:, None] == classes[None, :]
    known = same.any(axis=1)
    if not known.any():
        raise InvalidArgument("y", y[0], f"one of the model's classes, {classes[:3].tolist()} ...")
    if known.all() or answers.ndim != 2:
        return answers, same.argmax(axis=1)
    never = np.zeros(len(answers))
    if kind is confidence_of_logits:
        never = answers.min(axis=1) + np.log(SMALLEST)
    return np.column_stack([answers, never]), np.where(known, same.argmax(axis=1), len(classes))
