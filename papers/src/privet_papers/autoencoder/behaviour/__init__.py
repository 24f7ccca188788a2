"""dPAH: predicting behaviour in a social network under a guarantee for users."""

from privet_papers.autoencoder.behaviour.examples import Examples
from privet_papers.autoencoder.behaviour.method import Behaviour
from privet_papers.autoencoder.behaviour.predictor import BehaviourModel, BehaviourPredictor
from privet_papers.autoencoder.behaviour.social_influence import (
    FriendshipInfluence,
    Influence,
    PropagationInfluence,
)

__all__ = [
    "Behaviour",
    "BehaviourModel",
    "BehaviourPredictor",
    "Examples",
    "FriendshipInfluence",
    "Influence",
    "PropagationInfluence",
]
