"""LETOR files in their real layout, every way in which one can be broken, and the clients made of them."""

from pathlib import Path

import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.datamodules.ranking.letor import LETOR
from fedleak.datamodules.ranking.synthetic_ranking import SyntheticRanking
from tests.datamodules.ranking_files import assert_equal, check_cohort, slowly, write_letor
from tests.places import REAL

LENGTHS = [4, 1, 6, 2, 3, 1, 5, 9, 2, 7, 3]


def letor(root: Path, **arguments: int) -> LETOR:
    write_letor(root, LENGTHS, [3, 1, 8])
    return LETOR(root=str(root), **({"queries_per_client": 2} | arguments))  # type: ignore[arg-type]


def test_clients_are_disjoint_groups_of_queries_with_more_than_one_document(tmp_path: Path) -> None:
    data = letor(tmp_path)
    groups = data.client_queries
    # 11 queries, 2 of them with one document, of which 4 pairs can be made.
    assert groups.shape == (data.num_clients, 2) == (4, 2)
    assert len(set(groups.flatten().tolist())) == 8
    assert all(LENGTHS[query] > 1 for query in groups.flatten().tolist())
    assert torch.equal(groups, letor(tmp_path).client_queries)
    assert not torch.equal(groups, letor(tmp_path, seed=1).client_queries)


def test_a_dropped_query_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        letor(tmp_path).num_clients  # noqa: B018
    assert "2 of 11 queries have one document" in caplog.text


@pytest.mark.parametrize("count", [0, 10])
def test_an_impossible_number_of_queries_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(InputError, match="queries_per_client"):
        letor(tmp_path, queries_per_client=count).num_clients  # noqa: B018


def test_the_same_users_take_part_until_there_are_enough_updates(tmp_path: Path) -> None:
    data = letor(tmp_path, users=9)
    # 4 clients a round, so 3 rounds, of the same people with the same queries.
    assert (data.rounds, data.num_clients) == (3, 4)
    assert [data.participants(number).tolist() for number in range(3)] == [[0, 1, 2, 3]] * 3
    assert torch.equal(data.client_queries, letor(tmp_path).client_queries)
    assert letor(tmp_path).rounds is None
    assert letor(tmp_path, users=9, clients_per_round=2).rounds == 5


@pytest.mark.parametrize(("options", "rounds", "clients"), [({}, 3, 3), ({"targets": 2}, 5, 3), ({"targets": 1}, 9, 3)])
def test_a_round_has_whole_aggregates_of_which_the_targets_are_users(
    tmp_path: Path, options: dict[str, int], rounds: int, clients: int
) -> None:
    data = letor(tmp_path, users=9, aggregate=3, **options)
    assert data.rounds == rounds
    assert {len(data.participants(number)) for number in range(rounds)} == {clients}


def test_impossible_aggregates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="aggregate"):
        letor(tmp_path, aggregate=5).cohort(0)
    with pytest.raises(InputError, match="targets"):
        letor(tmp_path, aggregate=2, targets=3)


def test_a_cohort_holds_its_clients_documents(tmp_path: Path) -> None:
    data = letor(tmp_path)
    check_cohort(data, [2])
    check_cohort(data, [3, 0])
    check_cohort(data, [0, 1, 2, 3])


def test_clients_chosen_from_a_cohort_find_their_documents(tmp_path: Path) -> None:
    cohort = letor(tmp_path).cohort(0)
    part = cohort.share(1, 2)
    assert part.clients.tolist() == [1, 3]
    assert part.shared is cohort.shared
    assert torch.equal(part.examples["document"], cohort.examples["document"][[1, 3]])


def test_a_query_of_a_thousand_documents_is_kept_whole() -> None:
    data = SyntheticRanking(queries=3, test_queries=1, fewest_documents=1000, most_documents=1000, queries_per_client=3)
    assert data.cohort(0).examples["document"].shape == (1, 3, 1000)
    check_cohort(data, [0])


def test_test_queries_come_padded_in_their_order(tmp_path: Path) -> None:
    data = letor(tmp_path)
    test = data.read_test()
    (batch,) = data.val_dataloader()
    assert batch["features"].shape == (3, 8, 46)
    assert batch["mask"].sum(1).tolist() == [3, 1, 8]
    assert torch.equal(batch["features"][batch["mask"]], torch.from_numpy(test.features))
    assert torch.equal(batch["grade"][batch["mask"]], torch.from_numpy(test.grades))
    assert not batch["features"][~batch["mask"]].any()
    assert not batch["grade"][~batch["mask"]].any()


def test_letor_is_read_raw_and_named_by_its_hash(tmp_path: Path) -> None:
    data = letor(tmp_path)
    assert_equal(data.read_train(), slowly((tmp_path / "MQ2008/Fold1/train.txt").read_text()))
    assert (data.num_features, data.num_grades) == (46, 3)
    assert data.fingerprint["name"] == "MQ2008"
    assert len(data.fingerprint["sha256"]) == 64


@pytest.mark.integration
@pytest.mark.skipif(not (REAL / "MQ2008").is_dir(), reason="the real data are not here")
def test_the_real_set_has_its_published_size() -> None:
    data = LETOR(root=str(REAL), name="MQ2008")
    train, test = data.read_train(), data.read_test()
    assert (train.num_queries, len(train.grades), test.num_queries) == (471, 9630, 156)
    assert_equal(train, slowly((REAL / "MQ2008" / "Fold1" / "train.txt").read_text()))
    check_cohort(data, list(range(0, data.num_clients, 10)))
