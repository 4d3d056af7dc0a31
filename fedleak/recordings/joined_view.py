"""The history of all messages of a recording, with those of the adversary's devices, or without deltas in memory."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.client.algorithm import ClientAlgorithm
from fedleak.core.errors import ViewError, require
from fedleak.core.history import History
from fedleak.core.memory import gibibytes, memory_bound
from fedleak.core.view import HOLDOUT, USERS, RoundView
from fedleak.recordings.adversary_devices import PSEUDONYM_USERS, PSEUDONYMS
from fedleak.recordings.recording import Recording
from fedleak.recordings.shards import view_dtype
from fedleak_recorder.format import HOLDOUT_USERS

_Value = TypeVar("_Value")
_WHOLE_ROUND = 2**30
"""Victims in a view, more than any round has: a file of a round is one view."""


class ByRound(Mapping[int, _Value]):
    """What the server had in some rounds, read on access; it gives attacks no access to the ground truth."""

    def __init__(self, read: Callable[[int], _Value], rounds: Sequence[int]) -> None:
        self._read = read
        self.numbers = list(rounds)

    def __getitem__(self, number: int) -> _Value:
        if number not in self.numbers:
            raise KeyError(number)
        return self._read(number)

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


def joined_view(
    recording: Recording, *, rounds: Sequence[int] | None = None, learner: ClientAlgorithm | None = None
) -> History:
    """All messages of some rounds in one view, with all deltas in memory.

    The messages are sorted by round, and in each round by pseudonym, which is random and so reveals nothing about the
    user.

    Args:
        recording: what the server saw; some of the clients are the adversary's own devices.
        rounds: numbers of rounds; None for all.
        learner: the clients' algorithm; None if it is unknown.

    Raises:
        InputError: the adversary has no devices, or a pseudonym is twice in a round.
    """
    auxiliary = recording.auxiliary()
    require(
        len(auxiliary.get(PSEUDONYMS, ())),
        "a recording in which the adversary has devices of its own",
        f"none in {recording.directory}",
        "Record the training of a data set whose users have an anonymous and a known device.",
    )
    numbers = _numbers(recording, rounds)
    size, messages = _size(recording, numbers)
    require(
        size <= memory_bound(),
        f"messages of {gibibytes(memory_bound())} together, half of the memory",
        f"{messages:,} messages of {gibibytes(size)}",
        "Audit fewer rounds, or a recording of fewer clients.",
    )
    parts = list(recording.views(victims_per_view=_WHOLE_ROUND, rounds=numbers, learner=learner))
    _check_distinct(parts)
    joined = _join(parts)
    view = dataclasses.replace(
        joined.select(_by_pseudonym(joined)),
        round_models=ByRound(recording.models, numbers),
        algorithm=learner,
    )
    # The adversary knows the user of each of its own devices, by the device's pseudonym.
    is_known = torch.isin(view.pseudonyms, auxiliary[PSEUDONYMS])
    known = view.select(is_known.nonzero().flatten())
    order = auxiliary[PSEUDONYMS].argsort()
    device = torch.searchsorted(auxiliary[PSEUDONYMS][order], known.pseudonyms)
    priors = {USERS: auxiliary[PSEUDONYM_USERS][order][device]}
    if HOLDOUT_USERS in auxiliary:
        priors[HOLDOUT] = torch.isin(priors[USERS], auxiliary[HOLDOUT_USERS])
    # Its devices need not do what the others do before sending.
    releases = tuple(release for release in view.releases if release.own_devices)
    known = dataclasses.replace(known, priors=priors, releases=releases)
    return dataclasses.replace(view.select((~is_known).nonzero().flatten()), known=known)


def messages_view(
    recording: Recording, *, rounds: Sequence[int] | None = None, learner: ClientAlgorithm | None = None
) -> History:
    """The clients' messages in some rounds without deltas; `History.each_round` reads these.

    The messages are sorted by round, and in each round by pseudonym. Those of the adversary's own devices are left out.
    """
    numbers = _numbers(recording, rounds)
    known_pseudonyms = set(recording.auxiliary().get(PSEUDONYMS, torch.zeros(0)).tolist())
    # A row for each message: its round, its client and the number of examples.
    messages: list[tuple[int, int, int]] = []
    participants_of_message: list[Tensor] = []
    are_sums = False
    for number in numbers:
        counts = recording.example_counts(number)
        groups = recording.participants(number)
        are_sums = are_sums or bool(groups)
        for name in sorted(counts.keys() - known_pseudonyms):
            messages.append((number, name, counts[name]))
            participants_of_message.append(torch.tensor(groups.get(name, [-1])))
    sent_in, pseudonyms, examples = torch.tensor(messages, dtype=torch.int64).reshape(-1, 3).unbind(1)
    participants = None
    if are_sums:
        participants = pad_sequence(participants_of_message, batch_first=True, padding_value=-1)
    read = partial(recording.views, victims_per_view=_WHOLE_ROUND, learner=learner)
    # What all views say alike is read from one of a single victim, and what is of victims is replaced.
    first = next(recording.views(victims_per_view=1, rounds=numbers[:1], learner=learner))
    fields = first.common() | {
        "served": None,
        "client_models": None,
        "updates": None,
        "messages": None,
        "pseudonyms": pseudonyms,
        "example_counts": examples,
        "deltas": {},
        "priors": {},
        "participants": participants,
    }
    return History(
        **fields,
        sent_in=sent_in,
        round_models=ByRound(recording.models, numbers),
        by_round=ByRound(partial(_round_view, read, known_pseudonyms, partial(_size, recording)), numbers),
        read_parts=partial(_round_parts, read),
    )


def _round_parts(views: Callable[..., Iterator[RoundView]], number: int, clients: set[int]) -> Iterator[RoundView]:
    yield from views(rounds=[number], pseudonyms=clients, by_size=False)


def _size(recording: Recording, rounds: Sequence[int]) -> tuple[int, int]:
    """Bytes of the updates of some rounds in memory, without those of tables' rows, and number of messages."""
    tables = recording.manifest.row_parameters
    numbers_per_message = 0
    for name, parameter in recording.manifest.parameters.items():
        if name not in tables:
            numbers_per_message += math.prod(parameter["shape"])
    messages = sum(len(recording.example_counts(number)) for number in rounds)
    return messages * numbers_per_message * view_dtype(recording.manifest).itemsize, messages


def _round_view(
    views: Callable[..., Iterator[RoundView]],
    known_pseudonyms: set[int],
    size_of: Callable[[Sequence[int]], tuple[int, int]],
    number: int,
) -> RoundView:
    size, messages = size_of([number])
    if size > memory_bound():
        raise ViewError(
            f"it reads a whole round, and round {number} has {messages:,} messages of {gibibytes(size)}; it may use "
            f"{gibibytes(memory_bound())}, half of the memory"
        )
    joined = _join(list(views(rounds=[number])))
    view = joined.select(_by_pseudonym(joined))
    is_client = torch.tensor([name not in known_pseudonyms for name in view.pseudonyms.tolist()], dtype=torch.bool)
    return view.select(is_client.nonzero().flatten()).in_round(number)


def _numbers(recording: Recording, rounds: Sequence[int] | None) -> list[int]:
    numbers = recording.rounds
    if rounds is not None:
        numbers = [number for number in recording.rounds if number in set(rounds)]
    require(
        numbers,
        f"a round in {recording.directory}",
        "none",
        "The recording is cut short: copy it again, or record again.",
    )
    return numbers


def _check_distinct(parts: Sequence[RoundView]) -> None:
    pseudonyms_of_round: dict[int, Tensor] = {}
    for part in parts:
        earlier_parts = pseudonyms_of_round.get(part.round, part.pseudonyms[:0])
        together = torch.cat([earlier_parts, part.pseudonyms])
        names, counts = torch.unique(together, return_counts=True)
        require(
            not (counts > 1).any(),
            "each pseudonym once in a round",
            f"{names[counts > 1][:1].tolist()} {int(counts.max())} times in round {part.round}",
            "The recording is damaged or foreign: record again, or give every device a name of its own.",
        )
        pseudonyms_of_round[part.round] = together


def _by_pseudonym(view: History) -> Tensor:
    """Positions sorted by round, then by pseudonym."""
    # Sorts by the second key first, and then stably by the first one.
    order = view.pseudonyms.argsort(stable=True)
    return order[view.sent_in[order].argsort(stable=True)]


def _join(parts: Sequence[RoundView]) -> History:
    last = parts[-1]
    # Clients are served different numbers of items; their rows are padded to the most.
    width = max(0 if part.served is None else part.served.shape[1] for part in parts)
    deltas = {}
    for name in last.deltas:
        row_width = width if name in last.row_parameters else None
        deltas[name] = _stacked([part.deltas[name] for part in parts], row_width)
    joined = {
        "pseudonyms": torch.cat([part.pseudonyms for part in parts]),
        "example_counts": torch.cat([part.example_counts for part in parts]),
        "deltas": deltas,
        "served": _if_all([part.served for part in parts], partial(_stacked, width=width, padding=-1)),
        "priors": _priors([part.priors for part in parts]),
        "client_models": _if_all([part.client_models for part in parts], _joined_models),
        "updates": _if_all([part.updates for part in parts], partial(_stacked, width=width)),
        "messages": _if_all([part.messages for part in parts], torch.cat),
        "participants": _if_all([part.participants for part in parts], _joined_participants),
    }
    return History(
        **last.common() | joined,
        sent_in=torch.cat([part.pseudonyms.new_full((part.victims,), part.round) for part in parts]),
    )


def _if_all(parts: Sequence[_Value | None], join: Callable[[list[_Value]], Any]) -> Any:
    """Values of all clients, joined; None if not all of them have one."""
    present = [part for part in parts if part is not None]
    if len(present) < len(parts):
        return None
    return join(present)


def _joined_participants(groups: Sequence[Tensor]) -> Tensor:
    return _stacked(groups, max(group.shape[1] for group in groups), padding=-1)


def _joined_models(models: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.cat([model[name] for model in models]) for name in models[0]}


def _priors(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """What the server knows of each client in addition, with a second dimension padded with 0 to the longest."""
    # What is not known of all clients is left out.
    names = set(parts[0])
    for part in parts[1:]:
        names &= set(part)
    joined = {}
    for name in names:
        values = [part[name] for part in parts]
        width = None
        if values[0].dim() > 1:
            width = max(len(value[0]) for value in values)
        joined[name] = _stacked(values, width)
    return joined


def _stacked(values: Sequence[Tensor], width: int | None, padding: float = 0) -> Tensor:
    """Values joined along the first dimension, with the second padded to `width` if it is given."""
    if width is None:
        return torch.cat(list(values))
    shape = (sum(len(value) for value in values), width, *values[0].shape[2:])
    joined = values[0].new_full(shape, padding)
    start = 0
    for value in values:
        joined[start : start + len(value), : value.shape[1]] = value
        start += len(value)
    return joined
