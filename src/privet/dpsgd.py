"""`privet.dpsgd`: private training in your own loop; see `privet.methods.dpsgd`."""

from privet.methods.dpsgd import (
    AdaptiveBound,
    Batch,
    CheckpointError,
    Checkpoints,
    FixedSizeSampler,
    PoissonSampler,
    Schedule,
    Training,
    UnprotectedDiagnostic,
    closed_form_claim,
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
    "Schedule",
    "Training",
    "UnprotectedDiagnostic",
    "closed_form_claim",
    "cosine",
    "geometric",
    "linear",
    "private",
]
