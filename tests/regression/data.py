"""A folder of data sets, each tiny and in its real layout."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedleak.datamodules.images.cifar10 import CIFAR10
from tests.datamodules import image_trees, owned_files
from tests.datamodules.ranking_files import write_letor

_USERS = range(1, 31)
_BLOGGERS = range(11, 23)
_YELPERS = [f"user{number}" for number in range(8)]


def write_data(root: Path) -> Path:
    """The same files at every call."""
    image_trees.write_tree(root, {**_ratings(), **_photographs()})
    write_letor(root, train=np.random.default_rng(0).integers(4, 9, 48).tolist(), test=[4, 6, 5, 7])
    _classes(root)
    _texts(root)
    return root


def _ratings() -> dict[str, bytes]:
    films = "".join(f"{user}\t{item}\t{stars}\t{time}\n" for user, item, stars, time in _rated(80, seed=0))
    games = "".join(f'{user},"Game, {item}",play,{stars}.5,0\n' for user, item, stars, _ in _rated(60, seed=1))
    jobs = ("artist", "student", "writer")
    people = "".join(f"{user}|{20 + user}|{'MF'[user % 2]}|{jobs[user % 3]}|00000\n" for user in _USERS)
    own = {"ml-100k/u.data": films.encode(), "ml-100k/u.user": people.encode()}
    return {**own, "steam-200k/steam-200k.csv": games.encode()}


def _rated(items: int, *, seed: int) -> Iterator[tuple[int, int, int, int]]:
    """User, item, stars and time; users differ in how many items they rate and how often they like one."""
    random = np.random.default_rng(seed)
    for user in _USERS:
        chosen = random.permutation(items)[: random.integers(12, 25)]
        stars = 1 + random.binomial(4, random.uniform(0.45, 0.8), len(chosen))
        for time, (item, given) in enumerate(zip(chosen.tolist(), stars.tolist(), strict=True)):
            yield user, 1 + item, given, 880_000_000 + time


def _photographs() -> dict[str, bytes]:
    synsets = ("n01440764", "n01443537", "n01484850")
    return {
        f"imagenet/val/{synset}/{row}.JPEG": image_trees.jpeg(image)
        for number, synset in enumerate(synsets)
        for row, image in enumerate(image_trees.noise(8, 3, 40, 48, seed=number))
    }


def _classes(root: Path) -> None:
    for name in ("MNIST", "FashionMNIST"):
        image_trees.write_idx(root, name=name, per_class=80)
    cifar = image_trees.class_tree(tuple(CIFAR10.class_names), (3, 32, 32), per_class=40)
    image_trees.write_tree(root / "cifar10", cifar)
    image_trees.write_tree(root / "fer2013", image_trees.fer_tree(per_class=60))
    image_trees.write_skin_cancer(root)


def _texts(root: Path) -> None:
    owned_files.write_blog_csv(root, owned_files.posts(_BLOGGERS, per_blogger=20))
    others = owned_files.posts(range(90, 96), per_blogger=8)
    owned_files.write_blog_csv(root, others, name="blogtext_background.csv")
    owned_files.write_yelp_csv(root, owned_files.reviews(_YELPERS, per_user=24))
    owned_files.write_amazon(root)
    owned_files.write_sent140(root, [f"user{number}" for number in range(8)], per_user=12)
