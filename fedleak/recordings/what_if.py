"""A recording as if clients had defended their updates: what the server would have seen of the same training."""

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from fedleak.client.text import TextAlgorithm
from fedleak.core.errors import require
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView
from fedleak.defenses.base import Defense, Update, shown_counts, with_whole_tables
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
_AT_ONCE, _ALL = 256, 2**30


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
        self.defenses, self.seed = tuple(defenses), seed
        for number, defense in enumerate(self.defenses):
            for hook, reason in _NO_FUNCTION.items():
                own = getattr(type(defense), hook) is not getattr(Defense, hook)
                found = f"{type(defense).__name__}: {reason}"
                way_out = "Train with it: model.defenses."
                require(not own, "defences that are functions of the recorded update", found, way_out)
            defense.check_order(self.defenses[:number])
            defense.prepare(None)

    @classmethod
    def of(cls, recording: Recording, defenses: Sequence[Defense], *, seed: int = 0) -> Self:
        """One with the learner that the auditor named for a recording, whose files were checked when it was opened."""
        made = cls(recording.directory, defenses, seed=seed, verify=False)
        made.manifest, made.base = recording.manifest, recording.base
        return made

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
        defences, and where the server sends other models than the trained one.
        """
        recorded = self.rounds
        sends_others = self.round_settings or self.manifest.config.get("manipulation")
        if not self.defenses or sends_others or len(recorded) < 2:
            return {number: number for number in recorded}
        advances: dict[int, float] = {}
        places: dict[int, int] = {}
        position, before = 0.0, 0
        place = recorded[0]
        for number in recorded:
            if place not in advances:
                advances[place] = self._advance(place)
            position += advances[place] * (number - before)
            place = _nearest(recorded, position)
            places[number], before = place, number
        return places

    def _advance(self, round_number: int) -> float:
        """Rounds by which a training with the defences advances in a recorded round, see `stands_at`."""
        recorded, defended = self.aggregates(round_number)
        squared = sum(float((value.double() ** 2).sum()) for value in recorded.values())
        if squared == 0.0:  # nothing was learned that a defence could delay
            return 1.0
        product = sum(float((value.double() * defended[name].double()).sum()) for name, value in recorded.items())
        return min(max(product / squared, 0.0), _LARGEST_ADVANCE)

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
        if not self._is_joint:
            views = super().views(
                victims_per_view=victims_per_view, rounds=rounds, pseudonyms=pseudonyms, only=only, **options
            )
            for view in views:
                yield self._seen_of(view)
            return
        if only is not None:
            asked = {number for number, _ in only}
            rounds = [number for number in (self.rounds if rounds is None else rounds) if number in asked]
        for place, view in self._joint_views(victims_per_view, rounds, pseudonyms, options):
            if only is None or place in only:
                yield view

    def victims_of_views(
        self, *, victims_per_view: int = 64, rounds: Sequence[int] | None = None, pseudonyms: set[int] | None = None
    ) -> Iterator[tuple[ViewPlace, list[int]]]:
        """As of `Recording.victims_of_views`; where a defence acts on all clients together, the views are made."""
        if not self._is_joint:
            yield from super().victims_of_views(victims_per_view=victims_per_view, rounds=rounds, pseudonyms=pseudonyms)
            return
        for place, view in self._joint_views(victims_per_view, rounds, pseudonyms, {}):
            yield place, view.pseudonyms.tolist()

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
        number, views_of_round = -1, 0
        for everyone in super().views(victims_per_view=_ALL, rounds=rounds, **options):
            if everyone.round != number:
                number, views_of_round = everyone.round, 0
            seen = self._seen_of(everyone)
            senders = seen.pseudonyms.tolist()
            wanted = [place for place, sender in enumerate(senders) if pseudonyms is None or sender in pseudonyms]
            for part in torch.split(torch.tensor(wanted, dtype=torch.int64), victims_per_view):
                if len(part):
                    yield (number, views_of_round), seen.select(part)
                    views_of_round += 1

    def participants(self, round_number: int) -> dict[int, list[int]]:
        """Those of the sums that the server would have seen."""
        if not self._is_joint:
            return super().participants(round_number)
        found: dict[int, list[int]] = {}
        for view in self.views(victims_per_view=_ALL, rounds=[round_number]):
            groups = None if view.participants is None else view.participants.tolist()
            found |= {} if groups is None else dict(zip(view.pseudonyms.tolist(), groups, strict=True))
        return found

    def aggregates(self, round_number: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The round's mean update by parameter, weighted by example counts: as recorded, and with the defences.

        An aggregation that hides the clients leaves their sum as it is, but for what it hides in each aggregate.
        """
        sums: list[Any] = [None, None]
        scales: dict[str, float] = {}
        learner = recorded_learner(self)
        at_once = _ALL if self._is_joint else _AT_ONCE
        for view in super().views(victims_per_view=at_once, rounds=[round_number], learner=learner):
            counts = view.example_counts, shown_counts(self.defenses, view.example_counts)
            before = self._update(view)
            after = self._protected(view, before)
            scales |= after.background_scale
            for place, (update, weights) in enumerate(zip((before, after), counts, strict=True)):
                total = weighted_sum(update, weights.float(), view.model)
                sums[place] = total if sums[place] is None else sums[place].add(total)
        add_background_noise(sums[1], scales, secret=b"what-if", seed=self.seed, round_number=round_number)
        recorded, defended = ({name: value / one.weight for name, value in one.deltas.items()} for one in sums)
        return recorded, defended

    def _seen_of(self, view: RoundView) -> RoundView:
        earlier = tuple(self._seen_of(one) for one in view.earlier)
        together = max((one.participants for one in self.defenses), default=1)
        view = view.select(torch.arange(view.victims // together * together))
        found, way_out = f"{view.victims} clients in round {view.round}", "Sum fewer."
        require(view.victims or together == 1, f"rounds of {together} clients or more, for a sum", found, way_out)
        update = self._protected(view, self._update(view))
        names, summed = tuple(update.deltas), view.pseudonyms[:, None]
        for defense in self.defenses:
            groups = defense.contributors(view.victims)
            update, positions = defense.server_sees(update)
            if positions is not None:
                summed = summed[positions[:, None] if groups is None else groups].flatten(1)
                view = view.select(positions)
        return dataclasses.replace(
            view,
            deltas=update.deltas,
            earlier=earlier,
            row_parameters=frozenset(update.rows),
            example_counts=shown_counts(self.defenses, view.example_counts),
            participants=summed if summed.shape[1] > 1 else view.participants,
            served=None if view.row_parameters and not update.rows else view.served,
            releases=(*view.releases, *(one for defense in self.defenses for one in defense.releases(names))),
        )

    def _update(self, view: RoundView) -> Update:
        """What the clients of a view sent; tables of words in which a defence noises every row are whole."""
        in_rows = view.row_parameters & view.deltas.keys()
        rows = dict.fromkeys(in_rows, view.served_items) if in_rows else {}
        update = Update({**view.deltas}, rows=rows, clients=view.pseudonyms)
        names = tuple(view.deltas)
        noised = {name for defense in self.defenses for name in defense.noises_whole(names)}
        own_rows = isinstance(view.algorithm, TextAlgorithm)
        return with_whole_tables(update, noised & rows.keys(), view.model) if own_rows else update

    def _protected(self, view: RoundView, update: Update) -> Update:
        @functools.cache
        def generators(place: int) -> torch.Generator:
            return generator_for(self.seed, "what-if", view.round, int(view.pseudonyms[place]))

        update = dataclasses.replace(update, deltas={name: value.clone() for name, value in update.deltas.items()})
        for defense in self.defenses:
            update = defense.protect(update, generators)
        return update


def _nearest(rounds: Sequence[int], position: float) -> int:
    """The nearest of ascending rounds, the earlier one of two.

    >>> _nearest([0, 1, 5], 2.9), _nearest([0, 1, 5], 3.1), _nearest([0, 1, 5], -2.0), _nearest([0, 1, 5], 9.0)
    (1, 5, 0, 5)
    """
    return min(rounds, key=lambda number: abs(number - position))
