"""The published residual tells members of long texts by the place that a class is read from, and by no other."""

import dataclasses

import pytest
import torch

from fedleak.attacks.record_membership.candidate_fit import CandidateFit
from fedleak.attacks.record_membership.estimates import RecordMembershipEstimate
from fedleak.attacks.record_membership.pool import PoolAttack
from fedleak.attacks.record_membership.projres import ProjRes
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.core.errors import ViewError
from fedleak.core.view import CANDIDATES
from tests.attacks.runs import of_noise, of_others, run
from tests.long_texts import BERT, CLIENTS, Kind, classifier, toy, with_more_padding
from tests.membership_toys import scored
from tests.transformer_toys import algorithm

pytestmark = pytest.mark.integration
KINDS: list[Kind] = ["decoder", "encoder"]
BOTH = [CandidateFit(), ProjRes()]
EPOCH = LocalTraining(learning_rate=0.2, batch_size=3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attack", BOTH, ids=lambda attack: attack.name)
def test_members_of_one_step_are_found_exactly(attack: PoolAttack, kind: Kind) -> None:
    """The last adapted layer reads one place for each text: fewer than its rows, however long the texts are."""
    auc = scored(attack, *toy(kind))
    assert auc == 1 if attack.name == "candidate-fit" or kind == "decoder" else auc > 0.9


def test_ours_holds_for_an_epoch_of_batches() -> None:
    assert scored(CandidateFit(), *toy("decoder", EPOCH)) > 0.95


def test_solvers_agree_where_rows_are_independent() -> None:
    assert scored(ProjRes(solver="published"), *toy("decoder")) == scored(ProjRes(), *toy("decoder"))


@pytest.mark.parametrize("attack", BOTH, ids=lambda attack: attack.name)
def test_another_clients_update_noise_and_other_members_say_nothing(attack: PoolAttack) -> None:
    view, truth = toy("decoder")
    assert scored(attack, of_others(view), truth) < 0.6
    assert abs(scored(attack, of_noise(view), truth) - 0.5) < 0.15
    order = torch.randperm(truth["member"].shape[1], generator=torch.Generator().manual_seed(0))
    shuffled = {**truth, "member": truth["member"][:, order]}
    assert abs(scored(attack, view, shuffled) - 0.5) < 0.2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("attack", BOTH, ids=lambda attack: attack.name)
def test_padding_does_not_enter(attack: PoolAttack, kind: Kind) -> None:
    view, _ = toy(kind)
    padded = with_more_padding(view)
    scores = run(attack, view, RecordMembershipEstimate).scores
    scores_with_more = run(attack, padded, RecordMembershipEstimate).scores
    assert torch.allclose(scores, scores_with_more, rtol=1e-2, atol=1e-3)


def test_the_place_is_that_which_the_prediction_is_read_from() -> None:
    texts = torch.tensor([[5, 6, 7, 0], [5, 6, 7, 8]])
    assert classifier("decoder").read_place(texts).tolist() == [2, 3]
    assert classifier("encoder").read_place(texts).tolist() == [0, 0]
    # After the last token of a text nothing is predicted.
    assert algorithm().read_place(texts).tolist() == [1, 2]


def test_adapters_whose_a_did_not_move_are_refused() -> None:
    view, _ = toy("decoder")
    still = {name: torch.zeros_like(value) if "lora_A" in name else value for name, value in view.deltas.items()}
    with pytest.raises(ViewError, match="whose A moved"):
        ProjRes()(dataclasses.replace(view, deltas=still), generator=torch.Generator())


def test_long_texts_take_work() -> None:
    """A multiplication and an addition for each weight and token, and on the way back."""
    texts = toy("encoder")[0].auxiliary[CANDIDATES]
    width, inner = BERT["hidden_size"], BERT["intermediate_size"]
    of_layers = BERT["num_hidden_layers"] * (4 * width * width + 2 * width * inner)
    assert classifier("encoder").gradient_work(texts) >= 4 * of_layers * texts.shape[1]
    assert len(texts) == 4 * CLIENTS * 3
