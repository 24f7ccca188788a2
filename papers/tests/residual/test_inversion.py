"""The paper's flow and its inversion, and an attacker who learns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from privet import data
from privet.errors import InvalidArgument
from privet.networks.residual import Strategy
from privet.noise import seeded
from privet_papers.residual.figures import draw_inversion
from privet_papers.residual.inversion import Flow, LearnedInversion, invert, psnr, ssim, velocity


def _algorithm_1(image):
    """Word for word, with loops."""
    rows, columns, channels = image.shape
    out = np.empty_like(image)
    for k in range(channels):
        for i in range(rows):
            for j in range(columns):
                offset_j = int((j + 50.0 * math.cos(2 * math.pi * i / 180)) % columns)
                offset_i = int((i + 50.0 * math.sin(2 * math.pi * i / 180)) % rows)
                out[i, j, k] = image[(i + offset_j) % rows, (j + offset_i) % columns, k]
    return out


@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3), (9, 17, 2)])
def test_velocity_is_algorithm_1(shape):
    x = np.random.default_rng(0).normal(size=shape)
    assert np.array_equal(velocity(x[None])[0], _algorithm_1(x))


def digits(n):
    return data.load("digits").train_rows()[:n].reshape(-1, 8, 8).astype(np.float64)


def test_the_ordinary_equation_can_be_turned_back_and_finer_steps_do_it_better():
    x = digits(10)
    quality = []
    for steps in (10, 100, 1000):
        flow = Flow(steps=steps)
        back = flow.backward(flow.forward(x, rng=seeded(0)), rng=seeded(0))
        quality.append(np.mean([psnr(a, b) for a, b in zip(x, back, strict=True)]))
    assert quality[1] > 30.0  # "almost perfectly recovered"
    # the error of h^2 a step is h in all: ten times finer steps gain about 20 dB
    assert np.diff(quality) == pytest.approx([20.0, 20.0], abs=3.0)


def test_euler_maruyama_has_the_right_variance(monkeypatch):
    """Without drift features are N(0, gamma^2 T), and log-normal under (7); KS at 1e-4."""
    monkeypatch.setattr("privet_papers.residual.inversion.velocity", np.zeros_like)
    flow = Flow(gamma=0.7, time=2.0, steps=50)
    out = flow.forward(np.zeros((20, 20, 20)), rng=seeded(1)).ravel()
    assert stats.kstest(out / (0.7 * math.sqrt(2.0)), "norm").pvalue > 1e-4
    flow = Flow(gamma=0.3, strategy=Strategy.MULTIPLICATIVE, steps=400)
    grown = flow.forward(np.ones((20, 20, 20)), rng=seeded(2)).ravel()
    # log x(1) of geometric Brownian motion is N(-gamma^2 / 2, gamma^2); steps change it by 1e-4
    assert stats.kstest((np.log(grown) + 0.3**2 / 2) / 0.3, "norm").pvalue > 1e-4


@pytest.mark.slow
def test_learning_beats_backward_euler_on_noisy_features():
    """Digits, SDE (3) with gamma 1: several decibels; on the ODE both are good."""
    rows, pictures = invert(digits(620))
    found = {(r["equation"], r["way"]): r["psnr"] for r in rows}
    for equation in ("SDE (3), gamma 1", "SDE (7), gamma 1"):
        assert found[equation, "learned"] > found[equation, "backward Euler"] + 3.0
        assert found[equation, "learned"] > found[equation, "without noise"]
        assert found[equation, "without noise"] >= found[equation, "backward Euler"]
        assert found["ODE (2)", "backward Euler"] > found[equation, "learned"]
    assert len(pictures) == 1 + 3 * 4


@pytest.mark.slow
def test_the_picture_is_drawn(tmp_path):
    png, pdf = draw_inversion(tmp_path, *invert(digits(60), own=40, shown=5))
    assert png.stat().st_size > 10_000 and pdf.exists()


def test_an_attacker_learns_a_networks_features_too():
    """Features of a perturbed ResNet's first block; better than guessing the mean picture."""
    import torch

    from privet.networks.residual import Perturbation, ResNet

    x = digits(700)
    net = ResNet(channels=1, width=4, perturbation=Perturbation(gamma=0.1)).eval()
    with torch.no_grad():
        inputs = torch.from_numpy(x[:, None]).float()
        features = net.blocks[0](torch.relu(net.normalise(net.stem(inputs)))).numpy()
    attack = LearnedInversion.fit(features[100:], x[100:])
    learned = np.mean(
        [psnr(a, b) for a, b in zip(x[:100], attack.recover(features[:100]), strict=True)]
    )
    guess = np.mean([psnr(a, x[100:].mean(0)) for a in x[:100]])
    assert learned > guess + 3.0


def _ssim_by_loops(a, b):
    """Windows of 11 x 11 with Gaussian weights, one pixel at a time, edges reflected."""
    weights = np.exp(-np.square(np.arange(-5, 6)) / (2 * 1.5**2))
    w = np.outer(weights, weights) / weights.sum() ** 2
    pa, pb = (np.pad(v, 5, mode="symmetric") for v in (a, b))
    total = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            u, v = pa[i : i + 11, j : j + 11], pb[i : i + 11, j : j + 11]
            mu, mv = (w * u).sum(), (w * v).sum()
            su, sv = (w * (u - mu) ** 2).sum(), (w * (v - mv) ** 2).sum()
            cov = (w * (u - mu) * (v - mv)).sum()
            total += (
                (2 * mu * mv + 1e-4)
                * (2 * cov + 9e-4)
                / ((mu**2 + mv**2 + 1e-4) * (su + sv + 9e-4))
            )
    return total / a.size


def test_ssim_is_that_of_the_loops():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(size=(14, 17)), rng.uniform(size=(14, 17))
    b = 0.5 * a + 0.5 * b
    assert ssim(a, b) == pytest.approx(_ssim_by_loops(a, b), abs=1e-9)
    assert ssim(a, b) == ssim(b, a)
    colours = np.stack([a, b], axis=-1), np.stack([a, a], axis=-1)
    assert ssim(*colours) == pytest.approx((1.0 + ssim(a, b)) / 2)


def test_psnr():
    a = np.zeros((3, 3))
    assert psnr(a, a) == math.inf
    assert psnr(a, a + 0.5) == pytest.approx(10 * math.log10(4))
    assert psnr(255 * a, 255 * (a + 0.5), largest=255.0) == pytest.approx(psnr(a, a + 0.5))


def test_wrong_shapes_are_refused():
    with pytest.raises(InvalidArgument, match="like the original"):
        psnr(np.zeros((3, 3)), np.zeros((4, 3)))
    with pytest.raises(InvalidArgument, match="count, rows"):
        Flow().forward(np.zeros((8, 8)), rng=seeded(0))
    with pytest.raises(InvalidArgument, match="at least five"):
        LearnedInversion.fit(np.zeros((3, 2, 2)), np.zeros((3, 2, 2)))
