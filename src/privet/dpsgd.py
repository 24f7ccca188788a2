"""`privet.dpsgd`: private training in your own loop; see `privet.methods.dpsgd`."""

from privet.methods.dpsgd import (
    AdaptiveBound,
    Batch,
    CheckpointError,
    Checkpoints,
    FixedSizeSampler,
    LinearDPSGD,
    NetworkDPSGD,
    PoissonSampler,
    Schedule,
    Training,
    UnprotectedDiagnostic,
    cosine,
    geometric,
    linear,
    private,
)

__all__ = [
    "AdaptiveBound",
    "Batch",
    "CheckpointError",
    "Checkpoints",
    "FixedSizeSampler",
    "LinearDPSGD",
    "NetworkDPSGD",
    "PoissonSampler",
    "Schedule",
    "Training",
    "UnprotectedDiagnostic",
    "cosine",
    "geometric",
    "linear",
    "private",
]
