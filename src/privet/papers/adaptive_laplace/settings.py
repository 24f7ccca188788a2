"""What is run: quick by default, the paper's own settings by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

METHODS = (
    "AdLM", "ILM", "AdLM, |h0| = 1", "AdLM as released", "pSGD", "sound", "sound network",
)  # fmt: skip
PROVED = ("pSGD", "sound", "sound network")
"""The methods whose epsilon is proved; that of the others is claimed."""
DELTA = 1e-5


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is run; the quick ones take minutes on two cores, the paper's days."""

    data: str = "mnist"
    records: int = 60_000
    maps: tuple[int, ...] = ()
    units: int = 32
    kernel: tuple[int, ...] = (5,)
    hidden: int = 25
    batch_size: int = 1800
    epochs: int = 8
    learning_rate: float = 2e-3
    """Of the published methods; the paper does not say."""
    pretraining_epochs: int = 2
    psgd_steps: int = 150
    epsilons: tuple[float, ...] = (0.25, 0.5, 2.0, 8.0)
    larger: tuple[float, ...] = (1e6,)
    """Budgets at which the published noise is small; the last one is no noise to speak of."""
    curves: tuple[float, ...] = (0.5, 2.0)
    seeds: tuple[int, ...] = (0,)
    methods: tuple[str, ...] = METHODS
    audit_trials: int = 50_000


QUICK = Settings()
QUICK_CIFAR10 = replace(
    QUICK, data="cifar10", records=20_000, epochs=12, learning_rate=4e-4,
    epsilons=(2.0, 2.5, 8.0), curves=(2.5, 8.0),
)  # fmt: skip
PAPER = Settings(
    maps=(32, 64),
    kernel=(5, 5),
    epochs=500,
    pretraining_epochs=12,
    psgd_steps=2000,
    epsilons=(0.2, 0.25, 0.3, 0.4, 0.5, 1.0, 2.0, 4.0, 8.0),
    seeds=(0, 1, 2, 3, 4),
    audit_trials=100_000,
)
PAPER_CIFAR10 = replace(
    PAPER, data="cifar10", records=50_000, maps=(128, 128, 256), kernel=(3, 5, 5), hidden=30,
    batch_size=7200, epochs=800, pretraining_epochs=50, epsilons=(2.0, 2.5, 4.0, 8.0),
    curves=(2.5, 8.0),
)  # fmt: skip
CHOICES = {
    ("mnist", False): QUICK,
    ("cifar10", False): QUICK_CIFAR10,
    ("mnist", True): PAPER,
    ("cifar10", True): PAPER_CIFAR10,
}
"""By data set, and whether the paper's settings are wanted."""
