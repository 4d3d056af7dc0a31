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

PSEUDONYMS = "known_pseudonyms"
PSEUDONYM_USERS = "known_users"
"""``(P,)`` pseudonyms of the adversary's own devices, and the users whose data they hold."""
FEATURES = "prior_features"
LABELS = "prior_labels"
EXAMPLE_USERS = "prior_users"
"""``(M, ...)`` examples on those devices, and ``(M,)`` their users."""
EXAMPLES = (FEATURES, LABELS, EXAMPLE_USERS)
"""Names of what lies on those devices, example by example."""
_FOLDS = 10
"""Groups of users in `popularity_of_others`: nine tenths of the users count for each victim."""


def prior_knowledge(data: FederatedDataModule, pseudonym: Callable[[int], int]) -> dict[str, Tensor]:
    """The adversary's own devices and their examples, by the names above."""
    owners = data.client_users
    if data.client_known is None or owners is None:
        raise InputError(
            expected="client_users of a data set with client_known",
            found=f"not both in {type(data).__name__}",
            way_out="Add what is missing: the two describe the same devices.",
        )
    known_clients = data.client_known.nonzero().flatten()
    users = owners[known_clients]
    # The examples of all known devices, one device after the other.
    examples_of_client = data.client_examples()
    examples_by_device = [examples_of_client[client] for client in known_clients.tolist()]
    numbers = torch.zeros(0, dtype=torch.int64)
    if examples_by_device:
        numbers = torch.cat(examples_by_device)
    features, labels = data.raw_examples(numbers)
    sizes = torch.tensor([len(examples) for examples in examples_by_device], dtype=torch.int64)
    knowledge = {
        PSEUDONYMS: torch.tensor([pseudonym(client) for client in known_clients.tolist()], dtype=torch.int64),
        PSEUDONYM_USERS: users,
        FEATURES: features,
        LABELS: labels,
        EXAMPLE_USERS: users.repeat_interleave(sizes),
    }
    if len(data.holdout_users):
        knowledge = {HOLDOUT_USERS: data.holdout_users, **knowledge}
    return knowledge


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
    items = torch.zeros(0, dtype=torch.int64)
    if len(user_items):
        items = torch.from_numpy(np.concatenate(user_items))
    # Counts of the pairs (fold, item), numbered fold after fold.
    pair_counts = torch.bincount(fold * num_items + items, minlength=_FOLDS * num_items)
    counts_in_fold = pair_counts.reshape(_FOLDS, num_items)
    return (counts_in_fold.sum(0) - counts_in_fold).int()
