"""A small student for any shape of inputs and targets; larger ones are the user's own."""

from __future__ import annotations

import math

import torch
from torch import nn

from privet import _check
from privet.methods.pate.learners import ModuleLearner


def flat_student(
    *,
    input_shape: tuple[int, ...],
    target_shape: tuple[int, ...],
    hidden: int = 0,
    seed: int = 0,
    epochs: int = 60,
    learning_rate: float = 1e-2,
) -> ModuleLearner:
    """A linear student (`hidden=0`) or one with a hidden layer; logits of the target's shape.

    Taught with soft targets by cross-entropy over the classes, the first axis of a target.

    >>> learner = flat_student(input_shape=(4,), target_shape=(3, 2, 2), hidden=5)
    >>> learner.module(torch.zeros(7, 4)).shape
    torch.Size([7, 3, 2, 2])
    """
    inputs, outputs = math.prod(input_shape), math.prod(target_shape)
    hidden = _check.count("hidden", hidden, minimum=0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        body = [nn.Linear(inputs, hidden), nn.ReLU()] if hidden else []
        last = nn.Linear(hidden or inputs, outputs)
    module = nn.Sequential(nn.Flatten(), *body, last, nn.Unflatten(1, target_shape))
    return ModuleLearner(module=module, epochs=epochs, learning_rate=learning_rate)
