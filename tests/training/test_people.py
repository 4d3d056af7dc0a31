"""Attributes of people: who is known, the control, and what each data set gives, against its file."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fedleak.core.errors import InputError
from fedleak.datamodules.devices.blog import Blog
from fedleak.datamodules.devices.device_split import Devices
from fedleak.datamodules.devices.user_filter import UserFilter
from fedleak.datamodules.images.skin_cancer import SkinCancer
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.datamodules.recommendation.movielens import MovieLens
from fedleak.datamodules.recommendation.synthetic_recommender import SyntheticRecommender
from fedleak.training.data import FederatedDataModule
from fedleak.training.people import Attributes, People, draw_people
from tests.datamodules import image_trees, owned_files

HELD = {"b": torch.arange(50) % 3, "a": torch.arange(50) % 2}
EVERYONE = torch.arange(50)


def test_half_of_the_people_are_known_and_others_with_another_seed() -> None:
    one, again, other = (draw_people(HELD, EVERYONE, Attributes(), seed=seed) for seed in (0, 0, 1))
    assert list(one.values) == ["a", "b"]
    assert one.table.tolist() == torch.stack([HELD["a"], HELD["b"]], 1).tolist()
    assert int(one.known.sum()) == 25
    assert torch.equal(one.known, again.known)
    assert not torch.equal(one.known, other.known)
    assert int(draw_people(HELD, EVERYONE, Attributes(known=7), seed=0).known.sum()) == 7


def test_a_person_with_several_clients_is_known_with_all_or_none() -> None:
    persons = torch.arange(50) % 10
    held = {"a": persons % 2}
    for shuffled in (False, True):
        found = draw_people(held, persons, Attributes(known=0.3, shuffled=shuffled), seed=0)
        for person in range(10):
            assert len(torch.unique(found.known[persons == person])) == 1
            assert len(torch.unique(found.values["a"][persons == person])) == 1
        assert int(found.known.sum()) == 15


def test_exchanged_attributes_stay_together_and_leave_their_people() -> None:
    found = draw_people(HELD, EVERYONE, Attributes(shuffled=True), seed=0)
    before, after = (sorted(table.tolist()) for table in (torch.stack([HELD["a"], HELD["b"]], 1), found.table))
    assert before == after
    assert 0 < int((found.values["b"] == HELD["b"]).sum()) < 35


@pytest.mark.parametrize(
    ("options", "people", "message"),
    [
        (Attributes(names=["c"]), 50, "attributes among a, b"),
        (Attributes(names=[]), 50, "attributes among a, b"),
        (Attributes(known=0.01), 20, "0 known of 20"),
        (Attributes(known=0.99), 20, "20 known of 20"),
        (Attributes(known=20), 20, "20 known of 20"),
    ],
)
def test_wrong_options_are_answered_in_a_line(options: Attributes, people: int, message: str) -> None:
    held = {name: value[:people] for name, value in HELD.items()}
    with pytest.raises(InputError, match=message):
        draw_people(held, EVERYONE[:people], options, seed=0)


def test_no_known_person_and_a_data_set_without_people_are_refused() -> None:
    with pytest.raises(ValueError, match="known"):
        Attributes(known=0.0)
    with pytest.raises(InputError, match="Leave data"):
        SyntheticRecommender(
            users=20, items=40, mean_interactions=10, fewest_interactions=5, attributes=Attributes()
        ).setup("fit")
    assert SyntheticRecommender(users=20, items=40, mean_interactions=10, fewest_interactions=5).people is None


PEOPLE = ["7|20|M|student|00000", "3|45|F|artist|00000", "9|46|F|none|00000", "1|34|M|writer|00000"]


def people_of(data: FederatedDataModule) -> People:
    people = data.people
    assert people is not None
    return people


def movielens(root: Path, people: list[str]) -> MovieLens:
    folder = root / "ml-100k"
    folder.mkdir(parents=True, exist_ok=True)
    # User 3 likes nothing and is left out, so clients are not numbered as in the file.
    stars = {1: 5, 3: 1, 7: 4, 9: 5}
    lines = [f"{user}\t{item}\t{star}\t{item}" for user, star in stars.items() for item in range(1, 5 + user)]
    (folder / "u.data").write_text("\n".join([*lines, "1\t30\t1\t9", "7\t30\t1\t9", "9\t30\t1\t9"]) + "\n")
    (folder / "u.user").write_text("\n".join(people) + "\n")
    options = {"preferences": "liked", "degenerate_users": "drop"}
    return MovieLens(root=str(root), attributes=Attributes(), **options)  # type: ignore[arg-type]


def test_movielens_users_have_their_own_attributes_where_others_are_left_out(tmp_path: Path) -> None:
    data = movielens(tmp_path, PEOPLE)
    assert data.num_clients == 3
    people = people_of(data)
    # Users 1, 7 and 9: 34, 20 and 46 years.
    assert people.values["age"].tolist() == [0, 0, 2]
    assert people.values["gender"].tolist() == [0, 0, 1]
    assert people.values["occupation"].tolist() == [20, 18, 12]
    likes = data.raw_features()["likes"]
    assert likes.sum(1).tolist() == [len(items) for items in data.user_items()]


@pytest.mark.parametrize(
    ("people", "message"),
    [
        (PEOPLE[:3], "no line of user 1"),
        ([*PEOPLE[:3], "1|34|X|writer|00000"], "M or F.*line 4"),
        ([*PEOPLE[:3], "1|34|M|spy|00000"], "occupations.*line 4"),
        ([*PEOPLE[:3], "1|34|M"], "line"),
    ],
)
def test_a_damaged_file_of_movielens_users_is_refused(tmp_path: Path, people: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        _ = movielens(tmp_path, people).people


def test_users_of_the_larger_movielens_set_have_the_attributes_of_their_file(tmp_path: Path) -> None:
    folder = tmp_path / "ml-1m"
    folder.mkdir()
    lines = [f"{user}::{item}::5::{item}" for user in (1, 4, 6) for item in range(user, 5 + 2 * user)]
    (folder / "ratings.dat").write_text("\n".join(lines) + "\n")
    (folder / "users.dat").write_text("1::F::1::10::48067\n4::M::35::0::55117\n6::F::45::20::02460-1\n")
    people = people_of(MovieLens(root=str(tmp_path), variant="ml-1m", attributes=Attributes()))
    assert people.values["age"].tolist() == [0, 1, 2]
    assert people.values["gender"].tolist() == [1, 0, 1]
    assert people.values["occupation"].tolist() == [10, 0, 20]
    (folder / "users.dat").write_text("1::F::1::21::48067\n")
    with pytest.raises(InputError, match="0 to 20"):
        _ = MovieLens(root=str(tmp_path), variant="ml-1m", attributes=Attributes()).people


def test_the_small_movielens_set_has_no_attributes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ml-100k"):
        MovieLens(root=str(tmp_path), variant="ml-latest-small", attributes=Attributes()).read_attributes()


def blog(root: Path, *, adversary: bool = False) -> Blog:
    return Blog(
        root=str(root), users=UserFilter(fewest=2), devices=Devices(adversary=adversary), attributes=Attributes()
    )


@pytest.mark.parametrize("write", [owned_files.write_blog_csv, owned_files.write_blog_xml])
def test_bloggers_have_the_attributes_of_their_file(tmp_path: Path, write: Callable[..., Path]) -> None:
    rows = owned_files.posts([900, 23, 5114, 47], per_blogger=8)
    write(tmp_path, [*rows, *owned_files.posts([55], per_blogger=1)])  # the last one has too few posts
    people = people_of(blog(tmp_path))
    # 23, 47, 900 and 5114: 15 years and ten times the rest by three, gender by parity, sign by half of it.
    assert people.values["gender"].tolist() == [0, 0, 1, 1]
    assert people.values["age"].tolist() == [2, 2, 0, 2]
    assert people.values["sign"].tolist() == [11, 11, 0, 4]


def test_a_bloggers_devices_are_known_together_and_one_device_has_everything(tmp_path: Path) -> None:
    owned_files.write_blog_csv(tmp_path, owned_files.posts(range(11, 23), per_blogger=8))
    one, two = blog(tmp_path), blog(tmp_path, adversary=True)
    assert (one.num_clients, two.num_clients) == (12, 24)
    people = people_of(two)
    assert torch.equal(people.known[:12], people.known[12:])
    assert not one.client_known.any()
    both = [
        sorted([*two.client_examples()[user].tolist(), *two.client_examples()[12 + user].tolist()])
        for user in range(12)
    ]
    assert [part.tolist() for part in one.client_examples()] == both
    words = one.raw_features()["words"]
    assert torch.allclose(words.square().sum(1), torch.ones(12))


def test_a_sign_that_there_is_not_is_refused(tmp_path: Path) -> None:
    path = owned_files.write_blog_csv(tmp_path, owned_files.posts([11, 12], per_blogger=4))
    path.write_text(path.read_text().replace("Pisces", "Ophiuchus"))
    with pytest.raises(InputError, match="zodiac"):
        _ = blog(tmp_path).people
    owned_files.write_blog_xml(tmp_path / "xml", owned_files.posts([11, 12], per_blogger=4))
    first = next((tmp_path / "xml" / "blog" / "blogs").glob("11.*"))
    first.rename(first.with_name("11.male.25.indUnk.Ophiuchus.xml"))
    with pytest.raises(InputError, match="zodiac"):
        _ = blog(tmp_path / "xml").people


def skin_cancer(root: Path, **options: object) -> SkinCancer:
    given = {"split": ClientSplit(scheme="groups", clients=15), "auxiliary_per_class": 1, **options}
    return SkinCancer(root=str(root), attributes=Attributes(), **given)  # type: ignore[arg-type]


def test_a_client_has_the_photographs_of_one_lesion_and_its_patients_attributes(tmp_path: Path) -> None:
    image_trees.write_skin_cancer(tmp_path)
    data = skin_cancer(tmp_path)
    assert data.num_clients == 15
    groups = data.read_train().groups
    people = people_of(data)
    assert groups is not None
    seen = set()
    for client, part in enumerate(data.client_images()):
        assert len(part) >= 2
        (lesion,) = torch.unique(groups[part]).tolist()  # the tree names lesions by their number
        seen.add(lesion)
        assert int(people.values["age"][client]) == (-1, 0, 1, 2)[lesion % 4]
        assert int(people.values["sex"][client]) == lesion // 2 % 2
        assert int(people.values["site"][client]) == (1, 3, 2)[lesion % 3]
    assert len(seen) == 15
    features = data.raw_features()
    assert np.allclose(features["colours"].square().reshape(15, 16, 3).sum(1), 1)
    assert features["image"].shape == (15, 3 * 32 * 32)


def test_clients_with_several_lesions_and_too_many_clients_are_refused(tmp_path: Path) -> None:
    image_trees.write_skin_cancer(tmp_path)
    with pytest.raises(InputError, match="groups"):
        _ = skin_cancer(tmp_path, split=ClientSplit(clients=3)).people
    with pytest.raises(InputError, match="500 groups"):
        _ = skin_cancer(tmp_path, split=ClientSplit(scheme="groups", clients=500)).people
    with pytest.raises(InputError, match="examples_per_client"):
        ClientSplit(scheme="groups", examples_per_client=3)
