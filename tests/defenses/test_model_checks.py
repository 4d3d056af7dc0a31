"""Checks of a received model: by hand on small models, silent on honest ones, and what each server is noticed by."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from fedleak.core.errors import InputError
from fedleak.defenses.model_checks.allow_list import AllowList, model_hash
from fedleak.defenses.model_checks.base import ModelCheck, ReceivedModel, first_active, model_checks
from fedleak.defenses.model_checks.commitment import Commitment
from fedleak.defenses.model_checks.gradient_dominance import GradientDominance
from fedleak.defenses.model_checks.inactive_units import DeadUnits, LoneUnits, excess
from fedleak.defenses.model_checks.jumps import GradientJump, LossJump
from fedleak.defenses.model_checks.nested_units import NestedUnits
from fedleak.defenses.model_checks.proportional_rows import ProportionalRows
from fedleak.defenses.model_checks.server_step import ServerStep
from fedleak.defenses.model_checks.weight_law import WeightLaw, kolmogorov_smirnov
from fedleak.server.imprint import Imprint
from fedleak.server.model_manipulation import ModelManipulation
from fedleak.server.quantile_bias import QuantileBias
from fedleak.server.soliton import Soliton
from fedleak.server.sparse_imprint import SparseImprint
from fedleak.server.suppression import Suppression
from fedleak.server.trap_weights import TrapWeights

UNITS, WIDTH, CLASSES = 80, 60, 5


def network() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(WIDTH, UNITS), nn.ReLU(), nn.Linear(UNITS, CLASSES))


def model(seed: int = 0) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {name: value.detach().clone() for name, value in network().named_parameters()}


def trained(before: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """A model after one honest step."""
    draw = torch.Generator().manual_seed(seed)
    return {name: value + 1e-3 * torch.randn(value.shape, generator=draw) for name, value in before.items()}


def received(seed: int = 0, sent: dict[str, Tensor] | None = None, **fields: Any) -> ReceivedModel:
    draw, before = torch.Generator().manual_seed(seed), model()
    step = trained(before, 100)
    given: dict[str, Any] = {
        "network": network(),
        "model": step if sent is None else sent,
        "reference": before,
        "inputs": torch.rand(16, WIDTH, generator=draw),
        "labels": torch.randint(CLASSES, (16,), generator=draw),
        "own_delta": {name: 1e-3 * torch.randn(value.shape, generator=draw) for name, value in before.items()},
        "allowed": frozenset({model_hash(step)}),
        "commitments": [model_hash(step)] * 3,
    }
    return ReceivedModel(**{**given, **fields})


def test_active_units_are_those_above_zero() -> None:
    own = received()
    expected = own.inputs @ own.model["1.weight"].T + own.model["1.bias"] > 0
    assert torch.equal(first_active(own.network, own.model, own.inputs), expected)
    with pytest.raises(InputError, match="ReLU"):
        first_active(nn.Tanh(), {}, own.inputs)


def test_proportional_rows_is_the_mean_largest_cosine() -> None:
    rows = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    found = ProportionalRows().statistic(received(sent={**model(), "1.weight": rows}))
    assert found == pytest.approx((1 + 1 + 0) / 3)


def test_nested_units_of_thresholds_in_any_order() -> None:
    own = received()
    row, order = torch.rand(WIDTH), torch.randperm(UNITS)
    values = (own.inputs @ row).sort().values
    bias = -torch.linspace(float(values[1]), float(values[-2]), UNITS)[order]
    sent = {**own.model, "1.weight": row.expand(UNITS, WIDTH), "1.bias": bias}
    assert NestedUnits().statistic(received(sent=sent)) == 1
    assert NestedUnits().statistic(own) < 0.5


def test_weight_law_is_that_of_scipy_and_ignores_which_number_is_where() -> None:
    from scipy import stats

    first, second = torch.randn(50), torch.randn(70) + 0.3
    statistic = stats.ks_2samp(first.numpy(), second.numpy()).statistic
    assert kolmogorov_smirnov(first, second) == pytest.approx(statistic * (50 * 70 / 120) ** 0.5)
    assert kolmogorov_smirnov(torch.full((50,), torch.nan), second) == pytest.approx((50 * 70 / 120) ** 0.5)
    shuffled = {name: value.flatten().flip(0).reshape(value.shape) for name, value in model().items()}
    assert WeightLaw().statistic(received(sent=shuffled)) == 0


def test_units_that_no_or_one_example_excites_are_counted_against_a_binomial_law() -> None:
    own = received()
    count, rate = own.active.sum(0), float(own.active_before.double().mean())
    share = 16 * rate * (1 - rate) ** 15
    by_hand = (int((count == 1).sum()) - UNITS * share) / (UNITS * share * (1 - share) + 1) ** 0.5
    assert excess(own, 1) == pytest.approx(by_hand)
    dead = {**own.model, "1.bias": torch.full((UNITS,), -1e3)}
    assert DeadUnits().statistic(received(sent=dead)) > 50 > DeadUnits().statistic(own)
    assert LoneUnits().statistic(received(sent=dead)) <= 0


def test_gradient_dominance_is_one_example_against_the_sum_of_the_others() -> None:
    own = received()
    norms = []
    for one, label in zip(own.inputs, own.labels, strict=True):
        leaves = {name: value.clone().requires_grad_() for name, value in own.model.items()}
        loss = functional.cross_entropy(functional_call(own.network, leaves, (one[None],)), label[None])
        found = torch.autograd.grad(loss, [value for value in leaves.values() if value.dim() > 1])
        norms.append([float(value.norm()) for value in found])
    columns = torch.tensor(norms).T
    ratios = [float(column.max() / (column.sum() - column.max())) for column in columns]
    assert GradientDominance().statistic(own) == pytest.approx(max(ratios), rel=1e-4)


def test_jumps_are_zero_without_a_change_and_grow_with_it() -> None:
    for check in (LossJump(), GradientJump()):
        assert check.statistic(received(sent=model())) == pytest.approx(0, abs=1e-6)
        far = {name: 30 * value for name, value in model().items()}
        assert check.statistic(received(sent=far)) > 1 > check.statistic(received())


def test_server_step_is_in_units_of_the_own_update() -> None:
    own = received()
    assert own.own_delta is not None
    sent = {name: value + 3 * own.own_delta[name] for name, value in own.reference.items()}
    assert ServerStep().statistic(received(sent=sent)) == pytest.approx(3, rel=1e-4)
    assert ServerStep().statistic(received(is_first=True)) == 0


def test_hashes_name_any_change_of_a_number_and_the_frozen_part() -> None:
    own = received()
    other = {name: value.clone() for name, value in own.model.items()}
    other["3.bias"][0] += 1e-6
    assert (AllowList().statistic(own), AllowList().statistic(received(sent=other))) == (0, 1)
    assert AllowList().statistic(received(sent=other, allowed=None)) == 0
    assert model_hash(other, ["1.weight"]) == model_hash(own.model, ["1.weight"])
    assert Commitment().statistic(received(sent=other)) == 1
    assert Commitment().statistic(received(sent=other, commitments=[])) == 0


def test_every_check_gives_a_finite_number_of_an_honest_model() -> None:
    kinds = model_checks()
    assert len({*kinds}) == len(kinds) > 0
    for kind in kinds.values():
        assert torch.isfinite(torch.tensor(kind().statistic(received())))


SERVERS: list[tuple[ModelManipulation, tuple[type[ModelCheck], ...]]] = [
    (Imprint(), (ProportionalRows, NestedUnits)),
    (SparseImprint(), (ProportionalRows, Commitment)),
    (TrapWeights(scale=0.5), (WeightLaw, DeadUnits)),
    (QuantileBias(records=64), (WeightLaw, DeadUnits)),
    (Soliton(records=64), (WeightLaw, ServerStep)),
    (Suppression(participants=2), (DeadUnits, Commitment)),
]


@pytest.mark.parametrize(("server", "noticed_by"), SERVERS, ids=lambda value: getattr(value, "name", ""))
def test_servers_are_noticed_by_checks_that_honest_rounds_pass(
    server: ModelManipulation, noticed_by: tuple[type[ModelCheck], ...]
) -> None:
    known = torch.rand(200, WIDTH, generator=torch.Generator().manual_seed(9))
    made = server.sent(model(), known, torch.arange(4), generator=torch.Generator().manual_seed(1))
    honest = [received(seed) for seed in range(20)]
    sent = {name: value[-1] for name, value in made.models.items()}
    victims = [dataclasses.replace(own, model=sent) for own in honest]
    for kind in noticed_by:
        limit = max(kind().statistic(own) for own in honest)
        assert all(kind().statistic(own) > limit for own in victims)
