"""What is run on which data: quick settings for one core, and the paper's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from privet.errors import InvalidArgument
from privet.nets.residual import Strategy
from privet.papers.residual.theorems import TheoremOne

PRINTED = {
    "mnist": {
        "ResNet8": (0.514, 1.000, 0.988),
        "DPSGD": (0.507, 0.977, 0.975),
        "En1 ResNet8, gamma 2.5": (0.506, 0.989, 0.978),
    },
    "cifar10": {
        "ResNet8": (0.757, 1.000, 0.669),
        "DPSGD": (0.512, 0.718, 0.625),
        "En1 ResNet8, gamma 4.5": (0.511, 0.760, 0.695),
    },
    "idc": {
        "ResNet8": (0.563, 1.000, 0.847),
        "DPSGD": (0.503, 0.831, 0.828),
        "En1 ResNet8, gamma 0.5": (0.499, 0.882, 0.865),
        "Strategy II, En1": (0.509, 0.880, 0.868),
        "Strategy II, En5": (0.500, 0.895, 0.872),
    },
}
"""Tables I, II, III and V as printed: AUC of the attack, training and test accuracy."""

PRINTED_BUDGETS = {"idc": (1.1e3, 15.79), "cifar10": (3e3, 22.33)}
"""Section IV-F as printed: epsilon of Theorem 1 and of DPSGD at delta 1e-5."""

AS_PRINTED = {
    "idc": TheoremOne(radius=30.0, bound=30.0, gamma=0.5, input_noise=0.25, epochs=100),
    "cifar10": TheoremOne(
        radius=30.0, bound=30.0, gamma=4.5, input_noise=2.25, epochs=64_000 * 128 / 12_500
    ),
}
"""Theorem 1 at the settings of the tables (CIFAR-10: 64,000 steps of 128, as He et al.)."""


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """One data set's run; the first seven fields decide what a trained model is."""

    data: str
    records: int
    """Of the training part; a quarter trains a target and a quarter its shadow."""
    test_records: int
    epochs: int
    batch_size: int = 64
    learning_rate: float = 0.1
    depth: int = 8
    dpsgd_epsilon: float = 22.33
    gamma: float
    """The noise of the main comparison."""
    gammas: tuple[float, ...]
    """Further ones, for the curves against gamma."""
    multiplicative: tuple[float, ...]
    """gamma of Strategy II."""
    members: tuple[int, ...] = (1,)
    seeds: int = 3
    references: int = 4
    """Reference models of LiRA and RMIA for each target: 4, 6, 8, ..."""
    thresholds: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8)

    def __post_init__(self) -> None:
        if self.references % 2 or self.references < 4:
            raise InvalidArgument("references", self.references, "an even number from 4 on")

    @property
    def halves(self) -> int:
        """How many target models are trained, in pairs that complement each other."""
        return 2 * max(self.seeds, self.references // 2 + 1)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of ensembles, one always among them."""
        return tuple(sorted({1, *self.members}))


QUICK = {
    "cifar10": Settings(
        data="cifar10", records=10_000, test_records=2_000, epochs=20, gamma=0.5,
        gammas=(0.25, 1.0), multiplicative=(0.5, 2.0),
    ),
    "mnist": Settings(
        data="mnist", records=4_000, test_records=2_000, epochs=12, gamma=0.5,
        gammas=(0.25, 1.0), multiplicative=(0.5,), seeds=1,
    ),
    "breastmnist": Settings(
        data="breastmnist", records=624, test_records=156, epochs=40, batch_size=32, gamma=0.5,
        gammas=(0.25, 1.0), multiplicative=(0.5, 2.0), members=(1, 5), dpsgd_epsilon=15.79,
    ),
    "idc": Settings(
        data="idc", records=10_000, test_records=4_000, epochs=20, gamma=0.5,
        gammas=(0.2,), multiplicative=(0.5,), dpsgd_epsilon=15.79,
    ),
}  # fmt: skip
"""Minutes to an hour of one core."""


def paper_settings(data: str) -> Settings:
    """The paper's own sizes, gammas and epochs (days on a CPU)."""
    if data not in QUICK:
        raise InvalidArgument("data", data, f"one of {', '.join(QUICK)}")
    usual = replace(QUICK[data], members=(1, 3, 5), batch_size=128, test_records=10_000)
    match data:
        case "mnist":
            return replace(usual, records=60_000, epochs=200, gamma=2.5, gammas=(0.5, 1.0))
        case "cifar10":
            return replace(
                usual, records=50_000, epochs=200, gamma=4.5, gammas=(0.5, 0.75),
                multiplicative=(1.0, 2.0),
            )  # fmt: skip
        case "idc":
            return replace(
                usual, records=39_952, test_records=43_420, epochs=100, gammas=(0.1, 0.2),
                multiplicative=(0.5, 1.0, 2.0),
            )  # fmt: skip
        case _:
            return replace(usual, test_records=156, epochs=100, gammas=(0.1, 0.2, 1.0))


@final
@dataclass(frozen=True, kw_only=True)
class Job:
    """One network to be trained: which kind, on which half of which part, as which member."""

    part: str
    """Of the data: target or shadow."""
    half: int
    gamma: float = 0.0
    strategy: Strategy = Strategy.ADDITIVE
    skip: bool = True
    dpsgd: bool = False
    member: int = 0

    def __str__(self) -> str:
        kind = "DP-SGD" if self.dpsgd else "plain" if not self.gamma else f"gamma {self.gamma:g}"
        if self.gamma and self.strategy is Strategy.MULTIPLICATIVE:
            kind += " (II)"
        return f"{kind}{'' if self.skip else ', no skips'}, {self.part} {self.half}.{self.member}"
