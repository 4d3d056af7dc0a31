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
    parts = list(recording.views(victims_per_view=2**30, rounds=numbers, learner=learner))
    _check_distinct(parts)
    joined = _join(parts)
    view = dataclasses.replace(
        joined.select(_by_pseudonym(joined)), round_models=ByRound(recording.models, numbers), algorithm=learner
    )
    own = torch.isin(view.pseudonyms, auxiliary[PSEUDONYMS])
    known = view.select(own.nonzero().flatten())
    order = auxiliary[PSEUDONYMS].argsort()
    place = torch.searchsorted(auxiliary[PSEUDONYMS][order], known.pseudonyms)
    priors = {USERS: auxiliary[PSEUDONYM_USERS][order][place]}
    if HOLDOUT_USERS in auxiliary:
        priors[HOLDOUT] = torch.isin(priors[USERS], auxiliary[HOLDOUT_USERS])
    releases = tuple(release for release in view.releases if release.own_devices)
    known = dataclasses.replace(known, priors=priors, releases=releases)
    return dataclasses.replace(view.select((~own).nonzero().flatten()), known=known)


def messages_view(
    recording: Recording, *, rounds: Sequence[int] | None = None, learner: ClientAlgorithm | None = None
) -> History:
    """The clients' messages in some rounds without deltas; `History.each_round` reads these.

    The messages are sorted by round, and in each round by pseudonym. Those of the adversary's own devices are left out.
    """
    numbers = _numbers(recording, rounds)
    own = set(recording.auxiliary().get(PSEUDONYMS, torch.zeros(0)).tolist())
    counts = {number: recording.example_counts(number) for number in numbers}
    messages = [
        (number, name, counts[number][name]) for number in numbers for name in sorted(counts[number].keys() - own)
    ]
    sent_in, pseudonyms, examples = torch.tensor(messages, dtype=torch.int64).reshape(-1, 3).unbind(1)
    groups = {number: recording.participants(number) for number in numbers}
    of_each = [torch.tensor(groups[number].get(name, [-1])) for number, name, _ in messages]
    participants = pad_sequence(of_each, batch_first=True, padding_value=-1) if any(groups.values()) else None
    read = partial(recording.views, victims_per_view=2**30, learner=learner)
    first = next(recording.views(victims_per_view=1, rounds=numbers[:1], learner=learner))
    none = dict.fromkeys(("served", "client_models", "updates", "messages"))
    held = {"pseudonyms": pseudonyms, "example_counts": examples, "deltas": {}, "priors": {}}
    held |= {"participants": participants}
    return History(
        **first.common() | none | held,
        sent_in=sent_in,
        round_models=ByRound(recording.models, numbers),
        by_round=ByRound(partial(_round_view, read, own, partial(_size, recording)), numbers),
        read_parts=partial(_round_parts, read),
    )


def _round_parts(views: Callable[..., Iterator[RoundView]], number: int, clients: set[int]) -> Iterator[RoundView]:
    yield from views(rounds=[number], pseudonyms=clients, by_size=False)


def _size(recording: Recording, rounds: Sequence[int]) -> tuple[int, int]:
    """Bytes of the updates of some rounds in memory, without those of tables' rows, and number of messages."""
    shapes, tables = recording.manifest.parameters, recording.manifest.row_parameters
    each = sum(math.prod(own["shape"]) for name, own in shapes.items() if name not in tables)
    messages = sum(len(recording.example_counts(number)) for number in rounds)
    return messages * each * view_dtype(recording.manifest).itemsize, messages


def _round_view(
    views: Callable[..., Iterator[RoundView]],
    own: set[int],
    size_of: Callable[[Sequence[int]], tuple[int, int]],
    number: int,
) -> RoundView:
    size, messages = size_of([number])
    if size > memory_bound():
        raise ViewError(
            f"it reads a whole round, and round {number} has {messages:,} messages of {gibibytes(size)}; it may use "
            f"{gibibytes(memory_bound())}, half of the memory"
        )
    whole = _join(list(views(rounds=[number])))
    view = whole.select(_by_pseudonym(whole))
    others = torch.tensor([name not in own for name in view.pseudonyms.tolist()], dtype=torch.bool)
    return view.select(others.nonzero().flatten()).in_round(number)


def _numbers(recording: Recording, rounds: Sequence[int] | None) -> list[int]:
    numbers = recording.rounds if rounds is None else [n for n in recording.rounds if n in set(rounds)]
    way_out = "The recording is cut short: copy it again, or record again."
    require(numbers, f"a round in {recording.directory}", "none", way_out)
    return numbers


def _check_distinct(parts: Sequence[RoundView]) -> None:
    seen: dict[int, Tensor] = {}
    for part in parts:
        together = torch.cat([seen.get(part.round, part.pseudonyms[:0]), part.pseudonyms])
        names, counts = torch.unique(together, return_counts=True)
        require(
            not (counts > 1).any(),
            "each pseudonym once in a round",
            f"{names[counts > 1][:1].tolist()} {int(counts.max())} times in round {part.round}",
            "The recording is damaged or foreign: record again, or give every device a name of its own.",
        )
        seen[part.round] = together


def _by_pseudonym(view: History) -> Tensor:
    """Positions sorted by round, then by pseudonym."""
    order = view.pseudonyms.argsort(stable=True)
    return order[view.sent_in[order].argsort(stable=True)]


def _join(parts: Sequence[RoundView]) -> History:
    last = parts[-1]
    widths = [0 if part.served is None else part.served.shape[1] for part in parts]
    ragged = {name: max(widths) for name in last.row_parameters}
    joined = {
        "pseudonyms": torch.cat([part.pseudonyms for part in parts]),
        "example_counts": torch.cat([part.example_counts for part in parts]),
        "deltas": {name: _stacked([part.deltas[name] for part in parts], ragged.get(name)) for name in last.deltas},
        "served": _whole([part.served for part in parts], lambda own: _stacked(own, max(widths), padding=-1)),
        "priors": _priors([part.priors for part in parts]),
        "client_models": _whole(
            [part.client_models for part in parts], lambda own: {n: torch.cat([one[n] for one in own]) for n in own[0]}
        ),
        "updates": _whole([part.updates for part in parts], lambda own: _stacked(own, max(widths))),
        "messages": _whole([part.messages for part in parts], torch.cat),
        "participants": _participants([part.participants for part in parts]),
    }
    return History(
        **last.common() | joined,
        sent_in=torch.cat([part.pseudonyms.new_full((part.victims,), part.round) for part in parts]),
    )


def _whole(parts: Sequence[_Value | None], join: Callable[[list[_Value]], Any]) -> Any:
    """Values of all clients, joined; None if not all of them have one."""
    whole = [part for part in parts if part is not None]
    return join(whole) if len(whole) == len(parts) else None


def _participants(parts: Sequence[Tensor | None]) -> Tensor | None:
    whole: Tensor | None = _whole(parts, lambda own: _stacked(own, max(one.shape[1] for one in own), padding=-1))
    return whole


def _priors(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """What the server knows of each client in addition, with a second dimension padded with 0 to the longest."""
    joined = {}
    for name in parts[0].keys() & set.intersection(*(set(part) for part in parts)):
        values = [part[name] for part in parts]
        joined[name] = _stacked(values, max(len(value[0]) for value in values) if values[0].dim() > 1 else None)
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
