"""The guardrail: who is exposed keeps silent and has no weight, and nobody else."""

import math
from pathlib import Path

import pytest
import torch

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.ranking.codebook import CodebookAttack
from fedleak.attacks.ranking.list_posterior import ListPosterior
from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.core.attack import Attack
from fedleak.core.errors import InputError, ViewError
from fedleak.core.threat_model import ThreatModel
from fedleak.core.view import RoundView
from fedleak.datamodules.ranking.synthetic_ranking import SyntheticRanking
from fedleak.defenses.base import Update
from fedleak.defenses.local_dp import LocalDP
from fedleak.evaluation.guardrail import Guardrail
from fedleak.modules.learners.fpdgd import FPDGD
from fedleak.server.codebook import Codebook
from fedleak.training.round_record import RoundRecord
from tests.toys import LastRecord, quiet_trainer


class Reader(Attack):
    """Takes the update for the interactions."""

    name, family = "reader", "test"
    estimates = InteractionEstimate
    threat_model = ThreatModel(sees="updates", knows="nothing")

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        return InteractionEstimate(scores=view.deltas["w"], decisions=view.deltas["w"] > 0.5)


class Misfit(Reader):
    name = "misfit"

    def run(self, view: RoundView, *, generator: torch.Generator) -> InteractionEstimate:
        raise ViewError("fits nothing")


LABELS = torch.tensor([[1.0, 0, 0, 1], [1, 0, 0, 1], [0, 1, 1, 0], [1, 1, 1, 1]])


def own_view(update: Update) -> tuple[RoundView, torch.Tensor]:
    count = len(update.deltas["w"])
    view = RoundView(
        round=0,
        pseudonyms=torch.arange(count),
        example_counts=torch.ones(count),
        deltas=update.deltas,
        model={},
        served=torch.arange(4).expand(count, 4),
    )
    return view, LABELS[:count]


def review(guardrail: Guardrail, deltas: torch.Tensor) -> Update:
    return guardrail.review(Update({"w": deltas}), own_view, lambda _: torch.Generator())


def test_only_the_exposed_are_held_back() -> None:
    # Read whole; half of it; the wrong way round; all interactions alike, so that there is nothing to tell.
    deltas = torch.stack([LABELS[0], torch.tensor([1.0, 1, 0, 0]), 1 - LABELS[2], LABELS[3]])
    update = review(Guardrail(limit=0.6, attacks=[Misfit(), Reader()]), deltas)
    assert update.sent is not None
    assert update.sent.tolist() == [False, True, True, True]
    assert torch.equal(update.deltas["w"], deltas * torch.tensor([0.0, 1, 1, 1])[:, None])


def test_the_limit_is_where_it_is_said() -> None:
    deltas = torch.tensor([[1.0, 1, 0, 0]])
    for limit, sent in ((0.5, True), (0.49, False)):
        assert bool(review(Guardrail(limit=limit, attacks=[Reader()]), deltas).sent) is sent


@pytest.mark.integration
def test_attacks_are_named_as_in_a_table() -> None:
    guardrail = Guardrail(attacks={"list-posterior": {"prior": "uniform", "sweeps": 7}, "ranking/codebook": {}})
    posterior, codebook = guardrail.attacks
    assert isinstance(posterior, ListPosterior)
    assert (posterior.sweeps, posterior.prior) == (7, "uniform")
    assert isinstance(codebook, CodebookAttack)
    with pytest.raises(InputError, match="list-posterior"):
        Guardrail(attacks={"list-posterior": {"sweep": 7}})


def test_what_cannot_guard_is_refused() -> None:
    with pytest.raises(InputError, match="fits"):
        review(Guardrail(attacks=[Misfit()]), LABELS)
    with pytest.raises(InputError, match="at least one"):
        Guardrail(attacks=[])
    with pytest.raises(InputError, match="limit"):
        Guardrail(limit=1.5, attacks=[Reader()])
    with pytest.raises(InputError, match="decaf, which infers what share of its examples"):
        Guardrail(attacks=["decaf"])


def train(folder: Path, *, epsilon: float, codebook: bool, guarded: bool = True) -> tuple[FPDGD, RoundRecord]:
    data = SyntheticRanking(shape="letor", queries=80, test_queries=4, fewest_documents=4, most_documents=20)
    attacks = [CodebookAttack(), ListPosterior(prior="uniform", sweeps=10, simulated=8, chains=1)]
    private = [LocalDP(clip=0.25, epsilon=epsilon, delta=1e-8)] if math.isfinite(epsilon) else []
    module = FPDGD(
        num_features=data.num_features,
        num_grades=data.num_grades,
        grade_law=data.grade_law,
        manipulation=Codebook() if codebook else None,
        defenses=[*private, *([Guardrail(attacks=attacks)] if guarded else [])],
    )
    quiet_trainer(1, folder, DeltaRecorder(), last := LastRecord()).fit(module, datamodule=data)
    return module, last.record


@pytest.mark.integration
def test_a_codebook_reads_nobody_who_has_a_guardrail(tmp_path: Path) -> None:
    module, record = train(tmp_path, epsilon=math.inf, codebook=True)
    update = record.update
    assert update.sent is not None
    assert not bool(update.sent.any())
    for name, value in module.public_parameters().items():
        assert torch.equal(value, record.model[name])


@pytest.mark.integration
def test_who_sends_makes_the_average_and_nobody_else(tmp_path: Path) -> None:
    module, record = train(tmp_path, epsilon=20, codebook=False)
    sent = record.update.sent
    assert sent is not None
    assert 0 < int(sent.sum()) < len(sent)
    weights = (record.cohort.counts * sent).float()
    for name, value in module.public_parameters().items():
        average = (weights[:, None] * record.update.deltas[name]).sum(0) / weights.sum()
        torch.testing.assert_close(value, record.model[name] + average)


@pytest.mark.integration
def test_what_is_sent_is_what_would_have_been_sent(tmp_path: Path) -> None:
    guarded = train(tmp_path / "with", epsilon=20, codebook=False)[1].update
    free = train(tmp_path / "without", epsilon=20, codebook=False, guarded=False)[1].update
    assert guarded.sent is not None
    assert free.sent is None
    for name, value in guarded.deltas.items():
        assert torch.equal(value[guarded.sent], free.deltas[name][guarded.sent])
        assert not bool(value[~guarded.sent].any())
