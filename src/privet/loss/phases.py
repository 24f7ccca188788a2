"""Sums of e^(log weight + i w loss) over many nodes and equidistant frequencies, with errors."""

from __future__ import annotations

import math

import numpy as np

from privet.loss.base import Array, Quadrature

UNIT = 2.0**-53
MOST_PRODUCTS = 5e8
"""Complex products in one evaluation on a line; about half a second."""
CHUNK = 2_000_000
_ONE_THREAD = 60_000
"""Products of matrices up to this size stay on one thread in OpenBLAS; waking a second costs more
than it gives."""


def _turns(angle: Array, count: int) -> Array:
    """e^(i k angle) for k = 0 .. count-1, by doubling: one rounding for each binary digit of k."""
    out = np.empty((len(angle), count, angle.shape[1]), dtype=complex)
    out[:, 0] = 1.0
    have = 1
    while have < count:
        more = min(have, count - have)
        np.multiply(
            out[:, :more], np.exp(1j * have * angle)[:, None], out=out[:, have : have + more]
        )
        have += more
    return out


def too_dear(nodes: float, line: Quadrature) -> bool:
    """Whether a sum over so many nodes (of all rows) on the line would take too long."""
    return nodes * (line.count + 100) > MOST_PRODUCTS


def characteristic(
    log_weight: Array, loss: Array, doubt: Array, line: Quadrature, loss_doubt: Array
) -> tuple[Array, Array]:
    """log sum_j e^(log_weight_j + i w_k loss_j) for each row, with log(1 + its relative error).

    `doubt` bounds the errors of the log weights and `loss_doubt` those of the losses. With
    w_k = (B a + b) spacing the table of phases factors, so B + count/B exponentials a node suffice.
    """
    top = np.max(log_weight, axis=1, keepdims=True)
    weight = np.exp(log_weight - top)
    nodes = loss.shape[1]
    fixed = np.sum(weight * doubt, axis=1, keepdims=True)
    whole = np.sum(weight, axis=1, keepdims=True)
    if line.count == 1:
        return np.log(whole) + top, np.log1p(fixed / whole + UNIT * (8.0 + nodes))
    block = math.isqrt(line.count)
    strides = math.ceil(line.count / block)
    table = np.zeros((len(loss), strides, block), dtype=complex)
    piece = min(nodes, max(16, _ONE_THREAD // (strides * block)))
    part = piece * max(1, CHUNK // (len(loss) * (block + strides) * piece))
    for start in range(0, nodes, part):
        now = slice(start, start + part)
        right = _turns(line.spacing * loss[:, now], block)
        left = _turns(line.spacing * block * loss[:, now], strides) * weight[:, None, now]
        for j in range(0, left.shape[2], piece):
            table += left[:, :, j : j + piece] @ np.swapaxes(right[:, :, j : j + piece], 1, 2)
    values = table.reshape(len(loss), -1)[:, : line.count]
    size = np.maximum(np.abs(values), 1e-290)
    # a product of two turns, each a product of few, in a sum of `piece` and then of nodes / piece
    deep = 3.0 * (math.log2(block) + math.log2(strides) + 4.0)
    summing = UNIT * (deep + 4.0 * (piece + nodes / piece + 4.0)) * whole
    moving = np.sum(weight * (loss_doubt + 4.0 * UNIT * np.abs(loss)), axis=1, keepdims=True)
    errors = np.log1p((fixed + summing + line.frequencies * moving) / size)
    return np.log(np.where(values == 0, 1e-290, values)) + top, errors


def passed_on(ell: Array, q: Array, size: Array) -> Array:
    """A bound of the error of ell = log(1 - q + q e^t) where t is the result of sums of `size`.

    d ell / dt = q e^t / (1 - q + q e^t) <= min(1, q + |ell|): tiny losses keep their digits.
    """
    passed = np.minimum(1.0, q + np.abs(ell)) * size
    return np.asarray(6.0 * UNIT * (np.abs(ell) + passed))
