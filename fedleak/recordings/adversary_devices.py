"""The adversary's prior knowledge of users, stored in a recording separately from the ground truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedleak.core.errors import InputError
from fedleak_recorder.format import HOLDOUT_USERS

if TYPE_CHECKING:
    from fedleak.training.data import FederatedDataModule

PSEUDONYMS, PSEUDONYM_USERS = "known_pseudonyms", "known_users"
"""``(P,)`` pseudonyms of the adversary's own devices, and the users whose data they hold."""
FEATURES, LABELS, EXAMPLE_USERS = "prior_features", "prior_labels", "prior_users"
"""``(M, ...)`` examples on those devices, and ``(M,)`` their users."""
EXAMPLES = (FEATURES, LABELS, EXAMPLE_USERS)
"""Names of what lies on those devices, example by example."""
_FOLDS = 10


def prior_knowledge(data: FederatedDataModule, pseudonym: Callable[[int], int]) -> dict[str, Tensor]:
    """The adversary's own devices and their examples, by the names above."""
    owners = data.client_users
    if data.client_known is None or owners is None:
        way_out = "Add what is missing: the two describe the same devices."
        expected, found = "client_users of a data set with client_known", f"not both in {type(data).__name__}"
        raise InputError(expected=expected, found=found, way_out=way_out)
    clients = data.client_known.nonzero().flatten()
    users, held = owners[clients], data.client_examples()
    parts = [held[client] for client in clients.tolist()]
    numbers = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int64)
    features, labels = data.raw_examples(numbers)
    strangers = {HOLDOUT_USERS: data.holdout_users} if len(data.holdout_users) else {}
    return strangers | {
        PSEUDONYMS: torch.tensor([pseudonym(client) for client in clients.tolist()], dtype=torch.int64),
        PSEUDONYM_USERS: users,
        FEATURES: features,
        LABELS: labels,
        EXAMPLE_USERS: users.repeat_interleave(torch.tensor([len(part) for part in parts], dtype=torch.int64)),
    }


def popularity_of_others(user_items: Sequence[npt.NDArray[np.int64]], pseudonyms: Tensor, num_items: int) -> Tensor:
    """``(F, I)`` int32 popularity of items among users other than a victim.

    The random pseudonyms assign users to ten folds. Counts outside a victim's fold contain nothing of the victim, and
    no difference between the counts of two folds belongs to a single user.

    Args:
        user_items: items with which each user interacted.
        pseudonyms: ``(C,)`` pseudonyms of the users; a fold is their remainder by the number of folds.
        num_items: number of items I.
    """
    sizes = torch.tensor([len(items) for items in user_items])
    fold = (pseudonyms % _FOLDS).repeat_interleave(sizes)
    items = torch.from_numpy(np.concatenate(user_items)) if len(user_items) else torch.zeros(0, dtype=torch.int64)
    inside = torch.bincount(fold * num_items + items, minlength=_FOLDS * num_items).reshape(_FOLDS, num_items)
    return (inside.sum(0) - inside).int()
