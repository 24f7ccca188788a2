"""DP-SGD with schedules: Algorithms 1 and 2 of tight-privacy-cost, and what is needed around."""

from privet.data.records import UnprotectedDiagnostic
from privet.methods.dpsgd.checkpoint import CheckpointError, Checkpoints
from privet.methods.dpsgd.linear_method import LinearDPSGD
from privet.methods.dpsgd.loop import Training
from privet.methods.dpsgd.masters import Float32Masters
from privet.methods.dpsgd.network_method import NetworkDPSGD
from privet.methods.dpsgd.private import flat_clipping, private
from privet.methods.dpsgd.records import Batch
from privet.methods.dpsgd.run import Diagnostics
from privet.methods.dpsgd.sampling import FixedSizeSampler, PoissonSampler, Sampler, poisson_loss
from privet.methods.dpsgd.schedule import AdaptiveBound, Schedule, cosine, geometric, linear

__all__ = [
    "AdaptiveBound",
    "Batch",
    "CheckpointError",
    "Checkpoints",
    "Diagnostics",
    "FixedSizeSampler",
    "Float32Masters",
    "LinearDPSGD",
    "NetworkDPSGD",
    "PoissonSampler",
    "Sampler",
    "Schedule",
    "Training",
    "UnprotectedDiagnostic",
    "cosine",
    "flat_clipping",
    "geometric",
    "linear",
    "poisson_loss",
    "private",
]
