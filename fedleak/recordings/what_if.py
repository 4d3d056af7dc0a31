"""A recording as if clients had defended their updates: what the server would have seen of the same training."""

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from fedleak.client.text import TextAlgorithm
from fedleak.client.trees import TreesAlgorithm
from fedleak.core.errors import require
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.defenses.base import Defense, Update, shown_counts, with_whole_tables
from fedleak.defenses.trees import check_of_trees
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording, ViewPlace
from fedleak.training.server_optimizer import add_background_noise, weighted_sum

_NO_FUNCTION = {
    "penalty": "it changes the local training",
    "change_examples": "it changes the local training",
    "change_gradients": "it changes the local training",
    "train_locally": "clients train on other data",
    "willing": "clients decide by the model that they received",
    "review": "clients decide by their own interactions",
}
"""Hooks of a defence that recorded updates do not suffice for, and why."""
_LARGEST_ADVANCE = 2.0
"""Most rounds by which a training advances in one. Where little is left to learn, noise decides the estimate, and lies
around 1 if its mean is zero; ends of 0 and 2 do not shift that."""
_AT_ONCE = 256
"""Clients in memory at a time, where each is defended alone."""
_ALL = 2**30
"""Victims in a view, more than any round has: all clients of a file together."""


class DefendedRecording(Recording):
    """A recording whose updates went through defences after they were recorded, each by its own class.

    What defences publicly do is added to what clients already do, so that attacks adapt as they do in a training. Draws
    depend on the seed, the round and the client. Sums are over clients of a view, in its order. The global models are
    those of the recorded training, with the defences a training reaches them later, see `stands_at`.

    Args:
        directory: folder of the recording.
        defenses: defences, in the order in which clients apply them.
        seed: seed of their draws.

    Raises:
        InputError: a defence is no function of the update.
    """

    def __init__(
        self, directory: str | Path, defenses: Sequence[Defense], *, seed: int = 0, verify: bool = True
    ) -> None:
        super().__init__(directory, verify=verify)
        self.defenses = tuple(defenses)
        self.seed = seed
        if isinstance(recorded_learner(self), TreesAlgorithm):
            check_of_trees(self.defenses)
        # A recording has updates, and nothing of what a defence does before there is one.
        for number, defense in enumerate(self.defenses):
            for hook, reason in _NO_FUNCTION.items():
                require(
                    not defense.overrides(hook),
                    "defences that are functions of the recorded update",
                    f"{type(defense).__name__}: {reason}",
                    "Train with it: model.defenses.",
                )
            defense.check_order(self.defenses[:number])
            defense.prepare(None)

    @classmethod
    def of(cls, recording: Recording, defenses: Sequence[Defense], *, seed: int = 0) -> Self:
        """One with the learner that the auditor named for a recording, whose files were checked when it was opened."""
        defended = cls(recording.directory, defenses, seed=seed, verify=False)
        defended.manifest = recording.manifest
        defended.base = recording.base
        return defended

    @functools.cached_property
    def stands_at(self) -> dict[int, int]:
        """Recorded round nearest to where a training with the defences would stand, by round of that training.

        A defence that shortens the mean update delays the training, and the global models of early rounds let updates
        leak another amount than those of late rounds. Let ``u`` be the round's mean update as recorded, taken for the
        direction in which the loss falls, and ``v`` the one with the defences. To first order, the loss falls with
        ``v`` by ``p = <u, v> / <u, u>`` of what it falls with ``u``, so the training advances by p rounds, and stands
        before its round t where the recorded training stood after ``p(0) + ... + p(t - 1)`` rounds. Here each p is that
        of the recorded round where the training stands.

        The server is taken to add the mean update to the model, as FedAvg does; one that rescales it, as FedAdam does,
        is not delayed. What changes the model otherwise, e.g. noise, is not seen. Every round stands at itself without
        defences, where the server sends other models than the trained one, and where clients send trees, which the
        server appends.
        """
        recorded = self.rounds
        sends_others = self.round_settings or self.manifest.config.get("manipulation")
        sends_trees = isinstance(recorded_learner(self), TreesAlgorithm)
        if not self.defenses or sends_others or sends_trees or len(recorded) < 2:
            return {number: number for number in recorded}
        advances: dict[int, float] = {}  # p of each recorded round at which the training has stood
        recorded_round_at: dict[int, int] = {}
        position = 0.0  # p(0) + ... + p(t - 1)
        previous = 0
        recorded_round = recorded[0]
        for number in recorded:
            if recorded_round not in advances:
                advances[recorded_round] = self._advance(recorded_round)
            # Rounds between two recorded ones advance the training as the one before them does.
            position += advances[recorded_round] * (number - previous)
            recorded_round = _nearest(recorded, position)
            recorded_round_at[number] = recorded_round
            previous = number
        return recorded_round_at

    def _advance(self, round_number: int) -> float:
        """Rounds by which a training with the defences advances in a recorded round, see `stands_at`."""
        recorded, defended = self.aggregates(round_number)
        squared_norm = sum(float((value.double() ** 2).sum()) for value in recorded.values())
        if squared_norm == 0.0:  # nothing was learned that a defence could delay
            return 1.0
        product = sum(float((value.double() * defended[name].double()).sum()) for name, value in recorded.items())
        # p = <u, v> / <u, u>
        return min(max(product / squared_norm, 0.0), _LARGEST_ADVANCE)

    def views(
        self,
        *,
        victims_per_view: int = 64,
        rounds: Sequence[int] | None = None,
        pseudonyms: set[int] | None = None,
        only: Collection[ViewPlace] | None = None,
        **options: Any,
    ) -> Iterator[RoundView]:
        """Views as of `Recording.views`, with what the server would have seen."""
        # A defence of each client alone acts on any part of a round; a joint one needs all of its clients.
        if not self._is_joint:
            views = super().views(
                victims_per_view=victims_per_view,
                rounds=rounds,
                pseudonyms=pseudonyms,
                only=only,
                **options,
            )
            for view in views:
                yield self._as_defended(view)
            return
        if only is not None:
            wanted_rounds = {number for number, _ in only}
            candidates = self.rounds if rounds is None else rounds
            rounds = [number for number in candidates if number in wanted_rounds]
        for view_place, view in self._joint_views(victims_per_view, rounds, pseudonyms, options):
            if only is None or view_place in only:
                yield view

    def victims_of_views(
        self, *, victims_per_view: int = 64, rounds: Sequence[int] | None = None, pseudonyms: set[int] | None = None
    ) -> Iterator[tuple[ViewPlace, list[int]]]:
        """As of `Recording.victims_of_views`; where a defence acts on all clients together, the views are made."""
        if not self._is_joint:
            yield from super().victims_of_views(victims_per_view=victims_per_view, rounds=rounds, pseudonyms=pseudonyms)
            return
        for view_place, view in self._joint_views(victims_per_view, rounds, pseudonyms, {}):
            yield view_place, view.pseudonyms.tolist()

    @property
    def _is_joint(self) -> bool:
        """Whether a defence acts on all clients of a round together."""
        return any(defense.joint for defense in self.defenses)

    def _joint_views(
        self,
        victims_per_view: int,
        rounds: Sequence[int] | None,
        pseudonyms: set[int] | None,
        options: Mapping[str, Any],
    ) -> Iterator[tuple[ViewPlace, RoundView]]:
        """Views of parts of each round's clients, after the defences acted on all of them, with their places."""
        number = -1
        views_of_round = 0
        for everyone in super().views(victims_per_view=_ALL, rounds=rounds, **options):
            if everyone.round != number:
                number = everyone.round
                views_of_round = 0
            # First the defences, on all clients together; then the cut into views.
            defended = self._as_defended(everyone)
            positions = []
            for position, sender in enumerate(defended.pseudonyms.tolist()):
                if pseudonyms is None or sender in pseudonyms:
                    positions.append(position)
            for part in torch.split(torch.tensor(positions, dtype=torch.int64), victims_per_view):
                if len(part):
                    yield (number, views_of_round), defended.select(part)
                    views_of_round += 1

    def participants(self, round_number: int) -> dict[int, list[int]]:
        """Those of the sums that the server would have seen."""
        if not self._is_joint:
            return super().participants(round_number)
        participants: dict[int, list[int]] = {}
        for view in self.views(victims_per_view=_ALL, rounds=[round_number]):
            if view.participants is not None:
                participants |= dict(zip(view.pseudonyms.tolist(), view.participants.tolist(), strict=True))
        return participants

    def aggregates(self, round_number: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The round's mean update by parameter, weighted by example counts: as recorded, and with the defences.

        An aggregation that hides the clients leaves their sum as it is, but for what it hides in each aggregate.
        """
        sums: list[Any] = [None, None]  # as recorded, and with the defences
        scales: dict[str, float] = {}
        learner = recorded_learner(self)
        victims_per_view = _ALL if self._is_joint else _AT_ONCE
        for view in super().views(victims_per_view=victims_per_view, rounds=[round_number], learner=learner):
            sent = self._update(view)
            defended_update = self._protected(view, sent)
            scales |= defended_update.background_scale
            shown = shown_counts(self.defenses, view.example_counts)
            weighted_updates = ((sent, view.example_counts), (defended_update, shown))
            for index, (update, weights) in enumerate(weighted_updates):
                part = weighted_sum(update, weights.float(), view.model)
                sums[index] = part if sums[index] is None else sums[index].add(part)
        # The noise on rows that a client did not train is drawn once, for the whole sum.
        add_background_noise(sums[1], scales, secret=b"what-if", seed=self.seed, round_number=round_number)
        return _mean_update(sums[0]), _mean_update(sums[1])

    def _as_defended(self, view: RoundView) -> RoundView:
        earlier = tuple(self._as_defended(earlier_view) for earlier_view in view.earlier)
        # A sum needs a number of clients; those that are too few for one more sum send nothing.
        clients_per_sum = max((defense.participants for defense in self.defenses), default=1)
        clients = view.victims // clients_per_sum * clients_per_sum
        view = view.select(torch.arange(clients))
        require(
            view.victims or clients_per_sum == 1,
            f"rounds of {clients_per_sum} clients or more, for a sum",
            f"{view.victims} clients in round {view.round}",
            "Sum fewer.",
        )
        update = self._protected(view, self._update(view))
        names = tuple(update.deltas)
        # What the server sees of the messages, defence after defence; row i: the clients in the sum i.
        participants = view.pseudonyms[:, None]
        for defense in self.defenses:
            groups = defense.contributors(view.victims)
            update, positions = defense.server_sees(update)
            if positions is not None:
                members = positions[:, None] if groups is None else groups
                participants = participants[members].flatten(1)
                view = view.select(positions)
        releases = list(view.releases)
        for defense in self.defenses:
            releases += defense.releases(names)
        return dataclasses.replace(
            view,
            deltas=update.deltas,
            earlier=earlier,
            row_parameters=frozenset(update.rows),
            example_counts=shown_counts(self.defenses, view.example_counts),
            participants=participants if participants.shape[1] > 1 else view.participants,
            served=None if view.row_parameters and not update.rows else view.served,
            releases=tuple(releases),
        )

    def _update(self, view: RoundView) -> Update:
        """What the clients of a view sent; tables of words in which a defence noises every row are whole."""
        in_rows = view.row_parameters & view.deltas.keys()
        rows = dict.fromkeys(in_rows, view.served_items) if in_rows else {}
        update = Update({**view.deltas}, rows=rows, clients=view.pseudonyms)
        # Items are served by the server; the words whose rows are sent are a client's own.
        if not isinstance(view.algorithm, TextAlgorithm):
            return update
        names = tuple(view.deltas)
        noised: set[str] = set()
        for defense in self.defenses:
            noised |= set(defense.noises_whole(names))
        return with_whole_tables(update, noised & rows.keys(), view.model)

    def _protected(self, view: RoundView, update: Update) -> Update:
        @functools.cache
        @functools.cache
        def generators(position: int) -> torch.Generator:
            return generator_for(self.seed, "what-if", view.round, int(view.pseudonyms[position]))

        # Copies, so that a defence that works in place leaves the recorded view alone.
        update = dataclasses.replace(update, deltas={name: value.clone() for name, value in update.deltas.items()})
        for defense in self.defenses:
            update = defense.protect(update, generators)
        return update


def _mean_update(total: Any) -> dict[str, Tensor]:
    return {name: value / total.weight for name, value in total.deltas.items()}


def _nearest(rounds: Sequence[int], position: float) -> int:
    """The nearest of ascending rounds, the earlier one of two.

    >>> _nearest([0, 1, 5], 2.9), _nearest([0, 1, 5], 3.1), _nearest([0, 1, 5], -2.0), _nearest([0, 1, 5], 9.0)
    (1, 5, 0, 5)
    """
    return min(rounds, key=lambda number: abs(number - position))
