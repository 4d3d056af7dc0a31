"""An image classifier's clients, the attacker's auxiliary images and the test images: no image is in two of these."""

import abc
import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from datamodules.base import FederatedDataModule
from datamodules.cohort import Cohort
from datamodules.partition.client_split import ClientSplit, split_clients
from datamodules.partition.pool import hold_back, shuffled_pool, split_off
from protocol.errors import InputError
from protocol.seeding import PERSISTENT, generator_for
from ranges import NonNegativeInt


@dataclass(frozen=True)
class LabelledImages:
    """Images as they are kept in memory.

    Attributes:
        images: ``(N, channels, height, width)`` uint8.
        labels: ``(N,)`` int64 classes from 0.
        groups: ``(N,)`` int64; images of one group never go to two clients. None where every image is its own.
    """

    images: Tensor
    labels: Tensor
    groups: Tensor | None = None

    def select(self, numbers: Tensor) -> "LabelledImages":
        """The images of some numbers."""
        groups = None if self.groups is None else self.groups[numbers]
        return LabelledImages(self.images[numbers], self.labels[numbers], groups)


class ClassificationDataModule(FederatedDataModule):
    """Clients of images and classes; see `FederatedDataModule`. A subclass reads the images.

    Args:
        root: see `FederatedDataModule`.
        clients_per_round: see `FederatedDataModule`.
        seed: see `FederatedDataModule`.
        num_workers: see `FederatedDataModule`.
        split: how the training images are dealt out to clients.
        auxiliary_per_class: training images of each class that the attacker has and no client (Decaf, section IV-C: 2
            to 100). Clients of a given number of images are the same for every such number, where enough are left.

    Attributes:
        name: of the data set: its folder's.
        class_names: name of every class.
        image_shape: channels, height and width.
    """

    name: str
    class_names: Sequence[str]
    image_shape: tuple[int, int, int]

    def __init__(
        self,
        *,
        root: str | None = None,
        clients_per_round: int | float = 1.0,
        seed: int = 0,
        num_workers: NonNegativeInt = 0,
        split: ClientSplit = ClientSplit(),  # noqa: B008 - frozen
        auxiliary_per_class: int = 100,
    ) -> None:
        super().__init__(root=root, clients_per_round=clients_per_round, seed=seed, num_workers=num_workers)
        if auxiliary_per_class < 0:
            raise InputError(
                expected="auxiliary_per_class of at least 0",
                found=str(auxiliary_per_class),
                way_out="Decaf's attacker has 2 to 100; 0 for none.",
            )
        self.split = split
        self.auxiliary_per_class = auxiliary_per_class

    @abc.abstractmethod
    def read_train(self) -> LabelledImages:
        """Reads the images that clients and attacker hold."""

    @abc.abstractmethod
    def read_test(self) -> LabelledImages:
        """Reads the images on which the classifier is evaluated."""

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return len(self._parts[0])

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        """The name, and a hash of the training images and their classes as they were read."""
        digest = hashlib.sha256(self._train.images.numpy().data)
        digest.update(self._train.labels.numpy().data)
        return {"name": self.name, "sha256": digest.hexdigest()}

    def client_images(self) -> list[Tensor]:
        """For every client the numbers of its training images."""
        return self._parts[0]

    def class_counts(self) -> Tensor:
        """``(num_clients, K)`` images of every class that each client holds: what Decaf is after."""
        return torch.stack([self._train.labels[part].bincount(minlength=self.num_classes) for part in self._parts[0]])

    def auxiliary_images(self) -> Tensor:
        """``(K, k)`` numbers of the attacker's training images, by class; the first j of k are the same for every k."""
        return self._parts[1]

    def auxiliary(self) -> dict[str, Tensor]:
        """The attacker's images ``image (K * k, ch, h, w)`` and classes ``label (K * k,)``, class after class."""
        return self._examples(self._train, self.auxiliary_images().flatten())

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """See `FederatedDataModule.build_cohort`.

        ``examples["image"]`` ``(C, N, ch, h, w)`` float32 in [0, 1] and ``examples["label"]`` ``(C, N)`` int64 are
        padded with 0.
        """
        parts = [self._parts[0][client] for client in clients.tolist()]
        numbers = pad_sequence(parts, batch_first=True, padding_value=-1)
        mask = numbers >= 0
        examples = self._examples(self._train, numbers.clamp(min=0))
        examples["image"][~mask] = 0
        examples["label"][~mask] = 0
        return Cohort(round_number, clients, examples, mask)

    def val_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        """Batches of test images: ``image (B, ch, h, w)`` float32 in [0, 1] and ``label (B,)``."""
        world, rank = (1, 0) if self.trainer is None else (self.trainer.world_size, self.trainer.global_rank)
        numbers = list(range(rank, len(self._test.labels), world))
        return DataLoader(numbers, batch_size=256, collate_fn=self._test_batch)  # type: ignore[arg-type]

    def _test_batch(self, numbers: list[int]) -> dict[str, Tensor]:
        return self._examples(self._test, torch.tensor(numbers))

    @staticmethod
    def _examples(source: LabelledImages, numbers: Tensor) -> dict[str, Tensor]:
        return {"image": source.images[numbers].float().div_(255), "label": source.labels[numbers]}

    @functools.cached_property
    def _train(self) -> LabelledImages:
        return self.read_train()

    @functools.cached_property
    def _test(self) -> LabelledImages:
        return self.read_test()

    @functools.cached_property
    def _parts(self) -> tuple[list[Tensor], Tensor]:
        """The clients' images and the attacker's."""
        pool = shuffled_pool(
            self._train.labels,
            class_names=self.class_names,
            generator=generator_for(self.seed, "images", PERSISTENT),
            groups=self._train.groups,
        )
        auxiliary, rest = hold_back(pool, self.auxiliary_per_class, purpose="the attacker (auxiliary_per_class)")
        return split_clients(rest, self.split, seed=self.seed, data=self.name), auxiliary


def split_test(
    whole: LabelledImages, *, class_names: Sequence[str], fraction: float, seed: int
) -> tuple[LabelledImages, LabelledImages]:
    """Training and test images of a set that its owners did not split, with no group in both.

    Args:
        whole: all images.
        class_names: name of every class.
        fraction: of every class, for the test.
        seed: of the draw.
    """
    generator = generator_for(seed, "test images", PERSISTENT)
    pool = shuffled_pool(whole.labels, class_names=class_names, generator=generator, groups=whole.groups)
    train, test = split_off(pool, fraction)
    return whole.select(train), whole.select(test)
