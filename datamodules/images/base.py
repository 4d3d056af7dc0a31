"""Base class of image data sets: disjoint images of the clients, the attacker and the test."""

import abc
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from fedleak.client.cohort import Cohort, padded_cohort
from fedleak.core.errors import require
from fedleak.core.io.files import sha256_of_arrays
from fedleak.core.ranges import UnitInterval
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.datamodules.partition.client_split import ClientSplit, split_clients
from fedleak.datamodules.partition.pool import hold_back, shuffled_pool, split_off
from fedleak.training.candidates import CandidateOptions, CandidatePool, draw_numbers
from fedleak.training.data import FederatedDataModule

_COLOURS = 16
"""Bins of a channel's histogram."""


@dataclass(frozen=True)
class LabelledImages:
    """Images in memory.

    Attributes:
        images: ``(N, channels, height, width)`` uint8.
        labels: ``(N,)`` int64 classes from 0.
        groups: ``(N,)`` int64; images of one group never go to two clients. None if every image is a group.
    """

    images: Tensor
    labels: Tensor
    groups: Tensor | None = None

    def select(self, numbers: Tensor) -> "LabelledImages":
        """The images with the given numbers."""
        groups = self.groups
        if groups is not None:
            groups = groups[numbers]
        return LabelledImages(self.images[numbers], self.labels[numbers], groups)


class ClassificationDataModule(FederatedDataModule):
    """Clients with labelled images. A subclass reads the images.

    Args:
        split: assignment of the training images to clients.
        auxiliary_per_class: training images of each class that the attacker has and no client (Decaf, section IV-C: 2
            to 100). If enough images are left, a split with a fixed number of examples does not depend on it.
        renewed: share of each client's images that are new in each round, the oldest ones first; the new ones are drawn
            from those that no client or attacker has at first.

    Attributes:
        name: name of the data set and of its folder.
        class_names: name of every class.
        image_shape: channels, height and width.
    """

    name: str
    class_names: Sequence[str]
    image_shape: tuple[int, int, int]

    def __init__(
        self,
        *,
        split: ClientSplit = ClientSplit(),  # noqa: B008 - frozen
        auxiliary_per_class: int = 100,
        renewed: UnitInterval = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require(
            auxiliary_per_class >= 0,
            "auxiliary_per_class of at least 0",
            auxiliary_per_class,
            "Decaf's attacker has 2 to 100; 0 for none.",
        )
        self.split = split
        self.auxiliary_per_class = auxiliary_per_class
        self.renewed = renewed

    @abc.abstractmethod
    def read_train(self) -> LabelledImages:
        """Reads the images of the clients and the attacker."""

    @abc.abstractmethod
    def read_test(self) -> LabelledImages:
        """Reads the test images."""

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def num_clients(self) -> int:
        return len(self._parts[0])

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        return {"name": self.name, "sha256": sha256_of_arrays(self._train.images, self._train.labels)}

    def client_images(self) -> list[Tensor]:
        """Numbers of the training images of every client."""
        return self._parts[0]

    def class_counts(self) -> Tensor:
        """``(num_clients, K)`` number of each client's images of every class, the target of Decaf."""
        labels = self._train.labels
        counts = [labels[numbers].bincount(minlength=self.num_classes) for numbers in self._parts[0]]
        return torch.stack(counts)

    def auxiliary_images(self) -> Tensor:
        """``(K, k)`` numbers of the attacker's training images by class; a smaller k gives a prefix of each row."""
        return self._parts[1]

    def auxiliary(self) -> dict[str, Tensor]:
        """The attacker's images ``image (K * k, ch, h, w)`` and classes ``label (K * k,)``, class after class."""
        return self._examples(self._train, self.auxiliary_images().flatten())

    def candidates(self, options: CandidateOptions) -> CandidatePool:
        """Candidates of membership attacks: images of the clients, and images that nobody holds.

        The latter are training images that were not assigned, or test images. None is of a group (a lesion) of which a
        client or the attacker has an image.
        """
        require(
            not self.renewed,
            "data that do not change, for candidates",
            f"renewed of {self.renewed}",
            "Remove DeltaRecorder.candidates or data.renewed.",
        )
        train = self._train
        test = self._test
        # Non-members share no group, e.g. no lesion, with an image that somebody has.
        count = len(train.labels)
        groups = torch.arange(count) if train.groups is None else train.groups
        taken = torch.cat([*self.client_images(), self.auxiliary_images().flatten()])
        unheld = (~torch.isin(groups, groups[taken])).nonzero().flatten()
        # Test images are numbered behind those of the training.
        numbers, holders = draw_numbers(
            options,
            self.client_images(),
            torch.cat([unheld, count + torch.arange(len(test.labels))]),
            torch.cat([train.labels, test.labels]),
            classes=self.class_names,
            seed=self.seed,
        )
        of_train = numbers < count
        train_examples = self._examples(train, numbers[of_train])
        test_examples = self._examples(test, numbers[~of_train] - count)
        return CandidatePool(
            torch.cat([train_examples["image"], test_examples["image"]]),
            torch.cat([train_examples["label"], test_examples["label"]]),
            torch.cat([holders[of_train], holders[~of_train]]),
        )

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """Cohort of some clients.

        ``examples["image"]`` ``(C, N, ch, h, w)`` float32 in [0, 1] and ``examples["label"]`` ``(C, N)`` int64 are
        padded with 0.
        """
        parts = [self._images_in(round_number, client) for client in clients.tolist()]
        read = partial(self._examples, self._train)
        return padded_cohort(round_number, clients, parts, read)

    def _images_in(self, round_number: int, client: int) -> Tensor:
        """Numbers of a client's images in a round: a window that moves over its first ones, then over drawn ones."""
        first_images = self._parts[0][client]
        start = round(round_number * self.renewed * len(first_images))
        if start == 0:
            return first_images
        require(
            len(self._unused),
            "images that no client has, to renew data",
            "none",
            "Set data.split.examples_per_client.",
        )
        generator = generator_for(self.seed, "new images", PERSISTENT, client)
        # A client keeps its images from round to round, because more draws of a generator begin with the same ones.
        drawn = self._unused[torch.randint(len(self._unused), (start,), generator=generator)]
        return torch.cat([first_images, drawn])[start:]

    @functools.cached_property
    def _unused(self) -> Tensor:
        count = len(self._train.labels)
        taken = torch.cat([*self._parts[0], self._parts[1].flatten()])
        is_taken = torch.isin(torch.arange(count), taken)
        return (~is_taken).nonzero().flatten()

    def raw_features(self) -> dict[str, Tensor]:
        """``image`` ``(num_clients, F)``, the mean; ``colours``, roots of histograms; ``classes``, their shares."""
        counts = self.class_counts()
        levels = torch.arange(_COLOURS)[:, None]
        means = []
        colours = []
        for numbers in self._parts[0]:
            # Below 1, so that the largest of 256 levels is in the last bin.
            images = self._train.images[numbers].float() / 256
            means.append(images.mean(0).flatten())
            pixels_by_channel = images.transpose(0, 1).flatten(1)
            bins = (pixels_by_channel * _COLOURS).long()
            # Roots of shares: their distance is that of Hellinger.
            histograms = (bins == levels[..., None]).float().mean(2)
            colours.append(histograms.sqrt().flatten())
        shares = counts / counts.sum(1, keepdim=True)
        return {"image": torch.stack(means), "colours": torch.stack(colours), "classes": shares}

    def val_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        """Batches of test images: ``image (B, ch, h, w)`` float32 in [0, 1] and ``label (B,)``."""
        numbers = range(len(self._test.labels))

        def read(batch: list[int]) -> dict[str, Tensor]:
            return self._examples(self._test, torch.tensor(batch))

        return self.evaluation_loader(numbers, read)

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
        # The attacker's images come from the end of the shuffled pool, the clients' from its beginning.
        pool = shuffled_pool(
            self._train.labels,
            class_names=self.class_names,
            generator=generator_for(self.seed, "images", PERSISTENT),
            groups=self._train.groups,
        )
        auxiliary, rest = hold_back(pool, self.auxiliary_per_class, purpose="the attacker (auxiliary_per_class)")
        return split_clients(rest, self.split, seed=self.seed, data=self.name), auxiliary


def split_test(
    images: LabelledImages, *, class_names: Sequence[str], fraction: float, seed: int
) -> tuple[LabelledImages, LabelledImages]:
    """Training and test images, a fraction of every class, of a set without an official split; no group is in both."""
    generator = generator_for(seed, "test images", PERSISTENT)
    pool = shuffled_pool(images.labels, class_names=class_names, generator=generator, groups=images.groups)
    train, test = split_off(pool, fraction)
    return images.select(train), images.select(test)
