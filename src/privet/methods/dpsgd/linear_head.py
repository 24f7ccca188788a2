"""Linear heads: the clipped sum in closed form, exact on every processor.

For logits W x the gradient of example i is r_i x_i^T with r_i = softmax(W x_i) - e_{y_i} (or the
residual of a regression), so its norm is ||r_i|| ||x_i|| and the clipped sum is one product.

Everything that is added up is a whole multiple of a public power of two, small enough that float64
holds every partial sum exactly: products of matrices then give the same bits in any order, with any
kernel. Everything else is done number by number with +, -, *, / and square roots, which IEEE 754
rounds in one way only. So the contribution of a record is a function of that record alone, and the
sum of the contributions is their sum. docs/theory/summation.md has the proof.

Library exponentials and reductions differ by processor and by place (their vectors, their tails,
their order), so both are written out in this file. **Assumes** float64 with rounding to
nearest, operation by operation: torch evaluates one at a time, so nothing is contracted.

Symbols: row_i = s_i x_i with a power of two s_i and ||x_i|| <= 1 on the grid 2^-18; h_i = w_i s_i
r_i on the grid C' 2^-b, where C' is the power of two at or above C and b = 35 - log2 N.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from privet import _check
from privet.errors import InvalidArgument
from privet.gradients.clipping_rules import SLACK

_ROW_BITS = 18  # with the 35 bits of h and N records a product stays within 53
_WEIGHT_BITS = 34  # 34 + 18 and a carry: partial sums of logits stay below 2^53
_EXACT_BITS = 53  # whole numbers that float64 holds exactly
_LOG2_E = 1.4426950408889634  # 1 / ln 2
_LN2_HIGH = 0.6931471803691238  # 32 bits, so that k times it is exact
_LN2_LOW = 1.9082149292705877e-10  # ln 2 less its high part
_MIDDLE = 1.5 * 2.0**52  # adding and taking it away rounds to a whole number
_TERMS = 14  # (ln 2 / 2)^15 / 15! is 1e-19, below half a unit in the last place
_NUMBERS = 3 * 2**20  # 24 MB of float64: the allocator asks for fresh pages above 32 MB
Examples = tuple[Tensor, ...]
"""x_i on its grid, its target, ||x_i||^2 and s_i: what the closed form needs of every record."""


class LinearHead(nn.Module):
    """W (x - m, c): a linear map of centred rows with a constant last feature.

    `mean` is public or was released privately; the weights start at zero. `confidence` is released
    after the steps (`confidence_rows`), not a number before, and infinite while it is drawn.
    """

    mean: Tensor
    confidence: Tensor
    constant: Tensor

    def __init__(self, *, features: int, outputs: int, constant: float) -> None:
        super().__init__()
        self.linear = nn.Linear(features + 1, outputs, bias=False)
        nn.init.zeros_(self.linear.weight)
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("confidence", torch.full((5,), math.nan, dtype=torch.float64))
        self.register_buffer("constant", torch.tensor(float(constant)))

    def rows(self, x: Tensor) -> Tensor:
        """(x - m, c), the input of the linear map."""
        last = self.constant.to(x.dtype).expand(len(x), 1)
        return torch.cat([(x - self.mean).to(x.dtype), last], 1)

    def examples(self, x: Tensor, y: Tensor) -> Examples:
        """Rows and targets, ready for the closed form."""
        rows = torch.empty(len(x), x.shape[1] + 1)
        squares, scales = torch.empty(2, len(x), dtype=torch.float64)
        size = rows_at_a_time(rows.shape[1])
        made = zip(*(t.split(size) for t in (x, rows, squares, scales)), strict=True)
        for part, *into in made:
            for out, value in zip(into, rows_on_grid(self.rows(part)), strict=True):
                out.copy_(value)
        return rows, y, squares, scales

    def forward(self, x: Tensor) -> Tensor:
        """Logits, or scaled targets."""
        logits: Tensor = self.linear(self.rows(x))
        return logits


def rows_at_a_time(width: int) -> int:
    """How many rows to work on: some megabytes, whose memory is used again for the next ones.

    Sums are exact in any parts, so that 32 and 4096 are for speed alone. The allocator asks the
    system for fresh pages for more than 32 MB.
    """
    return min(4096, max(32, _NUMBERS // max(1, width)))


def rows_on_grid(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x_i (float32, exactly), ||x_i||^2 (exact) and s_i; not finite rows are zero with s_i = NaN.

    The largest entry gives a first scale, the exact norm on a coarse grid the second one.
    """
    if rows.shape[1] > 2**17:  # sqrt(d) 2^-18 stays below .01, by which ||x|| may pass 1
        raise InvalidArgument("features", rows.shape[1], f"at most {2**17 - 1}")
    wide = rows.double()
    finite = wide.isfinite().all(1, keepdim=True)
    wide = wide.masked_fill(~finite, 0.0)
    first = power_of_two_above(wide.abs().amax(1, keepdim=True))
    coarse = round_to_grid(wide / first, 2.0**-_ROW_BITS)
    length = power_of_two_above(coarse.square().sum(1, keepdim=True).sqrt())
    scale = first * length
    x = round_to_grid(wide / scale, 2.0**-_ROW_BITS)
    squares = x.square().sum(1)  # multiples of 2^-36, at most 2: exact in any order
    scale = scale.masked_fill(~finite, math.nan)
    return x.float(), squares, scale[:, 0]


@torch.no_grad()
def add_softmax(weight: Tensor, some: Examples, bound: float, into: Tensor, capacity: int) -> None:
    """Add the clipped cross-entropy gradients of some of at most `capacity` examples."""
    logits = exact_logits(weight, some)
    e = exp(logits - logits.amax(0))
    residual = e / total(e)
    residual[some[1], torch.arange(len(some[1]))] -= 1.0
    _add(residual, some, bound, into, capacity)


@torch.no_grad()
def add_squares(weight: Tensor, some: Examples, bound: float, into: Tensor, capacity: int) -> None:
    """Add the clipped gradients of (W x - y)^2 / 2 in the same way."""
    _add(exact_logits(weight, some) - some[1].double().T, some, bound, into, capacity)


def exact_logits(weight: Tensor, some: Examples) -> Tensor:
    """W (x_i s_i), one column a record: exact but for W, which is brought to a grid of its own.

    Entries of W are multiples of g with ||W_k|| < 2^34 g, and |x_ij| sum to at most ||x_i|| ||W_k||
    with W_kj, so every partial sum is below 2^34 2^18 (1 + 2^-8) units of 2^-18 g.
    """
    wide = weight.detach().double()
    longest = float(wide.square().sum(1).sqrt().amax()) if wide.numel() else 0.0
    if not math.isfinite(longest):
        raise InvalidArgument("weight", longest, "finite", "use a smaller learning rate")
    g = float(power_of_two_above(torch.tensor(2.0 * longest, dtype=torch.float64)))
    grid = round_to_grid(wide, g * 2.0**-_WEIGHT_BITS)
    return (grid @ some[0].double().T) * some[3]


def _add(residual: Tensor, some: Examples, bound: float, into: Tensor, capacity: int) -> None:
    """Add sum_i h_i x_i^T with h_i = w_i s_i r_i and w_i = min(1, C / (||r_i|| s_i ||x_i||))."""
    rows, _, squares, scale = some
    _check.clipping_bound("bound", bound)
    norms = (total(residual.square()) * squares).sqrt() * scale
    bits = _EXACT_BITS - _ROW_BITS - max(0, (capacity - 1).bit_length())
    if bits < 8:  # coarser residuals would be lost; 53 - 18 - 27 bits of records
        raise InvalidArgument("records", capacity, f"at most {2**27} for exact sums")
    unit = math.ldexp(1.0, math.frexp(bound)[1] - bits)
    # rounding h to the grid makes it longer by at most sqrt(outputs) unit / 2, and ||x|| <= 1.01
    rounded = 0.51 * math.sqrt(len(residual)) * unit
    room = bound * (1.0 - SLACK) - rounded
    if room <= 0.5 * bound:
        raise InvalidArgument("outputs", len(residual), f"fewer, for {capacity} records")
    weights = (room / norms).clamp(max=1.0)
    h = round_to_grid((residual * scale * weights).masked_fill(~norms.isfinite(), 0.0), unit)
    into.addmm_(h, rows.double())


def exp(x: Tensor) -> Tensor:
    """e^x for x <= 0 (float64), within 2^-50 of itself; zero below -700.

    x = k ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial, and 2^k by exact scaling.

    >>> float(exp(torch.tensor([-1.0], dtype=torch.float64))) == math.exp(-1.0)
    True
    """
    held = x.clamp(min=-700.0)  # e^-700 is 1e-304, the last decades before numbers are subnormal
    k = ((held * _LOG2_E) + _MIDDLE) - _MIDDLE
    r = (held - k * _LN2_HIGH) - k * _LN2_LOW
    p = torch.full_like(r, 1.0 / math.factorial(_TERMS))
    for n in range(_TERMS - 1, -1, -1):
        p = p.mul_(r).add_(1.0 / math.factorial(n))
    return p.mul_(_two_to(k.to(torch.int64))).masked_fill_(x < -700.0, 0.0)


def _two_to(k: Tensor) -> Tensor:
    """2^k from its bits, for -1022 <= k <= 1023: a library's power may be off."""
    return ((k + 1023) << 52).view(torch.float64)  # the exponent, biased, above 52 bits


def total(t: Tensor) -> Tensor:
    """Sums over the first axis, halving it again and again: one order, for every column alike.

    >>> total(torch.tensor([[1.0], [2.0], [3.0]]))
    tensor([6.])
    """
    while len(t) > 1:
        half = len(t) // 2
        pairs = t[:half] + t[half : 2 * half]
        t = pairs if len(t) % 2 == 0 else torch.cat([pairs, t[2 * half :]])
    return t[0]


def round_to_grid(t: Tensor, spacing: float) -> Tensor:
    """The nearest multiples of a power of two, halves to even."""
    return (t / spacing).round_().mul_(spacing)


def power_of_two_above(t: Tensor) -> Tensor:
    """The least power of two that is larger than t >= 0 (1 for zero), from its exponent.

    >>> power_of_two_above(torch.tensor([0.0, 0.75, 1.0, 3.0], dtype=torch.float64)).tolist()
    [1.0, 1.0, 2.0, 4.0]
    """
    exponent = torch.frexp(t).exponent.to(torch.int64)
    return _two_to(exponent.masked_fill(t == 0, 0))
