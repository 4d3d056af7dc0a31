"""FOLtR-ES: what is sent is the metric, what the server makes of it is a gradient, and no gradient reads the clicks."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.ranking.list_matching import ListMatching
from fedleak.attacks.ranking.list_posterior import ListPosterior
from fedleak.attacks.ranking.metric_posterior import MetricPosterior
from fedleak.attacks.ranking.priors import PriorOnly
from fedleak.client.foltr_es import UTILITY
from fedleak.client.list_priors import ListPrior
from fedleak.client.ranked_lists import ranked_lists
from fedleak.client.ranking import RankingAlgorithm
from fedleak.core.errors import InputError, ViewError
from fedleak.core.rankers import rank_scores
from fedleak.core.scoring import auc_per_victim
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.datamodules.ranking.synthetic_ranking import SyntheticRanking
from fedleak.defenses.base import Update
from fedleak.modules.learners.foltr_es import FOLtRES
from fedleak.recordings.named_algorithm import learner_from
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording
from fedleak.training.server_optimizer import ServerOptimizer
from tests.ranking_toys import ndcg, source
from tests.ranking_toys import record as record_parameters
from tests.toys import LastRecord


def ranker(data: SyntheticRanking, **options: object) -> FOLtRES:
    return FOLtRES(
        num_features=data.num_features,
        num_grades=data.num_grades,
        grade_law=data.grade_law,
        **options,  # type: ignore[arg-type]
    )


def record(folder: Path, data: SyntheticRanking, module: FOLtRES, rounds: int = 1, **more: Any) -> Recording:
    return record_parameters(folder, data, module, rounds, [UTILITY], **more)


def first_view(recording: Recording) -> RoundView:
    return next(recording.views(victims_per_view=1000, learner=learner_from(recording.manifest.learner)))


@pytest.mark.parametrize("hidden", [0, 3])
@pytest.mark.parametrize("antithetic", [True, False])
def test_the_server_makes_a_gradient_of_what_was_sent(hidden: int, antithetic: bool) -> None:
    data = source()
    module = ranker(data, hidden=hidden, antithetic=antithetic, noise_scale=0.1)
    model = module.public_parameters()
    cohort = module.interact(data.cohort(0), model)
    update, loss = module.client_updates(cohort, model)
    sent = update.deltas[UTILITY]
    assert sent.shape == (len(cohort), 2 if antithetic else 1)
    assert float(loss) == pytest.approx(-float(sent.mean()))
    estimated = module.as_deltas(update, cohort, model).deltas
    for client, own in enumerate(cohort.clients.tolist()):
        draw = generator_for(module.seed, "perturbation", cohort.round, own)
        gain = (sent[client, 0] - sent[client, 1]) / 2 if antithetic else sent[client, 0]
        for name, value in model.items():
            noise = torch.randn(value.shape, generator=draw)
            torch.testing.assert_close(estimated[name][client], gain * noise / 0.1)


def test_lists_are_ranked_by_the_perturbed_scores() -> None:
    data = source()
    module = ranker(data, hidden=3)
    model = module.public_parameters()
    cohort = module.interact(data.cohort(0), model)
    half = cohort.mask.shape[1] // 2
    draw = generator_for(0, "perturbation", 0, int(cohort.clients[0]))
    noise = {name: torch.randn(value.shape, generator=draw) * module.noise_scale for name, value in model.items()}
    for sign, lists in ((1, slice(0, half)), (-1, slice(half, None))):
        ranked = {name: (model[name] + sign * noise[name])[None] for name in model}
        scores = rank_scores(ranked, cohort.examples["features"][:1, lists])[0]
        shown = cohort.examples["shown"][0, lists]
        falls = (scores[:, :-1] - scores[:, 1:])[shown[:, 1:]]
        assert float(falls.min()) >= -1e-7


@pytest.mark.integration
def test_a_recording_holds_the_numbers_and_the_lists_and_no_update(tmp_path: Path) -> None:
    data = source()
    module = ranker(data)
    view = first_view(record(tmp_path, data, module, more=[last := LastRecord()]))
    assert set(view.deltas) == {UTILITY}
    assert ranked_lists(view).mask.shape[:2] == (data.num_clients, 2 * data.queries_per_client)
    sent = {tuple(row) for row in last.record.update.deltas[UTILITY].tolist()}
    assert {tuple(row) for row in view.deltas[UTILITY].tolist()} == sent
    with pytest.raises(ViewError, match=r"ranker\.weight"):
        ListPosterior()(view, generator=torch.Generator())


@pytest.mark.integration
def test_a_recorded_learner_sends_as_many_numbers_as_were_recorded(tmp_path: Path) -> None:
    data = source()
    recording = record(tmp_path, data, ranker(data))
    assert getattr(recorded_learner(recording), "numbers", None) == 2
    recording.manifest.learner["arguments"]["numbers"] = 3  # type: ignore[index]
    with pytest.raises(InputError, match="3 numbers of a client"):
        recorded_learner(recording)


@pytest.mark.integration
def test_what_is_sent_is_constant_in_the_clicks_and_gradient_matching_stays_at_chance(tmp_path: Path) -> None:
    data = source()
    recording = record(tmp_path, data, ranker(data))
    view = first_view(recording)
    labels = recording.truth(view)["labels"]
    lists = ranked_lists(view)
    draws = torch.rand(lists.mask.shape, generator=torch.Generator().manual_seed(0))
    # Off the jump at a half.
    clicks = torch.where((draws - 0.5).abs() < 0.01, 0.6, draws).requires_grad_()
    assert lists.features is not None
    sent = view.require(RankingAlgorithm).simulate_lists(view.model, lists.features, lists.mask, clicks)[UTILITY]
    (gradient,) = torch.autograd.grad(sent.sum(), clicks)
    assert float(gradient.abs().max()) == 0
    nearby = view.require(RankingAlgorithm).simulate_lists(
        view.model, lists.features, lists.mask, clicks.detach().mul(0.999)
    )
    assert torch.equal(nearby[UTILITY], sent.detach())
    attack = ListMatching(max_iter=20)
    matched = attack(view, generator=generator_for(0, "attack"))
    turned = {UTILITY: view.deltas[UTILITY].roll(1, 0)}
    elsewhere = attack(dataclasses.replace(view, deltas=turned), generator=generator_for(0, "attack"))
    assert isinstance(matched, InteractionEstimate)
    assert isinstance(elsewhere, InteractionEstimate)
    assert torch.equal(matched.scores, elsewhere.scores)
    assert abs(float(auc_per_victim(matched.scores, labels, view.served_mask).nanmean()) - 0.5) < 0.1


@pytest.mark.integration
def test_the_simulation_sends_what_clients_send(tmp_path: Path) -> None:
    data = source()
    for metric in ("max-rr", "dcg"):
        recording = record(tmp_path / metric, data, ranker(data, metric=metric))
        view = first_view(recording)
        lists = ranked_lists(view)
        labels = recording.truth(view)["labels"]
        clicks = torch.zeros(lists.mask.shape).flatten(1)
        clicks = clicks.scatter_add(1, lists.place, labels * view.served_mask).reshape(lists.mask.shape)
        assert lists.features is not None
        simulated = view.require(RankingAlgorithm).simulate_lists(view.model, lists.features, lists.mask, clicks)
        torch.testing.assert_close(simulated[UTILITY], view.deltas[UTILITY])


@pytest.mark.integration
def test_one_query_leaks_and_local_dp_hides_it(tmp_path: Path) -> None:
    data = source(1)

    def attacked(epsilon: object, prior: ListPrior) -> tuple[Tensor, Tensor, float]:
        recording = record(tmp_path / f"{epsilon}-{prior}", data, ranker(data, epsilon=epsilon))
        view = first_view(recording)
        estimate, alone = (
            attack(view, generator=torch.Generator())
            for attack in (MetricPosterior(prior=prior), PriorOnly(prior=prior))
        )
        assert isinstance(estimate, InteractionEstimate)
        assert isinstance(alone, InteractionEstimate)
        auc = auc_per_victim(estimate.scores, recording.truth(view)["labels"], view.served_mask)
        return estimate.scores, alone.scores, float(auc.nanmean())

    assert attacked("inf", "uniform")[2] > 0.6
    told, prior, _ = attacked(1e-4, "cascade")
    torch.testing.assert_close(told, prior, atol=1e-3, rtol=0)


@pytest.mark.integration
def test_training_improves_the_ranking(tmp_path: Path) -> None:
    data = SyntheticRanking(shape="letor", queries=60, test_queries=60, most_documents=40, queries_per_client=1)
    server = ServerOptimizer(name="fedadam", learning_rate=0.03)
    module = ranker(data, click_model="perfect", server=server)
    before = ndcg(module, data)
    record(tmp_path, data, module, rounds=20)
    assert ndcg(module, data) > before + 0.05


def test_a_round_without_clients_sends_nothing() -> None:
    data = source()
    module = ranker(data)
    cohort = data.cohort(0)
    update = Update({UTILITY: torch.zeros(0, 2)})
    nobody = cohort.select(torch.zeros(0, dtype=torch.int64))
    found = module.as_deltas(update, nobody, module.public_parameters()).deltas
    assert found["ranker.weight"].shape == (0, data.num_features)


@pytest.mark.parametrize("options", [{"noise_scale": 0.0}, {"epsilon": 0}, {"shown": 1}])
def test_impossible_arguments_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=f"expected {next(iter(options))}"):
        ranker(source(), **options)
