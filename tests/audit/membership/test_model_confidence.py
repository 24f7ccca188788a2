"""Every kind of model is asked in the right way; what is no model is refused in one line."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.svm import LinearSVC
from torch import nn

import privet
from privet.audit import membership
from privet.audit.membership import confidence, confidence_of_logits, confidence_of_model
from privet.errors import InvalidArgument
from tests.audit.membership import overfitted

X, Y = overfitted.records(120)
WORDS = np.array(["ash", "beech", "cedar", "dogwood", "elm"])


def test_a_classifier_is_asked_by_the_names_of_its_classes() -> None:
    fitted = LogisticRegression(max_iter=500).fit(X, WORDS[Y])
    found = confidence_of_model(fitted, X, WORDS[Y])
    np.testing.assert_allclose(found, confidence(fitted.predict_proba(X), Y))


@pytest.mark.parametrize("classes", [2, 5])
def test_a_decision_function_is_read_as_logits(classes: int) -> None:
    y = Y % classes
    fitted = LinearSVC().fit(X, y)
    z = fitted.decision_function(X)
    z = np.stack([0.0 * z, z], axis=1) if classes == 2 else z
    np.testing.assert_allclose(confidence_of_model(fitted, X, y), confidence_of_logits(z, y))


@pytest.mark.parametrize("kind", [LinearDiscriminantAnalysis, LinearSVC])
def test_a_class_that_a_reference_never_met_has_no_probability(kind: type) -> None:
    seen = Y != 3
    fitted = kind().fit(X[seen], Y[seen])
    phi = confidence_of_model(fitted, X, Y)
    assert np.isfinite(phi).all() and phi[~seen].max() < phi[seen].min()


def test_probabilities_of_zero_are_half_of_the_least_that_was_seen() -> None:
    forest = RandomForestClassifier(10, random_state=0).fit(X, Y)
    p = forest.predict_proba(X)
    assert (p == 0.0).any()
    np.testing.assert_array_equal(
        confidence_of_model(forest, X, Y), confidence(p, Y, floor=p[p > 0].min() / 2)
    )


def test_a_module_answers_as_when_it_is_used_and_stays_as_it_was() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 20), nn.BatchNorm1d(20), nn.Dropout(0.5), nn.Linear(20, 5))
    net[2].eval()
    many, labels = np.tile(X, (20, 1)), np.tile(Y, 20)  # more than one batch
    found = confidence_of_model(net, many, labels)
    assert net.training and net[1].training and not net[2].training
    assert all(p.grad is None for p in net.parameters())
    net.eval()
    z = net(torch.from_numpy(many).float()).detach().numpy()
    np.testing.assert_allclose(found, confidence_of_logits(z, labels), rtol=1e-4, atol=1e-5)
    ends_in_softmax = nn.Sequential(net, nn.Softmax(dim=1))
    np.testing.assert_allclose(
        confidence_of_model(ends_in_softmax, many, labels), found, rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("width", [1, 2])
def test_one_logit_speaks_for_the_second_class(width: int) -> None:
    net = nn.Linear(10, 1)
    z = net(torch.from_numpy(X).float()).detach().double().numpy()[:, 0]
    shaped = net if width == 2 else nn.Sequential(net, nn.Flatten(0))
    y = Y % 2
    np.testing.assert_allclose(
        confidence_of_model(shaped, torch.from_numpy(X), y), np.where(y == 1, z, -z), rtol=1e-6
    )


def test_words_of_a_text_stay_whole_numbers() -> None:
    net = nn.Sequential(nn.Embedding(7, 3), nn.Flatten(), nn.Linear(6, 4))
    assert confidence_of_model(net, np.ones((5, 2), dtype=np.int32), [0] * 5).shape == (5,)


@pytest.mark.slow
def test_a_private_model_is_a_model() -> None:
    x = (X - X.min()) / (X.max() - X.min())
    clf = privet.DPSGDClassifier(
        epsilon=5.0, delta=1e-3, classes=list(WORDS), bounds=(0, 1), random_state=0
    ).fit(x, WORDS[Y])
    found = confidence_of_model(clf, x, WORDS[Y])
    np.testing.assert_allclose(found, confidence(clf.predict_proba(x), Y))


def test_references_of_every_kind() -> None:
    def forest(x, y, seed):
        return RandomForestClassifier(10, random_state=seed).fit(x, y)

    members = np.arange(120) < 60
    references = membership.train_references(forest, X, WORDS[Y], 4, seed=0)
    target = forest(X[members], WORDS[Y][members], 9)
    loss, *_, rmia = membership.attack(target, X, WORDS[Y], members, references=references)
    assert rmia.auc.value > loss.auc.value > 0.8

    nets = membership.train_references(lambda x, y, seed: nn.Linear(10, 5), X, Y, 2, seed=0)
    assert nets.confidence.shape == (2, 120)


NET, FITTED = nn.Linear(3, 5), LogisticRegression().fit(X, Y)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": None}, "model must be a fitted classifier, a torch module, or a function"),
        ({"model": LogisticRegression}, "this is a class, not an instance"),
        ({"model": LogisticRegression()}, "it raised NotFittedError"),
        ({"model": LinearRegression().fit(X, Y)}, "model must be a fitted classifier"),
        ({"model": NET}, "it raised RuntimeError"),
        ({"model": lambda a, b: a}, "it raised TypeError"),
        ({"model": lambda x: None}, "probabilities must be one row a record"),
        ({"model": lambda x: ["?"] * len(x)}, "probabilities must be an array of numbers"),
        ({"y": WORDS[Y]}, "y must be one of the model's classes"),
        (
            {"y": WORDS[Y], "model": lambda x: np.full((120, 5), 0.2)},
            "labels must be whole numbers",
        ),
        ({"y": None}, "y must be one label for each record"),
        ({"members": None}, "members must be true or false"),
        ({"references": FITTED}, "references must be what train_references returned"),
        ({"strangers": X}, "strangers must be a pair"),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(changed, message: str) -> None:
    given = {"model": FITTED, "X": X, "y": Y, "members": np.arange(120) < 60} | changed
    with pytest.raises(InvalidArgument, match=re.escape(message)) as told:
        membership.attack(
            given.pop("model"), given.pop("X"), given.pop("y"), given.pop("members"), **given
        )
    assert "\n" not in str(told.value)
