"""All attacks on one model in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.audit.membership.lira_bavaria_rmia import RMIA, BaVarIA, LiRA, ReferenceAttack
from privet.audit.membership.membership_finding import MembershipFinding, evaluate
from privet.audit.membership.model_confidence import Read, confidence_of_model
from privet.audit.membership.quantile_regression import by_regression
from privet.audit.membership.reference_models import References
from privet.errors import InvalidArgument

TEMPERATURE = 2.0
"""Of RMIA: as its authors set it for CIFAR-10, not chosen on the data at hand."""


def attack(
    model: Any,
    X: Any,
    y: Any,
    members: Any,
    *,
    references: References | None = None,
    strangers: tuple[NDArray[Any], NDArray[Any]] | None = None,
    read: Read | None = None,
    classes: Any = None,
    groups: Any = None,
    confidence: float = 0.95,
) -> tuple[MembershipFinding, ...]:
    """Ask a model about records, and see how well each attack tells which it was trained on.

    `model` is a fitted classifier of scikit-learn's kind, a torch module that gives logits, or any
    function from records to probabilities (to logits with `read=confidence_of_logits`), such as a
    call to a remote service; labels are those of the classifier, else class numbers. The loss
    attack; with `strangers` (records and labels that nobody trained on) quantile regression;
    with references that saw half of the records also LiRA and BaVarIA (from 4 of them on) and RMIA.
    The last is the one to report, whatever the others find: the best of several attacks on
    one set of scores is hindsight.

    >>> p = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.5, 0.5]])
    >>> found = attack(lambda records: p, np.zeros((4, 1)), np.zeros(4, int), np.arange(4) < 2)
    >>> [f.attack for f in found], found[0].auc.value
    (['loss'], 1.0)
    """
    if references is not None and not isinstance(references, References):
        raise InvalidArgument("references", references, "what train_references returned")
    if strangers is not None and (not isinstance(strangers, tuple) or len(strangers) != 2):
        raise InvalidArgument("strangers", strangers, "a pair: records, and their labels")
    phi = confidence_of_model(model, X, y, read=read)
    scores: dict[str, Any] = {"loss": -np.logaddexp(0.0, -phi)}  # log p_y
    if strangers is not None:
        population = confidence_of_model(model, *strangers, read=read)
        scores["quantile regression"] = by_regression(phi, X, y, population, *strangers)
    if references is not None:
        attacks: list[ReferenceAttack] = [LiRA(), BaVarIA()] if references.count >= 4 else []
        for by_reference in (*attacks, RMIA(temperature=TEMPERATURE)):
            name = f"{type(by_reference).__name__}, {references.count} references"
            scores[name] = by_reference.score(phi, references)
    return tuple(
        evaluate(s, members, attack=name, classes=classes, groups=groups, confidence=confidence)
        for name, s in scores.items()
    )
