"""DP-SGD with schedules: Algorithms 1 and 2 of tight-privacy-cost, and what is needed around."""

from privet.data.records import UnprotectedDiagnostic
from privet.methods.dpsgd.adaptive_clipping import AdaptiveBound
from privet.methods.dpsgd.checkpoints import CheckpointError, Checkpoints
from privet.methods.dpsgd.dataset_rows import Batch
from privet.methods.dpsgd.float32_masters import Float32Masters
from privet.methods.dpsgd.linear_dpsgd import LinearDPSGD
from privet.methods.dpsgd.network_dpsgd import NetworkDPSGD
from privet.methods.dpsgd.private import Diagnostics, Step, Training, private
from privet.methods.dpsgd.private_options import Charging, Sampling, StepOptions, flat_clipping
from privet.methods.dpsgd.samplers import FixedSizeSampler, PoissonSampler, Sampler, poisson_loss
from privet.methods.dpsgd.schedule import Schedule, cosine, geometric, linear

__all__ = [
    "AdaptiveBound",
    "Batch",
    "Charging",
    "CheckpointError",
    "Checkpoints",
    "Diagnostics",
    "FixedSizeSampler",
    "Float32Masters",
    "LinearDPSGD",
    "NetworkDPSGD",
    "PoissonSampler",
    "Sampler",
    "Sampling",
    "Schedule",
    "Step",
    "StepOptions",
    "Training",
    "UnprotectedDiagnostic",
    "cosine",
    "flat_clipping",
    "geometric",
    "linear",
    "poisson_loss",
    "private",
]
