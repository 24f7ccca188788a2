"""Audit other libraries, in the versions that are installed; ours in the same table.

python -m benchmarks.peers [--json]       after pip install 'privet[peers]'
"""

from __future__ import annotations

import argparse
import json
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module, metadata, util
from typing import Any, final

import numpy as np

from privet import accounting as losses
from privet.audit.all_releases_audit import audit_releases
from privet.audit.third_party_audit import (
    audit_draws,
    check_account,
    floating_point_leak,
    note_noisy_sum,
)
from privet.guarantee import Adjacency
from privet.noise import Source, seeded

DELTA = 1e-5
Q, Z, T = 0.01, 1.0, 1000
SAMPLED = losses.SampledGaussian(sample_rate=Q, noise_multiplier=Z, steps=T)
HOLDS, TOO_LITTLE, TELLS = "holds", "**states too little**", "**tells**"


@final
@dataclass(frozen=True, kw_only=True)
class PeerRow:
    """One thing that was run: what was stated, what was found, and what to make of it."""

    library: str
    version: str
    what: str
    stated: str
    found: str
    verdict: str

    def to_dict(self) -> dict[str, str]:
        """A JSON-ready mapping."""
        return asdict(self)


Part = Callable[[str], Iterator[PeerRow]]


def _account(version: str, library: str, what: str, stated: float, loss: Any) -> PeerRow:
    seen = check_account(stated, loss, delta=DELTA)
    return PeerRow(
        library=library, version=version, what=what, stated=f"{seen.stated:.4g}",
        found=f"exact {seen.low:.4g} to {seen.high:.4g}",
        verdict=HOLDS if seen.holds else TOO_LITTLE,
    )  # fmt: skip


SAMPLE = f"q = {Q}, z = {Z:g}, {T:,} steps"
REPLACED = losses.Gaussian(mu=2.0 / Z)
FIXED = losses.FixedSizeGaussian(sample_rate=Q, noise_multiplier=Z, steps=T)


def privet(version: str) -> Iterator[PeerRow]:
    """Ours: the same questions as to everybody."""
    from privet.mechanisms import LaplaceMechanism

    yield _account(version, "privet", SAMPLE, SAMPLED.epsilon(DELTA), SAMPLED)
    yield _account(version, "privet", "replace-one, z = 1", REPLACED.epsilon(DELTA), REPLACED)
    yield _account(version, "privet", "fixed-size samples", FIXED.epsilon(DELTA), FIXED)
    mechanism = LaplaceMechanism(scale=1.0)

    def release(value: float, seed: int) -> float:
        from privet.sensitivity import count

        given = count([True] * round(value) + [False])
        return float(mechanism.release(given, rng=seeded(seed)))

    yield from _scalar("privet", version, "Laplace, scale 1", release)


def dp_accounting(version: str) -> Iterator[PeerRow]:
    """Google's accountants."""
    dp = import_module("dp_accounting")
    rdp = import_module("dp_accounting.rdp").RdpAccountant
    pld = import_module("dp_accounting.pld").PLDAccountant
    step = dp.PoissonSampledDpEvent(Q, dp.GaussianDpEvent(Z))
    replace_one = dp.NeighboringRelation.REPLACE_ONE
    fixed = dp.SampledWithoutReplacementDpEvent(10_000, 100, dp.GaussianDpEvent(Z))

    def stated(of: Any, event: Any, times: int, **told: Any) -> float:
        return float(of(**told).compose(event, times).get_epsilon(DELTA))

    name = "dp-accounting"
    yield _account(version, name, f"RDP: {SAMPLE}", stated(rdp, step, T), SAMPLED)
    yield _account(version, name, f"PLD: {SAMPLE}", stated(pld, step, T), SAMPLED)
    for kind, of in (("RDP", rdp), ("PLD", pld)):
        one = stated(of, dp.GaussianDpEvent(Z), 1, neighboring_relation=replace_one)
        yield _account(version, name, f"{kind}, replace-one, z = 1 as PLD reads it", one, REPLACED)
    many = stated(rdp, fixed, T, neighboring_relation=replace_one)
    yield _account(version, name, "RDP, replace-one, fixed-size samples, z likewise", many, FIXED)


def prv_accountant(version: str) -> Iterator[PeerRow]:
    """Microsoft's accountant: its upper bound."""
    prv = import_module("prv_accountant")
    step = prv.PoissonSubsampledGaussianMechanism(sampling_probability=Q, noise_multiplier=Z)
    account = prv.PRVAccountant(
        prvs=[step], max_self_compositions=[T], eps_error=0.01, delta_error=1e-10
    )
    upper = account.compute_epsilon(delta=DELTA, num_self_compositions=[T])[2]
    yield _account(version, "prv-accountant", SAMPLE, upper, SAMPLED)


def autodp(version: str) -> Iterator[PeerRow]:
    """Renyi accounting by the general bound for samples."""
    acct, bank = import_module("autodp.rdp_acct"), import_module("autodp.rdp_bank")
    account = acct.anaRDPacct()
    gaussian: Callable[[float], Any] = lambda x: bank.RDP_gaussian({"sigma": Z}, x)  # noqa: E731
    account.compose_subsampled_mechanism(gaussian, Q, coeff=T)
    stated = account.get_eps(DELTA)
    yield _account(version, "autodp", f"general bound: {SAMPLE}", stated, SAMPLED)


def opacus(version: str) -> Iterator[PeerRow]:
    """Its accountants, its steps, and rows that are not numbers."""
    accountants = import_module("opacus.accountants")
    for kind in ("RDPAccountant", "PRVAccountant"):
        account = getattr(accountants, kind)()
        account.history = [(Z, Q, T)]
        yield _account(version, "opacus", f"{kind}: {SAMPLE}", account.get_epsilon(DELTA), SAMPLED)
    account = accountants.RDPAccountant()
    account.history = [(Z, Q, T)]
    found = float(account.get_epsilon(1.5))
    yield PeerRow(
        library="opacus", version=version, what="RDPAccountant at delta 1.5",
        stated=f"{found:.2f}", found="no delta at all",
        verdict="refused" if found >= 0.0 else "**accepted**",
    )  # fmt: skip
    steps, noise = 4, 8.0
    proved = losses.Gaussian(mu=steps**0.5 / noise).epsilon(DELTA)

    def run(z: float) -> Callable[[bool, Source], object]:
        return lambda inside, rng: _opacus_steps(inside, rng, z, steps)

    seen = audit_releases(
        run(noise), without_noise=run(noise / 1000), what="DPOptimizer", claimed=None,
        proved=proved, delta=DELTA, adjacency=Adjacency.ADD_REMOVE, trials=100, rng=seeded(0),
    )  # fmt: skip
    yield PeerRow(
        library="opacus", version=version, what=f"{steps} full steps of DPOptimizer, z = {noise:g}",
        stated=f"{proved:.3g}", found=f"audited {seen.audited:.3g}, {seen.control:.0f} without",
        verdict=seen.verdict.value,
    )  # fmt: skip
    weights = _opacus_steps(True, seeded(0), 1.0, 1, bad=True)
    bad = bool(np.isnan(weights).any())
    yield PeerRow(
        library="opacus", version=version, what="one step with a row that is not a number",
        stated="", found="all weights NaN" if bad else "finite weights",
        verdict="**one record undoes all**" if bad else HOLDS,
    )  # fmt: skip


def _opacus_steps(
    inside: bool, rng: Source, z: float, steps: int, *, bad: bool = False
) -> np.ndarray[Any, Any]:
    """A linear model on four rows, one of which is there or blank; full batches, tiny steps."""
    torch = import_module("torch")
    module = import_module("opacus").GradSampleModule
    optimizers = import_module("opacus.optimizers").DPOptimizer
    torch.manual_seed(int(rng.integers(2**31, 1)[0]))
    model = module(torch.nn.Linear(3, 1, bias=False))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    optimizer = optimizers(
        torch.optim.SGD(model.parameters(), lr=1e-6), noise_multiplier=z, max_grad_norm=1.0,
        expected_batch_size=4,
    )  # fmt: skip
    x = torch.zeros(4, 3)
    x[0, 0] = (float("nan") if bad else 5.0) if inside else 0.0
    with observing_opacus(optimizer):
        for _ in range(steps):
            optimizer.zero_grad()
            (model(x) - 1.0).square().sum().backward()
            optimizer.step()
    weights: np.ndarray[Any, Any] = next(iter(model.parameters())).detach().numpy()
    return weights


@contextmanager
def observing_opacus(optimizer: Any, *, rate: float = 1.0) -> Iterator[None]:
    """Show an audit every noisy sum of a `DPOptimizer`: all parameters as one vector."""
    torch = import_module("torch")
    add_noise = optimizer.add_noise

    def watched() -> None:
        exact = [p.summed_grad.detach().clone().ravel() for p in optimizer.params]
        add_noise()
        parts = [p.grad.detach().ravel() for p in optimizer.params]
        out = note_noisy_sum(
            torch.cat(exact).double().numpy(), torch.cat(parts).double().numpy(),
            scale=optimizer.noise_multiplier * optimizer.max_grad_norm,
            sensitivity=optimizer.max_grad_norm, rate=rate,
        )  # fmt: skip
        flat, at = torch.from_numpy(out), 0
        for p in optimizer.params:
            n = p.grad.numel()
            p.grad.copy_(flat[at : at + n].view_as(p.grad).to(p.grad.dtype))
            at += n

    optimizer.add_noise = watched
    try:
        yield
    finally:
        optimizer.add_noise = add_noise


def opendp(version: str) -> Iterator[PeerRow]:
    """A measurement of Rust's."""
    dp = import_module("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    measurement = dp.m.make_laplace(*space, scale=1.0)
    yield from _scalar("opendp", version, "make_laplace, scale 1", lambda v, seed: measurement(v))


def diffprivlib(version: str) -> Iterator[PeerRow]:
    """Mechanisms, without the package's own start if scikit-learn is too new for that."""
    try:
        import_module("diffprivlib")
    except ImportError:
        yield PeerRow(
            library="diffprivlib", version=version, what="import", stated="",
            found=f"fails beside scikit-learn {metadata.version('scikit-learn')}",
            verdict="**does not start**; mechanisms do",
        )  # fmt: skip
        for name in [n for n in sys.modules if n.split(".")[0] == "diffprivlib"]:
            del sys.modules[name]
        found = util.find_spec("diffprivlib")
        assert found is not None
        bare = types.ModuleType("diffprivlib")
        bare.__path__ = list(found.submodule_search_locations or ())
        sys.modules["diffprivlib"] = bare
    laplace = import_module("diffprivlib.mechanisms.laplace").Laplace
    mechanism = laplace(epsilon=1.0, sensitivity=1.0)
    yield from _scalar(
        "diffprivlib", version, "Laplace, epsilon 1", lambda v, seed: mechanism.randomise(v)
    )


def numpy(version: str) -> Iterator[PeerRow]:
    """Noise as everybody adds it first."""
    yield from _scalar(
        "numpy",
        version,
        "value + rng.laplace(), epsilon 1",
        lambda v, seed: v + np.random.default_rng(seed).laplace(),
    )


def _scalar(
    library: str, version: str, what: str, release: Callable[[float, int], float]
) -> Iterator[PeerRow]:
    """A number with noise for epsilon 1: how much is found by counting, and by its last bits."""
    found = audit_draws(
        lambda there, seed: release(float(there), seed), what=what, epsilon=1.0, trials=5_000
    )
    yield PeerRow(
        library=library, version=version, what=what, stated="1",
        found=f"audited {found.audited:.3g}", verdict=found.verdict.value,
    )  # fmt: skip
    share = floating_point_leak(release)
    yield PeerRow(
        library=library, version=version, what=f"{what}: last bits", stated="",
        found=f"{share:.0%} of releases of 0 cannot be of 1", verdict=TELLS if share else HOLDS,
    )  # fmt: skip


PARTS: dict[str, Part] = {
    "privet": privet,
    "dp-accounting": dp_accounting,
    "prv-accountant": prv_accountant,
    "autodp": autodp,
    "opacus": opacus,
    "opendp": opendp,
    "diffprivlib": diffprivlib,
    "numpy": numpy,
}
"""By the name of the distribution."""


def entries(names: tuple[str, ...] = tuple(PARTS)) -> Iterator[PeerRow]:
    """All that installed libraries show; one line for each that is not installed."""
    for name in names:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            yield PeerRow(
                library=name, version="", what="", stated="", found="",
                verdict="not installed: pip install 'privet[peers]'",
            )  # fmt: skip
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield from PARTS[name](version)


def main() -> None:
    """Print what libraries that are installed state, and what a run of them shows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    if parser.parse_args().json:
        print(json.dumps({"entries": [row.to_dict() for row in entries()]}, indent=2))
        return
    for row in entries():
        parts = [row.what, f"states {row.stated}" if row.stated else "", row.found, row.verdict]
        line = "; ".join(part for part in parts if part).replace("**", "")
        print(f"{row.library} {row.version}: {line}")


if __name__ == "__main__":
    main()
