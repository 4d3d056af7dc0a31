"""Members are found in updates of adapters, by SGD and Adam; where the update is of other texts, nothing is."""

import dataclasses

import pytest
import torch

from fedleak.attacks.record_membership.candidate_fit import CandidateFit
from fedleak.attacks.record_membership.pool import PoolAttack, ServerPool
from fedleak.attacks.record_membership.projection_residual import ProjectionResidual
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import ViewError
from fedleak.core.progress import progress_listener
from fedleak.core.view import CANDIDATE_LABELS, CANDIDATES
from tests.adapter_toys import EACH, EPOCH, RANK, toy
from tests.attacks.runs import of_noise, of_others
from tests.membership_toys import as_history, scored
from tests.transformer_toys import algorithm, moved_model

pytestmark = pytest.mark.integration
ADAM = LocalTraining(learning_rate=1e-3, optimizer="adam", batch_size=4)
BOTH = [CandidateFit(), ProjectionResidual()]


@pytest.mark.parametrize("local", [EPOCH, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize("attack", BOTH, ids=lambda attack: attack.name)
def test_members_are_found(attack: PoolAttack, local: LocalTraining) -> None:
    assert scored(attack, *toy(local)) > (0.95 if attack.name == "candidate-fit" else 0.8)


@pytest.mark.parametrize("attack", BOTH, ids=lambda attack: attack.name)
def test_another_clients_update_and_noise_say_nothing(attack: PoolAttack) -> None:
    view, truth = toy(EPOCH)
    assert scored(attack, of_others(view), truth) < 0.55
    assert abs(scored(attack, of_noise(view, 0), truth) - 0.5) < 0.1


@pytest.mark.parametrize("local", [EPOCH, ADAM], ids=["sgd", "adam"])
def test_where_gradients_take_long_all_clients_share_a_line_and_members_are_found(
    local: LocalTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedleak.attacks.record_membership.candidate_fit._SLOW_WORK", 0)
    view, truth = toy(local)
    shares = list[float]()
    with progress_listener(shares.append):
        auc = scored(CandidateFit(most_work=1), view, truth)
    assert auc > 0.95
    # Progress is that of the gradients, which are as many as were expected, for all clients together.
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_one_step_tells_weights_of_texts_of_any_length_exactly() -> None:
    """A record's part in a mean over tokens is its share of the tokens."""
    view, truth = toy(LocalTraining(learning_rate=0.5, batch_size=None), sizes=True)
    assert scored(CandidateFit(), view, truth) == 1
    sizes = ServerPool.of(view).sizes
    predictions = (view.auxiliary[CANDIDATES][:, 1:] > 0).sum(1)
    assert torch.allclose(sizes * predictions.float().mean(), predictions.float())


def test_the_published_attack_is_exact_below_the_rows_only() -> None:
    """Two texts of 7 places are fewer than 32 rows, eight are more than 4; ours reads all adapters together."""
    for rank, records, exact in ((RANK, 2, True), (2, EACH, False)):
        own, generator = algorithm(EPOCH, rank=rank), torch.Generator().manual_seed(3)
        view, truth = toy(EPOCH)
        held = torch.stack([member.nonzero()[:records, 0] for member in truth["member"]])
        member = torch.zeros_like(truth["member"]).scatter_(1, held, 1)
        pool, model = dict(view.auxiliary), moved_model(rank=rank)
        deltas = own.simulate_examples(model, pool[CANDIDATES], pool[CANDIDATE_LABELS], held, generator=generator)
        narrow = as_history(own, model, deltas, pool, records), {**truth, "member": member}
        assert (scored(ProjectionResidual(), *narrow) == 1) == exact
        assert scored(CandidateFit(), *narrow) > 0.999


def test_adapters_whose_a_did_not_move_are_refused() -> None:
    view, _ = toy(EPOCH)
    still = {name: torch.zeros_like(value) if "lora_A" in name else value for name, value in view.deltas.items()}
    with pytest.raises(ViewError, match="whose A moved"):
        ProjectionResidual()(dataclasses.replace(view, deltas=still), generator=torch.Generator())


def test_clients_of_another_algorithm_are_refused() -> None:
    own = algorithm(LocalTraining(learning_rate=0.5, optimizer="adadelta"), rank=RANK)
    view, _ = toy(EPOCH)
    with pytest.raises(ViewError, match="SGD or Adam"):
        CandidateFit()(dataclasses.replace(view, algorithm=own), generator=torch.Generator())
