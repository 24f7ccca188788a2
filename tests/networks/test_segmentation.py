"""The U-Net, patches, sliding windows and Dice, each against something simpler."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch

from privet.data.volumes import spheres
from privet.errors import InvalidArgument
from privet.gradients.module_validator import refuse_cross_example
from privet.networks import segmentation
from privet.networks.segmentation import Recipe, Segmenter

SMALL = Recipe(steps=60, patch=(16, 16, 16), learning_rate=1e-2)


pytestmark = [
    pytest.mark.slow,  # importing MONAI takes seconds
    pytest.mark.skipif(find_spec("monai") is None, reason="needs the extra `segmentation`"),
    pytest.mark.usefixtures("one_thread"),
]


def test_the_unet_does_not_mix_examples():
    net = segmentation.unet(classes=3, channels=(4, 8, 16), seed=1)
    refuse_cross_example(net)
    x = torch.randn(3, 1, 16, 8, 8)
    alone = torch.cat([net(part) for part in x.split(1)])
    torch.testing.assert_close(net(x), alone, atol=1e-5, rtol=1e-4)
    again = segmentation.unet(classes=3, channels=(4, 8, 16), seed=1)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))


def test_per_example_gradients_of_the_unet_are_those_of_one_example():
    """The engine that DP-SGD clips with, against plain autograd, example by example."""
    from privet.gradients import FlatClipping, PerExampleGradients

    net = segmentation.unet(classes=3, channels=(4, 8), seed=0)
    made = spheres(3, seed=0, grid=(8, 8, 8))
    x = segmentation.volumes_of(made.images)
    y = segmentation.soft_targets(made.labels, 3)
    slow = torch.zeros(sum(p.numel() for p in net.parameters()))
    for i in range(3):
        loss = segmentation.dice_and_entropy(net(x[i : i + 1]), y[i : i + 1]).sum()
        flat = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(net.parameters()))])
        slow += flat * min(1.0, 0.05 / float(flat.norm()))
    engine = PerExampleGradients(net, kernel_choice="cost-model")
    total = engine.zeros()
    with engine.recording():
        losses = segmentation.dice_and_entropy(net(x), y)
    engine.clipped_sum(losses, clipping=FlatClipping(bound=0.05), views=1, into=total)
    total.assign_to(net, divisor=1.0)
    fast = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
    torch.testing.assert_close(fast, slow, atol=1e-5, rtol=1e-3)


def test_dice_against_a_slow_count():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 4, size=(2, 5, 3, 4, 2))
    found = segmentation.dice(a, b, 4)
    for i in range(5):
        for c in (1, 2, 3):
            first, second = {*np.flatnonzero(a[i] == c)}, {*np.flatnonzero(b[i] == c)}
            assert found[i, c - 1] == pytest.approx(
                2 * len(first & second) / (len(first) + len(second))
            )
    assert segmentation.dice(b, b, 4).min() == 1.0
    empty = np.zeros((1, 2, 2, 2), dtype=int)
    assert segmentation.dice(empty, empty, 2).tolist() == [[1.0]]
    assert segmentation.dice(empty, empty + 1, 2).tolist() == [[0.0]]
    with pytest.raises(InvalidArgument, match="predicted"):
        segmentation.dice(empty, b, 4)


def test_the_loss_is_least_at_the_truth():
    y = segmentation.soft_targets(spheres(2, seed=0).labels, 3)
    right = segmentation.dice_and_entropy(20.0 * y, y)
    assert right.shape == (2,) and float(right.detach().max()) < 1e-3
    assert (segmentation.dice_and_entropy(20.0 * y.flip(1), y) > 1.0).all()


def test_a_window_that_holds_the_volume_is_one_pass_and_others_agree_inside():
    net = segmentation.unet(classes=2, channels=(4, 8), seed=0).eval()
    x = torch.randn(2, 1, 16, 12, 12)
    with torch.no_grad():
        plain = net(x).softmax(1)
    torch.testing.assert_close(segmentation.predict(net, x, window=(16, 12, 12)), plain)
    parts = segmentation.predict(net, x, window=(8, 12, 12), overlap=0.5)
    assert parts.shape == plain.shape
    torch.testing.assert_close(parts.sum(1), torch.ones(2, 16, 12, 12))
    assert float((parts - plain).abs().mean()) < 0.1


def test_patches_keep_image_and_target_together():
    """With the target as a second image, whatever is cut, mirrored or turned agrees in both."""
    volumes = torch.rand(6, 1, 12, 10, 8).repeat(1, 2, 1, 1, 1)
    recipe = Recipe(patch=(6, 6, 6), augmented=1.0)
    generator = torch.Generator().manual_seed(0)
    out = segmentation.random_patches(volumes, recipe, generator)
    assert out.shape == (6, 2, 6, 6, 6)
    for image, target in out:  # brightness and contrast change the image alone, by a line
        a, b = np.polyfit(target.ravel(), image.ravel(), 1)
        torch.testing.assert_close(image, a * target + b, atol=1e-4, rtol=1e-3)
    plain = Recipe(patch=(12, 10, 8), augmented=0.0)
    assert torch.equal(segmentation.random_patches(volumes, plain, generator), volumes)
    larger = Recipe(patch=(64, 64, 64), augmented=0.0)
    assert torch.equal(segmentation.random_patches(volumes, larger, generator), volumes)


def test_turning_by_a_right_angle_is_a_transposition():
    cube = torch.rand(1, 6, 6, 6)
    for angles, axes in (((1.0, 0, 0), (2, 3)), ((0, 1.0, 0), (1, 3)), ((0, 0, 1.0), (1, 2))):
        turned = segmentation._rotate(cube, torch.tensor(angles) * torch.pi / 2)
        choices = [torch.rot90(cube, k, axes) for k in (1, 3)]
        assert min(float((turned - c).abs().max()) for c in choices) < 1e-4
    box = torch.rand(1, 8, 6, 4)
    back = segmentation._rotate(
        segmentation._rotate(box, torch.tensor([0.0, 0.0, torch.pi])),
        torch.tensor([0.0, 0.0, torch.pi]),
    )
    torch.testing.assert_close(back, box, atol=1e-4, rtol=1e-3)


def test_a_segmenter_learns_spheres_and_repeats_itself():
    made = spheres(8, seed=0)
    learn = Segmenter(classes=3, channels=(8, 16), recipe=SMALL)
    predict = learn(made.images[:6], made.labels[:6], 0)
    held_out = predict(made.images[6:])
    score = segmentation.dice(held_out.argmax(1), made.labels[6:], 3).mean()
    guess = segmentation.dice(np.ones_like(made.labels[6:]), made.labels[6:], 3).mean()
    assert score > 0.5 > guess
    soft = segmentation.soft_targets(made.labels[:6], 3).numpy()
    np.testing.assert_array_equal(learn(made.images[:6], soft, 0)(made.images[6:]), held_out)


def test_wrong_volumes_are_refused():
    net = segmentation.unet(classes=2, channels=(4, 8))
    x, y = torch.zeros(2, 1, 8, 8, 8), torch.zeros(2, 2, 8, 8, 8)
    for images, targets, match in (
        (x[:0], y[:0], "n above 0"),
        (x[:, 0], y, "images"),
        (x, y[:1], "targets"),
        (x, y[..., :4], "targets"),
        (x * float("nan"), y, "finite"),
    ):
        with pytest.raises(InvalidArgument, match=match):
            segmentation.train(net, images, targets, SMALL, seed=0)
    with pytest.raises(InvalidArgument, match="levels"):
        segmentation.unet(classes=2, channels=(4,))
    with pytest.raises(InvalidArgument, match="labels"):
        segmentation.soft_targets(np.full((1, 2, 2, 2), 3), 3)
    with pytest.raises(InvalidArgument, match="augmented"):
        Recipe(augmented=1.5)
