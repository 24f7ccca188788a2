"""What a ledger does in one process: caps, totals, tokens, copies."""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privet.accounting import ApproximateDP, Gaussian, PrivacyLoss, Pure, SampledGaussian, compose
from privet.errors import (
    BudgetExceeded,
    InvalidArgument,
    LedgerError,
    TokenReused,
)
from privet.guarantee import Standing
from privet.ledger import Entry, Ledger, fingerprint


@pytest.fixture(params=["memory", "file"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    if request.param == "memory":
        return Ledger.in_memory(cap_epsilon=2.0, cap_delta=1e-5)
    return Ledger.create(tmp_path / "l.db", cap_epsilon=2.0, cap_delta=1e-5)


def test_a_new_ledger_has_spent_nothing(ledger: Ledger) -> None:
    assert ledger.spent() == 0.0
    assert ledger.remaining == 2.0
    assert len(ledger) == 0
    assert ledger.entries() == ()
    assert ledger.verify().count == 0


def test_the_total_is_composed_not_summed(ledger: Ledger) -> None:
    ledger.charge(Gaussian(mu=0.3), what="first")
    ledger.charge(Gaussian(mu=0.4), what="second")
    exact = Gaussian(mu=0.5).epsilon(1e-5)
    assert ledger.spent() == pytest.approx(exact, rel=1e-11)
    assert ledger.spent() < Gaussian(mu=0.3).epsilon(1e-5) + Gaussian(mu=0.4).epsilon(1e-5)
    assert ledger.spent(1e-3) == pytest.approx(Gaussian(mu=0.5).epsilon(1e-3), rel=1e-11)
    assert ledger.remaining == pytest.approx(2.0 - exact, rel=1e-9)


def test_an_entry_records_everything(ledger: Ledger) -> None:
    entry = ledger.charge(Gaussian(mu=0.3), what="mean", who="ada", dataset="census", token="t")
    assert (entry.sequence, entry.what, entry.who, entry.dataset, entry.token) == (
        1,
        "mean",
        "ada",
        "census",
        "t",
    )
    assert entry.when.endswith("+00:00")
    assert entry.process > 0
    assert entry.loss == Gaussian(mu=0.3)
    assert entry.spent == ledger.spent()
    assert entry.hash == ledger.head
    assert ledger.entries() == (entry,)
    assert Entry.from_body(entry.body()) == entry
    following = ledger.charge(Gaussian(mu=0.1), what="next")
    assert following.previous == entry.hash
    assert "@" in following.who


def test_over_the_cap_nothing_is_written(ledger: Ledger) -> None:
    ledger.charge(Gaussian(mu=0.4), what="first")
    before = ledger.export()
    assert not ledger.affords(Gaussian(mu=0.4))
    with pytest.raises(BudgetExceeded, match="nothing was spent") as caught:
        ledger.charge(Gaussian(mu=0.4), what="second")
    assert caught.value.would_be > caught.value.cap_epsilon == 2.0
    assert caught.value.would_be == ledger.epsilon_after(Gaussian(mu=0.4))
    assert ledger.export() == before
    assert ledger.affords(Gaussian(mu=0.1))
    ledger.charge(Gaussian(mu=0.1), what="a smaller one still fits")


@pytest.mark.parametrize(("each", "cap", "fits"), [(0.1, 0.3, 3), (0.01, 1.0, 100), (0.7, 2.1, 3)])
def test_decimal_fractions_fill_a_decimal_cap(each: float, cap: float, fits: int) -> None:
    ledger = Ledger.in_memory(cap_epsilon=cap, cap_delta=0.0)
    for i in range(fits):
        ledger.charge(Pure(epsilon_each=each), what=f"query {i}")
    assert ledger.spent() == cap
    with pytest.raises(BudgetExceeded):
        ledger.charge(Pure(epsilon_each=each / 1000), what="one more")


def test_an_unbounded_loss_is_refused_unless_the_cap_is_infinite() -> None:
    capped = Ledger.in_memory(cap_epsilon=1.0, cap_delta=0.0)
    with pytest.raises(BudgetExceeded):
        capped.charge(Gaussian(mu=1e-9), what="no pure epsilon")
    free = Ledger.in_memory(cap_epsilon=math.inf, cap_delta=1e-6)
    free.charge(ApproximateDP(epsilon_each=1.0, delta_each=1e-5), what="delta over the cap's")
    assert free.spent() == math.inf
    assert free.remaining == 0.0
    assert free.guarantee().standing is Standing.NONE
    assert free.export()["spent"]["epsilon"] == "inf"
    assert free.verify().spent == math.inf


def test_a_token_is_charged_once(ledger: Ledger) -> None:
    first = ledger.charge(Gaussian(mu=0.4), what="steps 0-99", token="run:0-99")
    again = ledger.charge(Gaussian(mu=0.4), what="steps 0-99, resumed", token="run:0-99")
    assert again == first
    assert len(ledger) == 1
    with pytest.raises(TokenReused, match="run:0-99"):
        ledger.charge(Gaussian(mu=0.1), what="cheaper", token="run:0-99")
    with pytest.raises(TokenReused):
        ledger.charge(Gaussian(mu=0.4), what="other data", token="run:0-99", dataset="b")
    with pytest.raises(BudgetExceeded):
        ledger.charge(Gaussian(mu=0.4), what="steps 100-199", token="run:100-199")
    # a refused token was not used up, and a charged one needs no room
    ledger.charge(Gaussian(mu=0.2), what="steps 100-199, more noise", token="run:100-199")
    assert ledger.charge(Gaussian(mu=0.4), what="again", token="run:0-99") == first


def test_a_token_is_known_to_whoever_opens_the_file(tmp_path: Path) -> None:
    loss = SampledGaussian(sample_rate=0.01, noise_multiplier=2.0, steps=100)
    first = Ledger.create(tmp_path / "l.db", cap_epsilon=2.0, cap_delta=1e-5)
    entry = first.charge(loss, what="block", token="run:0")
    second = Ledger.open(tmp_path / "l.db")
    assert second.charge(loss, what="block", token="run:0") == entry
    assert len(first) == len(second) == 1


def test_two_open_ledgers_see_each_others_charges(tmp_path: Path) -> None:
    a = Ledger.create(tmp_path / "l.db", cap_epsilon=2.0, cap_delta=1e-5)
    b = Ledger.open(tmp_path / "l.db")
    a.charge(Gaussian(mu=0.3), what="a")
    b.charge(Gaussian(mu=0.3), what="b")
    a.charge(Gaussian(mu=0.2), what="c")
    assert a.spent() == b.spent() == pytest.approx(Gaussian(mu=math.sqrt(0.22)).epsilon(1e-5))
    with pytest.raises(BudgetExceeded):
        b.charge(Gaussian(mu=0.3), what="d")


def test_one_data_set_has_one_ledger() -> None:
    ledger = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5, dataset="census")
    assert ledger.charge(Gaussian(mu=0.1), what="x").dataset == "census"
    with pytest.raises(LedgerError, match="data set census, not of survey"):
        ledger.charge(Gaussian(mu=0.1), what="x", dataset="survey")


@pytest.mark.parametrize(
    "bad",
    [
        {"cap_epsilon": 0.0},
        {"cap_epsilon": -1.0},
        {"cap_epsilon": math.nan},
        {"cap_epsilon": "much"},
        {"cap_delta": 1.0},
        {"cap_delta": -1e-9},
        {"cap_delta": math.nan},
        {"adjacency": "add-remove"},
        {"unit": "record"},
        {"protects": "labels"},
        {"dataset": ""},
    ],
    ids=str,
)
def test_bad_terms_are_one_line_errors(bad: dict[str, object], tmp_path: Path) -> None:
    terms: dict[str, object] = {"cap_epsilon": 1.0, "cap_delta": 1e-5} | bad
    with pytest.raises(InvalidArgument, match=rf"^{next(iter(bad))} must be [^\n]*$"):
        Ledger.in_memory(**terms)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        Ledger.create(tmp_path / "l.db", **terms)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "bad",
    [{"loss": 0.5}, {"what": ""}, {"what": "  "}, {"who": ""}, {"token": ""}, {"dataset": ""}],
    ids=str,
)
def test_bad_charges_are_one_line_errors(bad: dict[str, object], ledger: Ledger) -> None:
    call: dict[str, object] = {"loss": Gaussian(mu=0.1), "what": "x"} | bad
    with pytest.raises(InvalidArgument, match=rf"^{next(iter(bad))} must be [^\n]*$"):
        ledger.charge(**call)  # type: ignore[arg-type]
    assert len(ledger) == 0


def test_a_bad_delta_is_refused(ledger: Ledger) -> None:
    with pytest.raises(InvalidArgument):
        ledger.spent(1.5)


def test_copies_are_the_same_budget(tmp_path: Path) -> None:
    memory = Ledger.in_memory(cap_epsilon=1.0, cap_delta=1e-5)
    assert copy.copy(memory) is memory
    assert copy.deepcopy({"ledger": memory})["ledger"] is memory
    with pytest.raises(LedgerError, match="second budget"):
        pickle.dumps(memory)
    on_disk = Ledger.create(tmp_path / "l.db", cap_epsilon=1.0, cap_delta=1e-5, timeout=7.0)
    twin = pickle.loads(pickle.dumps(on_disk))
    twin.charge(Gaussian(mu=0.1), what="by the twin")
    assert len(on_disk) == 1


@pytest.mark.slow
def test_threads_share_one_ledger(ledger: Ledger) -> None:
    done: list[int] = []

    def work() -> None:
        for _ in range(10):
            with contextlib.suppress(BudgetExceeded):
                done.append(ledger.charge(Pure(epsilon_each=0.1), what="x").sequence)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(done) == list(range(1, len(ledger) + 1))
    assert ledger.verify().spent <= 2.0


LOSSES = st.one_of(
    st.floats(0.0, 1.0).map(lambda m: Gaussian(mu=m)),
    st.sampled_from([0.1, 0.5]).map(lambda e: Pure(epsilon_each=e)),
    st.sampled_from([1e-9, 1e-7]).map(lambda d: ApproximateDP(epsilon_each=0.2, delta_each=d)),
)
SAMPLED = st.sampled_from([0.5, 2.0]).map(
    lambda z: SampledGaussian(sample_rate=0.01, noise_multiplier=z, steps=3)
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(LOSSES, max_size=5))
def test_the_total_is_the_composition_of_the_entries(charged: list[PrivacyLoss]) -> None:
    composes(charged)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(LOSSES | SAMPLED, max_size=5))
def test_the_total_is_the_composition_with_sampled_losses(charged: list[PrivacyLoss]) -> None:
    composes(charged)


def composes(charged: list[PrivacyLoss]) -> None:
    ledger = Ledger.in_memory(cap_epsilon=math.inf, cap_delta=1e-5)
    for i, loss in enumerate(charged):
        ledger.charge(loss, what=f"release {i}")
    entries = ledger.entries()
    assert [e.loss for e in entries] == charged
    whole = compose(charged).epsilon(1e-5)
    assert ledger.spent() == pytest.approx(whole, rel=1e-6, abs=1e-9)
    assert compose(e.loss for e in entries).epsilon(1e-5) == whole
    if entries:
        # what a charge was admitted by: never too small, and not far above
        assert entries[-1].spent >= whole * (1 - 1e-9)
        assert entries[-1].spent <= 1.1 * whole + 1e-3


@pytest.mark.slow
def test_ten_thousand_charges_are_not_quadratic() -> None:
    ledger = Ledger.in_memory(cap_epsilon=100.0, cap_delta=1e-5)

    def seconds(n: int) -> float:
        start = time.process_time()
        for i in range(n):
            ledger.charge(Gaussian(mu=0.01), what="x", token=f"{len(ledger)}-{i}")
        return time.process_time() - start

    early = min(seconds(250), seconds(250))
    seconds(9_000)
    late = min(seconds(250), seconds(250))
    assert len(ledger) == 10_000
    assert late < 4 * early
    assert ledger.spent() == pytest.approx(Gaussian(mu=1.0).epsilon(1e-5), rel=1e-9)


def test_fingerprints_depend_on_type_shape_and_content(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float64).reshape(2, 3)
    same = [x, x.copy(order="F"), x.astype(">f8"), np.arange(12.0)[::2].reshape(2, 3) / 2]
    assert len({fingerprint(a) for a in same}) == 1
    changed = x.copy()
    changed[1, 2] = np.nextafter(changed[1, 2], 10)
    different: list[Any] = [x, x.T, x.astype(np.float32), x.reshape(6), changed, x.tobytes()]
    assert len({fingerprint(a) for a in different}) == len(different)
    assert fingerprint(x, x) != fingerprint(x)
    assert fingerprint(b"ab", b"c") != fingerprint(b"a", b"bc")
    assert fingerprint(np.float64(1.0)) != fingerprint(np.array([1.0]))
    assert fingerprint(x, key=b"k") != fingerprint(x, key=b"l")
    (tmp_path / "a").write_bytes(b"one")
    whole = fingerprint(tmp_path)
    assert fingerprint(tmp_path / "a") == fingerprint(str(tmp_path / "a"))
    (tmp_path / "a").rename(tmp_path / "b")
    assert fingerprint(tmp_path) != whole
    assert fingerprint(x).startswith("sha256:")
    with pytest.raises(InvalidArgument):
        fingerprint()
    with pytest.raises(InvalidArgument):
        fingerprint(np.array([object()]))
    with pytest.raises(InvalidArgument):
        fingerprint(x, key=b"")
    with pytest.raises(FileNotFoundError):
        fingerprint(str(tmp_path / "nothing"))
