"""Devices of users as clients: an anonymous one of every user, and one of what the adversary knows of it."""

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
from datamodules.devices.augmentation import Mitigation, mixed_in
from datamodules.devices.background_clusters import background_modes
from datamodules.devices.device_split import Devices, DeviceSplit, split_devices, without_poor_users
from datamodules.devices.open_world import HOLDOUT
from datamodules.devices.user_examples import OwnedExamples
from datamodules.devices.user_filter import UserFilter
from protocol.errors import InputError
from protocol.seeding import PERSISTENT, generator_for
from ranges import NonNegativeInt


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
        mitigation: what the anonymous devices mix into their examples; None for nothing. The known devices are the
            adversary's and mix in nothing.
        known_examples: examples of each known device, drawn at random; None for all that it has.

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
        num_workers: NonNegativeInt = 0,
        users: UserFilter = UserFilter(),  # noqa: B008 - frozen
        devices: Devices = Devices(),  # noqa: B008 - frozen
        most_background: int | None = None,
        mitigation: Mitigation | None = None,
        known_examples: int | None = None,
    ) -> None:
        super().__init__(root=root, clients_per_round=clients_per_round, seed=seed, num_workers=num_workers)
        if most_background is not None and most_background < 1:
            raise InputError(
                expected="most_background of at least 1", found=str(most_background), way_out="Leave it out for all."
            )
        if known_examples is not None and known_examples < 1:
            raise InputError(
                expected="known_examples of at least 1", found=str(known_examples), way_out="Leave it out for all."
            )
        self.mitigation = mitigation
        self.known_examples = known_examples
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
    def holdout_users(self) -> Tensor:
        """``(H,)`` int64 users of the open world's hold-out, see `datamodules.devices.open_world`."""
        return (self.device_split.roles == HOLDOUT).nonzero().flatten()

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
        flat = self.fields(numbers.clamp(min=0).flatten())
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
        return self.fields(torch.tensor(numbers))

    def fields(self, numbers: Tensor) -> dict[str, Tensor]:
        """What a learner is given of examples ``(n,)``, and by higher numbers of background examples."""
        of_users = numbers.clamp(max=len(self.examples) - 1)
        features, labels = self.examples.features[of_users], self.examples.labels[of_users]
        mixed = numbers >= len(self.examples)
        if mixed.any():
            crowd = numbers[mixed] - len(self.examples)
            features[mixed], labels[mixed] = self.background.features[crowd], self.background.labels[crowd]
        return self.batch(features, labels)

    @functools.cached_property
    def _clients(self) -> list[tuple[int, bool, Tensor]]:
        """User or profile, whether known, and examples of every device that holds something."""
        split = self.device_split
        sides = ((False, self._with_crowd(split.anonymous)), (True, self._few(split.known)))
        return [(user, known, part) for known, parts in sides for user, part in enumerate(parts) if len(part)]

    def _with_crowd(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The anonymous devices' examples with what they mix in."""
        if self.mitigation is None:
            return list(parts)
        numbers = len(self.examples) + torch.arange(len(self.background.features))
        modes = None
        if self.mitigation.kind == "mm-aug":
            draw = generator_for(self.seed, "background modes", PERSISTENT)
            modes = background_modes(self.background.features, self.mitigation.modes, generator=draw)
        return [
            mixed_in(
                part,
                self.mitigation,
                background=numbers,
                modes=modes,
                generator=generator_for(self.seed, "mitigation", PERSISTENT, user),
            )
            for user, part in enumerate(parts)
        ]

    def _few(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """So many examples of each known device; those of fewer are among those of more."""
        if self.known_examples is None:
            return list(parts)
        generators = (generator_for(self.seed, "known examples", PERSISTENT, user) for user in range(len(parts)))
        draws = [torch.randperm(len(part), generator=g) for part, g in zip(parts, generators, strict=True)]
        return [part[d[: self.known_examples]].sort().values for part, d in zip(parts, draws, strict=True)]
