"""39 more bugs, listed before anybody looked for what would notice them."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet import guarantee, runs
from privet.audit import conformance
from privet.data.records import Records
from privet.data.rows import Domain, Kind
from privet.estimators import base
from privet.guarantee import Unit
from privet.ledger._chain import Terms
from privet.mechanisms.base import OnGrid
from privet.methods import conforming, contract, promise, replay
from privet.methods.adaptive_laplace import OneShotMoments, moments
from privet.methods.catalogue import method_type
from privet.methods.contract import Method
from privet.methods.dpsgd import LinearDPSGD, NetworkDPSGD, linear_method, sampling
from privet.methods.models import LinearModel
from privet.nets.per_example.clipping import FlatClipping
from privet.noise import seeded
from tests.conformance.planting import Bug, Check, Patch, both, rewritten
from tests.conformance.subjects import SUBJECTS
from tests.contract import test_conforming as contracts

FIT = (OneShotMoments, "fit")
CHARGED = 'spending.charge(what="one-shot moments")\n'
ROWS = "x, centre = leading(records.rows.ball(), self.components), None\n"
RETURN = "return replace(found, components=self.components, centre=centre)"


STRANGERS = "playback on strangers"
NEIGHBOURS = "replay on neighbours"
PROMISE = "the promise is the plan"
PAYMENT = "paid before it is released"
KEPT = "what a fitted estimator keeps and saves"
DRAWS = "one stream, one draw"
ALONE = "an answer depends on its own row"
MOVED = "a record does not change what others add"


@cache
def conforms(
    of: str | Method[Any], *, declared: bool = True, unit: Unit = Unit.RECORD, kind: Kind = Kind.BOX
) -> Check:
    """All of `privet.methods.conforming`, for the small method of a name or for one as it is."""

    def check(patch: pytest.MonkeyPatch) -> None:
        method = method_type(of).small() if isinstance(of, str) else of
        facts = replace(replay.small_facts(method), declared=declared, unit=unit, kind=kind)
        assert conforming.problems(method, facts) == []

    return check


def keeps_nothing(patch: pytest.MonkeyPatch) -> None:
    x, y, other, labels = contracts.people()
    with tempfile.TemporaryDirectory() as where:
        found = contracts.kept_problems(
            lambda: contracts.classifier("adaptive-laplace"),
            (x, y), (other, labels), np.vstack([x, other]), Path(where),
        )  # fmt: skip
    assert found == []


def charges(patch: pytest.MonkeyPatch) -> None:
    method = OneShotMoments()
    plan = method.plan(replay.small_facts(method))
    assert replay.charge_problems(method, plan, method.neighbours(plan).present) == []


def noises(patch: pytest.MonkeyPatch) -> None:
    method = OneShotMoments()
    plan = method.plan(replay.small_facts(method))
    assert replay.noise_problems(method, plan, method.neighbours(plan).present, runs=10) == []


def unseeded(patch: pytest.MonkeyPatch) -> None:
    contracts.test_unseeded_fits_have_noise_of_their_own("adaptive-laplace")


def alone(patch: pytest.MonkeyPatch) -> None:
    contracts.test_a_row_is_computed_from_its_own_record((0.0, 1.0))


def sampled_draws(patch: pytest.MonkeyPatch) -> None:
    contracts.test_coins_and_noise_have_streams_of_their_own(NetworkDPSGD(steps=3, sample_rate=0.5))


def clips(patch: pytest.MonkeyPatch) -> None:
    (subject,) = (s for s in SUBJECTS if s.name == "clipped gradients")
    report = conformance.check(subject, seeded(42))
    assert report.held, str(report)


def one_shot(*pairs: tuple[str, str]) -> Patch:
    return rewritten(*FIT, *pairs)


def after_rows(text: str) -> tuple[str, str]:
    return ROWS, ROWS + "    " + text + "\n"


def linear(*pairs: tuple[str, str]) -> Patch:
    return rewritten(LinearDPSGD, "fit", *pairs)


def ended(*pairs: tuple[str, str]) -> Patch:
    return rewritten(linear_method, "descend", *pairs)


HEAD = "    head = LinearHead("


def stated(*pairs: tuple[str, str]) -> Patch:
    return rewritten(promise, "promise", *pairs)


def remembered(patch: pytest.MonkeyPatch) -> None:
    """Noise of a shape is drawn once in the life of the process."""
    original, kept = OnGrid._perturb, dict[Any, Any]()

    def perturb(self: Any, value: Any, rng: Any) -> Any:
        key = (value.shape, self.scale)
        if key not in kept:
            kept[key] = original(self, value, rng) - value
        return value + kept[key]

    patch.setattr(OnGrid, "_perturb", perturb)


def state_with(what: str, name: str = "example") -> Patch:
    """Something of the records is kept in the model, and written with its state."""
    return both(
        one_shot((RETURN, f"found = replace(found, components=self.components, centre=centre)\n    object.__setattr__(found, 'kept', {what})\n    return found")),
        rewritten(LinearModel, "state", ('"intercept": self.intercept}', f'"intercept": self.intercept, **({{"{name}": self.kept}} if hasattr(self, "kept") else {{}})}}')),
    )  # fmt: skip


BUGS = (
    Bug(bug="N01 a seeded run without a premise about its seed", kind="premises", seen_by=PROMISE, check=conforms("adaptive-laplace"), plant=stated(("*more, key)", "*more)"))),
    Bug(bug="N02 a seeded run says that its key is secret", kind="premises", seen_by=PROMISE, check=conforms("adaptive-laplace"), plant=stated(("key = rng.premise", "key = premises.DRAWN_KEY"))),
    Bug(bug="N03 two premises about the key", kind="premises", seen_by=PROMISE, check=conforms("adaptive-laplace"),
            plant=both(rewritten(guarantee, "_each_once", ("return tuple(found.values())", "return premises"), ("found.setdefault(p.about, p) != p", "False")),
                       stated(("*more, key)", "*more, premises.DRAWN_KEY, key)")))),
    Bug(bug="N04 nothing said about how settings were chosen", kind="premises", seen_by=PROMISE, check=conforms("adaptive-laplace"), plant=stated(("premises.SETTINGS, ", ""))),
    Bug(bug="N05 add-remove stated of a number read from the data", kind="guarantee", seen_by=PROMISE, check=conforms("adaptive-laplace", declared=False), plant=rewritten(contract.Plan, "relation", ("return Adjacency.ZERO_OUT if counted else self.adjacency", "return self.adjacency"))),
    Bug(bug="N06 per user stated where records are protected", kind="guarantee", seen_by=PROMISE, check=conforms("adaptive-laplace"), plant=stated(("unit=plan.unit", "unit=type(plan.unit).USER"))),
    Bug(bug="N07 epsilon read at ten times delta", kind="guarantee", seen_by=PROMISE, check=conforms("adaptive-laplace"), plant=stated(("spent.guarantee(plan.facts.delta", "spent.guarantee(10.0 * plan.facts.delta"), ("    key = rng.premise", "    stated = replace(stated, delta=plan.facts.delta)\n    key = rng.premise"))),
    Bug(bug="N08 planned again for the records that count", kind="reads the data", seen_by=STRANGERS, check=conforms("dpsgd"), plant=linear((HEAD, "    plan = self.plan(replace(plan.facts, records=1 + int((~records.null).sum())))\n" + HEAD))),
    Bug(bug="N09 one of two releases is charged", kind="charge", seen_by=PAYMENT, check=conforms("adaptive-laplace"), plant=one_shot(("spending.charge(what=", "spending.charge(plan.first.loss, what="))),
    Bug(bug="N10 charged after the release", kind="charge", seen_by=PAYMENT, check=conforms("adaptive-laplace"), plant=one_shot((CHARGED, "pass\n"), (RETURN, CHARGED + "    " + RETURN))),
    Bug(bug="N11 a ledger of another unit is taken", kind="charge", seen_by=PAYMENT, check=conforms("adaptive-laplace"),
            plant=both(rewritten(Terms, "refuse_other", ("right = self.unit is unit and self.protects is protects", "right = True")),
                       rewritten(contract.Spending, "scope", ("unit=plan.unit", "unit=self.ledger.unit")))),
    Bug(bug="N12 a refusal of the ledger is swallowed", kind="charge", seen_by=PAYMENT, check=charges,
            plant=both(*(rewritten(user, "train", ("if not resume and not ledger.affords(plan.loss):", "if False:")) for user in (promise, replay, base)),
                       rewritten(contract.Spending, "charge", ("entry = self.ledger.charge(part, what=what, scope=self.scope, run=self.run, token=token)",
                                 "try:\n        entry = self.ledger.charge(part, what=what, scope=self.scope, run=self.run, token=token)\n"
                                 "    except Exception:\n        entry = Ledger.in_memory(cap_epsilon=float('inf'), cap_delta=0.5, adjacency=self.plan.relation, unit=self.plan.unit).charge(part, what=what)")))),
    Bug(bug="N13 both releases have the same noise", kind="noise", seen_by=DRAWS, check=conforms("adaptive-laplace"), plant=one_shot(('rng.child("second")', 'rng.child("first")'))),
    Bug(bug="N14 the scale of the noise from the data", kind="noise", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=one_shot(after_rows("first = replace(plan.first.mechanism, scale=plan.first.mechanism.scale * (1.0 + float(np.abs(x).max())))\n    plan = replace(plan, first=replace(plan.first, mechanism=first))"))),
    Bug(bug="N15 no seed given means seed 0", kind="noise", seen_by=DRAWS, check=unseeded, plant=rewritten(base, "source_of", ("return secure()", "return seeded(0)"))),
    Bug(bug="N16 noise remembered from one fit to the next", kind="noise", seen_by=DRAWS, check=noises, plant=remembered),
    Bug(bug="N17 gradients of a batch clipped together", kind="bound", seen_by=MOVED, check=clips, plant=rewritten(FlatClipping, "weights", ("norms = ", "squared_norms = squared_norms * 0 + squared_norms.sum()\n    norms = "))),
    Bug(bug="N18 bounds read from the data", kind="mixes records", seen_by=MOVED, check=alone, plant=rewritten(Domain, "_bounded", ("_boxed(part, self.bounds)", "_boxed(part, (part.min(), part.max() + 1e-9))"))),
    Bug(bug="N19 features standardised over all records", kind="mixes records", seen_by=NEIGHBOURS, check=conforms("adaptive-laplace"), plant=one_shot(after_rows("x = unit_rows((x - x.mean(axis=0)) / (x.std(axis=0) + np.float32(1e-6)))"))),
    Bug(bug="N20 null records are rows of class 0", kind="null records", seen_by=NEIGHBOURS, check=conforms("adaptive-laplace", kind=Kind.BALL), plant=one_shot(after_rows("records = replace(records, targets=np.where(records.null, 0, records.targets), rows=replace(records.rows, null=np.zeros(len(x), dtype=bool)))"))),
    Bug(bug="N21 the number of records less the null ones is planned for", kind="null records", seen_by=KEPT, check=keeps_nothing, plant=rewritten(Records, "facts", ("n = len(self) if", "n = int((~self.null).sum()) if"))),
    Bug(bug="N22 the model keeps a private row", kind="model", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=state_with("x[:1].astype(np.float64)")),
    Bug(bug="N23 predictions look at rows kept beside the state", kind="model", seen_by=STRANGERS, check=conforms("adaptive-laplace"),
            plant=both(one_shot((RETURN, "found = replace(found, components=self.components, centre=centre)\n    object.__setattr__(found, 'kept', x)\n    return found")),
                       rewritten(LinearModel, "outputs", ("    return found", "    kept = getattr(self, 'kept', None)\n    if kept is not None and kept.shape[1:] == x.shape[1:]:\n        found = found + 0.5 * np.array([bool((kept == row).all(axis=1).any()) for row in x])[:, None]\n    return found")))),
    Bug(bug="N24 save() writes how many records count", kind="leaves", seen_by=KEPT, check=keeps_nothing,
            plant=both(rewritten(base.PrivateEstimator, "_learn", ("return self._keep(found, domain)", "source_of.count = int((~records.null).sum())\n    return self._keep(found, domain)")),
                       rewritten(runs, "save", ('"data": "records of your own",', '"data": "records of your own",\n        "examples": __import__("privet").estimators.base.source_of.count,')))),
    Bug(bug="N25 the exact training accuracy stays with the estimator", kind="leaves", seen_by=KEPT, check=keeps_nothing,
            plant=rewritten(base.PrivateEstimator, "_learn", ("return self._keep(found, domain)", "self._keep(found, domain)\n    out = self.model_.outputs(records.rows)\n    self.train_score_ = float((out.argmax(axis=1) == records.targets).mean())\n    return self"))),
    Bug(bug="N26 training ends when the exact sum is small", kind="flow", seen_by=STRANGERS, check=conforms(LinearDPSGD()), plant=ended(("            releasing = True\n", "            if float(total.norm()) < 0.01 * len(examples[0]):\n                break\n            releasing = True\n"))),
    Bug(bug="N27 one more release where a class is in the majority", kind="flow", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=one_shot(('many = len(plan.releases)', 'if (y == 0).sum() > 0.5 * max(1, (~null).sum()):\n        first = release_class_means(x, y, plan.first, null=null, users=users, rng=rng.child("more"))\n    many = len(plan.releases)'))),
    Bug(bug="N28 the better of two models by exact accuracy", kind="flow", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=one_shot((RETURN, "other = self.solver.means_only(first)\n    def right(model):\n        return float(((x @ model.weights + model.intercept).argmax(axis=1) == y)[~null].sum())\n    if right(other) > right(found):\n        found = other\n    " + RETURN))),
    Bug(bug="N29 released sizes held to the number that is there", kind="reads the data", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=rewritten(moments, "release_class_means", ("    means = found.cross[:-1]", "    sizes = np.clip(sizes, 1.0, max(1.0, float((~null).sum())))\n    means = found.cross[:-1]"))),
    Bug(bug="N30 the learning rate from the longest row", kind="reads the data", seen_by=STRANGERS, check=conforms("dpsgd"), plant=linear((HEAD, "    plan = replace(plan, learning_rates=plan.learning_rates / (0.1 + float(x.norm(dim=1).max())))\n" + HEAD))),
    Bug(bug="N31 coins of two steps from one stream", kind="noise", seen_by=DRAWS, check=sampled_draws, plant=rewritten(sampling.PoissonSampler, "indices", ('child("sample", step)', 'child("sample", step // 2)'))),
    Bug(bug="N32 an answer depends on the other rows asked", kind="model", seen_by=ALONE, check=conforms("adaptive-laplace"), plant=rewritten(LinearModel, "outputs", ("found = x.astype(np.float64)", "x = x - x.mean(axis=0)\n    found = x.astype(np.float64)"))),
    Bug(bug="N33 an error that shows a private row", kind="leaves", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=one_shot(after_rows('if float(np.abs(x).max(initial=0.0)) > 0.9:\n        raise InvalidArgument("row", x[np.abs(x).max(axis=1).argmax()].tolist(), "shorter")'))),
    Bug(bug="N34 a warning that tells how many records count", kind="leaves", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=one_shot(after_rows('__import__("warnings").warn(f"training on {int((~records.null).sum())} records", stacklevel=2)'))),
    Bug(bug="N35 the last block is padded with the first records", kind="bound", seen_by=NEIGHBOURS, check=conforms("adaptive-laplace"), plant=rewritten(moments, "release_class_means", ("    found = release.release(", "    some = x[:3].astype(np.float64)\n    rows = np.hstack([some, np.full((len(some), 1), CONSTANT)]) / length\n    rows[null[:3]] = 0.0\n    total.add(rows, y[:3], None if users is None else users[:3])\n    found = release.release("))),
    Bug(bug="N36 progress tells how many records count", kind="leaves", seen_by=STRANGERS, check=conforms("adaptive-laplace"), plant=one_shot(('spending.progress("releases", many, many)', 'spending.progress("records", int((~null).sum()), len(x))'))),
    Bug(bug="N37 the mean's price is not taken off the steps' budget", kind="budget", seen_by=PROMISE, check=conforms("dpsgd"), plant=rewritten(LinearDPSGD, "plan", ("beside=Gaussian(mu=centre_mu) if centre_mu else None", "beside=None"))),
    Bug(bug="N38 the ledger is told that a seeded key is secret", kind="charge", seen_by=PROMISE, check=conforms("adaptive-laplace"), plant=rewritten(contract.Spending, "scope", ("secret=self.rng.secret", "secret=True"))),
    Bug(bug="N39 the ledger is told records where users are protected", kind="charge", seen_by=PROMISE, check=conforms("adaptive-laplace", unit=Unit.USER), plant=rewritten(contract.Spending, "scope", ("unit=plan.unit", "unit=Unit.RECORD"))),
)  # fmt: skip
