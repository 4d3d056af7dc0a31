from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from lightning import LightningDataModule

from fedleak.core.errors import InputError
from fedleak.core.seeding import KEY_VARIABLE
from fedleak.core.view import ITEM_EMBEDDING
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.tables.training import check_end
from fedleak.training.data import FederatedDataModule, data_of
from tests.toys import data, model, quiet_trainer


def test_a_cohort_is_a_function_of_seed_and_round() -> None:
    one, two = data(clients_per_round=5), data(clients_per_round=5)
    later = one.cohort(3)
    one.cohort(0)
    again = two.cohort(3)
    assert torch.equal(later.clients, again.clients)
    assert torch.equal(later.rows[ITEM_EMBEDDING], again.rows[ITEM_EMBEDDING])
    assert not torch.equal(later.clients, one.cohort(4).clients)
    assert not torch.equal(later.clients, data(clients_per_round=5, seed=1).cohort(3).clients)


def test_ranks_share_a_cohort_and_keep_their_clients() -> None:
    cohort = data().cohort(0)
    shares = [cohort.share(rank, 3) for rank in range(3)]
    assert sorted(torch.cat([share.clients for share in shares]).tolist()) == cohort.clients.tolist()
    for rank, share in enumerate(shares):
        assert (share.clients % 3 == rank).all()
        for position, client in enumerate(share.clients.tolist()):
            size = int(share.counts[position])
            assert torch.equal(share.rows[ITEM_EMBEDDING][position, :size], cohort.rows[ITEM_EMBEDDING][client, :size])
            assert torch.equal(share.examples["label"][position, :size], cohort.examples["label"][client, :size])


def test_four_negatives_a_positive_none_of_them_seen_in_an_order_that_says_nothing() -> None:
    source = data(holdout=False)
    cohort = source.cohort(0)
    for client, positives in enumerate(source.user_items()):
        size = int(cohort.counts[client])
        items, labels = cohort.rows[ITEM_EMBEDDING][client, :size], cohort.examples["label"][client, :size]
        assert size == min(5 * len(positives), source.num_items)
        assert (items.diff() > 0).all()
        assert sorted(items[labels == 1].tolist()) == sorted(positives.tolist())


def test_negatives_are_fixed_or_drawn_anew() -> None:
    fixed, fresh = data(), data(negatives="per_round")
    assert torch.equal(fixed.cohort(0).rows[ITEM_EMBEDDING], fixed.cohort(1).rows[ITEM_EMBEDDING])
    assert not torch.equal(fresh.cohort(0).rows[ITEM_EMBEDDING], fresh.cohort(1).rows[ITEM_EMBEDDING])


@pytest.mark.parametrize("value", [0, -1, 0.0, 1.5])
def test_impossible_participation_is_refused(value: float) -> None:
    with pytest.raises(InputError, match="clients_per_round"):
        data(clients_per_round=value)


def test_more_clients_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match="at most 12"):
        data(clients_per_round=13).cohort(0)


class ThreeRounds(SyntheticRecommender):
    """Data that end a training."""

    rounds = 3


@pytest.mark.parametrize(("start", "expected"), [(0, [0, 1, 2]), (2, [2]), (3, [])])
def test_the_data_end_a_training_wherever_it_was_resumed(start: int, expected: list[int]) -> None:
    source = ThreeRounds(users=12, items=80, mean_interactions=8.0, fewest_interactions=4)
    source.trainer = SimpleNamespace(lightning_module=None, global_rank=0, world_size=1, global_step=start)  # type: ignore[assignment]
    assert [cohort.round for cohort in source.train_dataloader()] == expected


@pytest.mark.integration
def test_a_training_without_a_number_of_rounds_is_one_round_of_the_data_after_another(tmp_path: Path) -> None:
    source = ThreeRounds(users=12, items=80, mean_interactions=8.0, fewest_interactions=4)
    trainer = quiet_trainer(-1, tmp_path)
    check_end(trainer, source)
    with pytest.raises(InputError, match="rounds"):
        check_end(trainer, data())
    trainer.fit(model(source), datamodule=source)
    assert trainer.global_step == 3


@pytest.mark.integration
def test_cohorts_of_a_training_need_its_secret_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    public = [data(clients_per_round=5).participants(number).tolist() for number in range(3)]
    cohorts = []
    for run in range(2):
        source = data(clients_per_round=5)
        module = model(source)
        quiet_trainer(1, tmp_path / str(run)).fit(module, datamodule=source)
        assert source.secret == module.secret
        cohorts.append([source.participants(number).tolist() for number in range(3)])
    assert public not in cohorts
    assert cohorts[0] != cohorts[1]
    assert cohorts[1] == [keyed(module.secret).participants(number).tolist() for number in range(3)]


def keyed(secret: bytes) -> FederatedDataModule:
    source = data(clients_per_round=5)
    source.secret = secret
    return source


def test_data_of_another_kind_are_refused() -> None:
    assert data_of(SimpleNamespace()) is None  # type: ignore[arg-type]
    assert data_of(SimpleNamespace(datamodule=(source := data()))) is source  # type: ignore[arg-type]
    with pytest.raises(InputError, match="FederatedDataModule"):
        data_of(SimpleNamespace(datamodule=LightningDataModule()))  # type: ignore[arg-type]
