"""Federated matrix factorisation: the steps of the text, its two protocols, and what it refuses."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedleak.callbacks.delta_recorder import DeltaRecorder
from fedleak.client.cohort import Cohort
from fedleak.client.engine.batches import batch_schedule
from fedleak.client.engine.local_hyperparameters import LocalTraining
from fedleak.client.engine.local_training import train_clients
from fedleak.client.margin_losses import LOSSES, LossName
from fedleak.client.matrix_factorization import MFAlgorithm
from fedleak.client.recommendation import USER_EMBEDDING
from fedleak.core.errors import InputError
from fedleak.core.seeding import generator_for
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.defenses.local_dp import LocalDP
from fedleak.defenses.row_noise import RowNoise
from fedleak.modules.learners.matrix_factorization import FederatedMF
from fedleak.recordings.named_algorithm import learner_from
from fedleak.recordings.recording import Recording
from fedleak.training.federated import FederatedModule
from fedleak.training.server_optimizer import ServerOptimizer
from tests import toys

SIZES = [7, 4, 12]
PROTOCOLS = {
    "batches": LocalTraining(learning_rate=0.2, batch_size=4, updates=5),
    "epochs": LocalTraining(learning_rate=0.2, batch_size=4, epochs=2),
    "full": LocalTraining(learning_rate=0.2, epochs=3),
}


def problem() -> tuple[dict[str, Tensor], dict[str, Tensor], Cohort]:
    generator = generator_for(0, "mf-problem")
    rows = torch.full((len(SIZES), max(SIZES)), -1)
    for client, size in enumerate(SIZES):
        rows[client, :size] = torch.randperm(20, generator=generator)[:size].sort().values
    labels = (torch.rand(rows.shape, generator=generator) < 0.4).float() * (rows >= 0)
    cohort = Cohort(3, torch.arange(len(SIZES)), {"label": labels}, rows >= 0, {ITEM_EMBEDDING: rows})
    table = {ITEM_EMBEDDING: torch.randn(20, 5, generator=generator)}
    return table, {USER_EMBEDDING: torch.randn(len(SIZES), 5, generator=generator)}, cohort


def client_update(
    user: Tensor, items: Tensor, signs: Tensor, plan: Tensor, rate: float, loss: str
) -> tuple[Tensor, Tensor]:
    """CLIENTUPDATE of Protocols 1 and 3, line by line."""
    user, items = user.clone(), items.clone()
    for batch in plan:
        kept = [int(i) for i in batch if i >= 0]
        gradient = torch.zeros_like(user)
        changed = items.clone()
        for i in kept:
            slope = LOSSES[loss].slope(signs[i] * (user @ items[i])) * signs[i]
            gradient += slope * items[i] / len(kept)
            changed[i] = items[i] - rate * slope * user
        items, user = changed, user - rate * gradient
    return user, items


@pytest.mark.parametrize("engine", ["vectorized", "sequential"])
@pytest.mark.parametrize("loss", ["margin", "hinge", "log"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_clients_train_as_the_text_says(protocol: str, loss: LossName, engine: str) -> None:
    table, users, cohort = problem()
    local = LocalTraining(**{**vars(PROTOCOLS[protocol]), "engine": engine})
    result = train_clients(MFAlgorithm(dim=5, margin_loss=loss, local=local), table, users, cohort, local, seed=7)
    if local.batch_size is None:
        plans = [torch.arange(size).expand(local.epochs, -1) for size in SIZES]
    else:
        plans = batch_schedule(cohort, local, seed=7)
    for client, size in enumerate(SIZES):
        before = table[ITEM_EMBEDDING][cohort.rows[ITEM_EMBEDDING][client, :size]]
        signs = 2 * cohort.examples["label"][client] - 1
        user, items = client_update(users[USER_EMBEDDING][client], before, signs, plans[client], 0.2, loss)
        torch.testing.assert_close(result.private[USER_EMBEDDING][client], user)
        torch.testing.assert_close(result.deltas[ITEM_EMBEDDING][client, :size], items - before)


@pytest.mark.parametrize("engine", ["vectorized", "sequential"])
def test_clipping_bounds_what_an_item_moves_and_keeps_its_direction(engine: str) -> None:
    table, users, cohort = problem()
    local = LocalTraining(learning_rate=0.2, epochs=1, engine=engine)  # type: ignore[arg-type]
    free = train_clients(MFAlgorithm(dim=5, margin_loss="log", local=local), table, users, cohort, local, seed=0)
    clipped = train_clients(
        MFAlgorithm(dim=5, margin_loss="log", clip=0.5, local=local), table, users, cohort, local, seed=0
    )
    norms = clipped.deltas[ITEM_EMBEDDING].norm(dim=2)
    assert float(free.deltas[ITEM_EMBEDDING].norm(dim=2).max()) > 0.2
    assert float(norms.max()) <= 0.2 * 0.5 * (1 + 1e-5)
    aligned = torch.nn.functional.cosine_similarity(free.deltas[ITEM_EMBEDDING], clipped.deltas[ITEM_EMBEDDING], dim=2)
    torch.testing.assert_close(aligned[cohort.mask], torch.ones(sum(SIZES)))
    torch.testing.assert_close(clipped.private[USER_EMBEDDING], free.private[USER_EMBEDDING])


def test_batches_are_drawn_anew_and_without_replacement() -> None:
    _, _, cohort = problem()
    plans = batch_schedule(cohort, LocalTraining(batch_size=4, updates=300), seed=0)
    for size, plan in zip(SIZES, plans, strict=True):
        assert plan.shape == (300, 4)
        assert all(len(set(batch.tolist())) == 4 for batch in plan)
        counts = plan.flatten().bincount(minlength=size)
        expected = 300 * 4 / size
        assert float((counts - expected).abs().max()) < 6 * expected**0.5
    with pytest.raises(InputError, match="client 1 with 4"):
        batch_schedule(cohort, LocalTraining(batch_size=5, updates=2), seed=0)


def trained(folder: Path, data: SyntheticRecommender, **arguments: object) -> FederatedMF:
    module = FederatedMF(num_items=data.num_items, num_clients=data.num_clients, dim=6, **arguments)  # type: ignore[arg-type]
    toys.quiet_trainer(2, folder, DeltaRecorder(directory=str(folder / "deltas"))).fit(module, datamodule=data)
    return module


@pytest.mark.integration
def test_a_recording_has_the_private_vector_in_its_truth_and_its_learner(tmp_path: Path) -> None:
    data = toys.data()
    module = trained(tmp_path, data, server=ServerOptimizer(learning_rate=12.0), defenses=[RowNoise(scale=0.1)])
    recording = Recording(tmp_path / "deltas")
    view = next(recording.views(rounds=[1]))
    truth = recording.truth(view)
    vectors = module.private[USER_EMBEDDING][truth["clients"]]
    assert torch.equal(truth["user_vector"], vectors)
    assert view.noise_scale(ITEM_EMBEDDING) == pytest.approx(0.1)
    learner = learner_from(recording.manifest.learner)
    assert isinstance(learner, MFAlgorithm)
    assert learner.learning_rate == 0.1
    assert learner.slope_at_zero == -0.5


def test_the_learner_simulates_its_clients() -> None:
    data = toys.data()
    local = LocalTraining(learning_rate=0.1, epochs=2)
    module = FederatedMF(num_items=data.num_items, num_clients=data.num_clients, dim=6, local=local)
    users = module.private[USER_EMBEDDING].clone()
    learner = learner_from(module.learner_description())
    cohort = data.cohort(0)
    rows, labels = cohort.rows[ITEM_EMBEDDING], cohort.examples["label"]
    public = module.public_parameters()
    plain = learner.simulate(public, rows, labels, users)[ITEM_EMBEDDING]  # type: ignore[union-attr]
    graph = learner.simulate(public, rows, labels, users, differentiable=True)[ITEM_EMBEDDING]  # type: ignore[union-attr]
    torch.testing.assert_close(graph.detach() * cohort.mask[..., None], plain)
    result = module.algorithm.train(public, cohort, private=module.private)
    torch.testing.assert_close(plain, result.deltas[ITEM_EMBEDDING])


def test_bad_learners_and_clients_are_refused() -> None:
    with pytest.raises(InputError, match="plain SGD"):
        FederatedMF(num_items=5, num_clients=2, local=LocalTraining(optimizer="adam"))
    with pytest.raises(InputError, match="clip"):
        FederatedMF(num_items=5, num_clients=2, clip=0.0)
    with pytest.raises(InputError, match="among margin"):
        FederatedMF(num_items=5, num_clients=2, loss="square")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="batch_size"):
        LocalTraining(updates=3)
    module: FederatedModule = FederatedMF(num_items=20, num_clients=3)
    _, _, cohort = problem()
    with pytest.raises(InputError, match="client 0 with 7"):
        module.interact(cohort, {})
    cohort.mask[1] = False
    with pytest.raises(InputError, match="client 1 with 0"):
        FederatedMF(num_items=20, num_clients=3, local=LocalTraining()).interact(cohort, {})


def test_labels_of_all_items_are_the_truth_where_noise_hides_the_rows() -> None:
    data = SyntheticRecommender(users=6, items=30, mean_interactions=3.0, fewest_interactions=2, clients_per_round=6)
    noise = LocalDP(clip=1.0, epsilon=10.0, delta=1e-5)
    hidden, shown = (
        FederatedMF(num_items=30, num_clients=6, dim=4, local=LocalTraining(), defenses=defenses)
        for defenses in ([noise], [])
    )
    cohort = data.cohort(0)
    assert hidden.served(cohort) == {}
    assert hidden.truth(cohort) == {}
    labels = hidden.client_truth(cohort)["labels"]
    assert labels.shape == (6, 30)
    items = cohort.rows[ITEM_EMBEDDING]
    assert torch.equal((labels >= 0).sum(1), (items >= 0).sum(1))
    real = items[0][items[0] >= 0]
    assert torch.equal(labels[0, real], cohort.examples["label"][0, : len(real)])
    assert set(shown.client_truth(cohort)) == {"user_vector"}
    assert set(shown.truth(cohort)) == {"labels"}
