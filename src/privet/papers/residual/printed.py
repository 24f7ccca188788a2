"""What the paper prints: its tables, and its theorem at its own settings."""

from __future__ import annotations

from typing import Any

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


def budgets(data: str) -> dict[str, Any] | None:
    """Theorem 1 at the paper's settings beside what the paper prints; IDC for BreastMNIST."""
    name = "idc" if data == "breastmnist" else data
    if name not in AS_PRINTED:
        return None
    printed, dpsgd = PRINTED_BUDGETS[name]
    return {
        "of": name,
        "delta": 1e-5,
        "theorem_1": AS_PRINTED[name].epsilon(1e-5),
        "theorem_1_as_printed": printed,
        "dpsgd_as_printed": dpsgd,
    }
