"""The messages of a recording that attacks on anonymity get, the pairs they are asked about, and their truth."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from datamodules.recordings.joined_view import joined_view
from datamodules.recordings.recording import Recording
from modules.learners.recorded_learner import recorded_learner
from protocol.errors import InputError
from protocol.seeding import generator_for
from protocol.view import USERS, ServerView

_PAIRS_EACH = 4
"""Pairs of either kind for every anonymous message."""


@dataclass(frozen=True, kw_only=True)
class MessageSelection:
    """Which messages of a recording attacks get.

    Attributes:
        known_messages: messages of every known device, drawn at random; None for all (figure 6).
        known_rounds: first round, and the one after the last, of the known messages; None for all (figure 8).
        anonymous_rounds: the same of the anonymous ones.
        pairs: ``prior``: pairs of an anonymous message with a known one (table 4); ``anonymous``: of two anonymous ones
            (figure 4).
    """

    known_messages: int | None = None
    known_rounds: tuple[int, int] | None = None
    anonymous_rounds: tuple[int, int] | None = None
    pairs: Literal["prior", "anonymous"] = "prior"

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        if self.pairs not in ("prior", "anonymous") or (self.known_messages is not None and self.known_messages < 1):
            raise InputError(
                expected="pairs prior or anonymous, and known_messages of at least 1",
                found=f"{self.pairs}, {self.known_messages}",
                way_out="Fix `messages`.",
            )


def all_messages(recording: Recording) -> tuple[ServerView, dict[str, Tensor]]:
    """Every message of a recording in one view, and its truth, see `message_truth`."""
    view = joined_view(recording, learner=recorded_learner(recording))
    return view, message_truth(recording, view)


def message_truth(recording: Recording, view: ServerView) -> dict[str, Tensor]:
    """Opens the truth of a joined view: ``user (V,)`` of its messages and ``known_user (P,)`` of the known devices'.

    Raises:
        InputError: the truth names no users.
    """
    assert view.known is not None
    return {"user": _users(recording, view), "known_user": _users(recording, view.known)}


def _users(recording: Recording, view: ServerView) -> Tensor:
    assert view.sent_in is not None
    users = torch.empty_like(view.pseudonyms)
    for number in torch.unique(view.sent_in).tolist():
        inside = (view.sent_in == number).nonzero().flatten()
        truth = recording.truth(dataclasses.replace(view.select(inside), round=number, served=None))
        if "user" not in truth:
            raise InputError(
                expected=f"'client/user' in the truth of round {number}, to score who is who",
                found=f"{', '.join(truth)} in {recording.directory}",
                way_out="Audit a recording whose truth names the owners of devices.",
            )
        users[inside] = truth["user"].long()
    return users


def selected(
    view: ServerView,
    truth: Mapping[str, Tensor],
    selection: MessageSelection,
    *,
    seed: int,
) -> tuple[ServerView, dict[str, Tensor]]:
    """The messages that the attacks get, with the pairs that they are asked about, and their truth.

    Whose the known devices are is what the server itself has written down (``known_users`` of the recording's auxiliary
    file): the truth only scores.

    Args:
        view: all messages, see `datamodules.recordings.joined_view.joined_view`.
        truth: see `message_truth`.
        selection: which of them.
        seed: seed of the draws.

    Raises:
        InputError: nothing is left of them.
    """
    assert view.known is not None
    kept, known = _within(view, selection.anonymous_rounds), _within(view.known, selection.known_rounds)
    if selection.known_messages is not None:
        known = known[_few(view.known.priors[USERS][known], selection.known_messages, seed)]
    if not len(kept) or not len(known):
        raise InputError(
            expected="anonymous and known messages in a selection",
            found=f"{len(kept)} and {len(known)}",
            way_out="Fix the rounds in `messages`; a round has few devices.",
        )
    owned = view.known.select(known)
    own = {"user": truth["user"][kept], "known_user": truth["known_user"][known]}
    everything = torch.arange(len(kept) + len(known))
    first, second = everything[: len(kept)], everything[len(kept) :]
    pairs = draw_pairs(
        first,
        first if selection.pairs == "anonymous" else second,
        torch.cat([own["user"], own["known_user"]]),
        each=_PAIRS_EACH,
        generator=generator_for(seed, "pairs"),
    )
    return dataclasses.replace(view.select(kept), known=owned, pairs=pairs), own


def _within(view: ServerView, rounds: tuple[int, int] | None) -> Tensor:
    assert view.sent_in is not None
    if rounds is None:
        return torch.arange(view.victims)
    return ((view.sent_in >= rounds[0]) & (view.sent_in < rounds[1])).nonzero().flatten()


def _few(users: Tensor, most: int, seed: int) -> Tensor:
    """Positions of at most so many messages of every user."""
    order = torch.randperm(len(users), generator=generator_for(seed, "known messages"))
    by_user = order[users[order].argsort(stable=True)]
    sorted_users = users[by_user]
    begins = torch.searchsorted(sorted_users, sorted_users)
    return by_user[torch.arange(len(users)) - begins < most].sort().values


def draw_pairs(first: Tensor, second: Tensor, users: Tensor, *, each: int, generator: torch.Generator) -> Tensor:
    """Pairs to be judged: of every message in `first` as many with one of its user as with one of another's.

    Opens the truth, so that both kinds are as many, and must not give it away. The server knows whose some messages
    are and which messages bear one pseudonym. So users are drawn into couples, and every message of either is asked
    about equally many messages of both: whose partners a message has is the same for both users of a couple. Where the
    users are odd in number, three stand in a ring, each asked about itself and the next. The order of the pairs says
    nothing.

    Args:
        first: ``(A,)`` numbers of messages.
        second: ``(B,)`` numbers of messages; none is paired with itself.
        users: the truth, by number of message.
        each: pairs of either kind for each message in `first`; fewer where a user of the couple has fewer messages.
        generator: of the draw.

    Returns:
        ``(M, 2)``, each pair once.
    """
    same = (users[first][:, None] == users[second]) & (first[:, None] != second)
    able = torch.unique(users[first][same.any(1)])
    groups = _groups(able[torch.randperm(len(able), generator=generator)])
    chosen = torch.zeros_like(same)
    for group in groups:
        inside = [same[users[first] == user].sum(1) for user in group.tolist()]
        wanted = min(each, *(int(count.min()) for count in inside))
        for user, decoy in zip(group, group.roll(-1), strict=True):
            rows = (users[first] == user).nonzero().flatten()
            others = (users[second] == decoy).expand(len(rows), -1)
            counts = torch.full((len(rows),), wanted)
            chosen[rows] = _some(same[rows], counts, generator) | _some(others, counts, generator)
    left, right = chosen.nonzero(as_tuple=True)
    pairs = torch.stack([first[left], second[right]], dim=1)
    return pairs[torch.randperm(len(pairs), generator=generator)]


def _groups(users: Tensor) -> list[Tensor]:
    """Couples of users, in a given order, and three together at the end where one would be left; none of one alone."""
    count = len(users) // 2
    if count == 0:
        return []
    groups = [users[2 * place : 2 * place + 2] for place in range(count)]
    groups[-1] = users[2 * (count - 1) :]
    return groups


def _some(choice: Tensor, wanted: Tensor, generator: torch.Generator) -> Tensor:
    """``(A, B)`` bool, of each row so many of its True ones, drawn at random."""
    keys = torch.rand(choice.shape, generator=generator).masked_fill(~choice, -1)
    rank = keys.argsort(dim=1, descending=True).argsort(dim=1)
    return rank < wanted[:, None]
