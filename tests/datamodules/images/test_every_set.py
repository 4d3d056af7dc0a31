"""Image sets in their real layouts: read exactly, dealt out apart, and refused with a name where they are damaged."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torchvision.datasets
from jsonargparse import ArgumentParser
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from fedleak.core.errors import InputError
from fedleak.datamodules.images.base import ClassificationDataModule
from fedleak.datamodules.images.cifar10 import CIFAR10
from fedleak.datamodules.images.digits import Digits
from fedleak.datamodules.images.fer import FER
from fedleak.datamodules.images.mnist import MNIST, FashionMNIST
from fedleak.datamodules.images.skin_cancer import SkinCancer
from fedleak.datamodules.images.synthetic_images import SyntheticImages
from fedleak.datamodules.partition.client_split import ClientSplit
from fedleak.training.data import FederatedDataModule
from tests.datamodules import image_trees as trees
from tests.datamodules.refusals import refused
from tests.places import REAL

Make = Callable[..., ClassificationDataModule]


def write_everything(root: Path) -> None:
    trees.write_idx(root)
    trees.write_idx(root, name="FashionMNIST")
    trees.write_tree(root / "cifar10", trees.class_tree(tuple(CIFAR10.class_names), (3, 32, 32), per_class=8))
    trees.write_tree(root / "fer2013", trees.fer_tree())
    trees.write_skin_cancer(root)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    write_everything(root)
    return root


SETS: dict[str, Make] = {
    "MNIST": MNIST,
    "FashionMNIST": FashionMNIST,
    "cifar10": CIFAR10,
    "fer2013": FER,
    "ham10000": lambda **arguments: SkinCancer(image_size=(8, 10), **arguments),
    "digits": Digits,
    "synthetic-images": lambda **arguments: SyntheticImages(train_per_class=12, **arguments),
}
FEW = ClientSplit(clients=3)


def images_of(data: ClassificationDataModule) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """The clients' images, the attacker's and the test's, as they would be trained on."""
    cohort = data.cohort(0)
    return (
        [image.numpy().tobytes() for image in cohort.examples["image"][cohort.mask]],
        [image.numpy().tobytes() for image in data.auxiliary()["image"]],
        [image.numpy().tobytes() for batch in data.val_dataloader() for image in batch["image"]],
    )


@pytest.mark.parametrize("name", SETS)
def test_no_image_is_with_two_clients_or_the_attacker_or_in_the_test(everything: Path, name: str) -> None:
    data = SETS[name](root=str(everything), split=FEW, auxiliary_per_class=2)
    clients, attacker, test = images_of(data)
    assert data.fingerprint["name"] == name
    assert len(attacker) == 2 * data.num_classes
    together = clients + attacker + test
    # Every file holds noise, and no two of the digits are equal: an image is its content.
    assert len(set(together)) == len(together)


@pytest.mark.parametrize("name", SETS)
def test_a_cohort_holds_what_was_read(everything: Path, name: str) -> None:
    data = SETS[name](root=str(everything), split=FEW, auxiliary_per_class=2, clients_per_round=2)
    train, cohort = data.read_train(), data.cohort(5)
    assert cohort.round == 5
    assert len(cohort) == 2
    assert cohort.examples["image"].dtype == torch.float32
    assert cohort.examples["image"].shape[2:] == data.image_shape
    for position, client in enumerate(cohort.clients.tolist()):
        numbers, size = data.client_images()[client], int(cohort.counts[position])
        assert torch.equal(cohort.mask[position], torch.arange(cohort.mask.shape[1]) < size)
        images, labels = cohort.examples["image"][position], cohort.examples["label"][position]
        assert torch.equal((images[:size] * 255).round(), train.images[numbers].float())
        assert torch.equal(labels[:size], train.labels[numbers])
        assert not images[size:].any()
        assert not labels[size:].any()
        assert torch.equal(labels[:size].bincount(minlength=data.num_classes), data.class_counts()[client])
        assert labels[:size].diff().lt(0).any()


@pytest.mark.parametrize("name", SETS)
def test_the_attackers_images_come_class_after_class(everything: Path, name: str) -> None:
    data = SETS[name](root=str(everything), split=FEW, auxiliary_per_class=3)
    auxiliary = data.auxiliary()
    assert torch.equal(auxiliary["label"], torch.arange(data.num_classes).repeat_interleave(3))
    fewer = SETS[name](root=str(everything), split=FEW, auxiliary_per_class=2)
    assert torch.equal(fewer.auxiliary_images(), data.auxiliary_images()[:, :2])
    assert not len(SETS[name](root=str(everything), split=FEW, auxiliary_per_class=0).auxiliary()["label"])


def test_clients_of_a_number_of_images_are_the_same_whatever_the_attacker_has() -> None:
    split = ClientSplit(scheme="composition", composition="MNIST", examples_per_client=60)
    two, hundred = (SyntheticImages(split=split, auxiliary_per_class=number) for number in (2, 100))
    assert all(torch.equal(a, b) for a, b in zip(two.client_images(), hundred.client_images(), strict=True))
    other = SyntheticImages(split=split, seed=1)
    assert not torch.equal(other.client_images()[0], two.client_images()[0])


@pytest.mark.parametrize("name", SETS)
def test_a_fingerprint_is_of_what_was_read(everything: Path, name: str) -> None:
    one, two = (SETS[name](root=str(everything), split=FEW, clients_per_round=count) for count in (1, 2))
    assert one.fingerprint == two.fingerprint
    assert len(one.fingerprint["sha256"]) == 64


def test_a_composition_gives_each_client_its_proportions() -> None:
    split = ClientSplit(scheme="composition", composition="MNIST", examples_per_client=60)
    counts = Digits(split=split).class_counts()
    assert counts[4].tolist() == [3, 11, 0, 5, 6, 8, 15, 5, 4, 3]
    assert counts.sum(1).tolist() == [60] * 10
    with pytest.raises(InputError, match="660 examples of class 0"):
        Digits(split=ClientSplit(scheme="composition", composition="MNIST", examples_per_client=900)).num_clients  # noqa: B018
    refused(Digits(auxiliary_per_class=400), "attacker")


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_share_the_test_images(rank: int) -> None:
    class Rank:
        world_size, global_rank = 2, rank

    data = Digits(split=FEW)
    whole = torch.cat([batch["label"] for batch in data.val_dataloader()])
    data.trainer = Rank()  # type: ignore[assignment]
    assert torch.equal(torch.cat([batch["label"] for batch in data.val_dataloader()]), whole[rank::2])


def accuracy(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> float:
    model = KNeighborsClassifier(5).fit(train[0].flatten(1).numpy(), train[1].numpy())
    return float(model.score(test[0].flatten(1).numpy(), test[1].numpy()))


@pytest.mark.parametrize("data", [SyntheticImages(noise=0.3), Digits()], ids=["synthetic", "digits"])
def test_classes_can_be_learned_and_shuffled_ones_cannot(data: ClassificationDataModule) -> None:
    auxiliary = data.auxiliary()
    test = next(iter(data.val_dataloader()))
    shuffled = auxiliary["label"][torch.randperm(len(auxiliary["label"]), generator=torch.Generator().manual_seed(0))]
    held = test["image"], test["label"]
    assert accuracy((auxiliary["image"], auxiliary["label"]), held) > 0.8
    assert accuracy((auxiliary["image"], shuffled), held) < 0.3


@pytest.mark.parametrize("arguments", [{"noise": -1.0}, {"classes": 1}, {"train_per_class": 0}, {"shape": (1, 0, 4)}])
def test_an_impossible_generated_set_is_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(InputError, match="two classes"):
        SyntheticImages(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "split"),
    [
        (
            "--data.split.scheme composition --data.split.composition MNIST --data.split.examples_per_client 60",
            ClientSplit(scheme="composition", composition="MNIST", examples_per_client=60),
        ),
        (
            '--data.split {"scheme":"composition","composition":[[0.5,0.5],[0,1]],"examples_per_client":[4,6]}',
            ClientSplit(scheme="composition", composition=[[0.5, 0.5], [0.0, 1.0]], examples_per_client=[4, 6]),
        ),
    ],
    ids=["named", "given"],
)
def test_a_command_line_says_who_holds_what(arguments: str, split: ClientSplit) -> None:
    parser = ArgumentParser()
    parser.add_subclass_arguments(FederatedDataModule, "data")
    data = parser.instantiate(
        parser.parse_args(["--data", "fedleak.datamodules.images.digits.Digits", *arguments.split()])
    ).data
    assert isinstance(data, Digits)
    assert data.split == split


def test_what_no_attacker_has_is_refused() -> None:
    with pytest.raises(InputError, match="auxiliary_per_class"):
        Digits(auxiliary_per_class=-1)
    with pytest.raises(InputError, match="image_size"):
        SkinCancer(image_size=(0, 8))


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (MNIST, r"MNIST/raw/train-images-idx3-ubyte.*download: true.*ossci"),
        (FashionMNIST, r"FashionMNIST/raw/train-images.*zalandoresearch"),
        (CIFAR10, r"cifar-10-batches-py.*download: true.*kriz"),
        (FER, r"fer2013.*kaggle\.com/datasets/msambare"),
        (SkinCancer, r"ham10000/HAM10000_metadata\.csv.*kaggle\.com/datasets/kmader"),
    ],
)
def test_what_is_missing_is_named_with_its_origin(tmp_path: Path, make: Make, found: str) -> None:
    refused(make(root=str(tmp_path)), found)


@pytest.mark.parametrize("make", [MNIST, FashionMNIST, CIFAR10])
def test_a_download_that_fails_is_told(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> None:
        raise RuntimeError("the network is away")

    monkeypatch.setattr(torchvision.datasets.MNIST, "download", fail)
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "download", fail)
    data = make(root=str(tmp_path), download=True)
    with pytest.raises(InputError, match="network"):
        data.prepare_data()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("make", "folder", "counts"),
    [
        (MNIST, "MNIST", (60_000, 10_000, 5421)),
        (FashionMNIST, "FashionMNIST", (60_000, 10_000, 6000)),
        (CIFAR10, "cifar10", (10_000, 2_000, 1000)),
        (FER, "fer2013", (9_000, 3_589, 121)),
        (SkinCancer, "ham10000", (None, None, None)),
    ],
)
def test_the_real_sets_have_their_sizes(make: Make, folder: str, counts: tuple[int, int, int]) -> None:
    if not (REAL / folder).is_dir():
        pytest.skip("the real data are not here")
    data = make(root=str(REAL), split=ClientSplit(examples_per_client=50), auxiliary_per_class=10)
    train, test = data.read_train(), data.read_test()
    if folder == "ham10000":
        whole = torch.cat([train.labels, test.labels])
        assert whole.bincount().tolist() == [327, 514, 1099, 115, 1113, 6705, 142]
        assert train.groups is not None
        assert test.groups is not None
        assert len(set(train.groups.tolist())) + len(set(test.groups.tolist())) == 7_470
    elif folder == "cifar10" and (REAL / "cifar-10-batches-py").is_dir():
        assert train.labels.bincount().tolist() == [5000] * 10
    else:
        assert (len(train.labels), len(test.labels), int(train.labels.bincount().min())) == counts
    assert data.cohort(0).examples["image"].shape == (10, 50, *data.image_shape)
    assert data.auxiliary()["image"].shape == (10 * data.num_classes, *data.image_shape)
