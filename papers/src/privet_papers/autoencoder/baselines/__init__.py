"""The models that dPAH is compared to, behind one interface (`BehaviourModel`)."""

from privet.papers.autoencoder.compared.autoencoders import DeepAutoencoder, TruncatedAutoencoder
from privet.papers.autoencoder.compared.boltzmann import ConditionalRBM, SocialRBM
from privet.papers.autoencoder.compared.functional import FunctionalMechanism
from privet.papers.autoencoder.compared.histograms import FilterPriority, PerturbedHistogram

__all__ = [
    "ConditionalRBM",
    "DeepAutoencoder",
    "FilterPriority",
    "FunctionalMechanism",
    "PerturbedHistogram",
    "SocialRBM",
    "TruncatedAutoencoder",
]
