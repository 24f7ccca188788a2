"""Fifty hospitals, one student: maps of 16 x 16 pixels through codes of a few numbers.

python examples/pate.py
"""

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from privet.methods.pate import PATE, PCAReducer, shard_ledger, unit_noise

HOSPITALS, QUERIES, BUDGET = 50, 30, {"epsilon": 8.0, "delta": 1e-5}
rng = np.random.default_rng(0)


def patients(n):
    """Two measurements, and a map with a disc where they say."""
    x = rng.uniform(0.25, 0.75, size=(n, 2))
    grid = np.linspace(0, 1, 16)
    away = np.hypot(grid[:, None] - x[:, 0, None, None], grid - x[:, 1, None, None])
    return x, 1 / (1 + np.exp((away - 0.2) / 0.05))


public_maps = patients(200)[1]  # published elsewhere, to fit the reducer
public_x, truth = patients(QUERIES)  # public inputs; the truth is only to compare with
shards = [patients(100) for _ in range(HOSPITALS)]

noise = unit_noise(teachers=HOSPITALS, queries=QUERIES, **BUDGET)
reducer = PCAReducer.fit(public_maps, noise=noise)
ledger = shard_ledger(**BUDGET)
pate = PATE(
    teachers=DecisionTreeRegressor(max_depth=8),
    student=DecisionTreeRegressor(max_depth=4),
    reducer=reducer,
    ledger=ledger,
    **BUDGET,
)
release = pate.fit(shards, public_x)


def error(labels):
    """Mean squared error a map."""
    return float(((labels - truth) ** 2).sum(axis=(1, 2)).mean())


print(
    f"codes of {reducer.dimension} numbers for maps of {16 * 16}, noise {release.model.noise:.3f}"
)
print(f"error of the noisy labels  {error(release.model.labels):.2f}")
print(f"error of the public mean   {error(public_maps.mean(axis=0)):.2f}")
print(f"proved  {release.guarantee}")
print(f"spent   {ledger.spent():.4f} of {ledger.cap_epsilon:g}")
