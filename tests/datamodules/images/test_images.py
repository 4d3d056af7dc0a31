"""Image sets in their real layouts: read exactly, dealt out apart, and refused with a name where they are damaged."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision.datasets
from jsonargparse import ArgumentParser
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

from datamodules.base import FederatedDataModule
from datamodules.images import image_files
from datamodules.images.base import ClassificationDataModule
from datamodules.images.cifar10 import CIFAR10
from datamodules.images.digits import Digits
from datamodules.images.fer import FER
from datamodules.images.mnist import MNIST, FashionMNIST
from datamodules.images.skin_cancer import SkinCancer
from datamodules.images.synthetic_images import SyntheticImages
from datamodules.partition.client_split import ClientSplit
from modules.engine.local_hyperparameters import LocalTraining
from modules.engine.local_training import train_clients
from modules.engine.network_task import ClassificationTask
from protocol.errors import InputError
from tests.datamodules import image_trees as trees

REAL = Path(os.environ.get("FEDLEAK_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
Make = Callable[..., ClassificationDataModule]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FEDLEAK_CACHE", str(folder))
    return folder


@pytest.fixture
def own_hashes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Takes the files of a folder for CIFAR-10's own."""

    def trust(root: Path) -> None:
        source = torchvision.datasets.CIFAR10
        folder = root / source.base_folder
        md5 = torchvision.datasets.utils.calculate_md5
        for name in ("train_list", "test_list"):
            monkeypatch.setattr(source, name, [[file, md5(folder / file)] for file, _ in getattr(source, name)])
        meta = source.meta["filename"]
        monkeypatch.setattr(source, "meta", source.meta | {"md5": md5(folder / meta)})

    return trust


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
    with pytest.raises(InputError, match=r"660 examples of class 0 \(0\) for the clients; found 122"):
        Digits(split=ClientSplit(scheme="composition", composition="MNIST", examples_per_client=900)).num_clients  # noqa: B018
    with pytest.raises(InputError, match=r"400 examples of class 0 \(0\) for the attacker"):
        Digits(auxiliary_per_class=400).num_clients  # noqa: B018


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_share_the_test_images(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_update_shows_the_classes_that_a_client_lacks() -> None:
    """Decaf, section III-D, with images as the inputs of the last layer: the cohort is what the engine expects."""
    split = ClientSplit(scheme="composition", composition="MNIST", examples_per_client=60)
    data = SyntheticImages(split=split, train_per_class=150, auxiliary_per_class=10)
    network = nn.Sequential(nn.Flatten(), nn.Linear(144, 10))
    public = {name: torch.zeros_like(value) for name, value in network.named_parameters()}
    local = LocalTraining(learning_rate=0.1, epochs=3)
    result = train_clients(ClassificationTask(network), public, {}, data.cohort(0), local, seed=0)
    shown = (result.deltas["1.weight"] > 0).any(2)
    counts = data.class_counts()
    assert not shown[counts == 0].any()
    # An untrained model gives every class .1, so what a client has twice of outweighs that.
    assert shown[counts >= 12].all()


@pytest.mark.parametrize(
    ("arguments", "split"),
    [
        (
            [
                *("--data.split.scheme", "composition", "--data.split.composition", "MNIST"),
                *("--data.split.examples_per_client", "60"),
            ],
            ClientSplit(scheme="composition", composition="MNIST", examples_per_client=60),
        ),
        (
            [
                "--data.split",
                '{"scheme": "composition", "composition": [[0.5, 0.5], [0, 1]], "examples_per_client": [4, 6]}',
            ],
            ClientSplit(scheme="composition", composition=[[0.5, 0.5], [0.0, 1.0]], examples_per_client=[4, 6]),
        ),
    ],
    ids=["named", "given"],
)
def test_a_command_line_says_who_holds_what(arguments: list[str], split: ClientSplit) -> None:
    parser = ArgumentParser()
    parser.add_subclass_arguments(FederatedDataModule, "data")
    data = parser.instantiate(parser.parse_args(["--data", "datamodules.images.digits.Digits", *arguments])).data
    assert isinstance(data, Digits)
    assert data.split == split


def test_what_no_attacker_has_is_refused() -> None:
    with pytest.raises(InputError, match="auxiliary_per_class of at least 0"):
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
    with pytest.raises(InputError, match=found):
        make(root=str(tmp_path)).num_clients  # noqa: B018


@pytest.mark.parametrize("make", [MNIST, FashionMNIST, CIFAR10])
def test_a_download_that_fails_is_told(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> None:
        raise RuntimeError("the network is away")

    monkeypatch.setattr(torchvision.datasets.MNIST, "download", fail)
    monkeypatch.setattr(torchvision.datasets.CIFAR10, "download", fail)
    data = make(root=str(tmp_path), download=True)
    with pytest.raises(InputError, match="from its origin; found the network is away"):
        data.prepare_data()


def test_idx_files_are_read_as_they_are(tmp_path: Path) -> None:
    trees.write_idx(tmp_path)
    train, test = (part(MNIST(root=str(tmp_path))) for part in (MNIST.read_train, MNIST.read_test))
    assert np.array_equal(train.images.numpy()[:, 0], trees.noise(120, 28, 28))
    assert np.array_equal(test.images.numpy()[:, 0], trees.noise(30, 28, 28, seed=1))
    assert train.labels[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]


@pytest.mark.parametrize("damage", [b"", b"\0\0", b"no idx file, but long enough to have a header"])
@pytest.mark.parametrize("file", ["train-images-idx3-ubyte", "train-labels-idx1-ubyte"])
def test_a_damaged_idx_file_is_named(tmp_path: Path, file: str, damage: bytes) -> None:
    trees.write_idx(tmp_path)
    path = tmp_path / "MNIST" / "raw" / file
    path.write_bytes(damage)
    with pytest.raises(InputError) as caught:
        MNIST(root=str(tmp_path)).num_clients  # noqa: B018
    assert str(path) in caught.value.found


def test_idx_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    trees.write_idx(tmp_path)
    folder = tmp_path / "MNIST" / "raw"
    path = folder / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(InputError, match=r"damaged file at .*train-images"):
        MNIST(root=str(tmp_path)).num_clients  # noqa: B018
    path.write_bytes((folder / "t10k-images-idx3-ubyte").read_bytes())
    with pytest.raises(InputError, match=r"images \(30, 28, 28\) and labels \(120,\) of train"):
        MNIST(root=str(tmp_path)).num_clients  # noqa: B018


def test_cifars_original_files_are_read_as_they_are(tmp_path: Path, own_hashes: Callable[[Path], None]) -> None:
    trees.write_cifar(tmp_path)
    own_hashes(tmp_path)
    data = CIFAR10(root=str(tmp_path), split=FEW, auxiliary_per_class=2)
    train, test = data.read_train(), data.read_test()
    assert np.array_equal(train.images[30:60].numpy(), trees.noise(30, 3072, seed=1).reshape(30, 3, 32, 32))
    assert np.array_equal(test.images.numpy(), trees.noise(30, 3072, seed=5).reshape(30, 3, 32, 32))
    assert train.labels.bincount().tolist() == [15] * 10
    assert data.num_clients == 3


@pytest.mark.parametrize("file", ["data_batch_1", "data_batch_4", "test_batch", "batches.meta"])
def test_a_strangers_pickle_is_never_opened(tmp_path: Path, own_hashes: Callable[[Path], None], file: str) -> None:
    trees.write_cifar(tmp_path)
    own_hashes(tmp_path)
    path = tmp_path / "cifar-10-batches-py" / file
    path.write_bytes(trees.bomb(tmp_path / "it ran"))
    for read in (CIFAR10.read_train, CIFAR10.read_test):
        with pytest.raises(InputError, match="It is not opened") as caught:
            read(CIFAR10(root=str(tmp_path)))
        assert str(path) in caught.value.found
    assert not (tmp_path / "it ran").exists()
    # And it would have run, had the hash been the right one.
    own_hashes(tmp_path)
    read = CIFAR10.read_test if file == "test_batch" else CIFAR10.read_train
    with pytest.raises(TypeError):
        read(CIFAR10(root=str(tmp_path)))
    assert (tmp_path / "it ran").exists()
    path.unlink()
    with pytest.raises(InputError, match="nothing at"):
        CIFAR10(root=str(tmp_path)).read_train()


@pytest.mark.parametrize("form", ["folders", "zip"])
def test_images_by_class_are_read_from_folders_or_a_zip_file(tmp_path: Path, form: str) -> None:
    tree = trees.fer_tree()
    if form == "zip":
        trees.write_zip(tmp_path / "fer2013" / "archive.zip", tree)
    else:
        trees.write_tree(tmp_path / "fer2013", tree)
        (tmp_path / "fer2013" / "train" / "fear" / "notes.txt").write_text("no image")
    train, test = FER(root=str(tmp_path)).read_train(), FER(root=str(tmp_path)).read_test()
    assert train.labels.tolist() == [number for number in range(7) for _ in range(8)]
    assert test.labels.bincount().tolist() == [2] * 7
    # JPEG at its best quality, noise at its worst: off by a level or two.
    original = np.concatenate([trees.noise(8, 1, 48, 48, seed=number) for number in range(7)])
    assert np.abs(train.images.numpy().astype(int) - original).max() <= 4


def test_decoded_images_come_from_the_cache_and_a_change_is_noticed(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees.write_tree(tmp_path / "fer2013", trees.fer_tree())
    fresh = FER(root=str(tmp_path)).read_train()
    with monkeypatch.context() as patch:
        patch.setattr(image_files, "_decode", None)
        assert torch.equal(FER(root=str(tmp_path)).read_train().images, fresh.images)
    changed = trees.noise(1, 1, 48, 48, seed=9)[0]
    (tmp_path / "fer2013" / "train" / "fear" / "0003.jpg").write_bytes(trees.jpeg(changed))
    again = FER(root=str(tmp_path)).read_train().images
    assert (again != fresh.images).flatten(1).any(1).nonzero().flatten().tolist() == [2 * 8 + 3]
    assert np.abs(again[19].numpy().astype(int) - changed).max() <= 4
    for kept in cache.iterdir():
        kept.write_bytes(kept.read_bytes()[:300])
    assert torch.equal(FER(root=str(tmp_path)).read_train().images, again)


@pytest.mark.parametrize("damage", ["cut short", "empty", "no image", "too large"])
@pytest.mark.parametrize("form", ["folders", "zip"])
def test_a_damaged_image_is_named(tmp_path: Path, damage: str, form: str) -> None:
    tree = trees.fer_tree()
    name = "train/happy/0005.jpg"
    tree[name] = {
        "cut short": tree[name][:400],
        "empty": b"",
        "no image": b"no image at all",
        "too large": trees.jpeg(trees.noise(1, 1, 48, 50)[0]),
    }[damage]
    if form == "zip":
        trees.write_zip(tmp_path / "fer2013" / "archive.zip", tree)
    else:
        trees.write_tree(tmp_path / "fer2013", tree)
    with pytest.raises(InputError, match=name):
        FER(root=str(tmp_path)).num_clients  # noqa: B018


def test_a_damaged_zip_file_or_a_missing_class_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fer2013" / "archive.zip"
    trees.write_zip(path, trees.fer_tree())
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(InputError, match="whole zip file archive"):
        FER(root=str(tmp_path)).num_clients  # noqa: B018
    # One byte of one image: the zip file's own checksum tells.
    path.write_bytes(whole[:500] + bytes([whole[500] ^ 1]) + whole[501:])
    with pytest.raises(InputError, match=r"train/angry/0000\.jpg"):
        FER(root=str(tmp_path)).num_clients  # noqa: B018
    tree = {name: content for name, content in trees.fer_tree().items() if "disgust" not in name}
    trees.write_zip(path, tree)
    with pytest.raises(InputError, match="images of the class disgust"):
        FER(root=str(tmp_path)).num_clients  # noqa: B018


@pytest.mark.parametrize("file", ["fer2013.csv", "icml_face_data.csv", "train.csv"])
def test_fers_csv_files_have_the_classes_of_its_folders(tmp_path: Path, file: str, cache: Path) -> None:
    rows = trees.fer_rows()
    trees.write_fer_csv(tmp_path / "fer2013" / file, rows)
    # The CSV file is preferred.
    trees.write_tree(tmp_path / "fer2013", trees.fer_tree())
    names = {str(code): name for name, code in trees.FER_CODES.items()}
    for _ in range(2):
        data = FER(root=str(tmp_path))
        train, test = data.read_train(), data.read_test()
        expected = {row["pixels"]: (names[row["emotion"]], row["Usage"] == "Training") for row in rows}
        for part, training in ((train, True), (test, False)):
            for image, label in zip(part.images, part.labels.tolist(), strict=True):
                name, is_training = expected.pop(" ".join(map(str, image.flatten().tolist())))
                assert data.class_names[label] == name
                assert is_training == training or file == "train.csv"
        assert not expected
    assert len(list(cache.iterdir())) == 1


def edit(column: str, value: str) -> list[dict[str, str]]:
    rows = trees.fer_rows()
    rows[4] = rows[4] | {column: value}
    return rows


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (edit("emotion", "7"), "class from 0 to 6; found '7' in line 6"),
        (edit("emotion", ""), "class from 0 to 6; found '' in line 6"),
        (edit("pixels", "1 2 3"), "3 words in line 6"),
        (edit("pixels", " ".join(["256"] * 2304)), "2304 words in line 6"),
        (edit("pixels", " ".join(["-1"] * 2304)), "2304 words in line 6"),
        (edit("pixels", " ".join(["x"] * 2304)), "2304 words in line 6"),
        (edit("Usage", "Privat"), "'Privat' in line 6"),
        ([], "0 and 0"),
    ],
    ids=["class", "no class", "pixels", "too light", "too dark", "words", "usage", "empty"],
)
def test_a_damaged_csv_file_is_refused_with_its_line(tmp_path: Path, rows: list[dict[str, str]], found: str) -> None:
    path = tmp_path / "fer2013" / "fer2013.csv"
    trees.write_fer_csv(path, rows)
    with pytest.raises(InputError, match=found) as caught:
        FER(root=str(tmp_path)).num_clients  # noqa: B018
    assert str(path) in caught.value.found


@pytest.mark.parametrize("content", [b"", b"emotion,pixels\n1,2\n", b"\xff\xfe\0\0\0", b'emotion,pixels,Usage\n"1,2'])
def test_a_csv_file_of_another_form_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fer2013" / "fer2013.csv"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        FER(root=str(tmp_path)).num_clients  # noqa: B018
    assert str(path) in caught.value.found


@pytest.mark.parametrize("form", ["two folders", "beside", "zip", "two folders in a zip"])
def test_skin_cancers_images_are_found_in_every_layout(tmp_path: Path, form: str) -> None:
    folder, rows = tmp_path / "ham10000", trees.skin_cancer_metadata()
    images = trees.skin_cancer_images(rows)
    halves = {f"HAM10000_images_part_{1 + row % 2}/{name}": images[name] for row, name in enumerate(images)}
    {
        "two folders": lambda: trees.write_tree(folder, halves),
        "beside": lambda: trees.write_tree(folder, images),
        "zip": lambda: trees.write_zip(folder / "HAM10000_images.zip", images),
        "two folders in a zip": lambda: trees.write_zip(folder / "archive.zip", halves),
    }[form]()
    (folder / "HAM10000_metadata.csv").write_text(trees.metadata_text(rows))
    data = SkinCancer(root=str(tmp_path), image_size=(9, 12))
    train, test = data.read_train(), data.read_test()
    original = trees.noise(len(rows), 3, 9, 12, seed=5)
    expected = {row: (lesion, kind) for row, (lesion, _, kind) in enumerate(rows)}
    lesions: list[set[str]] = []
    for part in (train, test):
        owned: set[str] = set()
        for image, label in zip(part.images.numpy(), part.labels.tolist(), strict=True):
            # Colour is coded coarsely, so not to a level, but no two images of noise are near.
            row = int(np.abs(original.astype(int) - image).mean(axis=(1, 2, 3)).argmin())
            lesion, kind = expected.pop(row)
            assert data.class_names[label] == kind
            owned.add(lesion)
        lesions.append(owned)
    assert not expected
    assert not lesions[0] & lesions[1]
    assert 0.25 < len(test.labels) / len(rows) < 0.4


@pytest.mark.parametrize(
    "split",
    [
        ClientSplit(clients=4),
        ClientSplit(scheme="shards", clients=3),
        ClientSplit(scheme="dirichlet", clients=3, alpha=5.0),
        ClientSplit(scheme="composition", composition=[[0.5, 0.5, 0, 0, 0, 0, 0], [1 / 7] * 7], examples_per_client=7),
    ],
    ids=lambda split: str(split.scheme),
)
def test_no_lesion_is_with_two_clients_or_the_attacker(everything: Path, split: ClientSplit) -> None:
    data = SkinCancer(root=str(everything), image_size=(8, 8), split=split, auxiliary_per_class=3)
    groups = data.read_train().groups
    assert groups is not None
    assert groups.bincount().max() > 1
    holders = [*data.client_images(), data.auxiliary_images().flatten()]
    owned = [set(groups[part].tolist()) for part in holders]
    assert len(set.union(*owned)) == sum(len(own) for own in owned)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda text: text.replace("lesion_id", "lesion"), "columns lesion_id, image_id, dx"),
        (lambda text: text.replace(",nv,", ",nw,", 1), "another content in line"),
        (lambda text: text + text.splitlines()[5] + "\n", "another content in line"),
        (lambda text: text.splitlines()[0] + "\n", "line 1"),
        (lambda text: text[:0], "HAM10000_metadata"),
        (lambda text: text + "HAM_1,ISIC_none,nv,histo,,male,back\n", r"no ISIC_none\.jpg \(1 are missing\)"),
        (
            lambda text: text.replace("HAM_0000001,", "HAM_0000000,", 1),
            "groups of one class",
        ),
    ],
    ids=["columns", "kind", "twice", "empty", "nothing", "no file", "lesion of two kinds"],
)
def test_damaged_metadata_are_refused(tmp_path: Path, change: Callable[[str], str], found: str) -> None:
    trees.write_skin_cancer(tmp_path)
    path = tmp_path / "ham10000" / "HAM10000_metadata.csv"
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=found):
        SkinCancer(root=str(tmp_path), image_size=(8, 8)).num_clients  # noqa: B018


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
