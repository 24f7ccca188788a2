"""The record of a run: everything in it, and everything that no longer belongs to it is named."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from markdown_it import MarkdownIt

import privet
from privet import premises
from privet.accounting import Gaussian, SampledGaussian
from privet.audit import Finding
from privet.cli.main import main
from privet.errors import InvalidArgument
from privet.ledger import Ledger
from privet.report.deployment_registry import UNSAID, entry, to_yaml
from privet.runs import verify
from privet.runs.audit_evidence import add_audit
from privet.runs.guarantee_record import curve, read_record
from privet.runs.run_folder import (
    later_records,
    packed_config,
    record_digest,
    render_record,
    seal,
    write_record,
)
from privet.runs.saved_run import UnsealedRun
from privet.runs.signature import sign

SCHEMA = json.loads((Path(privet.__file__).parent / "report/guarantee.schema.json").read_text())


def fitted(**told: Any) -> privet.PrivateClassifier:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 3))
    given = {"epsilon": 2.0, "bounds": (0, 1), "classes": [False, True]} | told
    return privet.AdaptiveLaplaceClassifier(**given).fit(X, X[:, 0] > 0.5)


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Path]:
    """A release of which everything is in files: the folder and its ledger."""
    ledger = tmp_path / "budget.ledger"
    Ledger.create(ledger, cap_epsilon=10.0, cap_delta=1e-5)
    folder = fitted(ledger=ledger).save(tmp_path / "run", purpose="triage", curator="A clinic")
    return folder, ledger


def rewrite(path: Path, **changes: Any) -> dict[str, Any]:
    record = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(record))
    return record


@pytest.mark.slow
def test_a_whole_record(saved: tuple[Path, Path]) -> None:
    folder, path = saved
    record, ledger = read_record(folder), Ledger.open(path)
    jsonschema.validate(record, SCHEMA)
    assert record["status"] == "release" and record["given"]["purpose"] == "triage"
    assert record["ledger"]["head"] == ledger.head
    assert record["ledger"]["spent"] == ledger.spent()
    assert [e["token"] for e in record["ledger"]["entries"]] == [e.token for e in ledger.entries()]
    assert {e.run for e in ledger.entries()} == {record["run"]}
    card, page = (folder / "README.md").read_text(), (folder / "run.html").read_text()
    for words in ("triage", "A clinic", "1 in 100,000", record["run"]):
        assert words in card and words in page
    assert "1e-05" not in page.split("<details>")[0]
    backings = [p["backing"] for p in record["guarantee"]["premises"]]
    assert backings == sorted(backings) and record["guarantee"]["standing"] == "proved"  # a, e, t
    line = f"proved, if {backings.count('assumed')} assumed premises hold"
    assert all(line in told for told in (card, page, record["guarantee"]["text"]))
    found = verify(folder, ledger=path)
    assert found.ok, found.problems
    assert {"model.safetensors", "README.md", "run.html", "ledger"} <= set(found.checked)


def test_one_bit_of_the_model(saved: tuple[Path, Path]) -> None:
    folder, path = saved
    model = folder / "model.safetensors"
    raw = bytearray(model.read_bytes())
    raw[-1] ^= 1
    model.write_bytes(raw)
    assert verify(folder, ledger=path).problems == (
        "model.safetensors is not the model of this record: its content is another",
    )


def test_the_record_of_another_run(saved: tuple[Path, Path], tmp_path: Path) -> None:
    folder, path = saved
    other = fitted().save(tmp_path / "other")
    shutil.copy(other / "guarantee.json", folder / "guarantee.json")
    problems = verify(folder, ledger=path).problems
    assert any("the record of another run" in p for p in problems)
    assert any("another ledger" in p for p in problems)


def test_a_ledger_of_an_older_state(tmp_path: Path) -> None:
    path, old = tmp_path / "budget.ledger", tmp_path / "old.ledger"
    ledger = Ledger.create(path, cap_epsilon=10.0, cap_delta=1e-5)
    ledger.charge(Gaussian(mu=0.1), what="a mean")
    shutil.copy(path, old)
    folder = fitted(ledger=path).save(tmp_path / "run")
    assert verify(folder, ledger=path).ok
    Ledger.open(path).charge(Gaussian(mu=0.1), what="a later mean")
    assert verify(folder, ledger=path).ok  # going on is no fault
    shutil.copy(old, path)
    problems = verify(folder, ledger=path).problems
    assert any("restored to an older state" in p for p in problems)
    assert any("no entry 2 as it was charged" in p for p in problems)


def test_a_card_edited_by_hand(saved: tuple[Path, Path]) -> None:
    """Also where whoever edited it sealed the record again."""
    folder, _ = saved
    card = folder / "README.md"
    card.write_text(card.read_text().replace("epsilon 2", "epsilon 0.2"))
    assert any("README.md is not the file" in p for p in verify(folder).problems)
    record = read_record(folder)
    files = record["files"] | {"README.md": hashlib.sha256(card.read_bytes()).hexdigest()}
    rewrite(folder / "guarantee.json", **seal(record, files))
    assert verify(folder).problems == (
        "README.md does not say what the record says: one of them was edited by hand",
    )


def test_a_smaller_epsilon_in_the_record(saved: tuple[Path, Path]) -> None:
    folder, path = saved
    record = read_record(folder)
    record["guarantee"]["epsilon"] = 0.5
    rewrite(folder / "guarantee.json", **record)
    problems = verify(folder, ledger=path).problems
    assert any("changed after it was written" in p for p in problems)
    record["digest"] = record_digest(record)
    rewrite(folder / "guarantee.json", **record)
    problems = verify(folder, ledger=path).problems
    assert any("states epsilon 0.5, its loss costs 2" in p for p in problems)
    assert any("the entries of this run cost epsilon 2" in p for p in problems)


def test_charges_that_the_record_keeps_silent_about(saved: tuple[Path, Path]) -> None:
    folder, path = saved
    run = read_record(folder)["run"]
    Ledger.open(path).charge(Gaussian(mu=0.1), what="once more", run=run)
    assert any("does not name" in p for p in verify(folder, ledger=path).problems)


@pytest.mark.slow
@pytest.mark.parametrize("inside", ["{", '"guarantee": {'])
def test_one_fact_told_twice(
    saved: tuple[Path, Path], keys: tuple[Path, Path], inside: str
) -> None:
    """Attack: a signed record that says another epsilon first; readers differ in whom to believe."""
    folder, path = saved
    file = folder / "guarantee.json"
    rewrite(file, **sign(read_record(folder), keys[0]))
    text = file.read_text()
    file.write_text(text.replace(inside, inside + '"epsilon": 0.01, "version": 2, ', 1))
    with pytest.raises(privet.errors.InvalidArgument, match="said twice"):
        verify(folder, ledger=path, key=keys[1])


def test_a_record_that_keeps_silent_about_the_model(saved: tuple[Path, Path]) -> None:
    """Attack: leave a file's digest out and seal the record again."""
    folder, _ = saved
    record = read_record(folder)
    files = {k: v for k, v in record["files"].items() if k != "model.safetensors"}
    rewrite(folder / "guarantee.json", **seal(record, files))
    assert verify(folder).problems == ("guarantee.json does not say what model.safetensors is",)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "value", "told"),
    [
        (("status",), "release", "is marked 'release'"),
        (("guarantee", "release"), True, "is marked 'EXPERIMENT"),
        (("guarantee", "text"), "(2, 1e-05)-DP per record, proved", "says in words"),
        (("curve", "points", 3, "epsilon"), 0.01, "has a curve below"),
        (("attacker", 0, "true_positive_rate_at_most"), 0.0, "a weaker attacker"),
        (("curve", "points", 0, "delta"), None, "not the whole record"),
        (("mechanism",), None, "not the whole record"),
    ],
)
def test_what_does_not_follow_from_the_rest(
    tmp_path: Path, where: tuple[Any, ...], value: Any, told: str
) -> None:
    """Attack: change one thing in the record of an experiment, write card and page, seal anew."""
    folder = fitted(random_state=0).save(tmp_path / "run")
    record = part = read_record(folder)
    for name in where[:-1]:
        part = part[name]
    part[where[-1]] = value
    if told.startswith("not the"):
        rewrite(folder / "guarantee.json", **seal(record, record["files"]))
    else:
        write_record(folder, record)
    assert any(told in p for p in verify(folder).problems)


def test_honest_runs_verify_whatever_is_said(tmp_path: Path) -> None:
    """Lines of another system, and settings that were changed on the estimator afterwards."""
    clf = fitted(random_state=None)
    clf.epsilon = 0.01
    folder = clf.save(tmp_path / "run", purpose="one\r\ntwo", curator="Zo\u00eb\u2028")
    assert verify(folder).ok
    assert json.loads((folder / "config.json").read_text())["epsilon"] == 2.0


def test_a_large_delta_does_not_make_noise_seeded(tmp_path: Path) -> None:
    folder = fitted(delta=0.01, allow_vacuous=True).save(tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    assert config["noise"] == "secure" and read_record(folder)["status"] != "release"


# Keys


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private, public = tmp_path / "key.pem", tmp_path / "key.pub"
    private.write_bytes(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH))
    return private, public


def test_a_signature(saved: tuple[Path, Path], keys: tuple[Path, Path], tmp_path: Path) -> None:
    folder, _ = saved
    private, public = keys
    assert any("not signed" in p for p in verify(folder, key=public).problems)
    with pytest.raises(SystemExit):
        main(["record", "sign", str(folder), "--key", str(private)])
    jsonschema.validate(read_record(folder), SCHEMA)
    assert verify(folder, key=public).ok
    record = read_record(folder)
    record["given"]["purpose"] = "advertising"
    record["digest"] = record_digest(record)
    rewrite(folder / "guarantee.json", **record)
    assert any("signature is not one of this record" in p for p in verify(folder).problems)


def test_a_signature_is_replaced_only_when_asked(
    saved: tuple[Path, Path], keys: tuple[Path, Path], capsys: Any
) -> None:
    """A stranger's stumbles: a second signature took the first; the wrong half of a key."""
    folder, words = saved[0], ["record", "sign", str(saved[0]), "--key", str(keys[0])]
    for more, code in (([], 0), ([], 2), (["--again"], 0)):
        with pytest.raises(SystemExit) as left:
            main([*words, *more])
        assert (left.value.code or 0) == code
    assert "--again" in capsys.readouterr().err
    assert verify(folder, key=keys[1]).verified
    with pytest.raises(InvalidArgument, match="public half"):
        verify(folder, key=keys[0])
    with pytest.raises(InvalidArgument, match="private half"):
        sign(read_record(folder), keys[1])


def test_explain_refuses_an_edited_record(saved: tuple[Path, Path], capsys: Any) -> None:
    record = read_record(saved[0])
    rewrite(saved[0] / "guarantee.json", guarantee=record["guarantee"] | {"epsilon": 0.1})
    with pytest.raises(SystemExit) as left:
        main(["explain", str(saved[0])])
    assert left.value.code == 2 and "digest" in capsys.readouterr().err


def test_verify_tells_what_the_record_cannot_know(saved: tuple[Path, Path]) -> None:
    """A checkpoint that lies beside it, and what was charged to the ledger since."""
    folder, ledger = saved
    (folder / "checkpoint.safetensors").write_bytes(b"of another run")
    Ledger.open(ledger).charge(Gaussian(mu=0.1), what="a mean")
    found = verify(folder, ledger=ledger)
    assert found.ok
    for words in ("checkpoint.safetensors: training goes on from it", "1 release charged after"):
        assert any(words in line for line in found.not_checked), words


def test_a_signature_by_somebody_else(
    saved: tuple[Path, Path], keys: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, _ = saved
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    other = tmp_path / "other.pem"
    other.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            s.Encoding.PEM, s.PrivateFormat.OpenSSH, s.NoEncryption()
        )
    )
    rewrite(folder / "guarantee.json", **sign(read_record(folder), other))
    found = verify(folder)
    assert found.ok and not found.verified  # whose key it is, only a key from elsewhere tells
    assert any("whose key" in line for line in found.not_checked)
    assert any("another key" in p for p in verify(folder, key=keys[1]).problems)


def test_an_experiment_is_signed_as_one_or_not_at_all(
    tmp_path: Path, keys: tuple[Path, Path], capsys: Any
) -> None:
    folder = fitted(random_state=0).save(tmp_path / "run")
    with pytest.raises(SystemExit) as left:
        main(["record", "sign", str(folder), "--key", str(keys[0])])
    assert left.value.code == 2 and "EXPERIMENT" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main(
            ["record", "sign", str(folder), "--key", str(keys[0]), "--experiment", "--name", "Zoe"]
        )
    assert not left.value.code
    with pytest.raises(SystemExit) as left:
        main(["verify", str(folder), "--key", str(keys[1])])
    told = capsys.readouterr().out
    assert "status: EXPERIMENT" in told and "Zoe" in told and "as experiment" in told
    record = read_record(folder)
    record["signature"]["as"] = "release"
    rewrite(folder / "guarantee.json", **record)
    assert any("signature is not one" in p for p in verify(folder).problems)


# What `privet.load` takes


def lower_epsilon(folder: Path) -> None:
    record = read_record(folder)
    record["guarantee"]["epsilon"] = 0.01
    rewrite(folder / "guarantee.json", **record)


def drop_premises(folder: Path) -> None:
    record = read_record(folder)
    record["guarantee"]["premises"] = []
    rewrite(folder / "guarantee.json", **record)


def seal_a_lower_epsilon(folder: Path) -> None:
    lower_epsilon(folder)
    record = json.loads((folder / "guarantee.json").read_text())
    stated = privet.Guarantee.from_dict(record["guarantee"])
    record["guarantee"] = stated.to_dict()  # in words too
    rewrite(folder / "guarantee.json", **seal(record, record["files"]))


def seal_without_premises(folder: Path) -> None:
    drop_premises(folder)
    record = json.loads((folder / "guarantee.json").read_text())
    rewrite(folder / "guarantee.json", **seal(record, record["files"]))


def flip_last_bit(folder: Path, name: str = "model.safetensors") -> None:
    raw = bytearray((folder / name).read_bytes())
    raw[-1] ^= 1
    (folder / name).write_bytes(raw)


def name_another_class(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    rewrite(folder / "config.json", classes=config["classes"][::-1])


def keep_silent_of_the_model(folder: Path) -> None:
    record = read_record(folder)
    files = {k: v for k, v in record["files"].items() if k != "model.safetensors"}
    rewrite(folder / "guarantee.json", **seal(record, files))
    flip_last_bit(folder)


def leave_the_seal_out(folder: Path) -> None:
    record = read_record(folder)
    record["guarantee"]["epsilon"] = 0.01
    (folder / "guarantee.json").write_text(json.dumps(record | {"digest": None}))


def nest_deeply(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)


def nest_the_record(folder: Path) -> None:
    (folder / "guarantee.json").write_text("[" * 100_000)


def claim_a_huge_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")


def make_files_no_mapping(folder: Path) -> None:
    record = read_record(folder) | {"files": None}
    rewrite(folder / "guarantee.json", **record | {"digest": record_digest(record)})


FORGERIES = (
    lower_epsilon, drop_premises, flip_last_bit, name_another_class, nest_deeply,
    keep_silent_of_the_model, leave_the_seal_out, nest_the_record, claim_a_huge_header,
    make_files_no_mapping, seal_a_lower_epsilon, seal_without_premises,
)  # fmt: skip


@pytest.mark.parametrize("forge", FORGERIES)
@pytest.mark.parametrize("published", [False, True], ids=["folder", "published"])
def test_load_takes_what_was_written_alone(
    saved: tuple[Path, Path], forge: Callable[[Path], None], published: bool
) -> None:
    """The very attacks that `verify` sees, in one line, also where the owner kept the config."""
    folder, _ = saved
    privet.load(folder)
    if published and forge not in (name_another_class, nest_deeply):
        (folder / "config.json").unlink()
    forge(folder)
    with pytest.raises(privet.errors.PrivetError) as refused:
        privet.load(folder)
    assert "\n" not in str(refused.value)
    with contextlib.suppress(privet.errors.PrivetError):
        assert not verify(folder).ok


def test_load_refuses_a_signature_of_another_record(
    saved: tuple[Path, Path], keys: tuple[Path, Path]
) -> None:
    folder, _ = saved
    signed = sign(read_record(folder), keys[0])
    rewrite(folder / "guarantee.json", **signed)
    privet.load(folder)
    signed["given"] = signed["given"] | {"purpose": "another"}
    rewrite(folder / "guarantee.json", **signed | {"digest": record_digest(signed)})
    with pytest.raises(privet.errors.InvalidArgument, match="not one of this record"):
        privet.load(folder)


def test_an_edited_record_is_not_exported(saved: tuple[Path, Path], capsys: Any) -> None:
    lower_epsilon(saved[0])
    with pytest.raises(SystemExit) as left:
        main(["record", "export", str(saved[0])])
    assert left.value.code == 2 and "changed after it was written" in capsys.readouterr().err


# The card


EVIL = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "[a](javascript:alert(1))",
    "![a](http://x)", "__a__ **b** *c* _d_ ~~e~~ `f` $g$", "a | b | c", "# a\n\n# b", "- a\n- b",
    "&lt;b&gt;<!-- x", "\\<b>\\*a\\*\\[x](y)", "<http://x> <a@b.c>", "x\r\n\r\n---\r\n> y",
)  # fmt: skip


def card_of(names: tuple[str, ...], folder: Path) -> list[str]:
    """What Markdown makes of the card of a run with these names of all kinds, but for its words."""
    x = np.random.default_rng(0).uniform(size=(60, 3))
    y = np.where(x[:, 0] > 0.5, names[0], names[1])
    clf = privet.AdaptiveLaplaceClassifier(epsilon=2.0, bounds=(0, 1), classes=list(names)).fit(
        x, y
    )
    given = dict.fromkeys(("purpose", "curator", "region", "justification", "contact"), names[0])
    record = read_record(clf.save(folder, **given))
    record["data"] |= {"name": " ".join(names)}
    record["evidence"] = [{"kind": "audit", "date": record["date"], "text": n} for n in names]
    tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    page = render_record(record)
    assert not any(raw in page["run.html"] for raw in ("<script>alert", "<img src=x"))
    return [
        inner.type
        for token in tokens.parse(page["README.md"])
        for inner in (token, *(token.children or ()))
        if not inner.type.startswith("text")
    ]


def test_no_name_becomes_markup_on_the_card(tmp_path: Path) -> None:
    """Classes, purposes, data and evidence: the card has the structure of one with plain names."""
    plain = card_of(tuple(f"name {k}" for k in range(len(EVIL))), tmp_path / "plain")
    assert card_of(EVIL, tmp_path / "evil") == plain
    assert "table_open" in plain and "html_inline" not in plain


# Other forms


def before_origin(folder: Path) -> None:
    """The model as it was written when records had version 1: it did not name its training."""
    from safetensors.numpy import load, save

    model, config = folder / "model.safetensors", folder / "config.json"
    raw = model.read_bytes()
    header = packed_config(raw)
    del header["origin"]
    model.write_bytes(save(load(raw), metadata={"privet": json.dumps(header)}))
    config.write_text(json.dumps(header | {"run": json.loads(config.read_text())["run"]}))


@pytest.mark.slow
def test_version_1_is_read_and_brought_up_to_date(saved: tuple[Path, Path], capsys: Any) -> None:
    folder, _ = saved
    record = read_record(folder)
    before_origin(folder)
    old = {k: record[k] for k in ("guarantee", "claim")}
    old["guarantee"] = {k: v for k, v in old["guarantee"].items() if k != "release"}
    (folder / "guarantee.json").write_text(json.dumps(old))
    with pytest.warns(UnsealedRun, match="version 1, which ties nothing together"):
        loaded = privet.load(folder)
    assert loaded.guarantee.epsilon == record["guarantee"]["epsilon"]
    assert premises.UNSEALED_RECORD in loaded.guarantee.premises
    jsonschema.validate(loaded.record, SCHEMA)
    assert any("version 1" in p for p in verify(folder).problems)
    with pytest.raises(SystemExit) as left:
        main(["record", "migrate", str(folder)])
    assert not left.value.code
    whole = json.loads((folder / "guarantee.json").read_text())
    jsonschema.validate(whole, SCHEMA)
    assert whole["ledger"] is None and verify(folder).ok


def test_the_registrys_yaml(saved: tuple[Path, Path], tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    record = read_record(saved[0])
    told = entry(record)
    text = to_yaml(told)
    assert yaml.safe_load(text) == told
    shape = json.loads((Path(__file__).parents[1] / "report/deployments-schema.json").read_text())
    checker = jsonschema.Draft7Validator(
        shape, format_checker=jsonschema.Draft7Validator.FORMAT_CHECKER
    )
    assert not list(checker.iter_errors(told))
    styles = {getattr(token, "style", None) for token in yaml.scan(text)}
    assert styles <= {None, "|", '"', "'"}  # the registry folds no text
    # what its tests/test_yaml.py and scripts/update_slug.py compute
    year = record["date"][:4]
    assert told["url_slug"] == f"adaptive-laplace-on-records-of-your-own-a-clinic-{year}"
    assert re.search(r"^url_slug: (.*)", text)[1] == told["url_slug"]  # type: ignore[index]
    assert not re.search(r"\\\\[^()]", text) and "http" not in text
    assert told["deployment"]["privacy_loss"]["privacy_parameters"] == {
        "epsilon": record["guarantee"]["epsilon"], "delta": 1e-5,
    }  # fmt: skip
    assert told["deployment"]["basic"]["data_curators"] == ["A clinic"]
    assert text.count(UNSAID) == 2  # region and justification
    with pytest.raises(privet.errors.InvalidArgument, match="EXPERIMENT"):
        entry(read_record(fitted(random_state=0).save(tmp_path / "seeded")))


@pytest.mark.slow
def test_what_no_attacker_exceeds() -> None:
    """The bound lies above the best test of a Gaussian release, and not far."""
    from scipy.stats import norm

    with_gaussian = Gaussian(mu=0.8).trade_off()
    for rate in (1e-4, 1e-3, 0.01, 0.1, 0.5):
        best = norm.cdf(norm.ppf(rate) + 0.8)
        assert best <= with_gaussian.tpr(rate)[1] <= (1.0 + 1e-9) * best
    run = curve(SampledGaussian(sample_rate=0.1, noise_multiplier=1.0, steps=10), 1e-6)
    assert all(e1 >= e2 for (e1, _), (e2, _) in itertools.pairwise(run))


def test_the_command(saved: tuple[Path, Path], capsys: Any) -> None:
    folder, path = saved
    with pytest.raises(SystemExit) as left:
        main(["verify", str(folder), "--ledger", str(path)])
    told = capsys.readouterr().out
    assert not left.value.code
    for words in ("NOT VERIFIED", "status: release", "epsilon 2 at delta 1e-05 per record",
                  "signed by: nobody", "not checked: who wrote this record"):  # fmt: skip
        assert words in told
    (folder / "config.json").write_text("{}")
    with pytest.raises(SystemExit) as left:
        main(["verify", str(folder), "--ledger", str(path)])
    assert left.value.code == 2
    assert "error: config.json is not the file" in capsys.readouterr().err


def test_openssl_makes_a_key_that_signs(saved: tuple[Path, Path], tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    key = tmp_path / "k.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(key)], check=True,
                   capture_output=True)  # fmt: skip
    assert sign(read_record(saved[0]), key)["signature"]["algorithm"] == "Ed25519"


@pytest.mark.slow
def test_evidence_is_added_when_asked(tmp_path: Path, keys: tuple[Path, Path], capsys: Any) -> None:
    """A second, dated record with its card and page tells it; the signed one stays as it was."""
    folder = str(tmp_path / "run")
    train = ["train", "adaptive-laplace", "--data", "digits", "--records", "400", "--epsilon", "8"]
    for command in (
        [*train, "--out", folder],
        ["record", "sign", folder, "--key", str(keys[0])],
        ["attack", folder, "--references", "0", "--record"],
    ):
        with pytest.raises(SystemExit) as left:
            main(command)
        assert not left.value.code, capsys.readouterr().err
    found = Finding(
        what="x", claimed=None, proved=8.0, audited=7.1, ceiling=20.0, control=20.0, delta=1e-5,
        confidence=0.95, trials=1000, method="", parametric=False, seconds=1.0,
    )  # fmt: skip
    record = add_audit(Path(folder), found)
    jsonschema.validate(record, SCHEMA)
    assert [(e["kind"], e["verdict"]) for e in record["evidence"]] == [
        ("attack", "consistent"), ("audit of the method", "consistent"),
    ]  # fmt: skip
    assert add_audit(Path(folder), found) == record  # the same finding is told once
    signed = read_record(Path(folder))
    assert "signature" not in record and record["adds_to"] == signed["digest"]
    assert not signed["evidence"] and verify(folder, key=keys[1]).verified
    last = later_records(Path(folder))[-1]
    for file in ("README.md", "run.html"):
        text = (Path(folder) / last.name.replace("guarantee", file.split(".")[0])
                .replace("json", file.split(".")[1])).read_text()  # fmt: skip
        assert "reached 7.1 of 8" in text and "where no attack exceeds" in text
        assert "this model was not looked at" in text and "(95% confidence)" in text
    with pytest.raises(SystemExit) as left:
        main(["record", "sign", folder, "--key", str(keys[0])])
    assert "signature" in read_record(Path(folder), last.name) and verify(folder).ok
    later = read_record(Path(folder), last.name)
    later["guarantee"]["epsilon"] = 0.1
    rewrite(last, **later | {"digest": record_digest(later)})
    problems = verify(folder, key=keys[1]).problems
    assert any("something else than guarantee.json about guarantee" in p for p in problems)
    last.unlink()
    (Path(folder) / "config.json").write_text("{}")
    with pytest.raises(privet.errors.InvalidArgument, match="one that verifies"):
        add_audit(Path(folder), found)


def test_what_is_published_is_enough(saved: tuple[Path, Path], tmp_path: Path) -> None:
    """Model, record, card and page: whoever has these can verify them, and ask the model."""
    folder, _ = saved
    given = tmp_path / "given"
    given.mkdir()
    for name in ("model.safetensors", "guarantee.json", "README.md", "run.html"):
        shutil.copy(folder / name, given / name)
    found = verify(given)
    assert found.ok and "config.json" not in found.checked
    X = np.random.default_rng(1).uniform(size=(50, 3))
    assert (privet.load(given).predict(X) == privet.load(folder).predict(X)).all()
    (given / "README.md").unlink()
    assert verify(given).problems == ("README.md is missing",)
