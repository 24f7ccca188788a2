"""Names of the rows of the comparison."""

from __future__ import annotations

MEAN_TEACHER, ENSEMBLE = "mean teacher", "ensemble without noise"
AUTOENCODED, PCA = "autoencoded PATE", "PCA-PATE"
ALGORITHM_1, ALGORITHM_2 = "Algorithm 1 as printed", "Algorithm 2 as printed"
PCA_LOGITS, PER_VOXEL = "PCA-PATE of logits", "per-voxel PATE"
ABOUT_PUBLIC = "autoencoded PATE about a public network"
MEAN_MAP, GUESS = "mean public map, no teacher", "public network's labels, no teacher"
CONTROL, WITH_PUBLIC = "public labels only", "autoencoded PATE, then public labels"
DPSGD, DPSGD_FROM_PUBLIC, DPSGD_BY_SHARD, DPSGD_AS_PRINTED = (
    "DP-SGD", "DP-SGD from public labels", "DP-SGD by shard", "DP-SGD, 4 a layer, variance 6",
)  # fmt: skip
DPSGD_AS_TEACHERS = "DP-SGD, net, loss and start of the teachers"
EVERYTHING = "non-private on everything"
GUESS_NAME = "public network's labels"
ABOUT_WITH, GUESS_WITH = f"{ABOUT_PUBLIC}, then public labels", f"{GUESS}, then public labels"
CONTINUES = {WITH_PUBLIC: AUTOENCODED, ABOUT_WITH: ABOUT_PUBLIC, GUESS_WITH: GUESS}
"""Rows whose network is another row's, trained further."""
METHOD_NAMES = (
    MEAN_TEACHER, ENSEMBLE, AUTOENCODED, ALGORITHM_1, ALGORITHM_2, PER_VOXEL, PCA, PCA_LOGITS,
    MEAN_MAP, ABOUT_PUBLIC, GUESS, CONTROL, WITH_PUBLIC, EVERYTHING, DPSGD, DPSGD_AS_TEACHERS,
    DPSGD_FROM_PUBLIC, DPSGD_BY_SHARD, DPSGD_AS_PRINTED,
)  # fmt: skip
"""In the order of the table."""
NEED_GUESSES = {ENSEMBLE, ABOUT_PUBLIC, GUESS}
"""Rows that read what networks of the other public volumes say."""
