"""Every premise that a guarantee of ours can rest on, in one place.

A premise is a value: what it is *about*, what it says, and how it is known to hold. Two premises
about the same thing never stand in one guarantee (`Guarantee` refuses them). Whoever knows a fact
states it: a noise source about its key, records about their number, a method about its steps.
"""

from __future__ import annotations

from dataclasses import replace

from privet.guarantee import Backing, Premise


def _enforced(about: str, text: str) -> Premise:
    return Premise(about=about, text=text, backing=Backing.ENFORCED)


def _tested(about: str, text: str) -> Premise:
    return Premise(about=about, text=text, backing=Backing.TESTED)


def _assumed(about: str, text: str) -> Premise:
    return Premise(about=about, text=text, backing=Backing.ASSUMED)


def _not_met(about: str, text: str) -> Premise:
    return Premise(about=about, text=text, backing=Backing.NOT_MET)


# The noise: who knows it, and what its law is

SECRET_KEY = _assumed(
    "noise key", "the noise source is privet.noise.secure(), whose key nobody knows"
)
DRAWN_KEY = _enforced(
    "noise key", "the key of the noise came from the operating system and stays in this process"
)
SECRET_SEED = _not_met(
    "noise key",
    "nobody knows or guesses the seed of the noise: this is an experiment, not a release",
)
SECRET_NOISE = _assumed("noise key", "nobody knows the noise of any release that was charged")
EXACT_LAW = _enforced("noise law", "the noise is sampled exactly")
LAPLACE_LAW = _tested("noise law", "float64 inverse-transform draws are Laplace")

# The records: how many, what they may hold, how they become rows, who they belong to


def declared_size(n: int) -> Premise:
    """The number of records was declared, and is a nominal one."""
    return _assumed("number of records", f"the nominal number of records, {n}, was declared public")


def counted_size(n: int) -> Premise:
    """The number of records was counted: neighbours have the same number (zero-out)."""
    return _enforced("number of records", f"the number of records, {n}, is public in this relation")


def declared_users(n: int) -> Premise:
    """The number of users was declared, and is a nominal one."""
    return _assumed("number of users", f"the nominal number of users, {n}, was declared public")


def counted_users(n: int) -> Premise:
    """The number of users was counted: neighbours have the same users, one of them with nothing."""
    return _enforced("number of users", f"the number of users, {n}, is public in this relation")


DECLARED_CLASSES = _assumed("classes", "the list of classes was declared without these records")
READ_CLASSES = _assumed("classes", "the list of classes, taken from y, is public")
SETTINGS = _assumed(
    "settings",
    "the initial model, all settings, and what functions handed in hold besides (tables, means, "
    "weights of classes) were chosen without these records",
)
EXACT_ROWS = _enforced(
    "rows",
    "each row is computed from its own record, without rounding or in one order of additions: "
    "the same bits whatever the other records are",
)
ROWS_ALONE = _tested(
    "rows", "each record goes through the module by itself, whose last bits depend on it alone"
)
ROWS_IN_BATCHES = _assumed(
    "rows", "the last bits of a record's row do not depend on the records that share its batch"
)
ONE_RECORD_EACH = _assumed("people", "each person has one record")
OWN_MAP = _assumed(
    "preparation",
    "each record was made from its own person's data by a public map, which learned nothing from "
    "these records",
)


def fitted_before(steps: str) -> Premise:
    """Something in front of the method was fitted on the records themselves."""
    return _not_met(
        "preparation",
        f"each record was made by a public map: {steps} was fitted on these records, without noise",
    )


def fitted_around(by: str) -> Premise:
    """Something that is fitted on the records trains the method, and chooses by what it sees."""
    return _not_met(
        "settings",
        f"all settings were chosen without these records: {by} fits, compares or adjusts models "
        "by them, without noise",
    )


def released_before(step: str, promised: str) -> Premise:
    """Something in front of the method was learned from the records under a promise of its own."""
    return _assumed(
        "preparation",
        f"each record was made by a public map: {step} is a release of its own, {promised}, whose "
        "cost is not in this",
    )


def large_delta(delta: float, n: int) -> Premise:
    """A delta that allows whole records to be published."""
    return _not_met(
        "delta",
        f"delta is below 1/n: {delta:g} of {n} records would allow one of them to be published",
    )


def one_group_each(column: str) -> Premise:
    """Records of one person are known to belong together, as far as the column tells people."""
    return _assumed(
        "people",
        f"all records of one person share one value of {column}, which no other person has",
    )


SEVERAL_OWNERS = _assumed(
    "people",
    "who owns which record is public; a record counts in the one group of exactly its owners or "
    "not at all, so that a person is in one group only, all of which is theirs; no two people "
    "share a name",
)


def split(text: str) -> Premise:
    """How training records were separated from test records."""
    return _assumed("split", text)


PUBLIC_LABELS = _assumed("labels", "labels are public")


def public_inputs(which: str) -> Premise:
    """Inputs that are asked about."""
    return _assumed("questions", f"{which} are public")


# What one record can do


def bound(text: str, *, what: str = "") -> Premise:
    """What limits the contribution of one unit, and the code that makes it so."""
    return _enforced(f"bound of {what}" if what else "bound", text)


def stated_bound(text: str) -> Premise:
    """A sensitivity that the caller states."""
    return _assumed("bound", text)


CLIPPED_GRADIENTS = bound("every example's gradient is clipped to C_t")


def clipped_users(rows: int) -> Premise:
    """What bounds a user who may have any number of records."""
    return bound(f"every user's gradient, a mean over at most {rows} records, is clipped to C_t")


USER_CLIPPING = _assumed(
    "clipping rule",
    "the user's clipping rule weighs an example by its own norms alone, and keeps nothing of it "
    "(each is asked about by itself, and counts as nothing beyond the stated bound)",
)
USER_LAYER_RULES = _assumed(
    "layer rules", "the user's layer rules give the gradient of a row from that row alone"
)
USER_AUGMENTATION = _assumed(
    "augmentation",
    "the user's augmentation changes a row by that row and its own coins alone, and keeps nothing "
    "of it (each row is handed over by itself)",
)
USER_SAMPLER = _assumed(
    "sampler", "the user's sampler draws by the law that it states the price of"
)


def on_a_users_word(premise: Premise) -> Premise:
    """A premise of a part that a user hands in: what it calls enforced or tested is assumed."""
    unmet = premise.backing is Backing.NOT_MET
    return premise if unmet else replace(premise, backing=Backing.ASSUMED)


ISOLATED_ROWS = _enforced(
    "mixing",
    "an example's loss depends on that example only: the loss function was given made-up rows "
    "alone, and the operations of torch that it asked for are run on each record by itself",
)
NO_MIXING = _tested(
    "mixing",
    "an example's loss depends on that example only (tried on made-up rows: the same ones beside "
    "rows that are missing, infinite, negative, large, of other classes, lengths and masks, in "
    "batches of several sizes, at several steps, with weights of two sizes and all coins seeded)",
)
LOOP_AS_CHECKED = _assumed(
    "loop",
    "the loop takes its losses from the function that was checked, and does nothing else with them",
)
CLOSED_FORM = _enforced("mixing", "an example's gradient is a formula of that example only")
UNCHECKED_MIXING = _assumed(
    "mixing", "an example's loss depends on that example only (it was not checked)"
)
EXACT_SUM = _enforced("sum", "contributions are added up exactly, as integers on a public grid")
ROUNDED_SUM = _enforced(
    "sum", "the noise covers the rounding of the sum in any order (docs/theory/summation.md)"
)
SAME_IN_COMPANY = _assumed(
    "company", "a record's computed gradient does not depend on the rows it is computed with"
)
COMPUTED_ALONE = _enforced("company", "each record's gradient is computed as if it were alone")
ALONE_ON_A_GRID = _enforced(
    "company", "each record's gradient is computed exactly or number by number, whoever is there"
)
PUBLIC_EVALUATION = _assumed(
    "evaluation", "the records on which the model is evaluated during training are public"
)
UNPROTECTED_EVALUATION = _not_met(
    "evaluation",
    "the model is evaluated during training on records that this does not protect: what is logged "
    "of them, and an end or a model chosen by it, is not covered",
)
STEPS_ONLY = _assumed("batches", "batches leave the loop only through training.step")
CHARGED_FIRST = _enforced("charge", "every step is charged before it is made")
SECRET_COINS = _assumed("sampling key", "nobody can know who was drawn for a step")
SEEDED_COINS = _not_met(
    "sampling key",
    "nobody knows or guesses the seed of the coins that draw the samples: an experiment",
)
POISSON_COINS = _enforced("sampling", "records join a step by independent exact coins")
UNIFORM_SUBSETS = _enforced("sampling", "batches are exactly uniform subsets")
PUBLIC_DIVISOR = _enforced("divisor", "the divisor is the expected batch size")
RELEVANCE_ALONE = _tested(
    "relevance",
    "a record's relevance does not depend on the others in its batch, rounding included",
)


def slots(n: int) -> Premise:
    """Records are put in public places, so that their number is hidden."""
    return _enforced("number of records", f"records fill {n} public slots in random order")


# Models that a method starts from


def public_model(why: str) -> Premise:
    """A model made without the records."""
    return _assumed("model", f"the model is public: {why}")


def private_model(promised: str) -> Premise:
    """A model that was released under a guarantee of its own."""
    return _assumed(
        "model", f"the model is a release of its own, {promised}, whose cost is not in this"
    )


def paid_model(entries: str) -> Premise:
    """A model that the same ledger paid for."""
    return _enforced("model", f"the model was paid for by ledger entries {entries}")


# Teachers and sites

PUBLIC_QUESTIONS = _assumed(
    "questions", "the reducer, the public inputs and who took part depend on no private record"
)
DISJOINT_SHARDS = _assumed("shards", "the shards are disjoint")
ONE_VOTE = bound("each teacher has one vote a query")
SHARES_ONCE = _assumed("shares", "no share is used in two released sums")


def sites_clip(radius: float) -> Premise:
    """Every site bounds what it sends."""
    return _assumed("bound", f"each site clips its codes to {radius:g} and adds its share")


def sites_missing(missing: int) -> Premise:
    """How many sites may fail or betray."""
    return _assumed("sites", f"at most {missing} sites are missing or give their share away")


# Users and friends

PUBLIC_GRAPH = _assumed(
    "graph", "the graph of friendships and its users are public, and so are the days of the panel"
)


def tuple_records(days: int) -> Premise:
    """What a record is where users leave several tuples."""
    return _assumed(
        "people",
        f"a record is one tuple; what a user recorded on one day is in up to {days} own tuples "
        "and in those of friends",
    )


# Ledgers

UNDER_CAP = _enforced("cap", "the total stays under the cap")
ALL_CHARGED = _assumed(
    "charge", "every release was charged here first, and this is no older copy of the ledger"
)
LOSSES_BOUND = _assumed("losses", "each loss bounds its release")
END_NOT_CHOSEN = _assumed(
    "end", "when to stop was not decided by looking at what had been released by then"
)
NOT_ADAPTIVE = _assumed(
    "choice of losses", "no loss was chosen larger or smaller by looking at earlier releases"
)

# Closed forms and published claims

NO_SAMPLING_COST = _assumed(
    "sampling",
    "a step of rate q and noise sigma costs what an unsampled one of noise sigma / q does",
)
EVERY_RATE_ONE = _enforced("sampling", "every sample rate is 1")
DOUBLED = _assumed(
    "sensitivity", "replace-one: the sensitivity is doubled (the paper states add-remove only)"
)


def doubtful_premise(about: str, text: str) -> Premise:
    """A premise of a published claim, as its paper needs it."""
    return _assumed(about, text)


def held_by_code(about: str, text: str) -> Premise:
    """A premise that the code of one method makes true."""
    return _enforced(about, text)


# A record that is read again

UNSEALED_RECORD = _assumed(
    "record", "guarantee.json and the model are as they were written: version 1 has no seal"
)
