"""What is released, written down or played back: how conformance and audits look at a method.

`recorded` notes every release made inside it: which mechanism, the exact value, what came out.
`replayed` makes the same outputs come out again while another data set is read. Between two
neighbours, three things must then hold, whatever the method does in between: the exact values
differ by no more than the mechanism was told; the same releases are made in the same order; and,
since all that follows is post-processing, the model that comes out is the same to the last bit.
The log of the ratio of the densities of all outputs is the privacy loss of that run.

Only our own tests and audits use this: an exact value is private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.errors import PrivetError

Array = NDArray[Any]


class AllReleased(PrivetError):
    """The last release was made: what would follow is post-processing, and nobody looks at it."""


class ReplayDiverged(PrivetError):
    """A neighbour made other releases than the data set whose transcript is played back."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Released:
    """One release: by what, of what, and what came out."""

    mechanism: Any
    """A mechanism, or a word for one that is not of `privet.mechanisms`."""
    exact: Array = field(repr=False)
    noisy: Array = field(repr=False)
    sensitivity: float
    """How far a neighbour may move the exact value, in the norm of the mechanism."""
    log_ratio: Callable[[Array, Array, Array], float] = field(repr=False)
    """log p(out | first) - log p(out | second), called with (out, first, second)."""
    rate: float = 1.0
    """How likely a record takes part in it."""


@final
class Transcript:
    """The releases of one run, in order; `forced` are the outputs that must come out again.

    `last`: after so many releases `AllReleased` is raised. `included`: the place of a record that
    joins every sample, whatever its coins say. `watch` is called before every release.
    """

    def __init__(
        self,
        forced: Transcript | None = None,
        *,
        last: int | None = None,
        included: int | None = None,
        watch: Callable[[], None] | None = None,
    ) -> None:
        self.releases: list[Released] = []
        self.included, self._watch = included, watch
        self._forced, self._last = forced, last

    def take(self, release: Released) -> Array:
        """Note a release; what comes out of it."""
        k = len(self.releases)
        if self._watch is not None:
            self._watch()
        if self._forced is not None:
            release = self._as_before(k, release)
        self.releases.append(release)
        if k + 1 == self._last:
            raise AllReleased
        return release.noisy

    def _as_before(self, k: int, release: Released) -> Released:
        assert self._forced is not None
        if k >= len(self._forced.releases):
            raise ReplayDiverged(f"a neighbour makes more than {k} releases")
        then = self._forced.releases[k]
        if then.noisy.shape != release.noisy.shape:
            raise ReplayDiverged(
                f"release {k} has shape {release.noisy.shape}, on a neighbour {then.noisy.shape}"
            )
        return replace(release, noisy=then.noisy)


now: ContextVar[Transcript | None] = ContextVar("transcript", default=None)
"""Who looks; nobody, mostly, and then nothing is asked and no exact value is copied."""


@contextmanager
def recorded(
    *, last: int | None = None, watch: Callable[[], None] | None = None
) -> Iterator[Transcript]:
    """Note all releases made inside."""
    yield from _with(Transcript(last=last, watch=watch))


@contextmanager
def replayed(
    before: Transcript, *, last: int | None = None, included: int | None = None
) -> Iterator[Transcript]:
    """Let the outputs of `before` come out again, in order; notes the exact values met."""
    yield from _with(Transcript(before, last=last, included=included))


def _with(transcript: Transcript) -> Iterator[Transcript]:
    token = now.set(transcript)
    try:
        yield transcript
    except AllReleased:
        pass
    finally:
        now.reset(token)


def note(
    mechanism: Any,
    exact: Array,
    noisy: Array,
    *,
    sensitivity: float,
    log_ratio: Callable[[Array, Array, Array], float],
    rate: float = 1.0,
) -> Array:
    """What every release passes through on its way out; costs nothing where nobody looks."""
    transcript = now.get()
    if transcript is None:
        return noisy
    return transcript.take(
        Released(
            mechanism=mechanism,
            exact=np.array(exact),
            noisy=np.array(noisy),
            sensitivity=sensitivity,
            log_ratio=log_ratio,
            rate=rate,
        )
    )


def log_ratio(present: Transcript, absent: Transcript) -> float:
    """The privacy loss of a run: log density of all outputs with the record less without it.

    Where a record takes part with rate q, `present` must have it in every sample: with l the log
    ratio of one release then, log(1 - q + q e^l) is that of a release on a random sample.
    """
    if len(present.releases) != len(absent.releases):
        raise ReplayDiverged(
            f"{len(present.releases)} releases, on a neighbour {len(absent.releases)}"
        )
    total = 0.0
    for a, b in zip(present.releases, absent.releases, strict=True):
        ratio = a.log_ratio(a.noisy, a.exact, b.exact)
        if a.rate < 1.0:
            ratio = float(np.logaddexp(math.log1p(-a.rate), math.log(a.rate) + ratio))
        total += ratio
    return total


def gaussian_log_ratio(out: Array, first: Array, second: Array, *, scale: float) -> float:
    """For normal noise of this standard deviation in every coordinate.

    >>> gaussian_log_ratio(np.array([1.0]), np.array([1.0]), np.array([0.0]), scale=1.0)
    0.5
    """
    far = np.square(out - second).sum() - np.square(out - first).sum()
    return float(far / (2.0 * scale**2))


def laplace_log_ratio(out: Array, first: Array, second: Array, *, scale: float) -> float:
    """For Laplace noise of this scale in every coordinate."""
    return float((np.abs(out - second).sum() - np.abs(out - first).sum()) / scale)


def norm_log_ratio(out: Array, first: Array, second: Array, *, scale: float) -> float:
    """For noise of density e^(-||x||_2 / scale) in all coordinates together."""
    return float((np.linalg.norm(out - second) - np.linalg.norm(out - first)) / scale)
