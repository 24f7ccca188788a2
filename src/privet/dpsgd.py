"""`privet.dpsgd`: private training in your own loop; see `privet.methods.dpsgd`."""

from privet.methods.dpsgd import (
    AdaptiveBound,
    Batch,
    CheckpointError,
    Checkpoints,
    FixedSizeSampler,
    PoissonSampler,
    PrivateNetwork,
    Schedule,
    Training,
    UnprotectedDiagnostic,
    Wishes,
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
    "PoissonSampler",
    "PrivateNetwork",
    "Schedule",
    "Training",
    "UnprotectedDiagnostic",
    "Wishes",
    "cosine",
    "geometric",
    "linear",
    "private",
]
