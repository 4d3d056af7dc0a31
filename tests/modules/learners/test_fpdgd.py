"""FPDGD: the engine's step is autograd's, the simulation is the engine's, the round keeps its promises."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from fedleak.attacks.interactions.estimates import InteractionEstimate
from fedleak.attacks.ranking.list_posterior import ListPosterior
from fedleak.client.cohort import Cohort
from fedleak.client.engine.batches import batch_schedule
from fedleak.client.engine.fast.memory import BufferPool
from fedleak.client.engine.local_hyperparameters import Engine
from fedleak.client.engine.local_training import train_clients
from fedleak.client.fpdgd import FPDGDAlgorithm
from fedleak.client.ranked_lists import ranked_lists
from fedleak.core.errors import InputError
from fedleak.core.rankers import rank_scores
from fedleak.core.scoring import auc_per_victim
from fedleak.core.seeding import generator_for
from fedleak.datamodules.ranking.synthetic_ranking import SyntheticRanking
from fedleak.modules.learners.fpdgd import FPDGD
from fedleak.recordings.named_algorithm import learner_from
from fedleak.server.codebook import Codebook
from fedleak.server.feature_manipulation import FeatureManipulation
from fedleak.server.fingerprint import Fingerprint
from fedleak.server.noise_injection import NoiseInjection
from fedleak.server.permutation import Permutation
from tests.places import GOLDEN
from tests.ranking_toys import first_view, ndcg, ranker, record, source
from tests.toys import LastRecord

PUBLISHED = np.load(GOLDEN / "raifle_ranking.npz", allow_pickle=False)


@pytest.mark.parametrize("hidden", [0, 3])
def test_written_gradient_is_autograds(hidden: int) -> None:
    data = source()
    module = ranker(data, hidden=hidden)
    cohort = module.interact(data.cohort(0), module.public_parameters())
    parameters = {
        name: value.double().expand(len(cohort), *value.shape).clone().requires_grad_()
        for name, value in module.public_parameters().items()
    }
    examples = {name: value.double() if value.is_floating_point() else value for name, value in cohort.examples.items()}
    losses = ALGORITHM.stacked_loss(parameters, examples, cohort.mask)
    expected = dict(zip(parameters, torch.autograd.grad(losses.sum(), list(parameters.values())), strict=True))
    with torch.no_grad():
        written = ALGORITHM.fast().stacked(parameters, examples, cohort.mask, BufferPool())
    assert written is not None
    found, gradients = written
    torch.testing.assert_close(found, losses.detach())
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name])


@pytest.mark.parametrize("hidden", [0, 3])
@pytest.mark.parametrize("engine", ["vectorized", "sequential"])
def test_simulation_in_the_clients_order_equals_the_engine(hidden: int, engine: Engine) -> None:
    data = source()
    module = ranker(data, hidden=hidden)
    public = module.public_parameters()
    cohort = module.interact(data.cohort(0), public)
    local = dataclasses.replace(module.local, engine=engine)
    trained = train_clients(module.algorithm, public, {}, cohort, local, seed=0).deltas
    schedule = batch_schedule(cohort, local, seed=0)
    learner = learner_from(module.learner_description())
    for client, plan in enumerate(schedule):
        lists = len(plan)
        own = {name: value[client : client + 1, :lists] for name, value in cohort.examples.items()}
        simulated = learner.simulate_lists(  # type: ignore[union-attr]
            public, own["features"], own["shown"], own["click"], plan.T
        )
        for name, delta in trained.items():
            torch.testing.assert_close(simulated[name][0], delta[client], atol=1e-5, rtol=1e-4)


@pytest.mark.integration
def test_lists_of_a_recording_are_the_lists_shown(tmp_path: Path) -> None:
    data = source()
    module = ranker(data)
    view = first_view(record(tmp_path, data, module, more=[last := LastRecord()]))
    lists = ranked_lists(view)
    cohort = last.record.cohort
    order = torch.argsort(torch.tensor([int(c) for c in cohort.clients]))
    assert len(order) == view.victims
    served = {tuple(row[row >= 0].tolist()) for row in view.served_items}
    shown = cohort.examples["document"]
    expected = {tuple(row[row >= 0].tolist()) for row in shown.where(cohort.mask[..., None], -1).flatten(1)}
    assert served == expected
    back = lists.of_items(lists.mask.float(), view.served_mask)
    assert torch.equal(back.bool(), view.served_mask)


@pytest.mark.parametrize(
    "manipulation",
    [
        NoiseInjection(),
        NoiseInjection(share_of_features=0.5),
        Fingerprint(),
        Permutation(),
        Permutation(among="client"),
        Codebook(),
    ],
)
def test_manipulation_keeps_padding_zero(manipulation: FeatureManipulation) -> None:
    data = source()
    module = ranker(data, manipulation=manipulation)
    cohort = module.interact(data.cohort(0), module.public_parameters())
    assert float(cohort.examples["features"][~cohort.examples["shown"]].abs().sum()) == 0


@pytest.mark.integration
def test_permuted_features_are_read_and_shuffled_updates_give_chance(tmp_path: Path) -> None:
    data = source(queries_per_client=2)
    recording = record(tmp_path, data, ranker(data, manipulation=Permutation()))
    view = first_view(recording)
    labels = recording.truth(view)["labels"]
    attack = ListPosterior(prior="uniform", sweeps=30, simulated=16, chains=2)
    turned = {name: value.roll(1, 0) for name, value in view.deltas.items()}
    means = []
    for seen in (view, dataclasses.replace(view, deltas=turned)):
        estimate = attack(seen, generator=generator_for(0, "attack"))
        assert isinstance(estimate, InteractionEstimate)
        means.append(float(auc_per_victim(estimate.scores, labels, view.served_mask).nanmean()))
    assert means[0] > 0.95
    assert abs(means[1] - 0.5) < 0.12


ALGORITHM = FPDGDAlgorithm(learning_rate=0.1, click_model="informational", grade_law=(0.5, 0.3, 0.2))


def test_codebook_scores_are_equal_within_a_list() -> None:
    data = source()
    module = ranker(data, hidden=4, manipulation=Codebook())
    cohort = module.interact(data.cohort(0), module.public_parameters())
    stacked = {name: value.expand(len(cohort), *value.shape) for name, value in module.public_parameters().items()}
    scores = rank_scores(stacked, cohort.examples["features"])
    shown = cohort.examples["shown"]
    spread = scores.masked_fill(~shown, -torch.inf).amax(2) - scores.masked_fill(~shown, torch.inf).amin(2)
    assert float(spread.max()) < 1e-3


def test_codes_of_candidates_do_not_depend_on_the_lists_drawn() -> None:
    generator = torch.Generator().manual_seed(0)
    pool, document = torch.rand(40, 12, generator=generator), torch.arange(40).reshape(2, 1, 20)
    models = {"ranker.weight": torch.rand(2, 12, generator=generator)}
    places = [torch.arange(20)[None, None].expand(2, 1, -1), torch.tensor([3, 17, 5]).expand(2, 1, -1)]
    every, few = (
        Codebook(knows="candidates").of_candidates(
            models, pool, document, place, generators=[torch.Generator().manual_seed(c) for c in range(2)]
        )
        for place in places
    )
    assert torch.equal(every[:, :, [3, 17, 5]], few)


def test_clients_with_a_ranker_of_their_own_train_it() -> None:
    data = source(queries_per_client=1)
    module = ranker(data, hidden=3, ranker_per_client=True)
    cohort = module.interact(data.cohort(0), module.public_parameters())
    update, _ = module.local_updates(cohort, module.public_parameters(), torch.ones(len(cohort), dtype=torch.bool))
    rankers = module.client_models(cohort)
    assert len({tuple(row.tolist()) for row in rankers["output.weight"]}) == len(cohort)
    for client in range(3):
        shared = ranker(data, hidden=3)
        with torch.no_grad():
            for name, parameter in shared.named_parameters():
                parameter.copy_(rankers[name][client])
        alone = cohort.select(torch.tensor([client]))
        expected, _ = shared.local_updates(alone, shared.public_parameters(), torch.ones(1, dtype=torch.bool))
        for name, delta in expected.deltas.items():
            torch.testing.assert_close(update.deltas[name][client], delta[0])
    zeros = module.as_deltas(update, cohort, module.public_parameters()).deltas
    assert all(not bool(value.any()) for value in zeros.values())


@pytest.mark.parametrize("name", ["mixed", "positive"])
def test_published_clients_draw_lists_in_proportion_to_shifted_scores(name: str) -> None:
    module = ranker(source(), variant="as-published-code")
    scores = torch.from_numpy(PUBLISHED[f"rank_{name}_scores"]).expand(2000, 5, 4)
    cohort = Cohort(0, torch.arange(2000), {}, torch.ones(2000, 5, dtype=torch.bool))
    drawn = module._rank(cohort, scores)[..., :4].flatten(0, 1)
    found = torch.stack([(drawn == document).float().mean(0) for document in range(4)])
    expected = torch.from_numpy(PUBLISHED[f"rank_{name}_counts"]).float() / 20_000
    torch.testing.assert_close(found, expected, atol=0.03, rtol=0)


def test_ndcg_is_that_of_the_published_code() -> None:
    module = FPDGD(num_features=1, num_grades=3, grade_law=[0.5, 0.3, 0.2])
    with torch.no_grad():
        next(module.parameters()).fill_(1)
    module.on_validation_epoch_start()
    for query in range(3):
        grade = torch.from_numpy(PUBLISHED[f"ndcg_grades_{query}"])[None]
        features = torch.from_numpy(PUBLISHED[f"ndcg_scores_{query}"])[None, :, None]
        module.update_metrics({"features": features, "grade": grade, "mask": torch.ones_like(grade, dtype=torch.bool)})
    assert float(module.ndcg.compute()) == pytest.approx(float(PUBLISHED["ndcg"]), abs=1e-6)


@pytest.mark.integration
def test_training_improves_the_ranking(tmp_path: Path) -> None:
    data = SyntheticRanking(shape="letor", queries=80, test_queries=40, queries_per_client=2, clients_per_round=20)
    module = ranker(data, click_model="perfect")
    before = ndcg(module, data)
    record(tmp_path, data, module, rounds=15)
    assert ndcg(module, data) > before + 0.05


def test_an_impossible_click_model_is_refused() -> None:
    with pytest.raises(InputError, match="click model"):
        FPDGD(num_features=4, num_grades=4, grade_law=[0.25] * 4)
