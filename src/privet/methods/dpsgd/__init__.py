"""DP-SGD with schedules: Algorithms 1 and 2 of tight-privacy-cost, and what is needed around."""

from privet.methods.dpsgd.automatic import Plan, Wishes, linear_plan, network_plan
from privet.methods.dpsgd.checkpoint import CheckpointError, Checkpoints
from privet.methods.dpsgd.legacy import PrivateLinear, PrivateNetwork
from privet.methods.dpsgd.loop import Training
from privet.methods.dpsgd.method import LinearDPSGD, NetworkDPSGD
from privet.methods.dpsgd.private import flat_clipping, private
from privet.methods.dpsgd.records import Batch
from privet.methods.dpsgd.run import Diagnostics, UnprotectedDiagnostic
from privet.methods.dpsgd.sampling import FixedSizeSampler, PoissonSampler, Sampler, poisson_loss
from privet.methods.dpsgd.schedule import AdaptiveBound, Schedule, cosine, geometric, linear

__all__ = [
    "AdaptiveBound",
    "Batch",
    "CheckpointError",
    "Checkpoints",
    "Diagnostics",
    "FixedSizeSampler",
    "LinearDPSGD",
    "NetworkDPSGD",
    "Plan",
    "PoissonSampler",
    "PrivateLinear",
    "PrivateNetwork",
    "Sampler",
    "Schedule",
    "Training",
    "UnprotectedDiagnostic",
    "Wishes",
    "cosine",
    "flat_clipping",
    "geometric",
    "linear",
    "linear_plan",
    "network_plan",
    "poisson_loss",
    "private",
]
