"""Audit a promise of your own: a release made once, and a training of your own by canaries.

python examples/audit.py

The first is a count with half the noise it should have: falsified. The second is DP-SGD on digits
with canaries that own a coordinate: 5,000 coins, one training, 300 guesses.
"""

from torch import nn

from privet import data
from privet.audit import OneRunAudit, OneShotAudit, laplace_score, trade_off_one_run_bound
from privet.methods.dpsgd import Schedule
from privet.methods.dpsgd.canaries import fair_coins, train_with_canaries
from privet.noise import seeded


def draw(count, scale):
    """So many releases of a count with Laplace noise, each with the attacker's score."""
    return lambda n, rng: laplace_score(
        count + scale * rng.laplace((n, 1)), present=1.0, absent=0.0, scale=scale
    )


found = OneShotAudit(trials=50_000).run(
    what="a count that claims epsilon 1 and has noise for 2",
    with_record=draw(1.0, 0.5),
    without_record=draw(0.0, 0.5),
    control=(draw(1.0, 1e-9), draw(0.0, 1e-9)),
    claimed=1.0,
    proved=2.0,
    rng=seeded(0),
)
print(f"{found.what}: audited {found.audited:.2f}, {found.verdict.value}")

digits = data.load("digits")
coins = fair_coins(5_000, seeded(1))


def trained(noise_multiplier):
    """One training with the canaries whose coin says "in"."""
    return train_with_canaries(
        nn.Linear(64, 10),
        (digits.train_rows(), digits.y_train),
        Schedule(steps=20, sample_rate=1.0, noise_multiplier=noise_multiplier),
        included=coins,
        rng=seeded(2),
    )


seen = trained(9.0)
found = OneRunAudit(guesses=300, rule=trade_off_one_run_bound).run(
    seen.scores,
    coins,
    what="DP-SGD on digits",
    proved=seen.training.guarantee.epsilon,
    control=trained(0.02).scores,
)
print(
    f"{found.what}: proved {found.proved:.2f}, audited {found.audited:.2f}, "
    f"could have found {found.ceiling:.1f}, {found.verdict.value}"
)
