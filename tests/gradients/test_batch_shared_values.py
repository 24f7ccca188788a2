"""Values that all rows share: looked up once for the batch, and still one gradient a record."""

import pytest
import torch
from oracle import example_gradients, oracle, worst_relative_error
from torch import nn
from torch.utils.checkpoint import checkpoint

from privet.errors import InvalidArgument
from privet.gradients import FlatClipping, PerExampleGradients

WORDS, WIDTH, LENGTH = 11, 6, 5


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, ids):
        return self.body(self.place(self.words(ids))).mean(1)


class Positions(Base):
    """A table looked up once: (1, length), as in GPT-2 and BERT."""

    def __init__(self, lead=True):
        super().__init__()
        self.lead, self.positions = lead, nn.Embedding(9, WIDTH)

    def place(self, x):
        index = torch.arange(x.shape[1])
        return x + self.positions(index[None] if self.lead else index)


class Moved(Positions):
    """Something is done to the table before it meets rows."""

    def place(self, x):
        index = torch.arange(x.shape[1])
        return x * (1.0 + self.positions(index).flip(0).tanh()) + self.positions(index)[None] * 0.5


class Relative(Base):
    """A bias of pairs of positions, permuted before it meets rows: T5."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Embedding(7, 2)

    def place(self, x):
        at = torch.arange(x.shape[1])
        bias = self.bias((at[:, None] - at[None]).clamp(-3, 3) + 3).permute(2, 0, 1).unsqueeze(0)
        q = x.unflatten(2, (2, -1)).transpose(1, 2)
        scores = q @ q.transpose(2, 3)
        scores += bias
        return (scores.softmax(-1) @ q).transpose(1, 2).flatten(2)


class Through(Base):
    """A shared value that passes recorded layers before it meets rows."""

    def __init__(self):
        super().__init__()
        self.positions, self.mix = nn.Embedding(9, 4), nn.Linear(4, WIDTH)

    def place(self, x):
        return x + self.mix(self.positions(torch.arange(x.shape[1]))).sigmoid()


class Attended(Base):
    """Scaled-dot-product attention with learned queries that are expanded over the rows."""

    def __init__(self):
        super().__init__()
        self.queries = nn.Embedding(2, WIDTH)

    def place(self, x):
        q = self.queries(torch.arange(2))[None].expand(len(x), -1, -1)
        attend = nn.functional.scaled_dot_product_attention
        return torch.cat([attend(q, x, x), x], 1)


class Tied(Positions):
    """The words come back as the head, and the table of positions is the same as well."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight
        self.positions = self.words
        del self.body

    def forward(self, ids):
        return self.head(self.place(self.words(ids))).mean(1)


class Checkpointed(Positions):
    def forward(self, ids):
        x = self.place(self.words(ids))
        return checkpoint(self.body, x, use_reentrant=False).mean(1)


MODELS = {
    "one row": Positions,
    "no rows": lambda: Positions(lead=False),
    "moved": Moved,
    "relative": Relative,
    "through": Through,
    "expanded": Attended,
    "tied": Tied,
    "checkpointed": Checkpointed,
}


def losses(model, ids):
    return model(ids).square().sum(1)


@pytest.mark.slow
@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_equal_to_the_loop_over_examples(name, views):
    torch.manual_seed(0)
    model = MODELS[name]().double()
    engine, clipping = PerExampleGradients(model), FlatClipping(bound=0.3)
    for examples in (4, LENGTH, 1, 2):  # as many rows as positions, too
        ids = torch.randint(WORDS, (examples * views, LENGTH))
        with engine.recording():
            found = losses(model, ids)
        total = engine.clipped_sum(found, clipping=clipping, views=views)
        expected = oracle(engine, clipping, example_gradients(model, losses, ids, views=views))
        assert worst_relative_error(total.gradients, expected) < 1e-12
        assert all(bool(g.abs().sum() > 0) for g in total.gradients.values())


def test_no_rows_at_all():
    model = Positions()
    engine = PerExampleGradients(model)
    with engine.recording(0):
        found = losses(model, torch.zeros(0, LENGTH, dtype=torch.long))
    assert float(engine.clipped_sum(found).flat.norm()) == 0.0


def test_a_forward_of_ones_own_comes_back():
    model = Positions()
    model.words.forward = own = lambda ids: nn.functional.embedding(ids, model.words.weight)
    with PerExampleGradients(model).recording():
        pass
    assert model.words.forward is own


class Masked(Base):
    """A layer of one's own that gets a constant beside the rows: positions that look back."""

    def __init__(self):
        super().__init__()
        self.own = Scaling()

    def place(self, x):
        return self.own(x, mask=torch.ones(LENGTH, LENGTH, dtype=x.dtype).tril())


class Scaling(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))

    def forward(self, x, mask):
        return mask @ (x * self.scale)


class Summed(Positions):
    """A learned table and a fixed one, added before they meet rows."""

    def place(self, x):
        index = torch.arange(LENGTH)
        fixed = torch.linspace(-1.0, 1.0, LENGTH * WIDTH, dtype=x.dtype).view(LENGTH, WIDTH)
        return x + (self.positions(index) + fixed)


@pytest.mark.parametrize("kind", [Masked, Summed])
def test_a_constant_of_as_many_lines_as_rows_stays_one(kind):
    """Attack: a batch of just so many rows, by which a mask was dealt out to them line by line."""
    torch.manual_seed(0)
    model = kind().double()
    engine, clipping = PerExampleGradients(model), FlatClipping(bound=0.3)
    for rows in (4, LENGTH):
        ids = torch.randint(WORDS, (rows, LENGTH))
        with engine.recording(rows):
            found = losses(model, ids)
        total = engine.clipped_sum(found, clipping=clipping)
        expected = oracle(engine, clipping, example_gradients(model, losses, ids))
        assert worst_relative_error(total.gradients, expected) < 1e-12


def test_a_new_length_is_checked_anew():
    """As many rows as positions, and never seen before: refused rather than taken for rows."""
    model = Masked()
    model.place = lambda x: model.own(x, mask=torch.ones(x.shape[1], x.shape[1]).tril())
    engine = PerExampleGradients(model)
    with engine.recording(4):
        losses(model, torch.randint(WORDS, (4, LENGTH)))
    with pytest.raises(InvalidArgument, match="row by row"), engine.recording(7):
        losses(model, torch.randint(WORDS, (7, 7)))


class Pooled(Positions):
    """Attack: what the whole batch says, hidden in a table that all rows share."""

    def place(self, x):
        return x + self.positions(self.ids.flatten()).mean(0, keepdim=True)

    def forward(self, ids):
        self.ids = ids
        return super().forward(ids)


class Chosen(Pooled):
    """Attack: which position is looked up depends on everybody."""

    def place(self, x):
        return x + self.positions((self.ids.sum() % 9).view(1, 1))


@pytest.mark.parametrize("attack", [Pooled, Chosen])
def test_rows_cannot_hide_in_a_shared_input(attack):
    torch.manual_seed(0)
    model = attack()
    engine = PerExampleGradients(model)
    with engine.recording():
        losses(model, torch.randint(9, (4, LENGTH)))
    with pytest.raises(InvalidArgument, match="not the same in every pass"), engine.recording():
        losses(model, torch.randint(9, (3, LENGTH)))


class Escaping(Positions):
    def place(self, x):
        return torch.linalg.vecdot(x, self.positions(torch.arange(x.shape[1]))[None])[:, :, None]


class Scaled(Base):
    """A layer that is shared, with a loss that never meets rows."""

    def forward(self, ids):
        return self.body(self.words(torch.zeros(1, LENGTH, dtype=torch.long))).mean(1)


def test_what_cannot_be_told_apart_is_refused():
    ids = torch.randint(WORDS, (4, LENGTH))
    model = Escaping()
    engine = PerExampleGradients(model)
    with pytest.raises(InvalidArgument, match="broadcasts over the rows"), engine.recording():
        losses(model, ids)
    model = Scaled()
    engine = PerExampleGradients(model)
    with engine.recording(4):
        found = losses(model, ids)
    with pytest.raises(InvalidArgument, match="all rows share"):
        engine.clipped_sum(found)
    with engine.recording(4):
        found = losses(model, ids)
    with pytest.raises(InvalidArgument, match=r"used outside|no gradient"):
        engine.clipped_sum(found.as_subclass(torch.Tensor).expand(4))
