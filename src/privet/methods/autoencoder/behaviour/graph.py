"""The public graph of friendships: weights that bound what a user sends as well as receives.

A user's records enter the examples of friends. The mean over friends, 1/|F_u| for each, bounds what
u receives but not what u sends: somebody with fifty friends who have no other friend would count
fifty times. With

    a(v, u) = 1 / max(|F_v|, |F_u|)                        (Metropolis weights)

both sum_v a(v, u) <= 1 and sum_u a(v, u) <= 1, for every graph.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def adjacency_matrix(edges: NDArray[np.int64], users: int) -> Array:
    """Users x users: 1 for friends, 0 for others."""
    graph = np.zeros((users, users))
    graph[edges[:, 0], edges[:, 1]] = graph[edges[:, 1], edges[:, 0]] = 1.0
    return graph


def friend_weights(edges: NDArray[np.int64], users: int) -> Array:
    """a(v, u), symmetric, with rows and columns that sum to at most 1.

    **Guarantee** the sums are at most 1 in exact arithmetic: weights are cut down to multiples of
    2^-30.

    >>> star = np.array([(0, 1), (0, 2), (0, 3), (0, 4)])
    >>> friend_weights(star, 5)[0].tolist()
    [0.0, 0.25, 0.25, 0.25, 0.25]
    """
    graph = adjacency_matrix(edges, users)
    degree = graph.sum(axis=0)
    larger = np.maximum(np.maximum(degree[:, None], degree[None, :]), 1.0)
    return np.asarray(np.floor(graph / larger * 2.0**30) / 2.0**30)


def largest_degree(edges: NDArray[np.int64]) -> int:
    """The most friends that a user has; 0 without friendships."""
    return int(np.bincount(edges.ravel()).max()) if len(edges) else 0
