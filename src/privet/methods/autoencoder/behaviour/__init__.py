"""dPAH: predicting behaviour in a social network under a guarantee for users."""

from privet.methods.autoencoder.behaviour.examples import Examples
from privet.methods.autoencoder.behaviour.influence import (
    FriendshipInfluence,
    Influence,
    PropagationInfluence,
)
from privet.methods.autoencoder.behaviour.method import Behaviour
from privet.methods.autoencoder.behaviour.model import BehaviourModel
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
