"""Forged records: whoever edits one thing and seals the folder anew is named the field."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privet
from privet.accounting import Gaussian
from privet.guarantee import Guarantee
from privet.ledger import Ledger
from privet.methods.catalogue import method_names, method_type
from privet.runs import verify
from privet.runs.guarantee_record import read_record
from privet.runs.run_folder import packed_config, write_record

Forgery = Callable[[dict[str, Any]], None]


def train(folder: Path, *, seed: int | None, epsilon: float = 2.0) -> tuple[Path, Path]:
    """An honest run and its ledger."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 3))
    path = folder / "budget.ledger"
    Ledger.create(path, cap_epsilon=10.0, cap_delta=1e-5)
    clf = privet.AdaptiveLaplaceClassifier(
        epsilon=epsilon, bounds=(0, 1), classes=[False, True], ledger=path, random_state=seed
    ).fit(X, X[:, 0] > 0.5)
    clf.save(folder / "run", purpose="triage", curator="A clinic")
    return folder / "run", path


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """A release and an experiment, trained once."""
    return {
        "release": train(tmp_path_factory.mktemp("release"), seed=None),
        "experiment": train(tmp_path_factory.mktemp("experiment"), seed=0),
    }


def forged(source: Path, target: Path, forge: Forgery) -> Path:
    """The folder with a record that was edited, told on card and page, and sealed anew."""
    shutil.copytree(source, target)
    record = read_record(target)
    forge(record)
    write_forged(target, record)
    return target


def write_forged(folder: Path, record: dict[str, Any]) -> None:
    """Also what the promise says in one line, and its premises in the order of a promise."""
    stated = Guarantee.from_dict(record["guarantee"])
    premises = [p.to_dict() for p in stated.premises]
    record["guarantee"].update(text=str(stated), premises=premises)
    write_record(folder, record)


def premise(record: dict[str, Any], about: str) -> dict[str, Any]:
    found: dict[str, Any] = next(p for p in record["guarantee"]["premises"] if p["about"] == about)
    return found


# Of an experiment


def hide_the_seed(record: dict[str, Any]) -> None:
    """The first forgery of issue 30."""
    premise(record, "noise key").update(
        text="the key of the noise came from the operating system and stays in this process",
        backing="enforced",
    )
    record["status"] = "release"
    record["guarantee"]["release"] = True


def drop_the_seed(record: dict[str, Any]) -> None:
    kept = [p for p in record["guarantee"]["premises"] if p["about"] != "noise key"]
    record["guarantee"].update(premises=kept, release=True)
    record["status"] = "release"


# Of a release


def promise_people(record: dict[str, Any]) -> None:
    """The second forgery of issue 30."""
    record["guarantee"]["unit"] = "user"
    record["guarantee"]["premises"] = [
        p for p in record["guarantee"]["premises"] if p["backing"] != "assumed"
    ]


def hide_the_number_of_records(record: dict[str, Any]) -> None:
    record["guarantee"]["adjacency"] = "add-remove"


def protect_features_only(record: dict[str, Any]) -> None:
    record["guarantee"]["protects"] = "labels only"


def enforce_what_is_assumed(record: dict[str, Any]) -> None:
    premise(record, "people")["backing"] = "enforced"


def drop_one_premise(record: dict[str, Any]) -> None:
    record["guarantee"]["premises"] = [
        p for p in record["guarantee"]["premises"] if p["about"] != "preparation"
    ]


def soften_a_premise(record: dict[str, Any]) -> None:
    premise(record, "preparation")["text"] = "the records were prepared as usual"


def state_another_delta(record: dict[str, Any]) -> None:
    """A smaller delta at the same epsilon: the curve has no such point."""
    record["guarantee"]["delta"] = 1e-9


def charge_less(record: dict[str, Any]) -> None:
    """A smaller loss, and everything that follows from it."""
    loss = Gaussian(mu=0.1)
    record["mechanism"]["loss"] = loss.to_dict()
    record["guarantee"]["epsilon"] = loss.epsilon(1e-5)
    record["curve"]["mu"] = 0.1
    for point in record["curve"]["points"]:
        e = loss.epsilon(point["delta"])
        point["epsilon"] = e if np.isfinite(e) else "inf"


def claim_another_theorem(record: dict[str, Any]) -> None:
    record["guarantee"]["theorem"] = "local privacy: nobody ever saw the records"


def cover_whole_people(record: dict[str, Any]) -> None:
    record["covered"] = "Each person, with all records that share that person's identifier."


def be_silent_about_limits(record: dict[str, Any]) -> None:
    record["not_protected"] = record["not_protected"][-1:]


def trust_nobody(record: dict[str, Any]) -> None:
    record["trust"]["actors"] = record["trust"]["actors"][2:]


def say_that_it_is_another_method(record: dict[str, Any]) -> None:
    record["mechanism"]["method"] = "dpsgd"


def set_other_settings(record: dict[str, Any]) -> None:
    record["mechanism"]["settings"] = {}


def train_on_more_records(record: dict[str, Any]) -> None:
    record["data"]["records"] = 400_000


def spend_less_in_all(record: dict[str, Any]) -> None:
    record["ledger"]["spent"] = 0.1


def raise_the_cap(record: dict[str, Any]) -> None:
    record["ledger"]["cap"]["epsilon"] = 1.0


def forget_a_release(record: dict[str, Any]) -> None:
    record["ledger"]["releases"] = []


def name_another_charge(record: dict[str, Any]) -> None:
    record["ledger"]["entries"][0]["hash"] = "0" * 64


def date_it_back(record: dict[str, Any]) -> None:
    record["date"] = "2020-01-01T00:00:00+00:00"


def know_of_fewer_attackers(record: dict[str, Any]) -> None:
    record["explanation"]["beliefs"][0]["posterior_at_most"] = 0.5


def reassure(record: dict[str, Any]) -> None:
    record["explanation"]["sentences"] = ["Nobody can learn anything."]


def warn_nobody(record: dict[str, Any]) -> None:
    del record["explanation"]


def add_a_word_of_its_own(record: dict[str, Any]) -> None:
    record["certified"] = "by everybody"


ALONE = [
    ("experiment", hide_the_seed, "noise key"),
    ("experiment", drop_the_seed, "noise key"),
    ("release", promise_people, "unit"),
    ("release", hide_the_number_of_records, "adjacency"),
    ("release", protect_features_only, "protects"),
    ("release", enforce_what_is_assumed, "people"),
    ("release", drop_one_premise, "preparation"),
    ("release", soften_a_premise, "preparation"),
    ("release", state_another_delta, "delta"),
    ("release", charge_less, "loss"),
    ("release", claim_another_theorem, "theorem"),
    ("release", cover_whole_people, "covered"),
    ("release", be_silent_about_limits, "not_protected"),
    ("release", trust_nobody, "trust"),
    ("release", say_that_it_is_another_method, "method"),
    ("release", set_other_settings, "settings"),
    ("release", train_on_more_records, "records"),
    ("release", add_a_word_of_its_own, "certified"),
    ("release", know_of_fewer_attackers, "explanation"),
    ("release", reassure, "explanation"),
    ("release", warn_nobody, "explanation"),
]
"""What is seen from the files that are published."""
WITH_LEDGER = [
    ("release", spend_less_in_all, "spent"),
    ("release", raise_the_cap, "cap"),
    ("release", forget_a_release, "list of releases"),
    ("release", name_another_charge, "entry 1"),
    ("release", date_it_back, "date"),
]
"""What only the ledger shows."""


@pytest.mark.parametrize(("which", "forge", "field"), ALONE, ids=[f.__name__ for _, f, _ in ALONE])
def test_an_edited_record_is_refused_and_the_field_named(
    honest: dict[str, tuple[Path, Path]], tmp_path: Path, which: str, forge: Forgery, field: str
) -> None:
    """Also by somebody who was given the published files alone."""
    folder = forged(honest[which][0], tmp_path / "forged", forge)
    (folder / "config.json").unlink()
    shutil.rmtree(folder / "private")
    problems = verify(folder).problems
    assert any(field in p for p in problems), problems


@pytest.mark.parametrize(
    ("which", "forge", "field"), WITH_LEDGER, ids=[f.__name__ for _, f, _ in WITH_LEDGER]
)
def test_what_the_ledger_says_otherwise(
    honest: dict[str, tuple[Path, Path]], tmp_path: Path, which: str, forge: Forgery, field: str
) -> None:
    folder = forged(honest[which][0], tmp_path / "forged", forge)
    problems = verify(folder, ledger=honest[which][1]).problems
    assert any(field in p for p in problems), problems


# Somebody who rewrites the model too


def rewrite_the_model(folder: Path, forge: Callable[[dict[str, Any]], None]) -> None:
    """Change what the header of the model says of its training, and the config beside it."""
    from safetensors.numpy import load, save

    model = folder / "model.safetensors"
    raw = model.read_bytes()
    config = packed_config(raw)
    forge(config)
    model.write_bytes(save(load(raw), metadata={"privet": json.dumps(config)}))
    path = folder / "config.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole | config))


def test_model_and_record_rewritten_together_are_seen_by_the_ledger(
    honest: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    """A seed that all files deny; the ledger was charged for seeded noise."""
    shutil.copytree(honest["experiment"][0], tmp_path / "forged")
    folder = tmp_path / "forged"
    rewrite_the_model(folder, lambda config: config.update(noise="secure"))
    record = read_record(folder)
    hide_the_seed(record)
    write_forged(folder, record)
    found = verify(folder)
    assert found.ok and not found.verified, found.problems
    problems = verify(folder, ledger=honest["experiment"][1]).problems
    assert any("noise key" in p and "a seed" in p for p in problems), problems


def test_people_that_all_files_promise_are_seen_by_the_ledger(
    honest: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    shutil.copytree(honest["release"][0], tmp_path / "forged")
    folder = tmp_path / "forged"

    def of_users(config: dict[str, Any]) -> None:
        facts = config["plan_inputs"]["facts"]
        facts.update(unit="user", users=facts["records"])

    rewrite_the_model(folder, of_users)
    record = read_record(folder)
    record["guarantee"]["unit"] = "user"
    write_forged(folder, record)
    problems = verify(folder, ledger=honest["release"][1]).problems
    assert any("states unit user, entry 1 of budget.ledger says record" in p for p in problems)


def test_another_commit_excuses_no_missing_premise(
    honest: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    """Attack: say that another version made it, whose words may differ, and leave premises out."""

    def forge(record: dict[str, Any]) -> None:
        drop_one_premise(record)
        record["made_by"]["commit"] = "0" * 40

    found = verify(forged(honest["release"][0], tmp_path / "forged", forge))
    assert any("lacks the premise about preparation" in p for p in found.problems)
    assert any("card and page" in line for line in found.not_checked)


# Honest runs

OWN_METHODS = [
    name for name in method_names() if method_type(name).__module__.startswith("privet.")
]


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN_METHODS)
@pytest.mark.parametrize("declared", [False, True], ids=["counted", "declared"])
def test_an_honest_record_of_every_method_verifies(
    tmp_path: Path, name: str, declared: bool
) -> None:
    """Alone, as it is published, and with its ledger; its own statement is made again."""
    kind, rng = method_type(name), np.random.default_rng(0)
    x = rng.uniform(size=(240, 4))
    y = np.where(x[:, 0] > x[:, 1], "yes", "no")
    settings: dict[str, Any] = {}
    if kind.public_inputs_field is not None:
        settings[kind.public_inputs_field] = rng.uniform(size=(20, 4))
    if "epochs" in kind.__dataclass_fields__:
        settings["epochs"] = 1
    path = tmp_path / "budget.ledger"
    n_public = len(x) if declared else None
    clf = privet.PrivateClassifier(
        kind(**settings), epsilon=4.0, bounds=(0.0, 1.0), classes=["no", "yes"], n_public=n_public
    ).fit(x, y)
    stated = clf.guarantee_
    terms = {"adjacency": stated.adjacency, "unit": stated.unit, "protects": stated.protects}
    Ledger.create(path, cap_epsilon=10.0, cap_delta=1e-5, **terms)
    folder = clf.set_params(ledger=path).fit(x, y).save(tmp_path / "run")
    alone, whole = verify(folder), verify(folder, ledger=path)
    assert alone.ok and whole.ok, (alone.problems, whole.problems)
    assert not any("statement of the method" in line for line in alone.not_checked), name
    published = tmp_path / "published"
    published.mkdir()
    for file in ("model.safetensors", "guarantee.json", "README.md", "run.html"):
        shutil.copy(folder / file, published / file)
    assert verify(published).ok
