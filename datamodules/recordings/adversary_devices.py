"""The adversary's knowledge of users beforehand, as a recording holds it: apart from the ground truth."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from datamodules.devices.user_examples import OwnedExamples

PSEUDONYMS, PSEUDONYM_USERS = "known_pseudonyms", "known_users"
"""``(P,)`` under which names the adversary's own devices send, and the user whose data each of them holds."""
HOLDOUT_USERS = "holdout_users"
"""``(H,)`` those users of whom it has data so as to learn what strangers are like; absent where there are none."""
FEATURES, LABELS, EXAMPLE_USERS = "prior_features", "prior_labels", "prior_users"
"""``(M, ...)`` the examples on those devices, and ``(M,)`` their users."""


POPULARITY_OF_OTHERS = "popularity_of_others"
"""``(F, I)`` how many users outside of each fold of users interacted with each item; see `popularity_of_others`."""
_FOLDS = 10


class DeviceData(Protocol):
    """Clients of whom some are the adversary's own."""

    @property
    def examples(self) -> OwnedExamples:
        """All examples."""

    @property
    def client_users(self) -> Tensor:
        """``(C,)`` user of every device."""

    @property
    def holdout_users(self) -> Tensor:
        """``(H,)`` users whose data the adversary has and who have no anonymous device."""

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
    strangers = {HOLDOUT_USERS: data.holdout_users} if len(data.holdout_users) else {}
    return strangers | {
        PSEUDONYMS: torch.tensor([pseudonym(client) for client in clients.tolist()], dtype=torch.int64),
        PSEUDONYM_USERS: users,
        FEATURES: data.examples.features[numbers],
        LABELS: data.examples.labels[numbers],
        EXAMPLE_USERS: users.repeat_interleave(torch.tensor([len(part) for part in parts], dtype=torch.int64)),
    }


def popularity_of_others(user_items: Sequence[npt.NDArray[np.int64]], pseudonyms: Tensor, num_items: int) -> Tensor:
    """Item popularity as a server knows it from users other than a victim.

    Users are dealt into ten folds by their pseudonyms, which are random. Counts outside of a victim's fold hold nothing
    of the victim itself, and no difference of two folds' counts is a single user's.

    Args:
        user_items: of each user, the items it interacted with.
        pseudonyms: ``(C,)`` of the users; a user's fold is the remainder by the number of folds.
        num_items: I.

    Returns:
        ``(F, I)`` int32.
    """
    sizes = torch.tensor([len(items) for items in user_items])
    fold = (pseudonyms % _FOLDS).repeat_interleave(sizes)
    items = torch.from_numpy(np.concatenate(user_items)) if len(user_items) else torch.zeros(0, dtype=torch.int64)
    inside = torch.bincount(fold * num_items + items, minlength=_FOLDS * num_items).reshape(_FOLDS, num_items)
    return (inside.sum(0) - inside).int()
