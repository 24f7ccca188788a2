"""The one place where randomness comes from: seeded for experiments, secret for releases."""

from __future__ import annotations

import math
import operator
import os
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from privet import _check, premises
from privet.errors import InvalidArgument
from privet.guarantee import Premise
from privet.noise import (
    discrete_noise,
    float64_noise,
    grid,
    k_norm_noise,
    poisson_subsets,
    rounded_noise,
)
from privet.noise.key_stream import KeyStream, derive

Shape = int | tuple[int, ...]
_LARGEST_SCALE = 2**40  # draws of such a scale stay far inside int64


@final
@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """A named stream of random draws; make one with `seeded` or `secure`.

    All draws come from one AES-256-CTR key stream. `child` names independent streams, so that step
    17 has its own noise whoever asks for it and in whatever order:

    - children of a *seeded* source are a function of the seed and the label: the same label gives
      the same stream again, in any process (never ask twice for one label in one run);
    - children of a *secure* source are new at every call, so that a resumed run, a second worker or
      a repeated label cannot repeat noise. A fork re-keys, a copy or a pickle is refused.

    **Assumes** AES-256 and BLAKE2b are pseudo-random; float64 functions (log, sin, cos) are
    accurate to a few units in the last place. Draws do not take constant time.

    >>> rng = seeded(7)
    >>> rng.child("step", 3).gaussian(2).tolist() == seeded(7).child("step", 3).gaussian(2).tolist()
    True
    """

    stream: KeyStream

    @property
    def secret(self) -> bool:
        """Whether nobody can know the key, as a release needs: drawn, never declared."""
        return self.stream.secret

    @property
    def premise(self) -> Premise:
        """What a guarantee has to say about who knows the noise.

        >>> secure().premise.backing.value, seeded(0).premise.backing.value
        ('enforced', 'not met')
        """
        return premises.DRAWN_KEY if self.secret else premises.SECRET_SEED

    def child(self, *label: str | int) -> Source:
        """The independent source with this label, such as ("step", 17) or ("rank", 1)."""
        if not label:
            raise InvalidArgument("label", label, "at least one string or whole number")
        return Source(self.stream.child(*label))

    def uint64(self, n: int) -> NDArray[np.uint64]:
        """Draw n uniform 64-bit words."""
        return self.stream.words(_check.count("n", n, minimum=0))

    def uniform(self, shape: Shape) -> NDArray[np.float64]:
        """Uniform numbers in the open interval (0, 1), with 53 significant bits even near 0."""
        size, dims = _size(shape)
        return float64_noise.uniform(self.stream, size).reshape(dims)

    def gaussian(self, shape: Shape, scale: float = 1.0) -> NDArray[np.float64]:
        """Normal draws with standard deviation `scale`; the tail goes on to 38 of them."""
        scale = _check.positive("scale", scale)
        size, dims = _size(shape)
        return (scale * float64_noise.gaussian(self.stream, size)).reshape(dims)

    def laplace(self, shape: Shape, scale: float = 1.0) -> NDArray[np.float64]:
        """Laplace draws, density exp(-|x| / scale) / (2 scale)."""
        scale = _check.positive("scale", scale)
        size, dims = _size(shape)
        return (scale * float64_noise.laplace(self.stream, size)).reshape(dims)

    def gaussian_on_grid(self, shape: Shape, scale: float) -> NDArray[np.int64]:
        """Normal noise in steps of `grid.spacing(scale)`: real draws, rounded, exactly."""
        size, dims = _size(shape)
        return rounded_noise.gaussian(self.stream, size, _steps(scale)).reshape(dims)

    def laplace_on_grid(self, shape: Shape, scale: float) -> NDArray[np.int64]:
        """Laplace noise in steps of `grid.spacing(scale)`: real draws, rounded, exactly."""
        size, dims = _size(shape)
        return rounded_noise.laplace(self.stream, size, _steps(scale)).reshape(dims)

    def k_norm_on_grid(self, shape: Shape, scale: float) -> NDArray[np.int64]:
        """One vector of density e^(-||x||_2 / scale), rounded to steps of `grid.spacing(scale)`."""
        size, dims = _size(shape)
        return k_norm_noise.k_norm(self.stream, size, _steps(scale)).reshape(dims)

    def bernoulli(self, shape: Shape, p: float | Fraction) -> NDArray[np.bool_]:
        """Coins that are true with probability exactly p (as a float64 number or a fraction)."""
        _check.unit("p", p)
        size, dims = _size(shape)
        return discrete_noise.bernoulli(self.stream, size, Fraction(p)).reshape(dims)

    def poisson_subset(self, n: int, p: float | Fraction) -> NDArray[np.int64]:
        """The numbers below n that each belong with probability exactly p, in ascending order.

        The same law as that of `bernoulli`, from fewer words where p is small.
        """
        _check.unit("p", p)
        return poisson_subsets.poisson_subset(
            self.stream, _check.count("n", n, minimum=0), Fraction(p)
        )

    def integers(self, high: int, shape: Shape) -> NDArray[np.int64]:
        """Exactly uniform whole numbers in [0, high)."""
        if (high := _whole("high", high, minimum=1)) >= 2**63:  # int64
            raise InvalidArgument("high", high, "a whole number below 2**63")
        size, dims = _size(shape)
        return discrete_noise.uniform_below(self.stream, size, high).astype(np.int64).reshape(dims)

    def permutation(self, n: int) -> NDArray[np.int64]:
        """The numbers 0 to n - 1 in an exactly uniform order."""
        n = _check.count("n", n, minimum=0)
        return np.argsort(discrete_noise.distinct_words(self.stream, n)).astype(np.int64)

    def sample(self, n: int, size: int) -> NDArray[np.int64]:
        """An exactly uniform subset of 0 to n - 1 with `size` members, in ascending order."""
        n, size = _check.count("n", n, minimum=0), _check.count("size", size, minimum=0)
        if size > n:
            raise InvalidArgument("size", size, f"at most n = {n}")
        words = discrete_noise.distinct_words(self.stream, n)
        subset = np.argpartition(words, size - 1)[:size] if size else np.empty(0, dtype=np.int64)
        return np.sort(subset).astype(np.int64)

    def discrete_laplace(self, shape: Shape, scale: float | Fraction) -> NDArray[np.int64]:
        """Exact integer draws, P[x] = (1 - e^(-1/scale)) / (1 + e^(-1/scale)) e^(-|x|/scale)."""
        scale = _rational("scale", scale)
        size, dims = _size(shape)
        return discrete_noise.laplace(self.stream, size, scale).reshape(dims)

    def discrete_gaussian(self, shape: Shape, sigma: float | Fraction) -> NDArray[np.int64]:
        """Exact integer draws, P[x] proportional to e^(-x^2 / (2 sigma^2))."""
        variance = _rational("sigma", sigma) ** 2
        size, dims = _size(shape)
        return discrete_noise.gaussian(self.stream, size, variance).reshape(dims)

    def __repr__(self) -> str:
        return f"<privet.noise.Source, {'secure' if self.secret else 'seeded'}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Source, (self.stream,)


def seeded(seed: int) -> Source:
    """A reproducible source for experiments: equal seeds give equal draws, bit for bit.

    **Guarantee** none: who knows or guesses the seed can subtract the noise.

    >>> seeded(1).integers(10, 5).tolist() == seeded(1).integers(10, 5).tolist()
    True
    """
    seed = _whole("seed", seed, minimum=0)
    return Source(KeyStream(derive(b"privet", b"seed", seed), secret=False))


def secure() -> Source:
    """A source for releases: its key is 32 bytes from the operating system.

    >>> secure()
    <privet.noise.Source, secure>
    """
    return Source(KeyStream(os.urandom(32), secret=True))


def _whole(name: str, value: int, *, minimum: int) -> int:
    """A whole number of any length (`_check.count` goes through float64 and would round it)."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < minimum:
        raise InvalidArgument(name, value, f"a whole number of at least {minimum}")
    return int(value)


def _size(shape: Shape) -> tuple[int, tuple[int, ...]]:
    dims = (shape,) if isinstance(shape, (int, np.integer)) else shape
    if not isinstance(dims, tuple) or any(
        not isinstance(k, (int, np.integer)) or isinstance(k, bool) or k < 0 for k in dims
    ):
        raise InvalidArgument("shape", shape, "a whole number or a tuple of them, none negative")
    dims = tuple(int(k) for k in dims)
    return math.prod(dims), dims


def _steps(scale: float) -> Fraction:
    """scale / step, exactly: between 2^26 and 2^27."""
    step = grid.spacing(scale)
    return Fraction(scale) / Fraction(step)


def _rational(name: str, value: float | Fraction) -> Fraction:
    """The exact fraction a scale stands for, within the range the exact samplers are made for."""
    _check.positive(name, value)
    exact = Fraction(value)
    if not Fraction(1, _LARGEST_SCALE) <= exact <= _LARGEST_SCALE:
        raise InvalidArgument(name, value, "a number between 2**-40 and 2**40")
    if exact.numerator >= 2**63:  # `discrete_noise.uniform_below` draws below it from one word
        raise InvalidArgument(name, value, "a fraction whose numerator is below 2**63")
    return exact


def source_of(
    random_state: int | Source | np.random.RandomState | np.random.Generator | None,
) -> Source:
    """The noise source that an estimator's `random_state` stands for: secret noise for None.

    >>> source_of(7).secret, source_of(None).secret
    (False, True)
    """
    if random_state is None:
        return secure()
    if isinstance(random_state, Source):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return seeded(int(random_state.randint(2**31)))  # the most that it draws on any system
    if isinstance(random_state, np.random.Generator):
        return seeded(int(random_state.integers(2**31)))
    try:
        return seeded(operator.index(random_state))
    except TypeError:
        raise InvalidArgument(
            "random_state", random_state, "None for secret noise, a whole number, or a Source"
        ) from None
