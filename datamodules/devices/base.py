"""Devices of users as clients: an anonymous one of each user, and one that holds what the adversary knows."""

import abc
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from fedleak.client.cohort import Cohort, padded_cohort
from fedleak.core.errors import require
from fedleak.core.io.files import sha256_of_arrays
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.datamodules.devices.augmentation import Mitigation, background_modes, mixed_in
from fedleak.datamodules.devices.device_split import HOLDOUT, Devices, DeviceSplit, split_devices, without_poor_users
from fedleak.datamodules.devices.user_examples import OwnedExamples
from fedleak.datamodules.devices.user_filter import UserFilter
from fedleak.training.candidates import CandidateOptions, CandidatePool, draw_numbers
from fedleak.training.data import FederatedDataModule


@dataclass(frozen=True)
class Background:
    """Examples of people outside the training, for mitigations on devices (section 7.1, table 6).

    Attributes:
        features: ``(M, ...)`` as `OwnedExamples.features`, in the same vocabulary or size.
        labels: ``(M,)`` or ``(M, K)`` as `OwnedExamples.labels`.
    """

    features: Tensor
    labels: Tensor

    def draw(self, most: int | None, *, seed: int) -> "Background":
        """A random subset of at most so many examples, as in the paper."""
        if most is None or most >= len(self.features):
            return self
        order = torch.randperm(len(self.features), generator=generator_for(seed, "background", PERSISTENT))
        chosen = order[:most].sort().values
        return Background(self.features[chosen], self.labels[chosen])


class OwnedDataModule(FederatedDataModule):
    """Devices as clients. A subclass reads the examples.

    All devices train one model at the same time (section 6, "Training and Evaluation Data"): first the anonymous ones,
    then those on which the adversary simulates its knowledge, both in the order of their users. A device without
    examples is no client.

    Args:
        users: selects the users.
        devices: assigns each user's examples to devices.
        most_background: number of background examples that are drawn; None for all.
        mitigation: how the anonymous devices use background examples; None for not at all. The adversary's own devices
            do so only if it is adaptive.
        known_examples: number of examples of each of the adversary's devices, drawn at random; None for all.
        device_examples: number of examples of each device, drawn at random; None for all.
        kwargs: see `FederatedDataModule`; the paper's `clients_per_round` is 0.1.

    Attributes:
        name: name of the data set and of its folder.
    """

    name: str

    def __init__(
        self,
        *,
        users: UserFilter = UserFilter(),  # noqa: B008 - frozen
        devices: Devices = Devices(),  # noqa: B008 - frozen
        most_background: int | None = None,
        mitigation: Mitigation | None = None,
        known_examples: int | None = None,
        device_examples: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        limits = {
            "most_background": most_background,
            "known_examples": known_examples,
            "device_examples": device_examples,
        }
        for name, value in limits.items():
            require(value is None or value >= 1, f"{name} of at least 1", value, "Leave it out for all.")
        self.users = users
        self.devices = devices
        self.mitigation = mitigation
        self.most_background = most_background
        self.known_examples = known_examples
        self.device_examples = device_examples

    @abc.abstractmethod
    def read(self) -> OwnedExamples:
        """Reads the examples of the selected users."""

    @abc.abstractmethod
    def read_background(self) -> Background:
        """Reads background examples, prepared in the same way."""

    @abc.abstractmethod
    def batch(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """A learner's input for ``(n, ...)`` examples, by field."""

    @abc.abstractmethod
    def profile_members(self, examples: OwnedExamples | Background) -> Tensor:
        """``(P, N)`` True for the examples of each profile of `devices`."""

    @property
    def dated_only(self) -> bool:
        """Whether undated examples are left out."""
        return self.devices.prior == "chrono" and self.devices.undated == "drop"

    @functools.cached_property
    def examples(self) -> OwnedExamples:
        """All examples of the selected users."""
        examples = self.read()
        if self.devices.too_few == "drop":
            return without_poor_users(examples, self.devices)
        return examples

    @functools.cached_property
    def background(self) -> Background:
        """The background examples, read at the first use."""
        return self.read_background().draw(self.most_background, seed=self.seed)

    @functools.cached_property
    def device_split(self) -> DeviceSplit:
        """Assignment of examples to devices: part of the ground truth, which no attack may read."""
        member = None
        if self.devices.profiles:
            member = self.profile_members(self.background)
        return split_devices(self.examples, self.devices, seed=self.seed, member=member)

    @property
    def num_clients(self) -> int:
        return len(self._clients)

    @property
    def client_users(self) -> Tensor:
        """``(num_clients,)`` int64 user of every device, or number of its profile."""
        return torch.tensor([user for user, _, _ in self._clients])

    @property
    def holdout_users(self) -> Tensor:
        """``(H,)`` int64 hold-out users of the open world, see `OpenWorld`; the contrast under the profile prior."""
        if self.device_split.profiles:
            return torch.tensor([len(self.device_split.profiles)])
        return (self.device_split.roles == HOLDOUT).nonzero().flatten()

    @property
    def client_known(self) -> Tensor:
        return torch.tensor([is_known for _, is_known, _ in self._clients])

    @property
    def persons(self) -> Tensor:
        return self.client_users

    def client_examples(self) -> list[Tensor]:
        return [part for _, _, part in self._clients]

    @functools.cached_property
    def fingerprint(self) -> dict[str, str]:
        examples = self.examples
        arrays = (examples.features, examples.labels, examples.owners, examples.days, examples.groups)
        return {"name": self.name, "sha256": sha256_of_arrays(*arrays)}

    def candidates(self, options: CandidateOptions) -> CandidatePool:
        """Candidates of membership attacks: examples of the devices, and examples of users that no device has.

        None of the latter is of a post, photoset or album of which a device has an example. Whole ratings are classes;
        texts without a rating are of one class.
        """
        examples = self.examples
        require(
            examples.labels.dim() == 1,
            "examples with one class, for DeltaRecorder.candidates",
            f"several labels in {self.name}",
            "Remove candidates from the recorder.",
        )
        # An example without a group is a group of its own.
        own_groups = len(examples) + torch.arange(len(examples))
        groups = examples.groups.where(examples.groups >= 0, own_groups)
        on_devices = torch.cat(self.client_examples())
        # Background examples, numbered behind all others, have no group here.
        groups_on_devices = groups[on_devices.clamp(max=len(examples) - 1)]
        on_no_device = (~torch.isin(groups, groups_on_devices)).nonzero().flatten()
        classes, labels = torch.unique(examples.labels, return_inverse=True)
        users_examples = [part[part < len(examples)] for part in self.client_examples()]
        numbers, holders = draw_numbers(
            options,
            users_examples,
            on_no_device,
            labels,
            classes=[f"{value:g}" for value in classes.tolist()],
            seed=self.seed,
        )
        return CandidatePool(examples.features[numbers], examples.labels[numbers].long(), holders)

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """Cohort of some devices; the fields ``(C, N, ...)`` are those of `batch`, padded with 0."""
        parts = []
        for client in clients.tolist():
            _, _, device_examples = self._clients[client]
            parts.append(device_examples)
        return padded_cohort(round_number, clients, parts, self.fields)

    def val_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        """Batches of every user's test examples: the fields ``(B, ...)`` of `batch`."""
        numbers = torch.cat(self.device_split.test).tolist()

        def read(batch: list[int]) -> dict[str, Tensor]:
            return self.fields(torch.tensor(batch))

        return self.evaluation_loader(numbers, read)

    def fields(self, numbers: Tensor) -> dict[str, Tensor]:
        """A learner's input for examples ``(n,)``, see `raw_examples`."""
        return self.batch(*self.raw_examples(numbers))

    def raw_examples(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Features and labels of examples ``(n,)``; background examples have the numbers behind all others."""
        of_users = numbers.clamp(max=len(self.examples) - 1)
        features = self.examples.features[of_users]
        labels = self.examples.labels[of_users]
        is_background = numbers >= len(self.examples)
        if is_background.any():
            background_numbers = numbers[is_background] - len(self.examples)
            features[is_background] = self.background.features[background_numbers]
            labels[is_background] = self.background.labels[background_numbers]
        return features, labels

    @functools.cached_property
    def _clients(self) -> list[tuple[int, bool, Tensor]]:
        """User or profile, whether it is the adversary's, and examples of every device that has any."""
        split = self.device_split
        # First what every device holds, then what the adversary knows of it, and last the mitigation.
        known = self._few(split.known, self.device_examples, "device")
        known = self._few(known, self.known_examples, "known")
        if self.mitigation is not None and self.mitigation.adaptive:
            known = self._with_crowd(known, "mitigation of known devices")
        anonymous = self._few(split.anonymous, self.device_examples, "anonymous")
        anonymous = self._with_crowd(anonymous, "mitigation")
        clients = []
        for is_known, devices in ((False, anonymous), (True, known)):
            for user, device_examples in enumerate(devices):
                if len(device_examples):
                    clients.append((user, is_known, device_examples))
        return clients

    def _with_crowd(self, parts: Sequence[Tensor], purpose: str) -> list[Tensor]:
        """Examples of devices after the mitigation; `purpose` is that of the draws."""
        if self.mitigation is None:
            return list(parts)
        numbers = len(self.examples) + torch.arange(len(self.background.features))
        modes = None
        if self.mitigation.kind == "mm-aug":
            generator = generator_for(self.seed, "background modes", PERSISTENT)
            modes = background_modes(self.background.features, self.mitigation.modes, generator=generator)
        mixed = []
        for user, part in enumerate(parts):
            generator = generator_for(self.seed, purpose, PERSISTENT, user)
            mixed.append(mixed_in(part, self.mitigation, background=numbers, modes=modes, generator=generator))
        return mixed

    def _few(self, parts: Sequence[Tensor], most: int | None, kind: str) -> list[Tensor]:
        """A subset of each device's examples; smaller subsets are parts of larger ones."""
        if most is None:
            return list(parts)
        subsets = []
        for user, part in enumerate(parts):
            generator = generator_for(self.seed, f"{kind} examples", PERSISTENT, user)
            order = torch.randperm(len(part), generator=generator)
            subsets.append(part[order[:most]].sort().values)
        return subsets


class Pooled(FederatedDataModule):
    """One client that holds the examples of all devices, for a centralised baseline (X-SGD in table 2).

    A round is then one epoch of ordinary training.

    Args:
        devices: the devices.
    """

    def __init__(self, devices: OwnedDataModule) -> None:
        super().__init__(root=devices.root, seed=devices.seed)
        self.devices = devices

    @property
    def num_clients(self) -> int:
        return 1

    @property
    def fingerprint(self) -> dict[str, str]:
        return self.devices.fingerprint

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        numbers = torch.cat(self.devices.client_examples())
        examples = {name: values[None] for name, values in self.devices.fields(numbers).items()}
        is_example = torch.ones(1, len(numbers), dtype=torch.bool)
        return Cohort(round_number, clients, examples, is_example)
