"""The privacy budget against the calibration, against other accountants, and as a callback of a real training."""

import itertools
import math
from pathlib import Path

import dp_accounting
import pytest
import torch
from dp_accounting import pld, rdp
from lightning import Trainer
from torch import Tensor

from fedleak.attacks.ranking.priors import PriorOnly
from fedleak.callbacks.privacy_budget import PrivacyBudget, uncovered_parameters
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import InputError
from fedleak.core.gaussian_budget import composed_epsilon
from fedleak.defenses.base import Defense
from fedleak.defenses.local_dp import LocalDP
from fedleak.defenses.secure_aggregation import SecureSum
from fedleak.defenses.update_l1 import UpdateL1
from fedleak.evaluation.guardrail import Guardrail
from tests.callbacks.toy import Toy, rounds
from tests.ranking_toys import ranker, source
from tests.toys import quiet_trainer
from tests.two_ranks import TwoRanks


@pytest.mark.parametrize(
    ("epsilon", "least"), [(0.3, 0.5), (1.0, 0.5), (2.0, 0.99), (5.0, 0.99), (100.0, 0.99), (500.0, 0.99)]
)
def test_one_round_spends_what_was_calibrated_or_less_by_the_classical_formula(epsilon: float, least: float) -> None:
    budget = PrivacyBudget(delta=1e-8)
    budget.count(torch.tensor([0]))
    spent = budget.spent([LocalDP(clip=0.05, epsilon=epsilon, delta=1e-8)])
    assert least * epsilon < spent < epsilon * (1 if least < 0.9 else 1.01)


def test_agrees_with_the_pld_accountant_and_stays_below_renyi() -> None:
    """Two mechanisms in each of 7 sends."""
    multipliers, rounds, delta = (4.0, 7.0), 7, 1e-6
    exact = composed_epsilon(multipliers, rounds, delta)
    event = dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(z) for z in multipliers])
    tight = pld.PLDAccountant(value_discretization_interval=1e-3).compose(event, rounds).get_epsilon(delta)
    loose = rdp.RdpAccountant().compose(event, rounds).get_epsilon(delta)
    assert exact == pytest.approx(tight, rel=2e-3)
    assert exact < loose


def test_the_client_that_took_part_most_often_counts() -> None:
    budget = PrivacyBudget()
    for clients in ([0, 2], [2, 5], [], [1]):
        budget.count(torch.tensor(clients, dtype=torch.int64))
    assert budget.participations.tolist() == [1, 1, 2, 0, 0, 1]
    defense = LocalDP(clip=1.0, epsilon=3.0, delta=1e-5)
    assert budget.spent([defense]) == composed_epsilon((defense.noise_scale / 2.0,), 2, 1e-5)


def test_grows_with_the_rounds_and_begins_at_zero() -> None:
    spent = [composed_epsilon((5.0,), rounds, 1e-5) for rounds in range(6)]
    assert spent[0] == 0.0
    assert all(before < after for before, after in itertools.pairwise(spent))


def test_without_noise_epsilon_is_infinite() -> None:
    budget = PrivacyBudget()
    budget.count(torch.tensor([3]))
    assert budget.spent([UpdateL1(strength=1.0)]) == math.inf
    assert budget.spent([LocalDP(clip=1.0, epsilon=math.inf, delta=1e-5)]) == math.inf


def test_names_what_is_not_covered() -> None:
    half = LocalDP(clip=1.0, epsilon=1.0, delta=1e-5, parameters=["mlp.*"])
    names = ("item_embedding.weight", "mlp.0.bias")
    assert uncovered_parameters([half], names) == ("item_embedding.weight",)
    assert uncovered_parameters([LocalDP(clip=1.0, epsilon=1.0, delta=1e-5)], names) == ()


def test_state_goes_on_counting() -> None:
    first, second = PrivacyBudget(), PrivacyBudget()
    first.count(torch.tensor([0, 4]))
    second.load_state_dict(first.state_dict())
    second.count(torch.tensor([4]))
    assert second.participations.tolist() == [1, 0, 0, 0, 2]
    assert first.participations.tolist() == [1, 0, 0, 0, 1]


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_impossible_delta_is_refused(delta: float) -> None:
    with pytest.raises(InputError, match="delta between"):
        PrivacyBudget(delta=delta)


def fit(folder: Path, budget: PrivacyBudget, defenses: list[Defense], *, steps: int, ckpt: Path | None) -> Trainer:
    trainer = quiet_trainer(steps, folder, budget)
    trainer.fit(Toy(defenses), rounds(0 if ckpt is None else 2), ckpt_path=ckpt)
    return trainer


@pytest.mark.integration
def test_logged_while_training_and_resumed(tmp_path: Path) -> None:
    """Round r trains clients r and r + 1: from the second round on, somebody took part twice."""
    defense = LocalDP(clip=0.5, epsilon=3.0, delta=1e-5)
    first = fit(tmp_path, PrivacyBudget(), [defense], steps=2, ckpt=None)
    twice = composed_epsilon((defense.noise_scale / defense.sensitivity,), 2, 1e-5)
    assert float(first.callback_metrics["privacy/epsilon"]) == pytest.approx(twice)
    first.save_checkpoint(tmp_path / "two.ckpt")
    resumed = PrivacyBudget()
    fit(tmp_path, resumed, [defense], steps=4, ckpt=tmp_path / "two.ckpt")
    assert resumed.participations.tolist() == [1, 2, 2, 2, 1]


@pytest.mark.integration
def test_an_uncovered_parameter_makes_epsilon_infinite(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = fit(tmp_path, PrivacyBudget(), [], steps=1, ckpt=None)
    assert float(trainer.callback_metrics["privacy/epsilon"]) == math.inf
    assert "no local DP covers weight" in caplog.text


def test_two_ranks_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rounds, the last of which holds nobody."""
    ranks = TwoRanks(monkeypatch)

    def counted(rank: int) -> list[int]:
        budget = PrivacyBudget()
        for clients in ([0, 3, 4], [4, 1], []):
            share = torch.tensor([client for client in clients if client % 2 == rank], dtype=torch.int64)
            budget.count(share, world_size=2)
        return budget.participations.tolist()

    assert ranks.run(counted) == [[1, 1, 0, 1, 2]] * 2


def ranked(folder: Path, defenses: list[Defense]) -> tuple[float, Tensor]:
    """Epsilon after two rounds of a ranker, and how often each client was counted."""
    data = source(queries_per_client=2, clients_per_round=20)
    budget = PrivacyBudget(delta=1e-8)
    trainer = quiet_trainer(2, folder, budget)
    trainer.fit(ranker(data, defenses=defenses), datamodule=data)
    return float(trainer.callback_metrics["privacy/epsilon"]), budget.participations


@pytest.mark.integration
def test_a_secure_sum_spends_what_its_clients_spend_without_it(tmp_path: Path) -> None:
    """The recording of a sum holds the targets alone; all who took part have spent."""
    private = LocalDP(clip=0.25, epsilon=20, delta=1e-8)
    alone, clients = ranked(tmp_path, [private])
    summed, counted = ranked(tmp_path, [private, SecureSum(participants=10, noise_scale=private.noise_scale)])
    assert int(clients.sum()) == 40
    assert torch.equal(counted, clients)
    assert summed == alone


@pytest.mark.integration
def test_a_client_that_holds_back_counts_as_one_that_sends(tmp_path: Path) -> None:
    private = LocalDP(clip=0.25, epsilon=20, delta=1e-8)
    silent = Guardrail(limit=0.0, attacks=[PriorOnly(prior="uniform")])
    assert ranked(tmp_path, [private, silent])[0] == ranked(tmp_path, [private])[0]


def test_private_local_training_spends_one_mechanism_per_pass_on_an_example() -> None:
    budget = PrivacyBudget(delta=1e-5)
    budget.count(torch.tensor([0, 1]))
    budget.count(torch.tensor([1]))
    local = LocalTraining(batch_size=4, epochs=3, example_clip=1.0, noise_multiplier=4.0)
    # Replacing an example moves a clipped sum by at most twice the clip; each of 2 rounds has 3 passes.
    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(4.0 / 2), 2 * 3)
    tight = pld.PLDAccountant(value_discretization_interval=1e-3).compose(event).get_epsilon(1e-5)
    assert budget.spent_on_examples(local) == pytest.approx(tight, rel=2e-3)
    batches = LocalTraining(batch_size=4, updates=5, example_clip=1.0, noise_multiplier=4.0)
    assert budget.spent_on_examples(batches) == composed_epsilon((2.0,), 10, 1e-5)
    assert budget.spent_on_examples(LocalTraining(example_clip=1.0)) == math.inf
