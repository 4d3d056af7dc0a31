"""The release check finds planted faults, and nothing in honest messages of our own and of other mechanisms."""

import dataclasses
import math
from typing import Any, get_args

import pytest
import torch
from diffprivlib.mechanisms import Gaussian, GaussianAnalytic, Laplace
from torch import Tensor

from bench.release_check import EXPECTED, checked
from bench.release_simulation import Fault, System, round_of
from fedleak.attacks.declared_privacy.noised_groups import NoisedGroup
from fedleak.attacks.declared_privacy.release_check import ReleaseCheck, ReleaseEstimate
from fedleak.core.errors import ViewError
from fedleak.core.estimates import Detail
from fedleak.core.gaussian_budget import gaussian_epsilon
from fedleak.core.history import History
from fedleak.core.release import Release
from fedleak.core.seeding import generator_for
from fedleak.defenses.base import Update
from fedleak.defenses.local_dp import LocalDP
from tests.attacks.declared_privacy.sums import sums_of
from tests.attacks.runs import plain_view, run, with_deltas

HONEST = System(multiplier=1.2)


def check(view: History, **arguments: Any) -> ReleaseEstimate:
    return run(ReleaseCheck(**arguments), view, ReleaseEstimate)


def outcomes(found: ReleaseEstimate, outcome: str) -> set[str]:
    return {str(row["check"]) for row in found.rows if row["outcome"] == outcome}


def one_round(fault: str, generator: torch.Generator) -> History:
    """A history of one round with the deltas in memory."""
    view = round_of(HONEST, fault, generator)
    return History(**view.common() | {"auxiliary": {}}, sent_in=torch.zeros(view.victims).long())


def view_of(deltas: dict[str, Tensor], release: Release, **fields: Any) -> History:
    count = len(next(iter(deltas.values())))
    model = {name: torch.ones(value.shape[1:]) for name, value in deltas.items()}
    whole: dict[str, Any] = {"model": model, "releases": (release,), **fields}
    common = plain_view(count, deltas=deltas, **whole).common()
    return History(**common, sent_in=torch.zeros(count).long())


def scaled(view: History, factor: float, clients: slice) -> History:
    """The view in which some clients' messages are multiplied by a factor."""

    def change(delta: Tensor) -> Tensor:
        changed = delta.clone()
        changed[clients] *= factor
        return changed

    return with_deltas(view, change)


@pytest.mark.parametrize("fault", [fault for fault in get_args(Fault) if fault])
def test_a_planted_fault_is_found_in_one_round_by_the_check_for_it(fault: str) -> None:
    clipping = fault == "per-layer for joint clip"
    system = System(multiplier=0.05, update=4.0) if clipping else System(multiplier=1.2, epsilon=8.003691055600607)
    found = checked(system, fault, 0, rounds=2 if "two rounds" in fault else 1)
    assert outcomes(found, "found") & EXPECTED[fault]
    assert (found.findings > 0).all()


@pytest.mark.parametrize("multiplier", [3.0, 1.2, 0.1, 0.0001])
@pytest.mark.parametrize("dense", [False, True])
def test_honest_messages_have_no_finding(multiplier: float, dense: bool) -> None:
    epsilon = gaussian_epsilon((2 / multiplier) ** 2, 1e-5)
    found = checked(System(multiplier=multiplier, dense=dense, update=4.0, epsilon=epsilon), "", 0, rounds=2)
    assert outcomes(found, "found") == set()
    assert (found.findings == 0).all()
    twice = gaussian_epsilon(2 * (2 / multiplier) ** 2, 1e-5)
    torch.testing.assert_close(found.epsilon, torch.full((10,), twice, dtype=torch.float64))
    torch.testing.assert_close(found.declared, found.epsilon, rtol=1e-3, atol=0)
    hidden = multiplier == 0.0001 and dense
    assert bool(found.ratio.isnan().all()) == hidden
    if not hidden:
        torch.testing.assert_close(found.ratio, torch.ones(10, dtype=torch.float64), rtol=0.05, atol=0)
    # What a dense update hides is said, not passed.
    assert ({"noise scale", "law", "reuse"} <= outcomes(found, "not checked")) == hidden


def test_less_noise_gives_the_epsilon_of_that_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    view = one_round("", generator)
    release = dataclasses.replace(view.releases[0], noise_scale=view.releases[0].noise_scale / 0.8)
    found = check(dataclasses.replace(view, releases=(release,)))
    expected = gaussian_epsilon((2 / HONEST.multiplier) ** 2, 1e-5)
    assert float(found.declared[0]) < 0.85 * expected
    torch.testing.assert_close(found.epsilon, torch.full((10,), expected, dtype=torch.float64), rtol=0.15, atol=0)


@pytest.mark.parametrize("fault", ["one seed for all", "a layer without noise", "noise before the clip"])
def test_what_leaves_no_guarantee_has_an_infinite_epsilon(fault: str) -> None:
    assert checked(HONEST, fault, 1).epsilon.isinf().all()


def test_a_parameter_outside_every_release_is_sent_bare() -> None:
    view = one_round("", torch.Generator().manual_seed(0))
    counter = torch.zeros(10, 1)
    counter[3:] = 5
    deltas = {**view.deltas, "norm.batches": counter, "unused": torch.zeros(10, 4)}
    model = {**view.model, "norm.batches": torch.zeros(1), "unused": torch.zeros(4)}
    found = check(dataclasses.replace(view, deltas=deltas, model=model))
    assert [row["parameter"] for row in found.rows if row["outcome"] == "found"] == ["norm.batches"]
    assert found.epsilon.isinf().tolist() == [False] * 3 + [True] * 7


def test_noise_that_hides_nothing_is_said_where_it_is_declared() -> None:
    """The log of a hospital federation: clip 1, standard deviation 4.845e-05, calibrated to epsilon 10."""
    clients, generator = 10, torch.Generator().manual_seed(0)
    update = torch.zeros(clients, 400, 25)
    update[:, :20] = torch.randn(clients, 20, 25, generator=generator)
    update *= 1 / update.flatten(1).norm(dim=1)[:, None, None]
    sent = update + 4.845e-05 * torch.randn(update.shape, generator=generator)
    release = Release(clip=1.0, noise_scale=4.845e-05, parameters=("w",), epsilon=10.0, delta=1e-5, neighbours="add")
    found = check(view_of({"w": sent}, release))
    torch.testing.assert_close(found.epsilon, torch.full((clients,), 2.13e8, dtype=torch.float64), rtol=0.01, atol=0)
    torch.testing.assert_close(found.declared, torch.full((clients,), 10.0, dtype=torch.float64), rtol=1e-6, atol=0)
    torch.testing.assert_close(found.ratio, torch.ones(clients, dtype=torch.float64), rtol=0.05, atol=0)
    assert outcomes(found, "found") == {"sensitivity"}


@pytest.mark.parametrize("epsilon", [0.8, 5.0, 50.0])
@pytest.mark.parametrize("rows", [False, True])
def test_our_own_local_dp_passes(epsilon: float, rows: bool) -> None:
    generator, clients = torch.Generator().manual_seed(3), 8
    items = torch.stack([torch.randperm(200, generator=generator)[:60] for _ in range(clients)])
    for client in range(clients):
        items[client, 60 - 3 * client :] = -1
    table = torch.randn(clients, 60 if rows else 200, 16, generator=generator)
    mask = (items >= 0)[..., None] if rows else torch.ones(1)
    update = Update({"table": table * mask, "bias": torch.randn(clients, 40, generator=generator)})
    update.rows = {"table": items} if rows else {}
    defense = LocalDP(clip=0.1, epsilon=epsilon, delta=1e-5)
    generators = [torch.Generator().manual_seed(100 + client) for client in range(clients)]
    sent = defense.protect(update, lambda client: generators[client]).deltas
    model = {"table": torch.randn(200, 16, generator=generator), "bias": torch.zeros(40)}
    (release,) = defense.releases(("table", "bias"))
    fields: dict[str, Any] = {"model": model}
    if rows:
        fields |= {"served": items, "row_parameters": frozenset({"table"})}
    found = check(view_of(sent, release, **fields))
    assert outcomes(found, "found") == set()
    assert (found.epsilon <= found.declared * (1 + 1e-6)).all()
    torch.testing.assert_close(found.declared, torch.full((clients,), epsilon, dtype=torch.float64), rtol=1e-4, atol=0)


@pytest.mark.parametrize("mechanism", [Gaussian, GaussianAnalytic, Laplace])
def test_mechanisms_of_diffprivlib(mechanism: type) -> None:
    gaussian = mechanism is not Laplace
    made = mechanism(epsilon=0.9, delta=1e-5 if gaussian else 0.0, sensitivity=2.0, random_state=0)
    update = torch.randn(4, 3000, generator=torch.Generator().manual_seed(0))
    update /= update.norm(dim=1, keepdim=True)
    sent = torch.tensor([[made.randomise(float(value)) for value in row] for row in update])
    scale = float(made._scale) if gaussian else 2**0.5 * 2.0 / 0.9
    found = check(view_of({"w": sent}, Release(clip=1.0, noise_scale=scale, parameters=("w",))))
    assert ("law" in outcomes(found, "found")) == (not gaussian)
    assert gaussian == (outcomes(found, "found") == set())


def test_a_noise_of_opacus_kind_passes_and_with_another_order_it_does_not() -> None:
    """`torch.normal` of the clipped update, per parameter, as Opacus' optimizers draw it."""
    generator = torch.Generator().manual_seed(0)
    updates = {"w": torch.randn(6, 60, 50, generator=generator), "b": torch.randn(6, 60, generator=generator)}
    norms = torch.stack([value.flatten(1).square().sum(1) for value in updates.values()]).sum(0).sqrt()
    release = Release(clip=1.0, noise_scale=1.1, parameters=("w", "b"))
    for honest in (True, False):
        sent = {}
        for name, value in updates.items():
            factor = (1 / norms).reshape(-1, *[1] * (value.dim() - 1))
            drawn = torch.normal(0.0, 1.1, value.shape, generator=generator)
            sent[name] = value * factor + drawn if honest else (value + drawn) * factor
        assert (outcomes(check(view_of(sent, release)), "found") == set()) == honest


def test_a_recording_stored_in_half_precision_is_not_held_against_the_clients() -> None:
    view = one_round("float16 rounding", torch.Generator().manual_seed(0))
    assert "resolution" in outcomes(check(view), "found")
    stored = check(dataclasses.replace(view, rounded=frozenset(view.deltas)))
    assert "resolution" in outcomes(stored, "not checked")
    assert outcomes(stored, "found") == set()


def test_the_noise_of_an_honest_client_is_not_counted_against_it() -> None:
    view = one_round("", torch.Generator().manual_seed(0))
    found = check(scaled(view, 0.9, slice(2, 3)))
    others = torch.arange(10) != 2
    assert float(found.findings[2]) > 0
    assert float(found.epsilon[2]) > float(found.epsilon[others].max())
    assert float(found.ratio[2]) == pytest.approx(0.9, rel=0.03)


def test_noise_without_a_clip_has_no_epsilon() -> None:
    noise = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))  # else one of 100 runs has a finding
    view = view_of({"w": noise}, Release(noise_scale=1.0, parameters=("w",)))
    found = check(view)
    assert found.epsilon.isinf().all()
    assert found.declared.isinf().all()
    assert outcomes(found, "found") == set()


def test_silent_clients_are_left_out() -> None:
    view = one_round("", torch.Generator().manual_seed(0))
    found = check(scaled(view, 0.0, slice(0, 4)))
    assert found.clients.tolist() == list(range(104, 110))
    assert outcomes(found, "found") == set()


def test_parts_of_bounded_size_give_the_same_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    view = one_round("one seed for all", torch.Generator().manual_seed(0))
    whole = check(view)
    monkeypatch.setattr("fedleak.attacks.declared_privacy.release_check._NUMBERS", 40_000)
    assert torch.equal(check(view).epsilon, whole.epsilon)


def test_what_cannot_be_checked_is_said_in_a_line() -> None:
    bare = view_of({"w": torch.randn(4, 100)}, Release(clip=1.0, parameters=("w",)))
    with pytest.raises(ViewError, match="noise"):
        check(bare)
    promised = Release(clip=1.0, epsilon=1.0, delta=0.0, parameters=("w",))
    with pytest.raises(ViewError, match="epsilon of 1"):
        check(dataclasses.replace(bare, releases=(promised,)))
    summed = view_of({"w": torch.randn(4, 100)}, Release(noise_scale=1.0, parameters=("w",)), messages=torch.ones(4))
    with pytest.raises(ViewError, match="sums"):
        check(summed)
    twice = dataclasses.replace(
        bare, releases=(Release(noise_scale=1.0, parameters=("w",)), Release(clip=1.0, parameters=("w",)))
    )
    assert "noise scale" in outcomes(check(twice), "not checked")


def test_scores_are_of_clients_and_keep_the_table() -> None:
    found = checked(HONEST, "", 0)
    scores = found.score(one_round("", torch.Generator()), {})
    assert scores.units is found.clients
    assert set(scores.metrics) == {"epsilon", "epsilon-declared", "noise-ratio", "findings"}
    assert scores.details == found.rows
    assert all(isinstance(row["text"], str) and math.isfinite(float(row["clients"] or 0)) for row in found.rows)


def test_noise_too_small_for_a_number_bounds_nothing() -> None:
    assert NoisedGroup(clip=math.inf, scales={"w": 0.0}).bound == math.inf


def participants_row(found: ReleaseEstimate) -> Detail:
    (row,) = [row for row in found.rows if row["check"] == "participants"]
    return row


@pytest.mark.parametrize("targets", [1, 3])
def test_honest_sums_have_no_finding(targets: int) -> None:
    """Updates add up to more than one clip, and a sum that is listed for several clients is no reuse."""
    for noise in (1.0, 0.3, 0.01):
        found = check(sums_of(generator_for(0, "sums"), sums=2, targets=targets, noise=noise, numbers=40_000))
        assert outcomes(found, "found") == set()
        assert len(found.clients) == 2 * targets
        assert participants_row(found)["outcome"] == ("not checked" if noise == 0.01 else "passed")


@pytest.mark.parametrize("silent", [1, 4])
def test_participants_that_add_no_noise_are_counted(silent: int) -> None:
    found = check(sums_of(generator_for(0, "sums"), silent=silent, targets=2, numbers=20_000))
    row = participants_row(found)
    assert row["outcome"] == "found"
    assert row["measured"] == pytest.approx(silent, abs=0.3)
    assert f"if {silent} of 10 participants added none" in str(row["text"])
    assert row["clients"] == 2
    assert (found.findings > 0).all()
    assert float(found.ratio[0]) == pytest.approx(math.sqrt(1 - silent / 10), rel=0.02)


def test_epsilon_of_a_sum_is_that_of_the_noise_of_all() -> None:
    found = check(sums_of(generator_for(0, "sums"), noise=0.5))
    expected = gaussian_epsilon((2 / 0.5) ** 2 / 10, 1e-5)
    assert found.declared.tolist() == pytest.approx([expected])
    assert found.epsilon.tolist() == pytest.approx([expected])
    less = check(sums_of(generator_for(0, "sums"), noise=0.5, silent=3, numbers=20_000))
    assert float(less.epsilon) == pytest.approx(gaussian_epsilon((2 / 0.5) ** 2 / 7, 1e-5), rel=0.02)


def test_parameter_without_noise_is_no_silent_participant() -> None:
    view = sums_of(generator_for(0, "sums"), numbers=20_000)
    bare = dataclasses.replace(view, deltas={**view.deltas, "b": view.deltas["b"] / 10})
    found = check(bare)
    assert "noise scale" in outcomes(found, "found")
    assert participants_row(found)["outcome"] == "not checked"


def test_noise_that_all_make_smaller_is_no_silent_participant() -> None:
    """A variance of 0.94 is that of 0.6 of ten participants."""
    found = check(scaled(sums_of(generator_for(0, "sums"), noise=2.0, numbers=200_000), 0.94**0.5, slice(None)))
    assert "noise scale" in outcomes(found, "found")
    assert "whole number" in str(participants_row(found)["text"])


def test_sums_of_several_rounds_have_a_ledger() -> None:
    view = sums_of(generator_for(0, "sums"), sums=2, targets=2, rounds=3, noise=0.5)
    found = check(view.select(torch.arange(11)))  # the last client is in two of three rounds
    worst, median = (row for row in found.rows if "ledger" in str(row["check"]))
    assert worst["messages"] == 3
    assert worst["declared"] == pytest.approx(gaussian_epsilon(3 * (2 / 0.5) ** 2 / 10, 1e-5))
    assert "8 other participants" in str(worst["text"])
    assert "amplifies nothing" in str(worst["text"])
    assert median["messages"] == 3
    twice = gaussian_epsilon(2 * (2 / 0.5) ** 2 / 10, 1e-5)
    assert found.declared.tolist() == pytest.approx([worst["declared"]] * 3 + [twice])
