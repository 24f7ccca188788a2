"""Trained networks, each kept on disk by what it answers: an interrupted run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from privet import data as datasets
from privet.accounting import SampledGaussian
from privet.audit.membership import Splits, random_halves
from privet.jobs import Arrays
from privet.methods.dpsgd import Batch, Schedule, private
from privet.methods.noisy_inputs.plain_training import PlainTraining, mean_probabilities
from privet.networks.residual import Perturbation, ResNet, Strategy
from privet.noise import seeded
from privet_papers.residual.networks import JointEnsemble, PreactivatedResNet
from privet_papers.residual.step_training import StepTraining, rate_at

if TYPE_CHECKING:
    from privet_papers.residual.experiment import ResidualSettings

Floats = NDArray[np.float64]
DELTA = 1e-5
"""The paper's, section IV-F."""
REPEATS = 4
"""How often an attacker who may repeat a question asks; the noise is averaged over them."""


Keep = Callable[[Any, Callable[[], Arrays]], Arrays]
"""Arrays of a key, from the disk or made now."""


@final
@dataclass(frozen=True, kw_only=True)
class NetworkJob:
    """One network to be trained: which kind, on which half of which part, as which member."""

    part: str
    """Of the data: target or shadow."""
    half: int
    gamma: float = 0.0
    strategy: Strategy = Strategy.ADDITIVE
    skip: bool = True
    dpsgd: bool = False
    member: int = 0
    together: int = 1
    """So many members are trained as one network."""

    def __str__(self) -> str:
        kind = "DP-SGD" if self.dpsgd else "plain" if not self.gamma else f"gamma {self.gamma:g}"
        if self.gamma and self.strategy is Strategy.MULTIPLICATIVE:
            kind += " (II)"
        if self.together > 1:
            kind += f", {self.together} together"
        return f"{kind}{'' if self.skip else ', no skips'}, {self.part} {self.half}.{self.member}"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class NetworkAnswers:
    """What one trained network says of its part of the data, and of the test records."""

    part: Floats
    """Probabilities for the records of the part (D_target or D_shadow), one draw of noise."""
    repeated: Floats
    """The same, averaged over `REPEATS` draws."""
    test: Floats
    seconds: float


@final
class ResidualRuns:
    """The data of a run in the paper's split, and the networks trained on it.

    The training part is split into D_shadow and D_target once. Targets are trained on random halves
    of D_target, in complementary pairs: the target of seed s is half 2s, and its references for
    LiRA and RMIA are halves of other pairs, each record in exactly half of them. Shadow models are
    trained on halves of D_shadow likewise.
    """

    def __init__(self, settings: ResidualSettings, *, keep: Keep, folder: Path | None) -> None:
        self.settings, self.keep = settings, keep
        whole = datasets.load(settings.data, folder)
        self.data = whole.subset(min(settings.records, len(whole.x_train)))
        self.classes = whole.n_classes
        pool = settings.pool
        pictures = _pictures(self.data.train_rows(), whole.shape, pool)
        self.labels = self.data.y_train
        splits = Splits.of(len(pictures), rng=seeded(0).child("splits"))
        self.where = {"shadow": splits.shadow, "target": splits.target}
        size = len(splits.target)
        self.inside = {
            part: random_halves(size, settings.halves, seed=k) for k, part in enumerate(self.where)
        }
        self.pictures = pictures
        self.test = _pictures(self.data.test_rows()[: settings.test_records], whole.shape, pool)
        self.test_labels = self.data.y_test[: settings.test_records]

    @property
    def raw_pictures(self) -> NDArray[np.float32]:
        """The first training pictures with values in [0, 1], as the inversion takes them."""
        rows = self.data.subset(min(620, len(self.data.x_train))).train_rows()
        return rows.reshape(-1, *self.data.shape)

    def part_labels(self, part: str) -> NDArray[np.int64]:
        """Labels of the records of a part, in the order of `NetworkAnswers.part`."""
        return np.asarray(self.labels[self.where[part]])

    def answers(self, job: NetworkJob) -> NetworkAnswers:
        """The answers of a network, from the disk or trained now."""
        found = self.keep(self._key(job), lambda: self._train(job))
        return NetworkAnswers(
            part=found["part"].astype(np.float64),
            repeated=found["repeated"].astype(np.float64),
            test=found["test"].astype(np.float64),
            seconds=float(found["seconds"]),
        )

    def ensemble(self, job: NetworkJob, members: int) -> NetworkAnswers:
        """En_k: members that differ in their seeds only, averaged; or trained together."""
        if self.settings.joint and members > 1:
            return self.answers(replace(job, together=members))
        each = [self.answers(replace(job, member=m)) for m in range(members)]
        means = {
            name: np.mean([getattr(a, name) for a in each], axis=0)
            for name in ("part", "repeated", "test")
        }
        return NetworkAnswers(**means, seconds=sum(a.seconds for a in each))

    def _train(self, job: NetworkJob) -> Arrays:
        began = time.process_time()
        mine = torch.from_numpy(np.ascontiguousarray(self.where[job.part]))
        inputs = self.pictures[mine]
        member = torch.from_numpy(self.inside[job.part][job.half])
        labels = torch.from_numpy(self.part_labels(job.part))
        seed = int(seeded(0).child(job.part, job.half, job.member).integers(2**31, 1)[0])
        train = self._train_dpsgd if job.dpsgd else self._train_plainly
        network = train(job, inputs[member], labels[member], seed)
        repeats = REPEATS if job.gamma else 1
        once = mean_probabilities(network, inputs, seed=1)
        again = mean_probabilities(network, inputs, draws=repeats, seed=2) if repeats > 1 else once
        return {
            "part": once.astype(np.float32),
            "repeated": again.astype(np.float32),
            "test": mean_probabilities(network, self.test, seed=3).astype(np.float32),
            "seconds": np.asarray(time.process_time() - began),
        }

    def _train_plainly(
        self, job: NetworkJob, inputs: Tensor, labels: Tensor, seed: int
    ) -> nn.Module:
        s = self.settings
        if s.schedule != "cosine":
            stepwise = StepTraining(
                epochs=s.epochs, batch_size=s.batch_size, learning_rate=s.learning_rate,
                schedule=s.schedule, augmentation=s.augmentation, seed=seed,
            )  # fmt: skip
            return stepwise.run(self.network(job, seed), inputs, labels)
        training = PlainTraining(
            epochs=s.epochs, batch_size=s.batch_size, learning_rate=s.learning_rate, seed=seed
        )
        return training.run(self.network(job, seed), lambda _: inputs, labels)

    @property
    def dpsgd(self) -> SampledGaussian:
        """The DP-SGD of a target: batches as large as the others' on average, the paper's z."""
        s = self.settings
        rate = min(1.0, s.batch_size / (len(self.where["target"]) // 2))
        steps = max(1, round(s.epochs / rate))
        return SampledGaussian(sample_rate=rate, noise_multiplier=s.noise_multiplier, steps=steps)

    def _train_dpsgd(self, job: NetworkJob, inputs: Tensor, labels: Tensor, seed: int) -> nn.Module:
        """The same network with group normalisation by DP-SGD: z, C and rates are the paper's.

        The rate is .1 and a quarter of it after each fifth of the time.
        """
        loss, network = self.dpsgd, self.network(job, seed)
        steps, rate = int(loss.releases), 0.1
        schedule = Schedule(
            steps=steps, sample_rate=min(1.0, self.settings.batch_size / len(labels)),
            noise_multiplier=self.settings.noise_multiplier, clipping_bound=1.0,
        )  # fmt: skip
        optimizer = torch.optim.SGD(network.parameters(), lr=rate)
        with private(
            network, optimizer, (inputs.contiguous(), labels), schedule, losses=_cross_entropy,
            delta=DELTA, rng=seeded(seed),
        ) as training:  # fmt: skip
            for step in training:  # a step's rate is set before it is taken
                optimizer.param_groups[0]["lr"] = rate * rate_at("quarters", step.number / steps)
        return network.eval()

    def network(self, job: NetworkJob, seed: int) -> nn.Module:
        """A new network of this kind."""
        additive = job.strategy is Strategy.ADDITIVE
        kind = PreactivatedResNet if self.settings.blocks == "pre-activated" else ResNet
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            members: list[nn.Module] = [
                kind(
                    channels=int(self.pictures.shape[1]),
                    classes=self.classes,
                    depth=self.settings.depth,
                    perturbation=Perturbation(strategy=job.strategy, gamma=job.gamma),
                    input_noise=job.gamma / 2.0 if additive else 0.0,
                    skip=job.skip,
                    normalisation="group" if job.dpsgd else "batch",
                )
                for _ in range(job.together)
            ]
        net = members[0] if len(members) == 1 else JointEnsemble(members)
        return net if job.dpsgd else net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def _key(self, job: NetworkJob) -> dict[str, Any]:
        """What a trained network depends on besides the settings."""
        return asdict(job) | {"strategy": job.strategy.value, "data": self.data.fingerprint}


def _cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch.x), batch.y, reduction="none")


def _pictures(rows: NDArray[np.float32], shape: tuple[int, ...], pool: int) -> Tensor:
    """Pixels from [0, 1] to [-2, 2] by public bounds, channels first, in channels-last memory.

    With `pool` above 1 so many by so many pixels are averaged.
    """
    full = (*shape, 1) if len(shape) == 2 else shape
    pixels = 4.0 * torch.from_numpy(rows).reshape(-1, *full) - 2.0
    small = F.avg_pool2d(pixels.permute(0, 3, 1, 2), pool)
    return small.contiguous(memory_format=torch.channels_last)
