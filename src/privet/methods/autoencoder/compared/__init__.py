"""The models that dPAH is compared to, behind one interface (`BehaviourModel`)."""

from privet.methods.autoencoder.compared.autoencoders import DeepAutoencoder, TruncatedAutoencoder
from privet.methods.autoencoder.compared.boltzmann import ConditionalRBM, SocialRBM
from privet.methods.autoencoder.compared.functional import FunctionalMechanism
from privet.methods.autoencoder.compared.histograms import FilterPriority, PerturbedHistogram

__all__ = [
    "ConditionalRBM",
    "DeepAutoencoder",
    "FilterPriority",
    "FunctionalMechanism",
    "PerturbedHistogram",
    "SocialRBM",
    "TruncatedAutoencoder",
]
