"""Can a picture be had back from its features? Backward Euler, and an attacker who learns.

The features of the paper's figures 1 and 8 are those of a differential equation instead of a
trained network: dx = F(x) dt, plus gamma dB (3) or gamma x (.) dB (7), with a fixed F.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from privet.errors import InvalidArgument
from privet.networks.residual import Strategy
from privet.noise import Source, seeded
from privet_papers.argument_checks import check_counts, check_positive

Floats = NDArray[np.float64]


def velocity(pictures: Floats) -> Floats:
    """The paper's F: every pixel takes the value of another, far away, the same for all times.

    F(x)[i, j] = x[(i + offset_j) mod rows, (j + offset_i) mod columns] with
    offset_j = floor((j + 50 cos(2 pi i / 180)) mod columns) and
    offset_i = floor((i + 50 sin(2 pi i / 180)) mod rows). Pictures are (count, rows, columns) or
    (count, rows, columns, colours).

    residual-perturbation, Algorithm 1.

    >>> velocity(np.arange(4.0).reshape(1, 2, 2)).tolist()
    [[[0.0, 3.0], [0.0, 3.0]]]
    """
    rows, columns = pictures.shape[1:3]
    i, j = np.arange(rows)[:, None], np.arange(columns)[None, :]
    offset_j = np.floor((j + 50.0 * np.cos(2.0 * np.pi * i / 180.0)) % columns).astype(np.int64)
    offset_i = np.floor((i + 50.0 * np.sin(2.0 * np.pi * i / 180.0)) % rows).astype(np.int64)
    return np.asarray(pictures[:, (i + offset_j) % rows, (j + offset_i) % columns])


@final
@dataclass(frozen=True, kw_only=True)
class Flow:
    """Features by forward Euler(-Maruyama), and the paper's way back.

    Forward: x(t + h) = x(t) + h F(x(t)) + noise; back: x(t) = x(t + h) - h F(x(t + h)) + noise, the
    noise being gamma sqrt(h) n, or gamma sqrt(h) x (.) n (`Strategy.MULTIPLICATIVE`). gamma = 0 is
    the ordinary differential equation (2).

    >>> from privet.noise import seeded
    >>> x = np.random.default_rng(0).uniform(size=(1, 16, 16))
    >>> flow = Flow()
    >>> back = flow.backward(flow.forward(x, rng=seeded(0)), rng=seeded(1))
    >>> psnr(x[0], back[0]) > 30.0
    True

    residual-perturbation, equations (2), (3), (4), (5) and (7).
    """

    gamma: float = 0.0
    strategy: Strategy = Strategy.ADDITIVE
    time: float = 1.0
    steps: int = 100

    def __post_init__(self) -> None:
        check_positive(time=self.time)
        check_counts(steps=self.steps)
        if not self.gamma >= 0.0:
            raise InvalidArgument("gamma", self.gamma, "at least 0")

    def forward(self, pictures: Floats, *, rng: Source) -> Floats:
        """Features of pictures."""
        return self._run(_stack(pictures), 1.0, self.gamma, rng)

    def backward(self, features: Floats, *, rng: Source, noisy: bool = True) -> Floats:
        """Pictures of features; equation (5) adds noise once more, which no attacker has to do."""
        return self._run(_stack(features), -1.0, self.gamma if noisy else 0.0, rng)

    def _run(self, x: Floats, sign: float, gamma: float, rng: Source) -> Floats:
        h = self.time / self.steps
        for step in range(self.steps):
            moved = x + sign * h * velocity(x)
            if gamma > 0.0:
                noise = gamma * math.sqrt(h) * rng.child("step", step).gaussian(x.shape)
                moved += noise if self.strategy is Strategy.ADDITIVE else x * noise
            x = moved
        return x


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedInversion:
    """An attacker who has pictures of his own, sees their features, and learns the way back.

    The best linear map from features to pictures, by ridge regression; the penalty is chosen among
    a few on a fifth of the attacker's pictures. Works on any features, those of a network too.

    >>> from privet.noise import seeded
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(size=(300, 4, 4)); flow = Flow(gamma=0.2)
    >>> attack = LearnedInversion.fit(flow.forward(x, rng=seeded(0)), x)
    >>> attack.recover(flow.forward(x[:2], rng=seeded(1))).shape
    (2, 4, 4)
    """

    ridge: Ridge = field(repr=False)
    shape: tuple[int, ...]
    penalty: float

    @classmethod
    def fit(cls, features: NDArray[Any], pictures: NDArray[Any]) -> LearnedInversion:
        """Learn from the attacker's own pairs."""
        x = np.asarray(features, dtype=np.float64).reshape(len(features), -1)
        y = np.asarray(pictures, dtype=np.float64).reshape(len(pictures), -1)
        if len(x) != len(y) or len(x) < 5:
            raise InvalidArgument(
                "features", (len(x), len(y)), "as many as pictures, at least five of each"
            )
        held = len(x) // 5
        scale = float(np.mean(x.var(axis=0))) * len(x) or 1.0
        trial = Ridge.of(x[held:], y[held:])
        best = min(
            (10.0**k for k in range(-6, 2)),
            key=lambda p: float(np.square(trial.apply(x[:held], p * scale) - y[:held]).mean()),
        )
        return cls(ridge=Ridge.of(x, y), shape=tuple(pictures.shape[1:]), penalty=best * scale)

    def recover(self, features: NDArray[Any]) -> Floats:
        """The pictures that these features came from, as far as he can tell."""
        x = np.asarray(features, dtype=np.float64).reshape(len(features), -1)
        return self.ridge.apply(x, self.penalty).reshape(-1, *self.shape)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Ridge:
    """Ridge regression in its dual, for any penalty: one decomposition of pictures x pictures.

    With K = X X^T = Q L Q^T the answer to x is m_y + (x - m_x) X^T Q (L + p)^-1 Q^T Y.
    """

    x: Floats
    y: Floats
    centre: tuple[Floats, Floats]
    values: Floats
    vectors: Floats

    @classmethod
    def of(cls, x: Floats, y: Floats) -> Ridge:
        """Decompose these pairs."""
        centre = x.mean(axis=0), y.mean(axis=0)
        rows = x - centre[0]
        values, vectors = np.linalg.eigh(rows @ rows.T)
        turned = vectors.T @ (y - centre[1])
        return cls(x=rows, y=turned, centre=centre, values=values, vectors=vectors)

    def apply(self, x: Floats, penalty: float) -> Floats:
        """The regression's answers for rows x."""
        like = ((x - self.centre[0]) @ self.x.T) @ self.vectors
        return np.asarray((like / (self.values + penalty)) @ self.y + self.centre[1])


def psnr(original: NDArray[Any], recovered: NDArray[Any], *, largest: float = 1.0) -> float:
    """Peak signal-to-noise ratio in decibels, 10 log10(largest^2 / mean squared error).

    >>> psnr(np.zeros((4, 4)), np.full((4, 4), 0.1))
    20.0...
    """
    a, b = _pair(original, recovered)
    error = float(np.square(a - b).mean())
    return math.inf if error == 0.0 else 10.0 * math.log10(largest**2 / error)


def ssim(original: NDArray[Any], recovered: NDArray[Any], *, largest: float = 1.0) -> float:
    """Structural similarity, 1 for equal pictures.

    The mean over pixels (and colours) of
        (2 m_a m_b + c1)(2 s_ab + c2) / ((m_a^2 + m_b^2 + c1)(s_a^2 + s_b^2 + c2)),
    moments under a Gaussian window of standard deviation 1.5, c1 = (.01 L)^2, c2 = (.03 L)^2.

    Wang, Bovik, Sheikh and Simoncelli (2004), equation 13.

    >>> x = np.random.default_rng(0).uniform(size=(16, 16))
    >>> ssim(x, x), ssim(x, 1.0 - x) < 0.0
    (1.0, True)
    """
    a, b = _pair(original, recovered)
    if a.ndim == 3:
        colours = np.moveaxis(np.stack([a, b]), -1, 0)
        return float(np.mean([ssim(one, two, largest=largest) for one, two in colours]))
    c1, c2 = (0.01 * largest) ** 2, (0.03 * largest) ** 2
    m_a, m_b = _blur(a), _blur(b)
    s_a, s_b, s_ab = _blur(a * a) - m_a**2, _blur(b * b) - m_b**2, _blur(a * b) - m_a * m_b
    top = (2.0 * m_a * m_b + c1) * (2.0 * s_ab + c2)
    return float((top / ((m_a**2 + m_b**2 + c1) * (s_a + s_b + c2))).mean())


def _blur(x: Floats) -> Floats:
    """A window of 11 x 11, reflected at the edge."""
    return np.asarray(gaussian_filter(x, 1.5, truncate=3.5, mode="reflect"))


def _pair(original: NDArray[Any], recovered: NDArray[Any]) -> tuple[Floats, Floats]:
    a, b = (np.asarray(v, dtype=np.float64) for v in (original, recovered))
    if a.shape != b.shape or a.ndim not in (2, 3) or not a.size:
        raise InvalidArgument(
            "recovered", b.shape, f"a picture like the original, {a.shape}, with 2 or 3 axes"
        )
    return a, b


def _stack(pictures: NDArray[Any]) -> Floats:
    x = np.asarray(pictures, dtype=np.float64)
    if x.ndim not in (3, 4) or not np.isfinite(x).all():
        raise InvalidArgument(
            "pictures", x.shape, "finite, (count, rows, columns) or with colours as a fourth axis"
        )
    return x


FLOWS = {
    "ODE (2)": Flow(),
    "SDE (3), gamma 1": Flow(gamma=1.0),
    "SDE (7), gamma 1": Flow(gamma=1.0, strategy=Strategy.MULTIPLICATIVE),
}
WAYS = ("backward Euler", "without noise", "learned")


def invert(
    pictures: NDArray[Any], *, own: int = 600, shown: int = 20
) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Mean PSNR and SSIM of each way back for each equation, and pictures of the first one.

    The first `shown` pictures (values in [0, 1]) are attacked; the attacker has the next `own`.
    """
    x = np.asarray(pictures[: shown + own], dtype=np.float64)
    rows: list[dict[str, Any]] = []
    seen = {"original": x[0]}
    for number, (name, flow) in enumerate(FLOWS.items()):
        rng = seeded(number)
        features = flow.forward(x, rng=rng.child("forward"))
        attack = LearnedInversion.fit(features[shown:], x[shown:])
        mine = features[:shown]
        found = (
            flow.backward(mine, rng=rng.child("backward")),
            flow.backward(mine, rng=rng.child("backward"), noisy=False),
            attack.recover(mine),
        )
        seen[f"{name}: feature"] = features[0]
        for way, back in zip(WAYS, found, strict=True):
            held = np.clip(back, 0.0, 1.0)
            seen[f"{name}: {way}"] = held[0]
            rows.append(
                {
                    "equation": name,
                    "way": way,
                    "psnr": float(np.mean([psnr(a, b) for a, b in zip(x, held, strict=False)])),
                    "ssim": float(np.mean([ssim(a, b) for a, b in zip(x, held, strict=False)])),
                }
            )
    return rows, seen
