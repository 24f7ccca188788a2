"""The paper's claim on real pictures, small enough for a test; the docs page has it in full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from privet.experiments.residual import attacks, run
from privet.experiments.residual.bench import Bench
from privet.experiments.residual.settings import Job, Settings

FOLDER = os.environ.get("PRIVET_DATA", "")
SMALL = Settings(
    data="cifar10", records=4_000, test_records=1_000, epochs=14, gamma=0.5, gammas=(),
    multiplicative=(), seeds=1,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not (Path(FOLDER) / "cifar10").is_dir() or not FOLDER, reason="no CIFAR-10")
def test_noise_hides_members_from_the_papers_attack_but_not_accuracy(tmp_path):
    """1,000 CIFAR-10 pictures, ResNet8, one seed: the seed attack finds a plain overfitted network
    (AUC above .70) and far less of the perturbed one, whose test accuracy is not lower by more
    than 4 points (two standard errors of the difference on 1,000 test pictures).
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        bench = Bench(SMALL, tmp_path, Path(FOLDER))
        plain = attacks.outcome(bench, run.PLAIN, 0)
        noisy = attacks.outcome(bench, Job(part="target", half=0, gamma=0.5), 0)
    finally:
        torch.set_num_threads(threads)
    assert plain["train_accuracy"] > 0.95
    assert plain["shadow"]["auc"] > 0.70
    assert noisy["shadow"]["auc"] < plain["shadow"]["auc"] - 0.10
    assert noisy["test_accuracy"] > plain["test_accuracy"] - 0.04
