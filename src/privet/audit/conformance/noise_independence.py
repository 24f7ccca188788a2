"""Checks of a release: its noise is drawn once, and every coordinate has noise of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from privet import _check
from privet.audit.conformance.report import LEVEL
from privet.mechanisms import (
    DiscreteLaplaceMechanism,
    KNormMechanism,
    LaplaceMechanism,
    release_transcript,
)
from privet.mechanisms.release_transcript import ReleaseRecord
from privet.noise import Source, log_draws

Floats = NDArray[np.float64]


def streams_drawn_once(run: Callable[[], object]) -> str | None:
    """Whether a run with *seeded* sources hands out no random word twice; else which.

    One stream for all layers of a model, or for all blocks of an answer, passes every test of a
    single release: only the difference of two of them shows what the noise should have hidden. This
    sees it in one run (`privet.noise.log_draws`), as long as the run draws in this process.

    >>> from privet.noise import seeded
    >>> streams_drawn_once(lambda: [seeded(1).child("layer", k).gaussian(3) for k in range(2)])
    >>> streams_drawn_once(lambda: [seeded(1).child("layer").gaussian(3) for k in range(2)])
    "drawn from twice: /('layer',)"
    """
    with log_draws() as log:
        run()
    if not log.blocks:
        return "nothing was drawn"
    if not log.repeats:
        return None
    names = sorted(set(log.repeats))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"drawn from twice: {', '.join(names[:3])}{more}"


def noise_in_every_coordinate(
    release: Callable[[Source], ArrayLike],
    *,
    scale: ArrayLike,
    rng: Source,
    value: ArrayLike | None = None,
    cdf: Callable[[Floats], Any] | None = None,
    repetitions: int = 60,
    level: float = LEVEL,
) -> str | None:
    """Whether each coordinate of a release has independent noise of the stated scale; else which.

    `release(source)` is called `repetitions` times on the same data with sources of its own. The
    noise is normal with standard deviation `scale` (one number, or one a coordinate), or has the
    law `cdf` of x / scale, in which case the exact `value` must be given; normal noise around an
    unknown value is tested by its deviations from the mean.

    With z = Phi^-1(cdf(noise / scale)), the sum of z^2 over n repetitions is chi-square with n
    degrees of freedom (n - 1 around a mean), and the correlation r of two coordinates makes r
    sqrt((n - 2) / (1 - r^2)) Student's t. Both are tested exactly, on both sides, in every
    coordinate and every pair (the first 300 coordinates), at `level` over their number: a right
    release fails with probability at most 2 `level` for a fresh seed.

    60 repetitions see a coordinate without noise, or with a third of it, among a million.

    >>> from privet.noise import seeded
    >>> noise_in_every_coordinate(lambda s: s.gaussian(50, 2.0), scale=2.0, rng=seeded(1))
    >>> def forgets_the_last(source):
    ...     return np.append(source.gaussian(49, 2.0), 0.0)
    >>> noise_in_every_coordinate(forgets_the_last, scale=2.0, rng=seeded(1))
    'coordinate 49: standard deviation 0 of the stated one'
    """
    n = _check.count("repetitions", repetitions, minimum=8)
    if cdf is not None and value is None:
        value = 0.0
    drawn = [release(rng.child("repetition", i)) for i in range(n)]
    x = np.array([np.asarray(one, dtype=np.float64).ravel() for one in drawn])
    centre = x.mean(axis=0) if value is None else np.ravel(np.asarray(value, dtype=np.float64))
    z = (x - centre) / np.ravel(np.asarray(scale, dtype=np.float64))
    if cdf is not None:
        z = _as_normal(cdf(z))
    return _judge(z, n - 1 if value is None else n, level)


def noise_of_every_release(
    run: Callable[[int], object], *, repetitions: int = 20, level: float = LEVEL
) -> str | None:
    """Whether everything that a run releases has its noise, in every coordinate; else which.

    `run(seed)` is watched (`privet.mechanisms.release_transcript`) for the exact value and the
    noisy one of each release. Their difference over the scale has the stated law whatever the data
    and the earlier releases were, so all releases of all runs are tested as one in
    `noise_in_every_coordinate`, at the same `level`. Releases of categories are left out; discrete
    noise counts as real noise, which it resembles where its scale is many steps.

    >>> from privet.sensitivity import count
    >>> from privet.mechanisms import LaplaceMechanism
    >>> from privet.noise import seeded
    >>> noise_of_every_release(
    ...     lambda seed: LaplaceMechanism(scale=2.0).release(count([True] * 9), rng=seeded(seed)))
    """
    n = _check.count("repetitions", repetitions, minimum=8)
    rows = []
    for seed in range(n):
        with release_transcript.record_releases() as seen:
            run(seed)
        parts = [_standard(r) for r in seen.releases if r.exact.dtype.kind == "f"]
        rows.append(np.concatenate([part.ravel() for part in parts]) if parts else np.empty(0))
    if len({len(row) for row in rows}) > 1:
        return "one run releases more numbers than another"
    if not len(rows[0]):
        return "nothing was released"
    return _judge(np.array(rows), n, level)


def _standard(release: ReleaseRecord) -> Floats:
    """The noise of a release as standard normal numbers."""
    mechanism = release.mechanism
    scale = getattr(mechanism, "scale", None) or release.log_ratio.keywords["scale"]  # type: ignore[attr-defined]
    noise = np.asarray((release.noisy - release.exact) / scale, dtype=np.float64)
    if isinstance(mechanism, LaplaceMechanism | DiscreteLaplaceMechanism):
        return _as_normal(stats.laplace.cdf(noise))
    if isinstance(mechanism, KNormMechanism):  # the direction, with the length of a normal vector
        length, d = float(np.linalg.norm(noise)), noise.size
        if length == 0.0:
            return noise
        return np.asarray(noise / length * np.sqrt(stats.chi2(d).ppf(stats.gamma(d).cdf(length))))
    return noise


def _as_normal(shares: Any) -> Floats:
    # 38: normal numbers have no float64 probability beyond
    return np.asarray(np.clip(stats.norm.ppf(shares), -38.0, 38.0))


def _judge(z: Floats, free: int, level: float) -> str | None:
    """Rows of standard normal numbers: each anew, of the variance stated, without correlation."""
    n, d = z.shape
    if len(np.unique(z, axis=0)) < n:
        return "the same noise in two runs"
    square = (z * z).sum(axis=0)
    low, high = (stats.chi2.ppf(level / (2 * d), free), stats.chi2.isf(level / (2 * d), free))
    wrong = np.flatnonzero((square < low) | (square > high))
    if len(wrong):
        i = int(wrong[np.argmax(np.abs(np.log(np.maximum(square[wrong], 1e-300) / free)))])
        seen = float(np.sqrt(square[i] / free))
        return f"coordinate {i}: standard deviation {seen:.3g} of the stated one"
    few = z[:, : min(d, 300)]  # 45,000 pairs: more take memory in proportion to the square
    pairs = np.triu_indices(few.shape[1], 1)
    if not len(pairs[0]):
        return None
    r = np.asarray(np.corrcoef(few, rowvar=False))
    off = np.abs(r[pairs])
    t = float(stats.t.isf(level / (2 * len(off)), n - 2))
    if off.max() > t / np.sqrt(n - 2 + t * t):
        worst = int(off.argmax())
        i, j = int(pairs[0][worst]), int(pairs[1][worst])
        return f"coordinates {i} and {j}: correlation {r[i, j]:.3g}"
    return None
