"""Residual networks whose mappings are perturbed: the He family, dense ones, and anybody's own."""

from privet.nets.residual.dense import DenseResidual
from privet.nets.residual.ensemble import Ensemble
from privet.nets.residual.noise import (
    Draw,
    Perturbation,
    ResidualNoise,
    Strategy,
    away_from_zero,
    noise_modules,
    redraw,
)
from privet.nets.residual.perturb import perturb
from privet.nets.residual.pictures import Pictures
from privet.nets.residual.resnet import ResNet, resnet8

__all__ = [
    "DenseResidual",
    "Draw",
    "Ensemble",
    "Perturbation",
    "Pictures",
    "ResNet",
    "ResidualNoise",
    "Strategy",
    "away_from_zero",
    "noise_modules",
    "perturb",
    "redraw",
    "resnet8",
]
