"""Residual networks whose mappings are perturbed: the He family, dense ones, and anybody's own."""

from privet.networks.residual.perturbation import (
    Draw,
    Perturbation,
    ResidualNoise,
    Strategy,
    keep_from_zero,
    noise_modules,
    perturb,
    redraw,
)
from privet.networks.residual.resnets import DenseResidual, Ensemble, PictureResNet, ResNet, resnet8

__all__ = [
    "DenseResidual",
    "Draw",
    "Ensemble",
    "Perturbation",
    "PictureResNet",
    "ResNet",
    "ResidualNoise",
    "Strategy",
    "keep_from_zero",
    "noise_modules",
    "perturb",
    "redraw",
    "resnet8",
]
