"""Random real numbers known to as many binary digits as a question needs.

A uniform real has independent fair digits. Whether it lies below a given number, or in which cell
of a grid it falls, is decided by its first digits but for a small chance; then more are drawn. So
the answers have *exactly* the law that real numbers would give them (Knuth and Yao 1976; Karney,
"Sampling exactly from the normal distribution", 2016). Everything here is in whole numbers and
fractions; `decimal`, whose exponential is correctly rounded, bounds exp from both sides.

These are the rare cases of `privet.noise.rounded_noise`, whose arrays decide all others.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

Draw = Callable[[], int]
"""The next random 64-bit word."""


class LazyReal:
    """base + scale U for a uniform U in (0, 1) of which the first `bits` digits are drawn."""

    __slots__ = ("base", "bits", "digits", "draw", "scale")

    def __init__(
        self,
        draw: Draw,
        *,
        digits: int = 0,
        bits: int = 0,
        base: Fraction = Fraction(0),
        scale: Fraction = Fraction(1),
    ) -> None:
        self.draw, self.digits, self.bits = draw, digits, bits
        self.base, self.scale = base, scale

    def bounds(self) -> tuple[Fraction, Fraction]:
        """Two numbers between which it lies, whatever the digits to come."""
        step = self.scale / 2**self.bits
        low = self.base + self.digits * step
        return low, low + step

    def refine(self) -> None:
        """Draw 64 more digits."""
        self.digits, self.bits = self.digits << 64 | self.draw(), self.bits + 64

    def rounded(self, ratio: Fraction) -> int:
        """floor(ratio x + 1/2); a half has probability 0."""
        while True:
            low, high = (ratio * x + Fraction(1, 2) for x in self.bounds())
            if (unit := low.__floor__()) + 1 >= high:
                return unit
            self.refine()

    def below(self, other: LazyReal) -> bool:
        """Whether this one is the smaller of two."""
        while True:
            (low, high), (other_low, other_high) = self.bounds(), other.bounds()
            if high <= other_low:
                return True
            if other_high <= low:
                return False
            self.refine()
            other.refine()


def exp_bounds(power: Fraction, *, digits: int) -> tuple[Fraction, Fraction]:
    """Two fractions around e^-power, power >= 0, within 10^-digits of it or less.

    The power is rounded to a decimal q with `digits` + 6 places after its point, which moves the
    exponential by less than 10^-(digits + 5); e^-q is correctly rounded to as many digits, an error
    below 10^-(digits + 5) again. Both are counted twice.
    """
    places = digits + 6  # one more than the error has, so that truncation stays below it
    # 40: digits before the point
    q = Decimal(-((power * 10**places).__floor__())).scaleb(-places, Context(prec=places + 40))
    value = Fraction(Context(prec=places).exp(q))
    room = Fraction(4, 10 ** (digits + 5))  # two errors, counted twice
    return max(value - room, Fraction(0)), value + room


def under(power: Callable[[Fraction], Fraction], x: LazyReal, height: LazyReal) -> bool:
    """Whether the point (x, height) lies under e^-power(x); the power must not fall with x."""
    while True:
        (left, right), (low, high) = x.bounds(), height.bounds()
        # decimal digits that go with so many bits (log10 2 = .301), and four to spare
        digits = min(x.bits, height.bits) // 3 + 4
        if high <= exp_bounds(power(right), digits=digits)[0]:
            return True
        if low >= exp_bounds(power(left), digits=digits)[1]:
            return False
        x.refine()
        height.refine()


def exponential(draw: Draw) -> LazyReal:
    """A draw of density e^-x, x > 0 (von Neumann 1951).

    u_1 > u_2 > ... > u_k <= u_(k+1) is a falling run of uniform numbers. Given u_1 = u, its length
    k is odd with probability e^-u. If it is odd u is kept, else the trial is repeated; with v
    failed trials before (probability e^-1 each) the draw is v + u.
    """
    failed = 0
    while True:
        first = LazyReal(draw)
        first.refine()
        if odd_run(first, 1, draw):
            first.base = Fraction(failed)
            return first
        failed += 1


def odd_run(last: LazyReal, length: int, draw: Draw) -> bool:
    """Go on with a falling run that has `length` members, the last one given."""
    while True:
        following = LazyReal(draw)
        following.refine()
        if not following.below(last):
            return length % 2 == 1
        last, length = following, length + 1
