"""Who will walk more tomorrow? Private prediction in a generated health network, per user.

python examples/behaviour.py
"""

from privet.guarantee import Unit
from privet.ledger import Ledger
from privet_papers.autoencoder.behaviour import BehaviourPredictor, Examples, PropagationInfluence
from privet_papers.autoencoder.behaviour.health_network import health_network
from privet_papers.autoencoder.behaviour.panel_data import rolling_folds

panel = health_network(users=254, days=120, seed=1).panel
fold = rolling_folds(panel, horizon=20, first=4)[0]
train, test = Examples.of(panel, fold.train), Examples.of(panel, fold.test)

ledger = Ledger.in_memory(cap_epsilon=3.0, cap_delta=1e-5, unit=Unit.USER)
model = BehaviourPredictor(epsilon=1.0, ledger=ledger, random_state=0).fit(train)
print(f"statuses predicted rightly {model.score(test):.1%}")
print(f"proved  {model.guarantee_}")

paid = BehaviourPredictor(
    epsilon=2.0, influence=PropagationInfluence(), ledger=ledger, random_state=0
).fit(train)
print(f"with estimated influence, epsilon 2: {paid.score(test):.1%}")
print(f"spent   {ledger.spent():.4f} of {ledger.cap_epsilon:g}")

tomorrow = model.predict_tomorrow(panel)
print(f"{(tomorrow > 0.5).mean():.0%} of {len(tomorrow)} users are expected to walk more tomorrow")
