"""Save and resume: bit for bit, charged once, refused when it would be another run."""

import contextlib
import json

import pytest
import torch
from torch import nn

from privet.errors import InvalidArgument, LedgerError
from privet.ledger import Ledger
from privet.methods.dpsgd import AdaptiveBound, CheckpointError, Checkpoints, Schedule
from privet.noise import secure, seeded
from tests.methods.dpsgd.helpers import data, losses_of, network, run, start, weights

SCHEDULE = Schedule(steps=9, sample_rate=0.4, noise_multiplier=2.0)


class Stop(Exception):
    pass


def interrupted(folder, *, at, every=2, **kw):
    """Start, and fail in the middle of step `at`."""
    training = start(checkpoints=Checkpoints(folder=folder, every=every), **kw)
    with contextlib.suppress(Stop), training:
        for batch in training:
            if batch.step == at:
                raise Stop
            training.step(losses_of(training.model, batch))
    return training


def drops(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))


@pytest.mark.slow
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.Adagrad])
@pytest.mark.parametrize("network_of", [network, drops])
@pytest.mark.parametrize("at", [0, 1, 5])
def test_bit_for_bit(tmp_path, make, network_of, at):
    def settings():
        model = network_of()
        return {
            "model": model,
            "optimizer": make(model.parameters(), lr=0.1),
            "schedule": SCHEDULE,
            "ema": 0.8,
            "micro_batch": 7,
            "learning_rates": lambda t: 0.1 / (1 + t),
        }

    whole = run(**settings())
    interrupted(tmp_path, at=at, **settings())
    torch.manual_seed(99)  # whatever the new process does
    again = run(checkpoints=Checkpoints(folder=tmp_path, every=2), **settings())
    assert torch.equal(weights(whole.model), weights(again.model))
    assert torch.equal(weights(whole.averaged_model()), weights(again.averaged_model()))
    assert again.epsilon_spent == pytest.approx(whole.epsilon_spent, rel=1e-9)


@pytest.mark.slow
def test_channels_last_state(tmp_path):
    def settings():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 2))
        model = model.to(memory_format=torch.channels_last)
        g = torch.Generator().manual_seed(1)
        tensors = torch.randn(40, 3, 6, 6, generator=g), torch.randint(2, (40,), generator=g)
        return {"model": model, "tensors": tensors, "schedule": SCHEDULE}

    whole = run(**settings())
    interrupted(tmp_path, at=5, **settings())
    again = run(checkpoints=Checkpoints(folder=tmp_path, every=2), **settings())
    assert again.model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(weights(whole.model), weights(again.model))


@pytest.mark.slow
def test_adaptive_bound_resumes(tmp_path):
    schedule = Schedule(
        steps=9, sample_rate=0.4, noise_multiplier=2.0, clipping_bound=AdaptiveBound(initial=3.0)
    )
    whole = run(schedule=schedule)
    interrupted(tmp_path, at=5, schedule=schedule)
    again = run(schedule=schedule, checkpoints=Checkpoints(folder=tmp_path, every=2))
    assert again.bound == whole.bound
    assert torch.equal(weights(whole.model), weights(again.model))


@pytest.mark.slow
def test_a_finished_run_stays_finished(tmp_path):
    first = run(schedule=SCHEDULE, checkpoints=Checkpoints(folder=tmp_path, every=2))
    second = run(schedule=SCHEDULE, checkpoints=Checkpoints(folder=tmp_path, every=2))
    assert second.steps_done == 9 and second.epsilon_spent == first.epsilon_spent
    assert torch.equal(weights(first.model), weights(second.model))


@pytest.mark.slow
def test_seeded_steps_are_charged_once(tmp_path):
    ledger = Ledger.in_memory(cap_epsilon=100.0, cap_delta=1e-5)
    interrupted(tmp_path, at=5, schedule=SCHEDULE, ledger=ledger)
    run(schedule=SCHEDULE, ledger=ledger, checkpoints=Checkpoints(folder=tmp_path, every=2))
    assert ledger.total == run(schedule=SCHEDULE).loss


def test_secure_steps_made_again_are_charged_again(tmp_path):
    ledger = Ledger.in_memory(cap_epsilon=100.0, cap_delta=1e-5)
    interrupted(tmp_path, at=5, schedule=SCHEDULE, ledger=ledger, rng=secure(), block=3)
    with pytest.warns(
        UserWarning, match=r"goes on at step 5 of 9; .* charged again: epsilon"
    ) as told:
        again = run(
            schedule=SCHEDULE,
            ledger=ledger,
            rng=secure(),
            checkpoints=Checkpoints(folder=tmp_path, every=2),
            block=3,
        )
    assert f"epsilon {ledger.total.epsilon(1e-5):.4g} " in str(told[0].message)
    # steps 0-5 by the first attempt, 4-8 by the second
    tokens = [entry.token.split(":")[1] for entry in ledger.entries()]
    assert tokens == ["steps 0-2", "steps 3-5", "steps 4-6", "steps 7-8"]
    assert again.loss == ledger.total


@pytest.mark.slow
def test_resume_at_the_cap(tmp_path):
    """Stopped by the cap in mid-block; a resumed run charges nothing more and ends there too."""
    enough = SCHEDULE.loss().epsilon(1e-5) * 0.8
    ledger = Ledger.in_memory(cap_epsilon=enough, cap_delta=1e-5)
    first = run(schedule=SCHEDULE, ledger=ledger, checkpoints=Checkpoints(folder=tmp_path, every=2))
    assert first.stopped_early
    spent, entries = ledger.spent(), len(ledger)
    again = run(schedule=SCHEDULE, ledger=ledger, checkpoints=Checkpoints(folder=tmp_path, every=2))
    assert again.steps_done == first.steps_done
    assert (ledger.spent(), len(ledger)) == (spent, entries)
    assert torch.equal(weights(first.model), weights(again.model))


def test_without_a_ledger_one_is_kept_beside_the_checkpoint(tmp_path):
    interrupted(tmp_path, at=5, schedule=SCHEDULE)
    assert Ledger.open(tmp_path / "run.ledger").spent() > 0.0


@pytest.mark.slow
@pytest.mark.parametrize("rng", [seeded(2), secure()], ids=["seeded", "secure"])
def test_another_ledger_is_refused(tmp_path, rng):
    """What it reports would leave out the steps charged elsewhere."""
    interrupted(tmp_path, at=5, schedule=SCHEDULE, rng=rng)
    ledger = Ledger.in_memory(cap_epsilon=100.0, cap_delta=1e-5)
    rng = secure() if rng.secret else seeded(2)
    with pytest.raises(LedgerError, match="the ledger that the run began with"):
        start(
            schedule=SCHEDULE,
            rng=rng,
            ledger=ledger,
            checkpoints=Checkpoints(folder=tmp_path, every=2),
        )


def test_a_name_cannot_be_used_twice():
    """The second run would look paid for by the first."""
    ledger = Ledger.in_memory(cap_epsilon=100.0, cap_delta=1e-5)
    run(schedule=SCHEDULE, ledger=ledger, run="mine")
    with pytest.raises(InvalidArgument, match="not seen before"):
        start(schedule=SCHEDULE, ledger=ledger, run="mine", seed=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("seed", {"seed": 8}),
        ("schedule", {"schedule": Schedule(steps=9, sample_rate=0.4, noise_multiplier=2.1)}),
        ("data set", {"tensors": data(60, seed=4)}),
        ("kind of noise source", {"rng": secure()}),
        ("micro_batch or views", {"micro_batch": 3}),
        ("expected batch", {"n_public": 61}),
        ("ema", {"ema": 0.5}),
    ],
)
def test_another_run_is_refused(tmp_path, what, change):
    """Above all another seed: its steps would be new releases under charges already made."""
    interrupted(tmp_path, at=5, schedule=SCHEDULE)
    with pytest.raises(CheckpointError, match=f"another {what}"):
        start(checkpoints=Checkpoints(folder=tmp_path, every=2), **{"schedule": SCHEDULE, **change})


def test_another_model_is_refused(tmp_path):
    interrupted(tmp_path, at=5, schedule=SCHEDULE)
    with pytest.raises(CheckpointError, match="another model"):
        start(model=nn.Linear(5, 2), checkpoints=Checkpoints(folder=tmp_path), schedule=SCHEDULE)


def test_damaged_files_are_told(tmp_path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"not a checkpoint at all")
    with pytest.raises(CheckpointError, match="not one of ours"):
        start(checkpoints=Checkpoints(folder=tmp_path), schedule=SCHEDULE)


@pytest.mark.slow
def test_nothing_is_pickled_and_nothing_exact_is_stored(tmp_path):
    run(schedule=SCHEDULE, checkpoints=Checkpoints(folder=tmp_path, every=2))
    raw = (tmp_path / "checkpoint.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    facts = json.loads(header["__metadata__"]["privet"])
    assert not {"diagnostics", "non_finite", "norms"} & set(facts)
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith("run.ledger")) == [
        "checkpoint.safetensors"
    ]


@pytest.mark.slow
def test_tied_weights(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(torch.tanh(self.first(x)))

    whole = run(model=Tied(), schedule=SCHEDULE)
    interrupted(tmp_path, at=5, model=Tied(), schedule=SCHEDULE)
    again = run(model=Tied(), schedule=SCHEDULE, checkpoints=Checkpoints(folder=tmp_path, every=2))
    assert torch.equal(weights(whole.model), weights(again.model))


def test_seeded_source_of_another_object_is_the_same_run(tmp_path):
    interrupted(tmp_path, at=5, schedule=SCHEDULE, rng=seeded(2))
    again = run(schedule=SCHEDULE, rng=seeded(2), checkpoints=Checkpoints(folder=tmp_path, every=2))
    assert again.steps_done == 9


def scheduled():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.4)
    decay = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    return {"model": model, "optimizer": optimizer, "scheduler": decay, "schedule": SCHEDULE}


@pytest.mark.slow
def test_a_learning_rate_scheduler_is_part_of_the_checkpoint(tmp_path):
    whole = run(**scheduled())
    assert whole.optimizer.param_groups[0]["lr"] == pytest.approx(0.4 * 0.5**4)
    interrupted(tmp_path, at=5, every=2, **scheduled())
    again = run(checkpoints=Checkpoints(folder=tmp_path, every=2), **scheduled())
    assert torch.equal(weights(whole.model), weights(again.model))
    assert again.optimizer.param_groups[0]["lr"] == whole.optimizer.param_groups[0]["lr"]
    with pytest.raises(InvalidArgument, match="scheduler"):
        start(learning_rates=0.1, **scheduled())


def stopped_by_hand(training, at=None):
    with contextlib.suppress(KeyboardInterrupt), training:
        for batch in training:
            if batch.step == at:
                raise KeyboardInterrupt
            training.step(losses_of(training.model, batch))


def test_an_interrupt_by_hand_saves_the_last_whole_step(tmp_path):
    """Ctrl-C in the middle of step 5 keeps steps 0 to 4, though every 100th would be saved."""
    whole = run(**scheduled())
    where = Checkpoints(folder=tmp_path, every=100)
    stopped_by_hand(start(checkpoints=where, **scheduled()), at=5)
    again = start(checkpoints=where, **scheduled())
    assert again.steps_done == 5
    stopped_by_hand(again)
    assert torch.equal(weights(whole.model), weights(again.model))


def test_an_interrupt_inside_a_release_saves_nothing_half_done(tmp_path, monkeypatch):
    where = Checkpoints(folder=tmp_path, every=2)
    training = start(checkpoints=where, schedule=SCHEDULE)
    step = training.optimizer.step

    def breaks(*a, **k):
        if training.steps_done == 5:
            raise KeyboardInterrupt
        return step(*a, **k)

    monkeypatch.setattr(training.optimizer, "step", breaks)
    stopped_by_hand(training)
    assert start(checkpoints=where, schedule=SCHEDULE).steps_done == 4


def test_a_folder_may_be_a_word_and_nothing_else(tmp_path):
    """Without a ledger a word was a bare TypeError, after the model had been looked at."""
    training = start(schedule=SCHEDULE, checkpoints=Checkpoints(folder=str(tmp_path / "run")))
    assert (tmp_path / "run" / "run.ledger").exists() and training.steps_done == 0
    with pytest.raises(InvalidArgument, match="folder must be a path, got 3"):
        Checkpoints(folder=3)
