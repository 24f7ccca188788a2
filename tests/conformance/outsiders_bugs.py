"""Bugs that an outsider planted, where their code went, and the property that each breaks."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from papers.tests.autoencoder.behaviour import test_examples, test_sensitivity
from privet.accounting import SampledGaussian, compose
from privet.audit.conformance import streams_drawn_once
from privet.gradients import PerExampleGradients, PerLayerClipping
from privet.guarantee import Adjacency
from privet.methods import neighbour_replay, train_method
from privet.methods.autoencoder import AutoencoderStack
from privet.methods.dpsgd import (
    LinearDPSGD,
    charging,
    linear_dpsgd,
    noise_addition,
    optimizer_step,
    samplers,
    schedule,
)
from privet.methods.moments import OneShotMoments, class_means
from privet.methods.noisy_inputs import noisy_inputs, served_model
from privet.methods.pate import RefusedAnswers, gnmax_voting, mean_aggregation
from privet.noise import Source, seeded
from privet_papers.autoencoder.behaviour import examples, social_influence
from privet_papers.autoencoder.behaviour.health_network import health_network
from tests.conformance.planting import Bug, Check, Patch, both, wrapped
from tests.methods.crowd import neighbours_in_a_crowd
from tests.methods.dpsgd import test_checkpoints, test_noise_addition, test_samplers
from tests.methods.dpsgd import test_planted as steps
from tests.methods.moments import test_contract as shaped
from tests.methods.noisy_inputs import test_noisy_inputs, test_served_model
from tests.methods.pate import test_gnmax_voting, test_mean_aggregation

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
        assert neighbour_replay.replay(method, method.plan(facts), worst).problems() == []

    return check


def one_stream_each(patch: pytest.MonkeyPatch) -> None:
    method = AutoencoderStack(layers=(3, 2))
    held = shaped.records(60)
    plan = train_method.make_plan(method, held.facts(epsilon=2.0, delta=1e-5))
    assert streams_drawn_once(lambda: train_method.train(method, held, plan, rng=seeded(0))) is None


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
    found = neighbour_replay.replay(method, plan, method.neighbours(plan))
    assert found.problems() == []
    assert len(found.present.releases) == 1 + plan.cost.draws


def a_batch_costs_its_rows(patch: pytest.MonkeyPatch) -> None:
    model = served_model.ServedModel.of(test_served_model.network(), test_served_model.ledger())
    left = model.queries_left
    model.predict_proba(test_served_model.X[:3])
    assert model.queries_left == left - 3


def resumed_and_charged(patch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:
        test_checkpoints.test_secure_steps_made_again_are_charged_again(Path(folder))


def own_parts(patch: pytest.MonkeyPatch) -> None:
    test_examples.test_own_parts_are_own(health_network(users=25, days=40, seed=2).panel)


CROWD = played(OneShotMoments(), crowd=True, ball=True)


def means_of(change: Any) -> Patch:
    """`change(found, x)` of the class means that were released."""
    return wrapped(
        class_means, "release_class_means", lambda f, x, *a, **k: change(f(x, *a, **k), x)
    )


def sizes_to(change: Any) -> Patch:
    return means_of(
        lambda found, x: replace(found, sizes=found.sizes * (change(len(x)) / found.sizes.sum()))
    )


def in_range(found: Any, x: Any) -> Any:
    return replace(
        found, means=np.clip(found.means, x.min(axis=0)[:, None], x.max(axis=0)[:, None])
    )


def views_as_examples(original: Any, self: Any, losses: Any, *, views: int = 1, **k: Any) -> Any:
    return original(self, losses / views, **k)


def sums_remembered(patch: pytest.MonkeyPatch) -> None:
    """Half of the sum before, as it was without its noise, is added to every sum."""
    before = list[Any]()

    def clipped_sum(original: Any, self: Any, *a: Any, **k: Any) -> Any:
        total = original(self, *a, **k)
        if before and before[-1].shape == total.buffer.shape:
            total.buffer.add_(before[-1], alpha=0.5)
        before.append(total.buffer.clone())
        return total

    wrapped(PerExampleGradients, "clipped_sum", clipped_sum)(patch)


def average_without_noise(patch: pytest.MonkeyPatch) -> None:
    """The average of weights has less of the last noise than the weights have."""
    noise = list[Any]()

    def release(original: Any, flat: Any, **k: Any) -> Any:
        exact = flat.clone()
        out = original(flat, **k)
        noise.append(flat - exact)
        return out

    def update(original: Any, self: Any) -> None:
        original(self)
        start = 0
        for tensor in self.tensors.values():
            part = noise[-1][start : start + tensor.numel()].view_as(tensor).to(tensor.dtype)
            tensor.add_(part, alpha=1e-3)
            start += tensor.numel()

    both(
        wrapped(noise_addition, "release_sum_", release),
        wrapped(optimizer_step.MovingAverage, "update", update),
    )(patch)


def exact_centre(original: Any, self: Any, records: Any, plan: Any, context: Any) -> Any:
    model = original(self, records, plan, context)
    return replace(model, centre=records.rows.ball().mean(axis=0))


def priced_as_poisson(original: Any, self: Any, z: Any, **k: Any) -> Any:
    steps = [
        SampledGaussian(sample_rate=float(q), noise_multiplier=float(one), adjacency=self.adjacency)
        for q, one in zip(self.rates, np.broadcast_to(z, self.rates.shape), strict=True)
    ]
    return compose(steps, adjacency=self.adjacency)


def one_stream(word: str, length: int) -> Patch:
    """Numbers after the first `length` parts of such a label are forgotten."""
    return wrapped(
        Source,
        "child",
        lambda f, self, *label: f(self, *(label[:length] if label[0] == word else label)),
    )


def twice_is_fine(original: Any, answers: Any, **k: Any) -> None:
    try:
        original(answers, **k)
    except RefusedAnswers as refusal:
        if "answered twice" not in str(refusal):
            raise


def charged_for_answers(
    original: Any, self: Any, votes: Any, *, rng: Any, delta: float, ledger: Any = None
) -> Any:
    found = original(self, votes, rng=rng, delta=delta)
    fewer, n = replace(self, answers=max(1, int((found.labels >= 0).sum()))), len(found.labels)
    entry = gnmax_voting.charge_shards(ledger, fewer.loss(n), what="votes", rng=rng)
    return replace(found, guarantee=fewer.guarantee(n, delta=delta, rng=rng), entry=entry)


def root_weights(original: Any, groups: Any, *, share: float = 1.0) -> Any:
    found = original(groups, share=share)
    _, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return replace(found, values=np.minimum(1.0, share / np.sqrt(counts))[which])


def weights_of_receivers(original: Any, edges: Any, users: int) -> Any:
    graph = (original(edges, users) > 0.0).astype(float)
    return graph / np.maximum(graph.sum(axis=0)[None, :], 1.0)


def last_without_noise(original: Any, flat: Any, **k: Any) -> Any:
    last = flat[-1].clone()
    out = original(flat, **k)
    flat[-1] = last
    return out


def public_coins(original: Any, self: Any, step: int) -> Any:
    secret, self._rng = self._rng, seeded(0)
    try:
        return original(self, step)
    finally:
        self._rng = secret


def hardly_noisy(original: Any, x: Any, y: Any, release: Any, *, rng: Any, **k: Any) -> Any:
    original(x, y, release, rng=rng, **k)
    small = replace(release, mechanism=replace(release.mechanism, scale=1e-6))
    return original(x, y, small, rng=rng.child("shape"), **k)


def mean_of_those_there(original: Any, x: Any, plan: Any, *a: Any) -> Any:
    return original(x, plan, *a) * (plan.facts.records / len(x))


def nulls_answer_0(original: Any, known: Any, null: Any, plan: Any, rng: Any) -> Any:
    return original(np.where(null, 0, known), np.zeros_like(null), plan, rng)


BUGS = (
    Bug(bug="01 layers clipped to C each, the sum said to move by C", kind="bound", seen_by=MOVED,
        plant=wrapped(PerLayerClipping, "weights", lambda f, self, squared, layers: f(replace(self, bound=self.bound * math.sqrt(len(layers))), squared, layers)),
        check=patched(steps.test_one_record_alone_moves_the_sum_by_no_more_than_c, 1, lambda c: PerLayerClipping(bound=c))),
    Bug(bug="02 views clipped as examples of their own", kind="bound", seen_by=MOVED,
        plant=wrapped(PerExampleGradients, "clipped_sum", views_as_examples),
        check=patched(steps.test_one_record_alone_moves_the_sum_by_no_more_than_c, 4, None)),
    Bug(bug="03 noise over the number of processes", kind="noise", seen_by=NOISE,
        plant=wrapped(noise_addition, "release_sum_", lambda f, flat, **k: f(flat, **{**k, "noise_multiplier": k["noise_multiplier"] / 8})),
        check=patched(steps.test_the_noise_is_that_of_one_process, 8)),
    Bug(bug="04 momentum of sums before their noise", kind="not paid", seen_by=NOISE,
        plant=sums_remembered,
        check=patched(steps.test_a_step_remembers_nothing_of_the_sums_before_it)),
    Bug(bug="05 average of weights before their noise", kind="not paid", seen_by=NOISE,
        plant=average_without_noise,
        check=patched(steps.test_the_average_is_of_released_weights)),
    Bug(bug="06 moments divided by the records that are there", kind="reads the data", seen_by=REPLAY,
        plant=sizes_to(lambda n: n),
        check=CROWD),
    Bug(bug="07 the exact mean of the rows where none is paid for", kind="not paid", seen_by=REPLAY,
        plant=wrapped(LinearDPSGD, "fit", exact_centre),
        check=played(LinearDPSGD(steps=3, centre=0.0), crowd=True)),
    Bug(bug="08 released means clamped to the range of the data", kind="reads the data", seen_by=REPLAY,
        plant=means_of(in_range),
        check=CROWD),
    Bug(bug="09 batches of fixed size priced as Poisson ones", kind="price", seen_by=CHARGE,
        plant=wrapped(samplers.FixedSizeSampler, "loss", priced_as_poisson),
        check=quiet(test_samplers.test_fixed_size)),
    Bug(bug="10 one stream for all layers", kind="noise", seen_by=STREAMS,
        plant=one_stream("release", 1),
        check=one_stream_each),
    Bug(bug="11 one stream for all blocks of answers", kind="noise", seen_by=STREAMS,
        plant=one_stream("pate", 2),
        check=patched(test_mean_aggregation.test_every_block_has_noise_of_its_own)),
    Bug(bug="12 a teacher may answer twice", kind="bound", seen_by="refused by name",
        plant=wrapped(mean_aggregation, "check_compatible", twice_is_fine),
        check=quiet(test_mean_aggregation.test_refuses_by_name, test_mean_aggregation.other(site="s0"), "answered twice")),
    Bug(bug="13 confident votes charged for the answers given", kind="price", seen_by=CHARGE,
        plant=wrapped(gnmax_voting.ConfidentGNMax, "release", charged_for_answers),
        check=quiet(test_gnmax_voting.test_confident_is_charged_before_it_looks, 1e6)),
    Bug(bug="14 a user weighs the root of the records", kind="bound", seen_by=MOVED,
        plant=wrapped(import_module("privet.sensitivity.user_weights"), "user_weights", root_weights),
        check=a_user_weighs_a_share),
    Bug(bug="15 friends weigh 1/|F_u|: what a user sends is unbounded", kind="bound", seen_by=MOVED,
        plant=wrapped(social_influence, "friend_weights", weights_of_receivers),
        check=quiet(test_sensitivity.test_friend_weights_bound_both_directions, 0)),
    Bug(bug="16 noisy inputs drawn every epoch, charged once", kind="price", seen_by=CHARGE,
        plant=wrapped(noisy_inputs.NoisyInputs, "fit", lambda f, self, records, plan, context: f(self, records, replace(plan, redrawn=True), context)),
        check=one_draw_is_one_release),
    Bug(bug="17 a served batch charged as one query", kind="price", seen_by=CHARGE,
        plant=wrapped(served_model.ServedModel, "_charge", lambda f, self, queries: f(self, 1)),
        check=a_batch_costs_its_rows),
    Bug(bug="18 the count of adaptive clipping is free", kind="price", seen_by=CHARGE,
        plant=wrapped(schedule.AdaptiveBound, "gradient_multiplier", lambda f, self, z, batch: z),
        check=quiet(steps.test_gradient_and_count_together_cost_one_step, 0.8)),
    Bug(bug="19 the last coordinate of a sum without noise", kind="noise", seen_by=NOISE,
        plant=wrapped(noise_addition, "release_sum_", last_without_noise),
        check=patched(steps.test_every_coordinate_of_every_step_has_noise_of_its_own, False)),
    Bug(bug="20 coins of the sample from a public seed", kind="noise", seen_by=LAW,
        plant=wrapped(samplers.PoissonSampler, "indices", public_coins),
        check=quiet(steps.test_coins_come_from_the_source_that_is_given)),
    Bug(bug="21 a resumed secure run is not charged again", kind="price", seen_by=CHARGE,
        plant=wrapped(charging.ChargesAhead, "__init__", lambda f, self, **k: f(self, **{**k, "secret": False})),
        check=resumed_and_charged),
    Bug(bug="22 relevance from class means with next to no noise", kind="not paid", seen_by=CHARGE,
        plant=wrapped(class_means, "release_class_means", hardly_noisy),
        check=quiet(shaped.test_all_gaussian_releases_together_cost_what_was_planned)),
    Bug(bug="23 behaviour against the mean of all users", kind="mixes records", seen_by=OWN,
        plant=wrapped(examples, "relative_to_own_past", lambda f, values: np.broadcast_to(f(values).mean(axis=0, keepdims=True), values.shape)),
        check=own_parts),
    Bug(bug="24 the private mean over the records that are there", kind="reads the data", seen_by=REPLAY,
        plant=wrapped(linear_dpsgd, "_noisy_mean", mean_of_those_there),
        check=played(LinearDPSGD(steps=3), crowd=True)),
    Bug(bug="25 as 06, without a division by zero", kind="reads the data", seen_by=REPLAY,
        plant=sizes_to(lambda n: max(n, 1)),
        check=CROWD),
    Bug(bug="26 as 08, empty data left alone", kind="reads the data", seen_by=REPLAY,
        plant=means_of(lambda found, x: in_range(found, x) if len(x) else found),
        check=CROWD),
    Bug(bug="27 no room for the rounding of sums", kind="bound", seen_by=MOVED,
        plant=wrapped(noise_addition, "with_rounding", lambda f, sensitivity, summation: float(sensitivity)),
        check=patched(test_noise_addition.test_the_room_is_part_of_the_noise)),
    Bug(bug="28 null records always answer class 0", kind="null records", seen_by=LAW,
        plant=wrapped(noisy_inputs, "randomised_labels", nulls_answer_0),
        check=quiet(test_noisy_inputs.test_answers_of_null_slots_are_drawn_from_all_classes_alike)),
)  # fmt: skip
