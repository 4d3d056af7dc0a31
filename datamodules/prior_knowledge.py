"""What the adversary knows of users beforehand, as a recording has it: beside the rounds, apart from the truth."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from datamodules.owned_examples import OwnedExamples

PSEUDONYMS, PSEUDONYM_USERS = "known_pseudonyms", "known_users"
"""``(P,)`` under which names the adversary's own devices send, and the user whose data each of them holds."""
FEATURES, LABELS, EXAMPLE_USERS = "prior_features", "prior_labels", "prior_users"
"""``(M, ...)`` the examples on those devices, and ``(M,)`` their users."""


class DeviceData(Protocol):
    """Clients of whom some are the adversary's own."""

    @property
    def examples(self) -> OwnedExamples:
        """All examples."""

    @property
    def client_users(self) -> Tensor:
        """``(C,)`` user of every device."""

    @property
    def client_known(self) -> Tensor:
        """``(C,)`` True for the adversary's own."""

    def client_examples(self) -> list[Tensor]:
        """For every device the numbers of its examples."""


def prior_knowledge(data: DeviceData, pseudonym: Callable[[int], int]) -> dict[str, Tensor]:
    """The adversary's own devices and their examples, by the names above.

    Args:
        data: all devices.
        pseudonym: of a device, by its number.
    """
    clients = data.client_known.nonzero().flatten()
    users, held = data.client_users[clients], data.client_examples()
    parts = [held[client] for client in clients.tolist()]
    numbers = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)
    return {
        PSEUDONYMS: torch.tensor([pseudonym(client) for client in clients.tolist()], dtype=torch.int64),
        PSEUDONYM_USERS: users,
        FEATURES: data.examples.features[numbers],
        LABELS: data.examples.labels[numbers],
        EXAMPLE_USERS: users.repeat_interleave(torch.tensor([len(part) for part in parts], dtype=torch.int64)),
    }
