"""dPAH: predicting behaviour in a social network under a guarantee for users.

What trains is imported on first use: a saved model is loaded without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privet.methods.autoencoder.behaviour.examples import Examples
from privet.methods.autoencoder.behaviour.influence import (
    FriendshipInfluence,
    Influence,
    PropagationInfluence,
)
from privet.methods.autoencoder.behaviour.model import BehaviourModel

if TYPE_CHECKING:
    from privet.methods.autoencoder.behaviour.method import Behaviour
    from privet.methods.autoencoder.behaviour.predictor import BehaviourPredictor

__all__ = [
    "Behaviour",
    "BehaviourModel",
    "BehaviourPredictor",
    "Examples",
    "FriendshipInfluence",
    "Influence",
    "PropagationInfluence",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from privet.methods.autoencoder.behaviour import method, predictor

    return getattr(method if name == "Behaviour" else predictor, name)
