"""People instead of rows: one gradient a user, whatever they have."""

import numpy as np
import pytest
import torch
from torch import nn

import privet
from privet.dpsgd import PoissonSampler, Schedule
from privet.errors import InvalidArgument
from privet.guarantee import Adjacency, Backing, Unit
from privet.ledger import Ledger
from privet.methods.dpsgd import LinearDPSGD, NetworkDPSGD
from privet.methods.dpsgd.dataset_rows import as_rows
from privet.noise import seeded
from tests.methods.dpsgd.helpers import Watch, data, losses_of, network, start

FULL = Schedule(steps=2, sample_rate=1.0, noise_multiplier=1.5, clipping_bound=0.7)


def run(groups, *, tensors=None, **kw):
    kw.setdefault("schedule", FULL)
    with start(tensors=tensors, groups=groups, **kw) as training:
        for batch in training:
            training.step(losses_of(training.model, batch))
    return training


def test_guarantee_and_ledger_are_per_user():
    training = run(np.arange(60) % 7)
    told = training.guarantee
    assert told.unit is Unit.USER and told.adjacency is Adjacency.ZERO_OUT
    texts = {p.about: p for p in told.premises}
    assert texts["number of users"].text.startswith("the number of users, 7,")
    assert "number of records" not in texts and texts["people"].backing is Backing.ASSUMED
    assert "at most 8 records" in texts["bound"].text
    (entry,) = {e.scope.unit for e in training.entries}
    assert entry is Unit.USER
    with pytest.raises(InvalidArgument, match=r"one per user.*init FILE --unit user"):
        run(np.arange(60) % 7, ledger=Ledger.in_memory(cap_epsilon=9.0, cap_delta=1e-5,
                                                       adjacency=Adjacency.ZERO_OUT))  # fmt: skip
    sampler = PoissonSampler(n=7, rates=FULL.rates, rng=seeded(0))
    with pytest.raises(InvalidArgument, match="one of users"):
        run(np.arange(60) % 7, sampler=sampler)


def test_a_users_gradient_is_the_mean_over_their_rows(monkeypatch):
    """Against the loop over users; fewer rows than k, and as many."""
    x, y = data(12)
    owner = np.array([0, 1, 1, 2, 2, 2, 2, 1, 3, 3, 3, 3])
    watch = Watch(monkeypatch)
    model = network()
    first = [p.detach().clone() for p in model.parameters()]
    one = Schedule(steps=1, sample_rate=1.0, noise_multiplier=1.5, clipping_bound=0.05)
    run(owner, tensors=(x, y), model=model, max_rows_per_user=4, schedule=one)
    plain = network()
    assert all(torch.equal(a, b) for a, b in zip(first, plain.parameters(), strict=True))
    expected = 0.0
    for user in range(4):
        mine = owner == user
        loss = nn.functional.cross_entropy(plain(x[mine]), y[mine])
        g = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, plain.parameters())])
        expected = expected + g.double() * min(1.0, 0.05 / float(g.norm()))
    assert torch.allclose(
        torch.as_tensor(watch.clean[0]).double().view(-1), expected, rtol=1e-4, atol=1e-7
    )


@pytest.mark.parametrize("rows_each", [1, 3, 100])
def test_one_user_who_has_all_the_rows_moves_the_sum_by_one_bound(rows_each, monkeypatch):
    """Attack: 50 rows of one user, all pointing the same way; the others stay where they are."""
    x, y = data(60)
    owner = np.where(np.arange(60) < 50, 0, np.arange(60))
    sums = []
    for there in (1.0, 0.0):
        watch = Watch(monkeypatch)
        kept = torch.where(torch.as_tensor(owner == 0), there, 1.0)
        with start(
            tensors=(x, y, kept), groups=owner, max_rows_per_user=rows_each, schedule=FULL
        ) as t:
            for batch in t:
                t.step(losses_of(t.model, batch) * batch.tensors[2])
        sums.append(torch.as_tensor(watch.clean[0]).double().view(-1))
        monkeypatch.undo()
    moved = float((sums[0] - sums[1]).norm())
    assert 0.2 * 0.7 < moved <= 0.7


def test_rows_are_drawn_by_coins_of_the_user_alone():
    """Whoever else is drawn, a user's rows are the same; over the steps they are not."""
    from privet.methods.dpsgd.dataset_rows import as_rows
    from privet.methods.dpsgd.user_rows import UserRows

    owner = np.repeat(np.arange(5), 20)
    users = UserRows(as_rows(torch.arange(100.0)), owner, max_rows_per_user=4)
    alone, _ = users.draw(np.array([3]), seeded(0).child("rows", 0))
    together, weights = users.draw(np.array([0, 1, 3, 4]), seeded(0).child("rows", 0))
    assert torch.equal(together[8:12], alone) and len(set(alone.tolist())) == 4
    assert (together[::4] // 20).tolist() == [0.0, 1.0, 3.0, 4.0]
    later, _ = users.draw(np.array([3]), seeded(0).child("rows", 1))
    assert not torch.equal(later, alone) and weights.tolist() == [1.0] * 16


def test_who_belongs_to_whom_must_be_told_of_every_row():
    with pytest.raises(InvalidArgument, match="the user of each of 60 rows"):
        run(np.arange(7))
    with pytest.raises(InvalidArgument, match="max_rows_per_user"):
        run(np.arange(60), max_rows_per_user=0)


@pytest.mark.slow
@pytest.mark.parametrize("method", [LinearDPSGD(steps=20), NetworkDPSGD(steps=20, sample_rate=0.5)])
def test_estimators_protect_users(method):
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(400), 3)
    x = rng.normal(size=(1200, 4)) + rng.normal(size=(400, 4))[owner]
    y = x[:, 0] > 0
    fitted = privet.PrivateClassifier(
        method, epsilon=8.0, classes=[False, True], bounds=(-5, 5), random_state=0
    ).fit(x, y, groups=owner)
    assert fitted.guarantee_.unit is Unit.USER and fitted.guarantee_.epsilon <= 8.0
    assert fitted.score(x, y) > 0.8


def moved_without(name, lists, x, y, schedule, monkeypatch):
    """How far the sum moves when a person's records count for nothing; and the training."""
    hers = torch.tensor([name in people for people in lists])
    sums = []
    for there in (1.0, 0.0):
        watch = Watch(monkeypatch)
        kept = torch.where(hers, there, 1.0)
        with start(tensors=(x, y, kept), groups=lists, max_rows_per_user=4, schedule=schedule) as t:
            for batch in t:
                t.step(losses_of(t.model, batch) * batch.tensors[2])
        sums.append(torch.as_tensor(watch.clean[0]).double().view(-1))
        monkeypatch.undo()
    return float((sums[0] - sums[1]).norm()), t


def test_a_person_who_shares_every_record_moves_one_group(monkeypatch):
    """Attack: one owner of 40 of 60 records, each shared with somebody else who has more."""
    x, y = data(60)
    lists = [["eve", f"friend {i}"] if i < 40 else [f"friend {i % 40}"] for i in range(60)]
    moved, t = moved_without("eve", lists, x, y, FULL, monkeypatch)
    assert 0.0 < moved <= 0.7
    assert t.sampler.n == 20  # record 0 is hers and friend 0's; friends 1 to 19 have their own
    texts = {p.about: p for p in t.guarantee.premises}
    assert texts["people"].text.startswith("who owns which record is public")
    assert t.guarantee.unit is Unit.USER


def test_a_person_who_shares_a_group_takes_all_of_it_away(monkeypatch):
    """Attack: ann's records outweigh bob's, who is in her group; without her it turned round."""
    x = torch.ones(4, 5)
    y = torch.tensor([0, 0, 0, 1])
    lists = [["ann", "bob"], ["ann", "bob"], ["bob", "ann"], ["bob"]]
    small = Schedule(steps=1, sample_rate=1.0, noise_multiplier=1.5, clipping_bound=0.01)
    moved, _ = moved_without("ann", lists, x, y, small, monkeypatch)
    assert 0.0 < moved <= 0.01


def test_owners_are_lists_throughout_and_their_number_is_public():
    from privet.sensitivity import assign_owners

    with pytest.raises(InvalidArgument, match="a list of owners for each"):
        assign_owners([["bob"], "bob"])  # the letters b and o would be two people more
    lists = [["ann", "bob"]] * 30 + [["bob"]] * 30  # without ann, bob's own records would count
    with pytest.raises(InvalidArgument, match="who owns what is public"):
        run(lists, n_public=60)
    sampler = PoissonSampler(n=1, rates=FULL.rates, rng=seeded(0), n_public=1, unit=Unit.USER)
    with pytest.raises(InvalidArgument, match="who owns what is public"):
        run(lists, sampler=sampler)


def test_nobody_is_in_two_groups():
    from privet.sensitivity import assign_owners

    draw = np.random.default_rng(0)
    lists = [draw.choice(30, size=draw.integers(1, 4), replace=False).tolist() for _ in range(80)]
    lists += lists  # the same owners again
    groups = assign_owners(lists)
    seen: dict[int, int] = {}
    whole: dict[int, set[int]] = {}
    for people, group in zip(lists, groups.tolist(), strict=True):
        for person in people if group >= 0 else ():
            assert seen.setdefault(person, group) == group
            assert whole.setdefault(group, set(people)) == set(people)
    assert (groups >= 0).sum() > groups.max() + 1 and (groups < 0).any()
    assert sorted(set(groups[groups >= 0].tolist())) == list(range(groups.max() + 1))
    with pytest.raises(InvalidArgument, match="an owner for each"):
        assign_owners([[1], []])
    with pytest.raises(InvalidArgument, match="each of 60 rows"):
        run([[1], [2]])


@pytest.mark.parametrize("as_lists", [True, False])
def test_rows_of_unequal_length_are_refused_in_one_line(as_lists):
    """What pads to the longest of a batch would make a row a function of the others."""
    lengths = (3, 3, 5)
    rows = [{"ids": [1] * n if as_lists else torch.ones(n), "labels": 0} for n in lengths]
    with pytest.raises(InvalidArgument, match="one public length") as error:
        as_rows(rows).take(np.arange(3))
    assert "\n" not in str(error.value)


def test_rows_of_another_shape_than_the_first_are_refused():
    """Parts whose rows are all longer than the first record can be collated, and were run."""

    class Growing:
        def __len__(self):
            return 8

        def __getitem__(self, i):
            return torch.ones(3 if i == 0 else 5)

    model = torch.nn.Linear(3, 1)

    def losses(model, batch):
        return model(batch.tensors[0][:, :3]).square().sum(1)

    schedule = Schedule(steps=40, sample_rate=0.3, noise_multiplier=1.0)
    with (
        pytest.raises(InvalidArgument, match=r"one (public length|shape)"),
        start(tensors=Growing(), model=model, losses=losses, schedule=schedule) as training,
    ):
        for _ in training:
            pass


def test_a_batch_is_taken_apart_as_people_do():
    """`x, y, w = batch`; with names it is a mapping."""
    x, y, w = torch.randn(6, 2), torch.arange(6), torch.rand(6)
    one = as_rows((x, y, w))
    batch = one.batch(one.take(np.arange(4)), step=0, last=True)
    a, b, c = batch
    assert a is batch.x and b is batch.y and c is batch[2] and len(batch) == 4
    named = as_rows({"input_ids": y, "labels": w})
    batch = named.batch(named.take(np.arange(4)), step=0, last=True)
    assert (
        list(batch) == ["input_ids", "labels"] and dict(batch.items())["labels"] is batch["labels"]
    )
    with pytest.raises(InvalidArgument, match="'labels'"):
        batch["label"]


def test_rows_as_people_have_them_are_one_and_the_same():
    """A list of tuples, a `DataLoader` (with a word), one with a `collate_fn`; frames: how to."""
    pandas = pytest.importorskip("pandas")
    x, y = torch.randn(6, 2), torch.arange(6)
    rows = [(list(map(float, a)), int(b)) for a, b in zip(x, y, strict=True)]
    together = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(together, batch_size=2, shuffle=True)

    def collate(some):
        return {"x": torch.stack([a for a, _ in some]), "n": torch.tensor([len(some)] * len(some))}

    with pytest.warns(UserWarning, match=r"only the data set .* batch_size, shuffle"):
        taken = as_rows(loader)
    for found in (as_rows(rows), taken):
        a, b = found.take(np.array([1, 4]))
        assert torch.equal(a, x[[1, 4]]) and b.tolist() == [1, 4]
    with pytest.warns(UserWarning, match="only the data set"):
        alone = as_rows(torch.utils.data.DataLoader(together, batch_size=2, collate_fn=collate))
    a, n = alone.take(np.array([1, 4]))
    assert torch.equal(a, x[[1, 4]]) and n.tolist() == [1, 1]  # one record at a time
    with pytest.raises(InvalidArgument, match=r"frame\[columns\].to_numpy"):
        as_rows(pandas.DataFrame({"a": [1.0]}))


@pytest.mark.parametrize("named", [True, False])
def test_text_beside_a_picture_is_refused_in_one_line(named):
    rows = [(torch.ones(2), 1, "case1.png"), (torch.ones(2), 0, "case2.png")]
    if named:
        rows = [dict(zip(("x", "y", "file"), row, strict=True)) for row in rows]
    with pytest.raises(InvalidArgument, match=r"column ('file'|number 2)") as error:
        as_rows(rows).take(np.arange(2))
    assert "\n" not in str(error.value)
