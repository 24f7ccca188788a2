"""The models that dPAH is compared to, behind one interface (`BehaviourModel`)."""

from privet_papers.autoencoder.baselines.autoencoders import DeepAutoencoder
from privet_papers.autoencoder.baselines.boltzmann import ConditionalRBM, SocialRBM
from privet_papers.autoencoder.baselines.functional_mechanism import FunctionalMechanism
from privet_papers.autoencoder.baselines.histograms import FilterPriority, PerturbedHistogram

__all__ = [
    "ConditionalRBM",
    "DeepAutoencoder",
    "FilterPriority",
    "FunctionalMechanism",
    "PerturbedHistogram",
    "SocialRBM",
]
