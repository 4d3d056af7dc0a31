"""Ratings files in their real layout, and every way in which one can be broken."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedleak.core.errors import InputError
from fedleak.core.view import PUBLIC_INTERACTIONS
from fedleak.datamodules.recommendation.base import RecommenderDataModule
from fedleak.datamodules.recommendation.movielens import MovieLens
from fedleak.datamodules.recommendation.steam import Steam
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from tests.datamodules.ratings_files import LINES, movielens
from tests.datamodules.refusals import refused
from tests.places import REAL


def test_movielens_is_read_with_the_last_item_held_out(tmp_path: Path) -> None:
    data = movielens(tmp_path, "\n".join(LINES) + "\n")
    assert (data.num_clients, data.num_items) == (4, 7)
    assert [items.tolist() for items in data.user_items()] == [[u, u + 1, u + 2] for u in range(4)]
    batch = next(iter(data.val_dataloader()))
    held = batch["items"][batch["target"]]
    assert held.tolist() == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("variant", "file", "text"),
    [
        ("ml-1m", "ratings.dat", "1::5::4::10\n1::6::4::11\n2::5::1::12\n2::7::1::13\n"),
        (
            "ml-latest-small",
            "ratings.csv",
            "userId,movieId,rating,timestamp\n1,5,4.0,10\n1,6,4.5,11\n2,5,1,12\n2,7,1,13\n",
        ),
    ],
)
def test_the_other_layouts_of_movielens(tmp_path: Path, variant: str, file: str, text: str) -> None:
    (tmp_path / variant).mkdir()
    (tmp_path / variant / file).write_text(text)
    data = MovieLens(root=str(tmp_path), variant=variant, holdout=False)  # type: ignore[arg-type]
    assert [items.tolist() for items in data.user_items()] == [[0, 1], [0, 2]]


def test_steam_merges_repetitions_and_keeps_single_games(tmp_path: Path) -> None:
    (tmp_path / "steam-200k").mkdir()
    text = '7,"A, the game",purchase,1.0,0\n7,"A, the game",play,3.5,0\n7,B,purchase,1.0,0\n9,C,purchase,1.0,0\n'
    (tmp_path / "steam-200k" / "steam-200k.csv").write_text(text)
    data = Steam(root=str(tmp_path))
    assert (data.num_clients, data.num_items) == (2, 3)
    assert [items.tolist() for items in data.user_items()] == [[0], [2]]
    assert next(iter(data.val_dataloader()))["clients"].tolist() == [0]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "empty"),
        ("\n".join(LINES) + "\n5\t1", "line 17"),
        ("\n".join(LINES).replace("\t", ","), "line 1"),
        ("\n".join([*LINES[:2], "1\tx\t3\t4", *LINES[2:]]), "'x' in line 3"),
        ("\n".join(LINES).encode() + b"\n5\t1\t\xff\t9\n", "0xff in line 17"),
    ],
    ids=["empty", "cut short", "delimiter", "no number", "encoding"],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path: Path, text: str | bytes, found: str) -> None:
    refused(movielens(tmp_path, text), found)


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDLEAK_DATA", raising=False)
    refused(MovieLens(), "FEDLEAK_DATA")
    refused(MovieLens(root=str(tmp_path / "nowhere")), "no folder")
    refused(MovieLens(root=str(tmp_path)), r"u\.data")
    refused(Steam(root=str(tmp_path)), r"kaggle\.com")


def test_a_user_with_every_item_is_refused_or_left_out(tmp_path: Path) -> None:
    greedy = [f"9\t{item}\t3\t{item}" for item in range(1, 8)]
    data = movielens(tmp_path, "\n".join([*LINES, *greedy]))
    refused(data, "user 4 .* 7 of 7")
    assert MovieLens(root=str(tmp_path), degenerate_users="drop").num_clients == 4


@pytest.mark.integration
@pytest.mark.skipif(not (REAL / "ml-100k").is_dir(), reason="the real data are not here")
@pytest.mark.parametrize(
    ("data", "counts"),
    [
        (MovieLens(root=str(REAL), holdout=False), (943, 1682, 100_000)),
        (Steam(root=str(REAL), holdout=False), (12_393, 5_155, 128_804)),
    ],
    ids=["ml-100k", "steam-200k"],
)
def test_the_real_sets_have_their_published_sizes(data: RecommenderDataModule, counts: tuple[int, int, int]) -> None:
    interactions = np.concatenate(data.user_items())
    assert (data.num_clients, data.num_items, len(interactions)) == counts


def test_public_users_are_no_clients_and_their_likes_are_the_servers() -> None:
    options: dict[str, Any] = {"users": 12, "items": 30, "seed": 3, "mean_interactions": 8.0, "fewest_interactions": 4}
    everyone, data = SyntheticRecommender(**options), SyntheticRecommender(**options, public_users=5)
    assert (everyone.num_clients, data.num_clients) == (12, 7)
    assert everyone.auxiliary()[PUBLIC_INTERACTIONS].shape == (0, 2)
    public = data.auxiliary()[PUBLIC_INTERACTIONS]
    assert {*public[:, 0].tolist()} == set(range(5))
    of_public = {frozenset(public[public[:, 0] == user, 1].tolist()) for user in range(5)}
    of_clients = {frozenset(items.tolist()) for items in data.user_items()}
    assert not of_public & of_clients
    with pytest.raises(InputError, match="public_users below"):
        _ = SyntheticRecommender(**options, public_users=12).num_clients
