"""What is released, written down or played back: how conformance and audits look at a method.

`record_releases` notes every release made inside it: which mechanism, the exact value, what came
out. `replay_releases` makes the same outputs come out again while another data set is read. Between
two neighbours, three things must then hold, whatever the method does in between: the exact values
differ by no more than the stated sensitivity; the same releases are made in the same order; and,
since all that follows is post-processing, the model that comes out is the same to the last bit. The
log of the ratio of the densities of all outputs is the privacy loss of that run
(`log_density_ratio`).

Only our own tests and audits use this: an exact value is private.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet.errors import PrivetError

Array = NDArray[Any]


class LastReleaseMade(PrivetError):
    """Raised after the last release: what would follow is post-processing, and need not run."""


class ReplayDiverged(PrivetError):
    """A neighbour made other releases than the data set whose transcript is played back."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ReleaseRecord:
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

    `last`: `LastReleaseMade` is raised after so many. `included`: the place of a record that
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
        self.releases: list[ReleaseRecord] = []
        self.included, self._watch = included, watch
        self._forced, self._last = forced, last

    def take(self, release: ReleaseRecord) -> Array:
        """Note a release; what comes out of it."""
        k = len(self.releases)
        if self._watch is not None:
            self._watch()
        if self._forced is not None:
            release = self._force(k, release)
        self.releases.append(release)
        if k + 1 == self._last:
            raise LastReleaseMade
        return release.noisy

    def _force(self, k: int, release: ReleaseRecord) -> ReleaseRecord:
        assert self._forced is not None
        if k >= len(self._forced.releases):
            raise ReplayDiverged(f"a neighbour makes more than {k} releases")
        then = self._forced.releases[k]
        if then.noisy.shape != release.noisy.shape:
            raise ReplayDiverged(
                f"release {k} has shape {release.noisy.shape}, on a neighbour {then.noisy.shape}"
            )
        return replace(release, noisy=then.noisy)


active_transcript: ContextVar[Transcript | None] = ContextVar("transcript", default=None)
"""Where releases are noted; None outside tests and audits, and no exact value is copied."""


@contextmanager
def record_releases(
    *, last: int | None = None, watch: Callable[[], None] | None = None
) -> Iterator[Transcript]:
    """Record all releases that are made inside the block."""
    yield from _activate(Transcript(last=last, watch=watch))


@contextmanager
def replay_releases(
    before: Transcript, *, last: int | None = None, included: int | None = None
) -> Iterator[Transcript]:
    """Let the outputs of `before` come out again, in order; notes the exact values met."""
    yield from _activate(Transcript(before, last=last, included=included))


def _activate(transcript: Transcript) -> Iterator[Transcript]:
    token = active_transcript.set(transcript)
    try:
        yield transcript
    except LastReleaseMade:
        pass
    finally:
        active_transcript.reset(token)


def record_release(
    mechanism: Any,
    exact: Array,
    noisy: Array,
    *,
    sensitivity: float,
    log_ratio: Callable[[Array, Array, Array], float],
    rate: float = 1.0,
) -> Array:
    """Note a release in the active transcript, if there is one; what comes out of it.

    Every release passes through here; without a transcript it costs one look at a variable.
    """
    transcript = active_transcript.get()
    if transcript is None:
        return noisy
    return transcript.take(
        ReleaseRecord(
            mechanism=mechanism,
            exact=np.array(exact),
            noisy=np.array(noisy),
            sensitivity=sensitivity,
            log_ratio=log_ratio,
            rate=rate,
        )
    )
