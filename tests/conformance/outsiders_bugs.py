"""28 bugs that an outsider planted, where their code went, and the property that each breaks."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet.audit.conformance import streams_drawn_once
from privet.data import records
from privet.data.behaviour_health import health_network
from privet.guarantee import Adjacency
from privet.methods import promise, replay
from privet.methods.adaptive_laplace import OneShotMoments, moments, shaped_training
from privet.methods.autoencoder import AutoencoderStack
from privet.methods.autoencoder.behaviour import examples
from privet.methods.dpsgd import LinearDPSGD, checkpoint, linear_method, loop, sampling, schedule
from privet.methods.pate import aggregate, voting
from privet.methods.residual import noisy_inputs, served
from privet.nets import PerLayerClipping
from privet.noise import seeded
from tests.conformance.planting import Bug, Check, both, rewritten
from tests.methods.adaptive_laplace import test_contract as shaped
from tests.methods.autoencoder.behaviour import test_examples, test_sensitivity
from tests.methods.crowd import neighbours_in_a_crowd
from tests.methods.dpsgd import test_planted as steps
from tests.methods.dpsgd import test_resume, test_rounding, test_sampling
from tests.methods.pate import test_aggregate, test_voting
from tests.methods.residual import test_noisy_inputs, test_served

REPLAY = "replay on neighbours"
MOVED = "how far one unit moves a sum"
NOISE = "noise of every coordinate and step"
STREAMS = "one stream, one draw"
CHARGE = "what is charged is what is planned"
LAW = "law of what is drawn"
OWN = "a row depends on its own record"


def quiet(test: Any, *arguments: Any) -> Check:
    """A test that needs no patches of its own."""
    return lambda patch: test(*arguments)


def patched(test: Any, *arguments: Any) -> Check:
    """A test that watches by patching."""
    return lambda patch: test(patch, *arguments)


def played(method: Any, *, crowd: bool, declared: bool = True, ball: bool = False) -> Check:
    """No problem in the playback of a method, on its worst neighbours or an outlier in a crowd."""

    def check(patch: pytest.MonkeyPatch) -> None:
        facts = shaped.facts(declared=declared)
        worst = method.neighbours(method.plan(facts))
        if crowd:
            worst = neighbours_in_a_crowd(Adjacency.ADD_REMOVE, declared=declared, ball=ball)
            facts = worst.present.facts(epsilon=2.0, delta=1e-5)
        assert replay.replay(method, method.plan(facts), worst).problems() == []

    return check


def one_stream_each(patch: pytest.MonkeyPatch) -> None:
    method = AutoencoderStack(layers=(3, 2))
    held = shaped.records(60)
    plan = promise.planned(method, held.facts(epsilon=2.0, delta=1e-5))
    assert streams_drawn_once(lambda: promise.train(method, held, plan, rng=seeded(0))) is None


def a_user_weighs_a_share(patch: pytest.MonkeyPatch) -> None:
    """The weights of a user's records, as methods ask for them, sum to no more than the share."""
    users = np.repeat(np.arange(5), (1, 2, 9, 30, 50))
    held = shaped.records(92, groups=users)
    for share in (0.5, 1.0, 3.0):
        assert np.bincount(users, held.user_weights(share).values).max() <= share


def one_draw_is_one_release(patch: pytest.MonkeyPatch) -> None:
    """As many noisy copies as are priced, over several epochs and members."""
    method = test_noisy_inputs.method(epochs=3, members=2)
    plan = method.plan(test_noisy_inputs.facts(records=20))
    found = replay.replay(method, plan, method.neighbours(plan))
    assert found.problems() == []
    assert len(found.present.releases) == 1 + plan.budget.draws


def a_batch_costs_its_rows(patch: pytest.MonkeyPatch) -> None:
    model = served.ServedModel.of(test_served.network(), test_served.ledger())
    left = model.queries_left
    model.predict_proba(test_served.X[:3])
    assert model.queries_left == left - 3


def resumed_and_charged(patch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        test_resume.test_secure_steps_made_again_are_charged_again(Path(folder))


def own_parts(patch: pytest.MonkeyPatch) -> None:
    test_examples.test_own_parts_are_own(health_network(users=25, days=40, seed=2).panel)


MEANS = ("means = found.cross[:-1] * length / sizes\n",)
FINISH = (loop.Training, "_finish")
CLASS_MEANS = (moments, "release_class_means")
CROWD = played(OneShotMoments(), crowd=True, ball=True)
TOTAL = (
    "    self._processes.bring_together_(total)\n    if self._processes.adds_noise:\n        bound"
)

KEPT = """    self._processes.bring_together_(total)
    kept = getattr(self, '_sums_before', None)
    if kept is not None:
        total.add_(kept, alpha=0.5)
    self._sums_before = total.clone()
    if self._processes.adds_noise:
        bound"""

WITHOUT_NOISE = """
        lr = self.optimizer.param_groups[0]['lr']
        for sign in (1.0, -1.0):
            start = 0
            with torch.no_grad():
                for p in self.model.parameters():
                    if p.requires_grad:
                        own = drawn[start : start + p.numel()].view_as(p).to(p.dtype)
                        p.add_(own, alpha=sign * lr)
                        start += p.numel()
            if sign > 0:
                self._average.update()
"""


def class_means(*pairs: tuple[str, str]) -> Any:
    return rewritten(*CLASS_MEANS, *pairs)


BUGS = (
    Bug(bug="01 layers clipped to C each, the sum said to move by C", kind="bound", seen_by=MOVED,
        plant=both(rewritten(PerLayerClipping, "_each", ("self.bound / math.sqrt(max(1, len(layers)))", "self.bound")),
                   rewritten(PerLayerClipping, "sensitivity", ("math.sqrt(sum(bound * bound for bound in self._each(layers)))", "max(self._each(layers))"))),
        check=patched(steps.test_one_record_alone_moves_the_sum_by_no_more_than_c, 1, lambda c: PerLayerClipping(bound=c))),
    Bug(bug="02 views clipped as examples of their own", kind="bound", seen_by=MOVED,
        plant=rewritten(loop.Training, "step", ("self._add(losses, s.clipping(self._bound), self._sum)", "self._engine.clipped_sum(losses / s.views, clipping=s.clipping(self._bound), into=self._sum)")),
        check=patched(steps.test_one_record_alone_moves_the_sum_by_no_more_than_c, 4, None)),
    Bug(bug="03 noise over the number of processes", kind="noise", seen_by=NOISE,
        plant=rewritten(*FINISH, ("noise_multiplier=gradient_z,", "noise_multiplier=gradient_z / self._processes.world,")),
        check=patched(steps.test_the_noise_is_that_of_one_process, 8)),
    Bug(bug="04 momentum of sums before their noise", kind="not paid", seen_by=NOISE,
        plant=rewritten(*FINISH, (TOTAL, KEPT)),
        check=patched(steps.test_a_step_remembers_nothing_of_the_sums_before_it)),
    Bug(bug="05 average of weights before their noise", kind="not paid", seen_by=NOISE,
        plant=rewritten(*FINISH, ("total = device.to_host(self._sum.flat)\n", "total = device.to_host(self._sum.flat)\n    exact = total.clone()\n"),
                        ("    self._sum.assign(stepped, divisor=expected)\n", "    drawn = (total - exact).double() / expected\n    self._sum.assign(stepped, divisor=expected)\n"),
                        ("\n        self._average.update()\n", WITHOUT_NOISE)),
        check=patched(steps.test_the_average_is_of_released_weights)),
    Bug(bug="06 moments divided by the records that are there", kind="reads the data", seen_by=REPLAY,
        plant=class_means(("length**2 / sizes.sum()\n", "length**2 / len(x)\n"), ("pi = sizes / sizes.sum()\n", "sizes = sizes * (len(x) / sizes.sum())\n    pi = sizes / sizes.sum()\n")),
        check=CROWD),
    Bug(bug="07 the exact mean of the rows where none is paid for", kind="not paid", seen_by=REPLAY,
        plant=rewritten(LinearDPSGD, "_centre", ("if plan.centre_mu == 0.0:\n", "if plan.centre_mu == 0.0:\n        head.mean.copy_(x.mean(0))\n")),
        check=played(LinearDPSGD(steps=3, centre=0.0), crowd=True)),
    Bug(bug="08 released means clamped to the range of the data", kind="reads the data", seen_by=REPLAY,
        plant=class_means((MEANS[0], MEANS[0] + "    means = np.clip(means, x.min(axis=0)[:, None], x.max(axis=0)[:, None])\n")),
        check=CROWD),
    Bug(bug="09 batches of fixed size priced as Poisson ones", kind="price", seen_by=CHARGE,
        plant=rewritten(sampling.FixedSizeSampler, "loss", ("FixedSizeGaussian(sample_rate=q, noise_multiplier=z)", "poisson_loss(q, z, self.adjacency)")),
        check=quiet(test_sampling.test_fixed_size)),
    Bug(bug="10 one stream for all layers", kind="noise", seen_by=STREAMS,
        plant=rewritten(AutoencoderStack, "_released", ('child("release", which)', 'child("release")')),
        check=one_stream_each),
    Bug(bug="11 one stream for all blocks of answers", kind="noise", seen_by=STREAMS,
        plant=rewritten(aggregate.Aggregator, "blocks", ('child("pate", number, start // BLOCK)', 'child("pate", number)')),
        check=patched(test_aggregate.test_every_block_has_noise_of_its_own)),
    Bug(bug="12 a teacher may answer twice", kind="bound", seen_by="refused by name",
        plant=rewritten(aggregate, "fits_together", ("if h.site in seen:", "if False and h.site in seen:")),
        check=quiet(test_aggregate.test_refuses_by_name, test_aggregate.other(site="s0"), "answered twice")),
    Bug(bug="13 confident votes charged for the answers given", kind="price", seen_by=CHARGE,
        plant=rewritten(voting.ConfidentGNMax, "release",
                        ('entry = charge_shards(ledger, self.loss(n), what=what, rng=rng)\n', "entry = None\n"),
                        ("stated = self.guarantee(n, delta=delta, rng=rng)\n", "given = __import__('dataclasses').replace(self, answers=max(1, len(chosen)))\n    entry = charge_shards(ledger, given.loss(n), what='votes', rng=rng)\n    stated = given.guarantee(n, delta=delta, rng=rng)\n")),
        check=quiet(test_voting.test_confident_is_charged_before_it_looks, 1e6)),
    Bug(bug="14 a user weighs the root of the records", kind="bound", seen_by=MOVED,
        plant=rewritten(records, "user_weights", ("share / counts *", "share / np.sqrt(counts) *")),
        check=a_user_weighs_a_share),
    Bug(bug="15 friends weigh 1/|F_u|: what a user sends is unbounded", kind="bound", seen_by=MOVED,
        plant=rewritten(test_sensitivity, "friend_weights", ("np.maximum(np.maximum(degree[:, None], degree[None, :]), 1.0)", "np.maximum(np.broadcast_to(degree[None, :], graph.shape), 1.0)")),
        check=quiet(test_sensitivity.test_friend_weights_bound_both_directions, 0)),
    Bug(bug="16 noisy inputs drawn every epoch, charged once", kind="price", seen_by=CHARGE,
        plant=rewritten(noisy_inputs.NoisyInputs, "fit", ('None if plan.redrawn else drawn(rng.child("inputs"))', "None")),
        check=one_draw_is_one_release),
    Bug(bug="17 a served batch charged as one query", kind="price", seen_by=CHARGE,
        plant=rewritten(served.ServedModel, "predict_proba", ("self._charge(len(rows))", "self._charge(1)")),
        check=a_batch_costs_its_rows),
    Bug(bug="18 the count of adaptive clipping is free", kind="price", seen_by=CHARGE,
        plant=rewritten(schedule.AdaptiveBound, "gradient_multiplier", ("return 1.0 / math.sqrt(left) * (1.0 + 2.0**-48)", "return z")),
        check=quiet(steps.test_gradient_and_count_together_cost_one_step, 0.8)),
    Bug(bug="19 the last coordinate of a sum without noise", kind="noise", seen_by=NOISE,
        plant=rewritten(loop, "release_sum_", ("    scale = add_noise_(", "    last = flat[-1].clone()\n    scale = add_noise_("), ("    if exact is not None:\n", "    flat[-1] = last\n    if exact is not None:\n")),
        check=patched(steps.test_every_coordinate_of_every_step_has_noise_of_its_own, False)),
    Bug(bug="20 coins of the sample from a public seed", kind="noise", seen_by=LAW,
        plant=rewritten(sampling.PoissonSampler, "indices", ('self._rng.child("sample", step)', '__import__("privet").noise.seeded(0).child("sample", step)')),
        check=quiet(steps.test_coins_come_from_the_source_that_is_given)),
    Bug(bug="21 a resumed secure run is not charged again", kind="price", seen_by=CHARGE,
        plant=rewritten(checkpoint.Meter, "__init__", ("self._until = start if secret else covered", "self._until = covered")),
        check=resumed_and_charged),
    Bug(bug="22 relevance from class means with next to no noise", kind="not paid", seen_by=CHARGE,
        plant=rewritten(shaped_training.RelevanceShapedTraining, "_shape",
                        ("shape = torch.from_numpy(energy_shape(means, self.exponent))",
                         "small = replace(plan.relevance, mechanism=type(plan.relevance.mechanism)(scale=1e-6))\n"
                         "    found = release_class_means(shortened(rows.reshape(len(rows), -1).astype(np.float64), plan.radius), records.targets, small, null=records.null, users=None, rng=spending.rng.child('shape'))\n"
                         "    shape = torch.from_numpy(energy_shape(found, self.exponent))")),
        check=quiet(shaped.test_all_gaussian_releases_together_cost_what_was_planned)),
    Bug(bug="23 behaviour against the mean of all users", kind="mixes records", seen_by=OWN,
        plant=rewritten(examples, "against_own_past", ("mean = earlier(x) / np.maximum(count, 1.0)\n", "mean = earlier(x) / np.maximum(count, 1.0)\n    mean = np.broadcast_to(mean.mean(axis=0, keepdims=True), mean.shape)\n")),
        check=own_parts),
    Bug(bug="24 the private mean over the records that are there", kind="reads the data", seen_by=REPLAY,
        plant=rewritten(linear_method, "_noisy_mean", ("/ plan.facts.records", "/ len(x)")),
        check=played(LinearDPSGD(steps=3), crowd=True)),
    Bug(bug="25 as 06, without a division by zero", kind="reads the data", seen_by=REPLAY,
        plant=class_means(("length**2 / sizes.sum()\n", "length**2 / max(len(x), 1)\n"), ("pi = sizes / sizes.sum()\n", "sizes = sizes * (max(len(x), 1) / sizes.sum())\n    pi = sizes / sizes.sum()\n")),
        check=CROWD),
    Bug(bug="26 as 08, empty data left alone", kind="reads the data", seen_by=REPLAY,
        plant=class_means((MEANS[0], MEANS[0] + "    if len(x):\n        means = np.clip(means, x.min(axis=0)[:, None], x.max(axis=0)[:, None])\n")),
        check=CROWD),
    Bug(bug="27 no room for the rounding of sums", kind="bound", seen_by=MOVED,
        plant=rewritten(loop, "with_rounding", ("return float(sensitivity) * (1.0 + summation.room())", "return float(sensitivity)")),
        check=patched(test_rounding.test_the_room_is_part_of_the_noise)),
    Bug(bug="28 null records always answer class 0", kind="null records", seen_by=LAW,
        plant=rewritten(noisy_inputs, "answered", ("null=null)", "null=None)")),
        check=quiet(test_noisy_inputs.test_answers_of_null_slots_are_drawn_from_all_classes_alike)),
)  # fmt: skip
