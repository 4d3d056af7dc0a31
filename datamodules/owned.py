"""Devices of users as clients: an anonymous one of every user, and one of what the adversary knows of it."""

import abc
import functools
import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from datamodules.base import FederatedDataModule
from datamodules.cohort import Cohort
from datamodules.keys import PERSISTENT, generator_for
from datamodules.owned_examples import OwnedExamples
from datamodules.posts import UserFilter
from datamodules.priors import Devices, DeviceSplit, split_devices, without_poor_users
from errors import InputError


@dataclass(frozen=True)
class Background:
    """Examples of nobody that takes part, with which a device may hide (section 7.1, table 6).

    Attributes:
        features: ``(M, ...)`` as `OwnedExamples.features`, in the same vocabulary or size.
        labels: ``(M,)`` or ``(M, K)`` as `OwnedExamples.labels`.
    """

    features: Tensor
    labels: Tensor

    def draw(self, most: int | None, *, seed: int) -> "Background":
        """At most so many, drawn at random: the paper takes a random subset of each source."""
        if most is None or most >= len(self.features):
            return self
        order = torch.randperm(len(self.features), generator=generator_for(seed, "background", PERSISTENT))
        chosen = order[:most].sort().values
        return Background(self.features[chosen], self.labels[chosen])


class OwnedDataModule(FederatedDataModule):
    """Devices as clients; see `FederatedDataModule`. A subclass reads the examples.

    All devices train one model at the same time (section 6, "Training and Evaluation Data"): first the anonymous ones,
    then those with which the adversary simulates what it knows, in the order of their users. An empty one is no client.

    Args:
        root: see `FederatedDataModule`.
        clients_per_round: see `FederatedDataModule`; the paper's C is 0.1.
        seed: see `FederatedDataModule`.
        num_workers: see `FederatedDataModule`.
        users: which users take part.
        devices: what of them is on which device.
        most_background: background examples that are drawn; None for all.

    Attributes:
        name: of the data set: its folder's.
    """

    name: str

    def __init__(
        self,
        *,
        root: str | None = None,
        clients_per_round: int | float = 1.0,
        seed: int = 0,
        num_workers: int = 0,
        users: UserFilter = UserFilter(),  # noqa: B008 - frozen
        devices: Devices = Devices(),  # noqa: B008 - frozen
        most_background: int | None = None,
    ) -> None:
        super().__init__(root=root, clients_per_round=clients_per_round, seed=seed, num_workers=num_workers)
        if most_background is not None and most_background < 1:
            raise InputError(
                expected="most_background of at least 1", found=str(most_background), way_out="Leave it out for all."
            )
        self.users = users
        self.devices = devices
        self.most_background = most_background

    @abc.abstractmethod
    def read(self) -> OwnedExamples:
        """Reads the examples of the users that take part."""

    @abc.abstractmethod
    def read_background(self) -> Background:
        """Reads examples of others, prepared in the same way."""

    @abc.abstractmethod
    def batch(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """What a learner is given of ``(n, ...)`` examples, by field."""

    @abc.abstractmethod
    def profile_members(self) -> Tensor:
        """``(P, N)`` bool, which examples are of each profile of `devices`."""

    @property
    def dated_only(self) -> bool:
        """Whether undated examples are left out."""
        return self.devices.prior == "chrono" and self.devices.undated == "drop"

    @functools.cached_property
    def examples(self) -> OwnedExamples:
        """All examples of the users that take part."""
        examples = self.read()
        return without_poor_users(examples, self.devices) if self.devices.too_few == "drop" else examples

    @functools.cached_property
    def background(self) -> Background:
        """The background examples, read when they are first asked for."""
        return self.read_background().draw(self.most_background, seed=self.seed)

    @functools.cached_property
    def device_split(self) -> DeviceSplit:
        """Which examples are on which device; an evaluation may look at it, an attack may not."""
        member = self.profile_members() if self.devices.profiles else None
        return split_devices(self.examples, self.devices, seed=self.seed, member=member)

    @property
    def num_clients(self) -> int:
        """Number of devices that hold something."""
        return len(self._clients)

    @property
    def client_users(self) -> Tensor:
        """``(num_clients,)`` int64 user of every device; of a profile's the profile's number."""
        return torch.tensor([user for user, _, _ in self._clients])

    @property
    def client_known(self) -> Tensor:
        """``(num_clients,)`` True for the adversary's own devices."""
        return torch.tensor([known for _, known, _ in self._clients])

    def client_examples(self) -> list[Tensor]:
        """For every device the numbers of its examples."""
        return [part for _, _, part in self._clients]

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        """The name, and a hash of the examples and their owners as they were read."""
        digest = hashlib.sha256()
        examples = self.examples
        for values in (examples.features, examples.labels, examples.owners, examples.days, examples.groups):
            digest.update(values.contiguous().numpy().data)
        return {"name": self.name, "sha256": digest.hexdigest()}

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """See `FederatedDataModule.build_cohort`; the fields ``(C, N, ...)`` are those of `batch`, padded with 0."""
        parts = [self._clients[client][2] for client in clients.tolist()]
        numbers = pad_sequence(parts, batch_first=True, padding_value=-1)
        mask = numbers >= 0
        flat = self._fields(numbers.clamp(min=0).flatten())
        examples = {name: values.reshape(*numbers.shape, *values.shape[1:]) for name, values in flat.items()}
        for values in examples.values():
            values[~mask] = 0
        return Cohort(round_number, clients, examples, mask)

    def val_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        """Batches of every user's test examples: the fields ``(B, ...)`` of `batch`."""
        world, rank = (1, 0) if self.trainer is None else (self.trainer.world_size, self.trainer.global_rank)
        numbers = torch.cat(self.device_split.test).tolist()[rank::world]
        return DataLoader(numbers, batch_size=256, collate_fn=self._test_batch)  # type: ignore[arg-type]

    def _test_batch(self, numbers: list[int]) -> dict[str, Tensor]:
        return self._fields(torch.tensor(numbers))

    def _fields(self, numbers: Tensor) -> dict[str, Tensor]:
        return self.batch(self.examples.features[numbers], self.examples.labels[numbers])

    @functools.cached_property
    def _clients(self) -> list[tuple[int, bool, Tensor]]:
        """User or profile, whether known, and examples of every device that holds something."""
        split = self.device_split
        sides = ((False, split.anonymous), (True, split.known))
        return [(user, known, part) for known, parts in sides for user, part in enumerate(parts) if len(part)]
