"""Targets of a secure aggregate: what they are sent, what of theirs the sum holds, what others lay over it."""

from pathlib import Path

import pytest
import torch

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.ranking.codebook import CodebookAttack
from fedleak.core.errors import ViewError
from fedleak.core.scoring import auc_per_victim
from fedleak.defenses.secure_aggregation import SecureSum
from fedleak.recordings.named_algorithm import learner_from
from fedleak.recordings.recording import Recording
from fedleak.server.codebook import Codebook
from fedleak.server.noise_injection import NoiseInjection
from fedleak.server.some_clients import SomeClients
from fedleak.server.targeted import Others, Targeted
from tests.attacks.runs import run, with_deltas
from tests.ranking_toys import ranker, record, source

PARTICIPANTS, TARGETS = 5, 2
"""Of an aggregate, where a test says nothing else."""


def generators(count: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(number) for number in range(count)]


def features(clients: int) -> tuple[torch.Tensor, torch.Tensor]:
    real = torch.rand(clients, 2, 4, 12, generator=torch.Generator().manual_seed(0)) + 1
    return real, torch.ones(clients, 2, 4, dtype=torch.bool)


def test_each_target_has_a_block_that_all_others_lack() -> None:
    real, mask = features(10)
    model = {"ranker.weight": torch.rand(10, 12)}
    plan = Targeted(NoiseInjection(), participants=PARTICIPANTS, targets=TARGETS, share=0.5)
    sent = plan.of_cohort(model, real, mask, generators=generators(10))
    for client in range(10):
        present = sent[client].flatten(0, 1).abs().sum(0) > 0
        place = client % PARTICIPANTS
        expected = torch.zeros(12, dtype=torch.bool)
        expected[place * 3 : place * 3 + 3] = place < TARGETS
        expected[6:] = place >= TARGETS
        assert torch.equal(present, expected)
        assert place < TARGETS or torch.equal(sent[client][..., 6:], real[client][..., 6:])


def test_too_many_targets_are_refused() -> None:
    real, mask = features(1)
    plan = Targeted(NoiseInjection(), participants=20, targets=13)
    with pytest.raises(ViewError, match="targets"):
        plan.of_cohort({"ranker.weight": torch.rand(1, 12)}, real, mask, generators=generators(1))


def test_a_few_clients_are_manipulated_and_all_others_are_not() -> None:
    real, mask = features(4)
    sent = SomeClients(NoiseInjection(), clients=1).of_cohort({}, real, mask, generators=generators(4))
    assert torch.equal(sent[1:], real[1:])
    with pytest.raises(ValueError, match="lists"):
        SomeClients(Codebook(knows="candidates"), clients=1)
    assert not torch.isclose(sent[0], real[0]).any()


def recorded(folder: Path, others: Others, hidden: int, participants: int = PARTICIPANTS) -> Recording:
    data = source(queries_per_client=2, clients_per_round=25)
    plan = Targeted(Codebook(), participants=participants, targets=TARGETS, others=others)
    aggregation = SecureSum(participants=participants, targets=TARGETS)
    return record(folder, data, ranker(data, manipulation=plan, defenses=[aggregation], hidden=hidden))


def mean_auc(recording: Recording, shift: int = 0) -> tuple[float, int]:
    """AUC of the codebook attack where every client has the update of the client `shift` places before it."""
    (view,) = recording.views(learner=learner_from(recording.manifest.learner))
    scores = run(CodebookAttack(), with_deltas(view, lambda delta: delta.roll(shift, 0)), InteractionEstimate).scores
    return float(auc_per_victim(scores, recording.truth(view)["labels"], view.served_mask).nanmean()), view.victims


@pytest.mark.integration
@pytest.mark.parametrize("hidden", [0, 4])
def test_the_sum_gives_away_its_targets(tmp_path: Path, hidden: int) -> None:
    auc, victims = mean_auc(recorded(tmp_path, "silenced", hidden))
    assert victims == 25 // PARTICIPANTS * TARGETS
    assert auc > 0.99


@pytest.mark.integration
def test_the_attack_on_other_clients_is_at_chance(tmp_path: Path) -> None:
    assert mean_auc(recorded(tmp_path, "silenced", 0), shift=3)[0] < 0.7


@pytest.mark.integration
def test_honest_updates_of_the_others_cover_the_targets(tmp_path: Path) -> None:
    silenced = mean_auc(recorded(tmp_path / "silenced", "silenced", 0, participants=25))[0]
    assert silenced > 0.99
    assert mean_auc(recorded(tmp_path / "honest", "honest", 0, participants=25))[0] < silenced - 0.1
