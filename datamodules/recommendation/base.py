"""Clients of a recommender: users with their items and sampled negatives, and one held-out item each."""

import abc
import functools
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from fedleak.client.cohort import Cohort
from fedleak.core.errors import require
from fedleak.core.ranges import NonNegativeInt, OpenUnitInterval
from fedleak.core.seeding import PERSISTENT, generator_for
from fedleak.core.view import ITEM_EMBEDDING, PUBLIC_INTERACTIONS
from fedleak.datamodules.recommendation.interactions import (
    Interactions,
    Ints,
    in_item_order,
    keep_users,
    labelled_items,
    negatives_for,
    refuse_degenerate,
    sample_unseen,
)
from fedleak.server.repeated_selection import RepeatedSelection, draw_identifiable
from fedleak.training.data import FederatedDataModule


class RecommenderDataModule(FederatedDataModule):
    """Users as clients, each with liked items and negatives. A subclass reads the interactions.

    Args:
        holdout: keep every user's last item for the evaluation of the recommender (leave-one-out).
        negatives_per_positive: negatives per liked item (RAIFLE, section V.A.2: 4); a fractional number of negatives is
            rounded up. Where users also rate what they dislike, those items are the negatives, and none is drawn.
        likes: share of likes that negatives are drawn for, instead of `negatives_per_positive`.
        negatives: ``fixed`` serves a client the same items in every round, ``per_round`` draws them in each.
        evaluation_negatives: never-seen items among which the held-out one is ranked; None for all.
        degenerate_users: what to do with a user with no item or with all items.
        fewest_labels: users with fewer labelled items are left out, e.g. those who cannot fill a batch.
        repeated_selection: clients that the server selects in all rounds from some round on; None for random cohorts.
        public_users: users drawn at random who are no clients, and whose interactions the server has.
    """

    def __init__(
        self,
        *,
        holdout: bool = True,
        negatives_per_positive: float = 4,
        likes: OpenUnitInterval | None = None,
        negatives: Literal["fixed", "per_round"] = "fixed",
        evaluation_negatives: int | None = 99,
        degenerate_users: Literal["error", "drop"] = "error",
        fewest_labels: NonNegativeInt = 0,
        repeated_selection: RepeatedSelection | None = None,
        public_users: NonNegativeInt = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require(
            negatives_per_positive > 0,
            "negatives_per_positive > 0",
            negatives_per_positive,
            "The papers use 4; without negatives nothing is hidden.",
        )
        if likes is not None:
            # A share q of likes: (1 - q) / q negatives for each like.
            negatives_per_positive = (1 - likes) / likes
        self.negatives_per_positive = negatives_per_positive
        self.holdout = holdout
        self.negatives = negatives
        self.evaluation_negatives = evaluation_negatives
        self.degenerate_users = degenerate_users
        self.fewest_labels = fewest_labels
        self.repeated_selection = repeated_selection
        self.public_users = public_users
        self._selected: dict[bytes | None, Tensor] = {}
        """Clients that the server selects repeatedly, by the secret key that they were drawn from."""

    @abc.abstractmethod
    def read(self) -> Interactions:
        """Reads every interaction."""

    @functools.cached_property
    def _parts(self) -> tuple[Interactions, Interactions]:
        """Interactions of the clients, and of the public users."""
        everyone = refuse_degenerate(self.read(), drop=self.degenerate_users == "drop", source=type(self).__name__)
        if not self.public_users:
            nobody = np.zeros(0, dtype=np.int64)
            return everyone, keep_users(everyone, nobody)
        require(
            self.public_users < everyone.num_users,
            f"public_users below the number of users, {everyone.num_users}",
            self.public_users,
            "Set a smaller number.",
        )
        # Public users are drawn at random, and both kinds keep the order of the data.
        order = torch.randperm(everyone.num_users, generator=generator_for(self.seed, "public users")).numpy()
        public_users = np.sort(order[: self.public_users])
        clients = np.sort(order[self.public_users :])
        return keep_users(everyone, clients), keep_users(everyone, public_users)

    def auxiliary(self) -> dict[str, Tensor]:
        """``public_interactions (P, 2)``: a public user's number, and an item that it interacted with."""
        public = self._parts[1]
        if public.liked is not None:
            public = public.select(public.liked)
        return {PUBLIC_INTERACTIONS: torch.from_numpy(np.stack([public.users, public.items], axis=1))}

    @functools.cached_property
    def _split(self) -> tuple[Interactions, Ints]:
        training = self._parts[0]
        held_out = np.full(training.num_users, -1, dtype=np.int64)
        if self.holdout:
            training, held_out = training.hold_out_last()
        # Counted after the held-out items are gone: a client trains on what remains.
        with_enough = np.flatnonzero(self._label_counts(training) >= self.fewest_labels)
        require(
            len(with_enough),
            f"users with at least {self.fewest_labels} labelled items",
            "none",
            "Set a smaller data.fewest_labels.",
        )
        if len(with_enough) == training.num_users:
            return training, held_out
        return keep_users(training, with_enough), held_out[with_enough]

    def _label_counts(self, interactions: Interactions) -> Ints:
        """``(num_users,)`` labelled items of each user, sampled negatives included."""
        counts = np.bincount(interactions.users, minlength=interactions.num_users)
        if interactions.liked is not None:
            return counts
        negatives = negatives_for(counts, self.negatives_per_positive)
        return np.asarray(counts + np.minimum(negatives, interactions.num_items - counts))

    @functools.cached_property
    def _positives(self) -> list[Ints]:
        return self._per_user(liked=True)

    @functools.cached_property
    def _dislikes(self) -> list[Ints] | None:
        """Disliked items of each user; None if the data have no dislikes."""
        if self._split[0].liked is None:
            return None
        return self._per_user(liked=False)

    def _per_user(self, *, liked: bool) -> list[Ints]:
        interactions = self._split[0]
        if interactions.liked is not None:
            interactions = interactions.select(interactions.liked == liked)
        return np.split(interactions.items, interactions.offsets[1:-1])

    @property
    def num_clients(self) -> int:
        return self._split[0].num_users

    @property
    def num_items(self) -> int:
        return self._split[0].num_items

    def user_items(self) -> list[Ints]:
        """Liked training items of every user, in the order of time."""
        return self._positives

    def raw_features(self) -> dict[str, Tensor]:
        """``likes`` and ``dislikes`` ``(num_clients, I)`` float32: 1 for each such item of a user."""
        items_by_kind = {"likes": self._positives}
        if self._dislikes is not None:
            items_by_kind["dislikes"] = self._dislikes
        features = {}
        for kind, items_of_users in items_by_kind.items():
            features[kind] = torch.zeros(self.num_clients, self.num_items)
            for user, items in enumerate(items_of_users):
                features[kind][user, torch.from_numpy(items)] = 1
        return features

    @property
    def rate(self) -> float | None:
        """Share of likes that sampled negatives lead to; None if the data have dislikes."""
        if self._dislikes is not None:
            return None
        return 1 / (1 + self.negatives_per_positive)

    def draw_clients(self, count: int, *, among: Tensor | None = None) -> Tensor:
        everyone = self.build_cohort(0, torch.arange(self.num_clients))
        generator = self.secret_draws("victims")
        return draw_identifiable(everyone, count, among=among, rate=self.rate, generator=generator)

    def participants(self, round_number: int) -> Tensor:
        repeated = self.repeated_selection
        if repeated is None or round_number < repeated.after:
            return super().participants(round_number)
        if self.secret not in self._selected:
            # The server selects among those whose updates it has seen.
            earlier_participants = [self.participants(number) for number in range(repeated.after)]
            among = torch.cat(earlier_participants)
            self._selected[self.secret] = self.draw_clients(repeated.clients, among=among)
        return self._selected[self.secret]

    def build_cohort(self, round_number: int, clients: Tensor) -> Cohort:
        """The cohort of some clients; example k of a client is about row k of its item table."""
        # Part of the key of the draw of negatives: new ones in each round, or the same in all of them.
        moment = round_number + 1 if self.negatives == "per_round" else PERSISTENT
        items_of_clients = []
        labels_of_clients = []
        for client in clients.tolist():
            items, labels = self._labelled(client, moment)
            items_of_clients.append(torch.from_numpy(items))
            labels_of_clients.append(torch.from_numpy(labels))
        rows = pad_sequence(items_of_clients, batch_first=True, padding_value=-1)
        label = pad_sequence(labels_of_clients, batch_first=True)
        return Cohort(round_number, clients, {"label": label}, rows >= 0, {ITEM_EMBEDDING: rows})

    def _labelled(self, client: int, moment: int) -> tuple[Ints, npt.NDArray[np.float32]]:
        if self._dislikes is not None:
            return in_item_order(self._positives[client], self._dislikes[client])
        return labelled_items(
            self._positives[client],
            per_positive=self.negatives_per_positive,
            num_items=self.num_items,
            seed=self.seed,
            key=(moment, client),
        )

    def val_dataloader(self) -> DataLoader[dict[str, Tensor]]:
        """Batches of users with candidates: ``clients (B,)``, ``items (B, K)`` padded with -1, ``target (B, K)``."""
        rank, world = self._rank_and_world
        _, held_out = self._split
        # Each process evaluates its share of the users who have a held-out item.
        users = [int(user) for user in np.flatnonzero(held_out >= 0) if user % world == rank]
        return DataLoader(users, batch_size=256, collate_fn=self._candidates)  # type: ignore[arg-type]

    def _candidates(self, users: list[int]) -> dict[str, Tensor]:
        _, held_out = self._split
        size = self.num_items
        if self.evaluation_negatives is not None:
            size = self.evaluation_negatives
        rows = []
        for user in users:
            rated = np.append(self._positives[user], held_out[user])
            if self._dislikes is not None:
                rated = np.append(rated, self._dislikes[user])
            unseen = sample_unseen(rated, size, self.num_items, generator_for(self.seed, "evaluation", user))
            # Sorted, so that an untrained model, all of whose scores tie, does not rank the held-out item first.
            rows.append(torch.from_numpy(np.sort(np.append(unseen, held_out[user]))))
        items = pad_sequence(rows, batch_first=True, padding_value=-1)
        target = items == torch.from_numpy(held_out[users])[:, None]
        return {"clients": torch.tensor(users), "items": items, "target": target}
