"""All defences of the project, found by looking: any two of them compose, and none loses a field of the update."""

import dataclasses
import functools
import inspect
import itertools
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.cli import instantiate_module
from torch import Tensor

from fedleak import defenses
from fedleak.attacks.ranking.priors import PriorOnly
from fedleak.attacks.recommendation.item_deltas import Direction
from fedleak.core.class_paths import classes_in
from fedleak.core.described import described
from fedleak.core.errors import InputError
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.datamodules.ranking.synthetic_ranking import SyntheticRanking
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.defenses.base import Defense, Update, hold_back
from fedleak.defenses.canaries import Canaries
from fedleak.defenses.device_noise import DeviceNoise
from fedleak.defenses.kept_back import KeptBack
from fedleak.defenses.local_dp import LocalDP
from fedleak.defenses.refusal import RefuseProbes
from fedleak.defenses.row_noise import RowNoise
from fedleak.defenses.secure_aggregation import PerElementSum, SecureAggregation, SecureSum
from fedleak.defenses.update_l1 import UpdateL1
from fedleak.evaluation.guardrail import Guardrail
from fedleak.modules.learners.fncf import FNCF
from fedleak.training.federated import FederatedModule
from fedleak.training.round_record import RoundRecord
from tests import ranking_toys as rankings
from tests import toys

ROWS, WHOLE = "rows", "whole"
"""A learner of whose item table the clients send rows, and one whose clients send all parameters whole."""

OPTIONS: dict[type[Defense], dict[str, Any]] = {
    DeviceNoise: {"clients": range(40)},
    LocalDP: {"epsilon": 50, "delta": 1e-5},
    SecureAggregation: {"noise_scale": 0.1},
}
"""Options of defences where neither a default nor `EXAMPLES` is right."""
OF_A_LEARNER: dict[tuple[type[Defense], str], dict[str, Any]] = {
    (Guardrail, ROWS): {"limit": 0.6, "attacks": [Direction()]},
    (Guardrail, WHOLE): {"limit": 0.6, "attacks": [PriorOnly(prior="uniform")]},
    (UpdateL1, WHOLE): {"parameters": ["ranker.weight"]},
    (KeptBack, ROWS): {"parameters": [ITEM_EMBEDDING]},
    (KeptBack, WHOLE): {"parameters": ["ranker.*"]},
}
EXAMPLES: dict[type, float] = {float: 0.1, int: 2}
"""Value of an argument without a default, by its type."""

CHANGES: dict[type[Defense], set[str]] = {LocalDP: {"deltas", "background_scale"}, Guardrail: {"deltas", "sent"}}
"""Fields of an update that a defence changes; the others change the deltas at most."""


STAY = {"private", "losses"}
"""Fields that the round has taken out before a defence gets the update."""


KINDS = sorted([*classes_in(defenses, Defense), Guardrail], key=lambda kind: kind.__name__)
PAIRS = list(itertools.product(KINDS, repeat=2))


def made(kind: type[Defense], learner: str) -> Defense:
    """A defence as a learner needs it."""
    options = {**OPTIONS.get(kind, {}), **OF_A_LEARNER.get((kind, learner), {})}
    needed = [p for p in inspect.signature(kind).parameters.values() if p.default is p.empty and p.name not in options]
    given = {p.name: next(value for t, value in EXAMPLES.items() if issubclass(p.annotation, t)) for p in needed}
    return kind(**given, **options)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_arguments_in_a_checkpoint_make_the_same_defence(kind: type[Defense]) -> None:
    defense = made(kind, ROWS)
    arguments = described(FNCF, FNCF(num_items=2, num_clients=1, defenses=[defense]).hparams)
    again = instantiate_module(FNCF, {name: value for name, value in arguments.items() if name[0] != "_"}).defenses[0]
    assert type(again) is kind
    assert described(kind, vars(again)) == described(kind, vars(defense))


@functools.cache
def source(kind: str) -> SyntheticRecommender | SyntheticRanking:
    return toys.data() if kind == ROWS else rankings.source(queries_per_client=2, clients_per_round=12)


def made_module(kind: str, chosen: list[Defense]) -> FederatedModule:
    data = source(kind)
    if isinstance(data, SyntheticRanking):
        return rankings.ranker(data, defenses=chosen)
    return toys.model(data, defenses=tuple(chosen))


def one_round(folder: Path, kind: str, chosen: list[Defense]) -> tuple[FederatedModule, RoundRecord]:
    module = made_module(kind, chosen)
    toys.quiet_trainer(1, folder, last := toys.LastRecord()).fit(module, datamodule=source(kind))
    return module, last.record


@functools.cache
def fits(kind: type[Defense], learner: str) -> bool:
    """Whether a learner's clients can have a defence."""
    module = made_module(learner, [made(kind, learner)])
    public = module.public_parameters()
    try:
        update, _ = module.client_updates(module.interact(source(learner).cohort(0), public), public)
        module.defenses[0].server_sees(update)
    except InputError:
        return False
    return True


def test_defences_that_a_learner_cannot_have_are_refused() -> None:
    for learner, kinds in {
        ROWS: (PerElementSum, SecureAggregation, SecureSum),
        WHOLE: (RefuseProbes, RowNoise),
    }.items():
        assert not any(fits(kind, learner) for kind in kinds)
        assert fits(LocalDP, learner)


def misfits(first: type[Defense], second: type[Defense], learner: str) -> list[str]:
    """Names of those of two defences that must refuse: they do not fit the learner, or one another."""
    if learner == ROWS and first is second is LocalDP:
        return ["LocalDP"]
    if second is Canaries and first in (LocalDP, RowNoise, SecureAggregation):
        return ["Canaries", first.__name__]
    return [kind.__name__ for kind in (first, second) if not fits(kind, learner)]  # type: ignore[arg-type]


@pytest.mark.integration
@pytest.mark.parametrize("learner", [ROWS, WHOLE])
@pytest.mark.parametrize("first", KINDS, ids=lambda kind: kind.__name__)
def test_any_two_defences_go_through_a_round(first: type[Defense], learner: str, tmp_path: Path) -> None:
    for second in KINDS:
        both_go_through_a_round(first, second, learner, tmp_path / second.__name__)


def both_go_through_a_round(first: type[Defense], second: type[Defense], learner: str, tmp_path: Path) -> None:
    chosen = [made(kind, learner) for kind in (first, second)]
    if refused := misfits(first, second, learner):
        with pytest.raises(InputError, match="|".join([*refused, "whole update is sent"])):
            one_round(tmp_path, learner, chosen)
        return
    module, record = one_round(tmp_path, learner, chosen)
    update = record.update
    assert update.clients is not None
    assert torch.equal(update.clients, record.cohort.clients)
    assert set(update.rows) == set(module.row_parameters)
    assert update.sent is None or len(update.sent) == len(update.clients)
    assert (Guardrail in (first, second)) <= (update.sent is not None)
    assert len(record.participants) == 12
    for name, value in update.deltas.items():
        assert len(value) == len(update.clients)
        assert bool(value.isfinite().all())
        assert not torch.equal(module.public_parameters()[name], record.model[name]) or not bool(value.any())


def full_update(learner: str) -> Update:
    """An update in which no field has its default."""
    draws = torch.Generator().manual_seed(0)
    rows = {ITEM_EMBEDDING: torch.tensor([[0, 2, -1], [1, 2, 3], [4, -1, -1], [0, 1, -1]])} if learner == ROWS else {}
    deltas = {"ranker.weight": torch.randn(4, 5, generator=draws)}
    if learner == ROWS:
        deltas[ITEM_EMBEDDING] = torch.randn(4, 3, 2, generator=draws) * (rows[ITEM_EMBEDDING] >= 0)[..., None]
    return Update(
        deltas,
        rows,
        background_scale={"other": 0.5},
        sent=torch.tensor([True, False, True, True]),
        clients=torch.tensor([7, 3, 9, 4]),
    )


def same(one: object, other: object) -> bool:
    """Whether two fields of an update are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return bool(one == other)


@pytest.mark.parametrize("learner", [ROWS, WHOLE])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_defence_keeps_every_field_that_it_does_not_change(kind: type[Defense], learner: str) -> None:
    if not fits(kind, learner):  # type: ignore[arg-type]
        pytest.skip("the learner cannot have it")
    defense, update = made(kind, learner), full_update(learner)
    protected = defense.protect(update, [torch.Generator().manual_seed(seed) for seed in range(4)].__getitem__)
    seen, positions = defense.server_sees(protected)
    kept = torch.arange(4) if positions is None else positions
    for field in {f.name for f in dataclasses.fields(Update)} - CHANGES.get(kind, {"deltas"}) - STAY:
        before, after = getattr(update, field), getattr(protected, field)
        assert same(before, after), field
        cut = before[kept] if isinstance(before, Tensor) else before
        assert same(cut, getattr(seen, field)), field


def test_holding_back_keeps_the_other_fields() -> None:
    update = full_update(ROWS)
    held = hold_back(update, torch.tensor([True, True, False, True]))
    assert held.sent is not None
    assert held.sent.tolist() == [True, False, False, True]
    for field in {f.name for f in dataclasses.fields(Update)} - {"deltas", "sent"}:
        assert same(getattr(update, field), getattr(held, field)), field


@pytest.mark.integration
@pytest.mark.inventory
def test_a_rank_without_clients_sends_nothing_through_any_two_defences() -> None:
    for (first, second), learner in itertools.product(PAIRS, (ROWS, WHOLE)):
        if misfits(first, second, learner):
            continue
        module = made_module(learner, [made(kind, learner) for kind in (first, second)])
        cohort = source(learner).cohort(0).select(torch.zeros(0, dtype=torch.int64))
        update, loss = module.client_updates(cohort, module.public_parameters())
        assert math.isfinite(float(loss))
        assert update.clients is not None
        assert all(len(value) == 0 for value in [*update.deltas.values(), *update.rows.values(), update.clients])
