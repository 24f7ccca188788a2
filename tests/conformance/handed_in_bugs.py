"""Bugs at the border: what users hand in taken on its word, and records that say too much."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import privet
from privet import _check, _formatting, premises
from privet.accounting import SampledGaussian, compose, fft_convolution
from privet.errors import InvalidArgument, LedgerError
from privet.guarantee import Adjacency
from privet.ledger import Ledger
from privet.methods.dpsgd import (
    Schedule,
    batch_independence,
    charging,
    dataset_rows,
    generator_states,
)
from privet.methods.dpsgd.loss_evaluation import LossEvaluation
from privet.methods.pate import Aggregator, answer_checks
from privet.methods.pate.answer_files import AnswerFile, Answers, CheckedAnswers, RefusedAnswers
from privet.noise import seeded
from privet.report import rendering
from privet.runs import saved_run
from privet.sensitivity.user_ids import number_users
from tests.conformance.planting import Bug, Patch, wrapped
from tests.methods.dpsgd.helpers import Watch, losses_of, start

REFUSED = "refused by name"
SAID = "what is written down says what holds"
MOVED = "a record does not change what others add"


def refuses(error: type[Exception], attack: Any) -> None:
    """Fail unless the attack ends in this error of ours."""
    try:
        attack()
    except error as refusal:
        assert "\n" not in str(refusal)  # noqa: PT017
        return
    pytest.fail("it was taken")


def ids_are_refused(patch: pytest.MonkeyPatch) -> None:
    """Two people whose ids were rounded to one float."""
    rounded = np.array([1_700_000_000_000_000_001, 1_700_000_000_000_000_101]).astype(float)
    assert rounded[0] == rounded[1]
    refuses(InvalidArgument, lambda: number_users(rounded))


def tiny_bounds_are_refused(patch: pytest.MonkeyPatch) -> None:
    refuses(
        InvalidArgument,
        lambda: Schedule(steps=1, sample_rate=1.0, noise_multiplier=1.0, clipping_bound=1e-36),
    )


def saved(folder: Path, **given: Any) -> Path:
    x = np.random.default_rng(0).uniform(size=(60, 2))
    y = np.where(x[:, 0] > 0.5, "<script>", "b")
    clf = privet.AdaptiveLaplaceClassifier(epsilon=2.0, bounds=(0, 1), classes=["<script>", "b"])
    return Path(clf.fit(x, y).save(folder, **given))


def forgeries_are_refused(patch: pytest.MonkeyPatch) -> None:
    """A record that was edited by hand, and a model with a flipped bit."""
    with tempfile.TemporaryDirectory() as place:
        for name in ("guarantee.json", "model.safetensors"):
            folder = saved(Path(place) / name)
            path = folder / name
            if name == "guarantee.json":
                record = json.loads(path.read_text())
                record["guarantee"]["epsilon"] = 0.01
                path.write_text(json.dumps(record))
            else:
                raw = bytearray(path.read_bytes())
                raw[-1] ^= 1
                path.write_bytes(raw)
            refuses(InvalidArgument, lambda where=folder: privet.load(where))


def cards_have_no_markup(patch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = saved(Path(place) / "run", purpose="<img src=x onerror=alert(1)>")
        for name in ("README.md", "run.html"):
            text = (folder / name).read_text()
            assert "<img src=x" not in text
        assert "<script>" not in (folder / "README.md").read_text()


def answers(site: str, seed: int) -> Answers:
    codes = np.random.default_rng(seed).normal(size=(4, 3))
    return Answers.clip(codes, radius=1.0, site=site)


AGGREGATOR = Aggregator.for_budget(teachers=3, queries=4, epsilon=8.0, delta=1e-3, dimension=3)


def one_site_counts_once(patch: pytest.MonkeyPatch) -> None:
    """The same numbers under two names."""
    sites = [answers("a", 0), answers("b", 1), answers("c", 0)]
    refuses(RefusedAnswers, lambda: AGGREGATOR.release(sites, rng=seeded(0), delta=1e-3))


def what_is_checked_is_summed(patch: pytest.MonkeyPatch) -> None:
    """A file that is changed between the check and the sum."""
    with tempfile.TemporaryDirectory() as place:
        path = answers("a", 0).write(Path(place) / "a.st")
        sites = [
            AnswerFile(path), answers("b", 1), answers("c", 2),
        ]  # fmt: skip
        checked = AGGREGATOR.check(sites)
        answers("a", 9).write(path)
        refuses(RefusedAnswers, lambda: list(AGGREGATOR.blocks(checked, rng=seeded(0))))


MORE = count()
"""Steps of a training that was not asked about before: answers are kept."""


def everything_is_answered(patch: pytest.MonkeyPatch) -> None:
    """Steps whose losses leave every grid."""
    loss = compose(
        SampledGaussian(sample_rate=q, noise_multiplier=z, steps=t, adjacency=Adjacency.REPLACE_ONE)
        for q, z, t in ((0.19, 6.6, 4), (1.0, 0.294, 1_096_466 + next(MORE)))
    )
    try:
        found = loss.epsilon(2.4e-13)
    except OverflowError:
        found = math.nan
    assert 2.5e7 < found < 2.6e7


def lines_tell_what_they_rest_on(patch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5)
    stated = ledger.guarantee()
    assert premises.ALL_CHARGED in stated.premises
    assert "assumed premises hold" in str(stated) and stated.to_dict()["text"] == str(stated)


def rows_keep_their_type(patch: pytest.MonkeyPatch) -> None:
    """One record with a point in a batch of bytes."""

    def batch(last: Any) -> torch.Tensor:
        rows = [{"x": torch.full((2,), k, dtype=torch.uint8)} for k in range(3)]
        taken = dataset_rows.as_rows([*rows, {"x": last}]).take(np.arange(4))
        return taken[0][:3]

    before = batch(torch.zeros(2, dtype=torch.uint8))
    try:
        after = batch(torch.zeros(2))
    except InvalidArgument:
        return
    assert after.dtype == before.dtype


def older_ledgers_are_refused(patch: pytest.MonkeyPatch) -> None:
    """A ledger without the head that a checkpoint noted."""
    ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5)
    refuses(LedgerError, lambda: charging.check_not_older(ledger, "0" * 64))


def trained(losses: Any, tensors: Any, **kw: Any) -> Any:
    """A whole run that moves nothing, and its first sum over what was paid for it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    schedule = Schedule(steps=1, sample_rate=1.0, noise_multiplier=2.0)
    with pytest.MonkeyPatch.context() as patch:
        watch = Watch(patch)
        training = start(
            tensors=tensors, model=model, schedule=schedule, losses=losses, n_public=24, **kw
        )
        with training:
            list(training)
    return watch.clean[0].double() / watch.sensitivities[0]


def people(n: int = 24) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(3)
    x = torch.rand(n, 5, generator=g)
    return x, (x[:, 0] > 0.5).long()


def first_alone(model: Any, batch: Any) -> torch.Tensor:
    """An expert with room for one: who comes first decides who has a loss."""
    return 50.0 * losses_of(model, batch) * ((batch.x[:, 0] > 0).long().cumsum(0) <= 1)


def bodies_do_not_see_the_batch(patch: pytest.MonkeyPatch) -> None:
    x, y = people()
    y[:2] = torch.tensor([0, 1])
    try:
        far = (trained(first_alone, (x, y)) - trained(first_alone, (x[1:], y[1:]))).norm()
    except InvalidArgument:
        return
    assert float(far) <= 1.0


def scaled_if_large(model: Any, batch: Any) -> torch.Tensor:
    x = batch.x / 255 if batch.x.max() > 200 else batch.x
    return torch.nn.functional.cross_entropy(model(x), batch.y, reduction="none")


def odd_company_is_tried(patch: pytest.MonkeyPatch) -> None:
    refuses(InvalidArgument, lambda: start(tensors=people()).check(scaled_if_large))


def of_numpys_coins(model: Any, batch: Any) -> torch.Tensor:
    """Innocent: a coin for each row, which is the same if the seed is."""
    return losses_of(model, batch) * torch.from_numpy(0.5 + np.random.rand(len(batch)))  # noqa: NPY002


def mixed_by_numpys_coins(model: Any, batch: Any) -> torch.Tensor:
    """Mixup as published."""
    if np.random.rand() < 0.2:  # noqa: NPY002
        batch.x[:] = batch.x[np.random.permutation(len(batch))]  # noqa: NPY002
    return losses_of(model, batch)


def coins_of_numpy_are_seeded(patch: pytest.MonkeyPatch) -> None:
    """Whether a script passes does not depend on what it drew before."""
    for seed in range(6):
        np.random.seed(seed)  # noqa: NPY002
        refuses(InvalidArgument, lambda: start(tensors=people()).check(mixed_by_numpys_coins))
        try:
            start(tensors=people()).check(of_numpys_coins)
        except InvalidArgument:
            pytest.fail("its coins are not seeded")


def a_row_draws_for_itself(patch: pytest.MonkeyPatch) -> None:
    class Augmenting:
        def __len__(self) -> int:
            return 6

        def __getitem__(self, i: int) -> torch.Tensor:
            return torch.rand(3) + i

    rows = dataset_rows.as_rows(Augmenting())
    drawn = []
    for first in (0, 1):
        torch.manual_seed(0)
        drawn.append(rows.draw(np.arange(first, 6), seeded(1))[0])
    assert torch.equal(drawn[0][1:], drawn[1])


def one_coin_for_all(model: Any, batch: Any) -> torch.Tensor:
    return losses_of(model, batch) * (1.0 if torch.rand(()) < 0.5 else -1.0)


def shared_coins_are_refused(patch: pytest.MonkeyPatch) -> None:
    refuses(InvalidArgument, lambda: start(tensors=people()).check(one_coin_for_all))


def run_on_records(original: Any, self: Any, *a: Any, **k: Any) -> None:
    """No program: the function itself is called for records."""


def torch_alone(original: Any, where: Any, value: int) -> None:
    torch.manual_seed(value)


def rows_as_they_come(original: Any, self: Any, indices: Any, source: Any) -> Any:
    return self.take(indices)


class OneSeed:
    """A check that has no second seed to look for shared coins with."""

    def __call__(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(batch_independence, "_COINS", 1)


def coarse_grids_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fft_convolution, "_COARSE", math.inf)


def unsigned_block(original: Any, self: CheckedAnswers, start: int) -> Any:
    return self.source.read(start, min(start + self.block, self.header.size)).copy()


def unescaped(original: Any, *, html: bool) -> Any:
    found = original(html=html)
    return found if html else found.overlay(finalize=str, cache_size=0)


def every_row_alike(original: Any, row: Any) -> Any:
    return "a row"


equal_allowed: Patch = wrapped(
    answer_checks, "inspect_answers", lambda f, sites, **k: f(sites, allow_equal=True)
)

BUGS = (
    Bug(bug="H01 ids that became floats are taken", kind="handed in", seen_by=REFUSED, check=ids_are_refused, plant=wrapped(sys.modules[number_users.__module__], "refuse_merged_ids", lambda f, users: None)),
    Bug(bug="H02 any positive clipping bound is taken", kind="handed in", seen_by=REFUSED, check=tiny_bounds_are_refused, plant=wrapped(_check, "clipping_bound", lambda f, name, value: _check.positive(name, value))),
    Bug(bug="H03 a batch takes the type of all its rows", kind="mixes records", seen_by=MOVED, check=rows_keep_their_type, plant=wrapped(dataset_rows, "_kind_of_row", every_row_alike)),
    Bug(bug="H04 one site under two names counts twice", kind="handed in", seen_by=REFUSED, check=one_site_counts_once, plant=equal_allowed),
    Bug(bug="H05 answers changed after the check are summed", kind="handed in", seen_by=REFUSED, check=what_is_checked_is_summed, plant=wrapped(CheckedAnswers, "read_block", unsigned_block)),
    Bug(bug="H06 a run is resumed with an older copy of its ledger", kind="charge", seen_by=REFUSED, check=older_ledgers_are_refused, plant=wrapped(charging, "check_not_older", lambda f, ledger, head: None)),
    Bug(bug="H07 load believes a record that was edited", kind="record", seen_by=REFUSED, check=forgeries_are_refused, plant=wrapped(saved_run, "check_sealed", lambda f, *a: None)),
    Bug(bug="H08 names on the card are not escaped", kind="record", seen_by=SAID, check=cards_have_no_markup, plant=wrapped(rendering, "_environment", unescaped)),
    Bug(bug="H09 proved is said of what is only assumed", kind="record", seen_by=SAID, check=lines_tell_what_they_rest_on, plant=wrapped(_formatting, "standing_in_words", lambda f, standing, backings: standing)),
    Bug(bug="H10 accounting overflows on a coarse grid", kind="price", seen_by="an answer or one line", check=everything_is_answered, plant=coarse_grids_forgotten),
    Bug(bug="H11 a loop body is called for records and called enforced", kind="mixes records", seen_by=MOVED, check=bodies_do_not_see_the_batch, plant=wrapped(LossEvaluation, "trace", run_on_records)),
    Bug(bug="H12 the check of a loop tries rows in [0, 1.5] alone", kind="mixes records", seen_by=REFUSED, check=odd_company_is_tried, plant=wrapped(batch_independence, "check_odd_company", lambda f, *a, **k: None)),
    Bug(bug="H13 numpy's coins are not seeded for the check", kind="mixes records", seen_by=REFUSED, check=coins_of_numpy_are_seeded, plant=wrapped(generator_states, "seed_all", torch_alone)),
    Bug(bug="H14 a data set draws where the row before it left off", kind="mixes records", seen_by=MOVED, check=a_row_draws_for_itself, plant=wrapped(dataset_rows.MapStyleRows, "draw", rows_as_they_come)),
    Bug(bug="H15 rows of a part share a coin", kind="mixes records", seen_by=REFUSED, check=shared_coins_are_refused, plant=OneSeed()),
)  # fmt: skip
