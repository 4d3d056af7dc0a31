"""Messages of a recording for attacks on anonymity: selection, pairs to compare, and ground truth."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.core.errors import InputError, require
from fedleak.core.history import History
from fedleak.core.ranges import PositiveInt, check_fields
from fedleak.core.seeding import generator_for
from fedleak.core.view import HOLDOUT, USERS
from fedleak.recordings.adversary_devices import EXAMPLE_USERS
from fedleak.recordings.joined_view import joined_view
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording

_PAIRS_EACH = 4
"""Pairs of the same user, and pairs of different users, per anonymous message."""


@dataclass(frozen=True, kw_only=True)
class MessageSelection:
    """Selection of the messages of a recording that attacks get.

    Attributes:
        known_messages: number of messages of each known device, drawn at random; None for all (figure 6).
        known_rounds: first round of the known messages, and the round after the last; None for all (figure 8).
        anonymous_rounds: the same for the anonymous messages.
        pairs: ``prior`` for pairs of an anonymous and a known message (table 4), ``anonymous`` for pairs of two
            anonymous messages (figure 4).
        names: ``shuffled`` puts the known devices and their data under other users' names, so that attacks measure the
            chance level.
    """

    known_messages: PositiveInt | None = None
    known_rounds: tuple[int, int] | None = None
    anonymous_rounds: tuple[int, int] | None = None
    pairs: Literal["prior", "anonymous"] = "prior"
    names: Literal["true", "shuffled"] = "true"

    def __post_init__(self) -> None:
        """Checks the values."""
        check_fields(self)


def all_messages(recording: Recording) -> tuple[History, dict[str, Tensor]]:
    """All messages of a recording in one view, and their ground truth, see `message_truth`."""
    view = joined_view(recording, learner=recorded_learner(recording))
    return view, message_truth(recording, view)


def message_truth(recording: Recording, view: History) -> dict[str, Tensor]:
    """Ground truth of a joined view: ``user (V,)`` of its messages, ``known_user (P,)`` of the known devices.

    Raises:
        InputError: the ground truth names no users.
    """
    assert view.known is not None
    require(
        view.known.victims,
        "messages of known devices, to compare others with",
        f"no message of the 'known_pseudonyms' in {recording.directory}",
        "Name the pseudonyms of recorded messages.",
    )
    return {"user": _users(recording, view), "known_user": _users(recording, view.known)}


def _users(recording: Recording, view: History) -> Tensor:
    users = client_truth(recording, view, ["user"]).get("user")
    if users is None:
        raise InputError(
            expected="'client/user' in the ground truth of every round, to score identities",
            found=f"none in {recording.directory}",
            way_out="Audit a recording whose ground truth names the owners of devices.",
        )
    return users.long()


def client_truth(recording: Recording, view: History, names: Collection[str]) -> dict[str, Tensor]:
    """Ground truth of the senders of a view's messages, ``(V, ...)`` by name; names that some round lacks are left out.

    The ground truth stays closed if no names are given.
    """
    by_name: dict[str, list[Tensor]] = {name: [] for name in names}
    by_round = []
    for number in torch.unique(view.sent_in).tolist():
        positions = (view.sent_in == number).nonzero().flatten()
        by_round.append(positions)
        if not names:
            continue
        senders = dataclasses.replace(view.select(positions), round=number, served=None)
        truth = recording.truth(senders)
        # A name that one round lacks is left out from then on.
        by_name = {name: values for name, values in by_name.items() if name in truth}
        for name, values in by_name.items():
            values.append(truth[name])
    # Back from the order of rounds to that of the view's messages.
    order = torch.zeros(0, dtype=torch.int64)
    if by_round:
        order = torch.cat(by_round).argsort()
    return {name: _joined(values)[order] for name, values in by_name.items() if values}


def _joined(values: Sequence[Tensor]) -> Tensor:
    """Values of several rounds' clients; those of rounds with shorter lists are padded with zeros."""
    if len({value.shape[1:] for value in values}) == 1:
        return torch.cat(list(values))
    clients: list[Tensor] = []
    for of_round in values:
        clients.extend(of_round)
    return pad_sequence(clients, batch_first=True)


def selected(
    view: History, truth: Mapping[str, Tensor], selection: MessageSelection, *, seed: int
) -> tuple[History, dict[str, Tensor]]:
    """View of the selected messages, with the pairs to compare, and their ground truth.

    The owners of known devices are auxiliary data of the server (``known_users``); the ground truth is for scoring.

    Raises:
        InputError: no message is left.
    """
    assert view.known is not None
    anonymous = _within(view, selection.anonymous_rounds)
    of_known = _within(view.known, selection.known_rounds)
    if selection.known_messages is not None:
        of_known = of_known[_few(view.known.priors[USERS][of_known], selection.known_messages, seed)]
    require(
        len(anonymous) and len(of_known),
        "at least one anonymous and one known message",
        f"{len(anonymous)} and {len(of_known)}",
        "Select more rounds in `messages`; a round has few devices.",
    )
    selected_truth = {"user": truth["user"][anonymous], "known_user": truth["known_user"][of_known]}
    # Messages are numbered from the anonymous to the known ones.
    first, second = torch.arange(len(anonymous) + len(of_known)).tensor_split([len(anonymous)])
    partners = first if selection.pairs == "anonymous" else second
    users = torch.cat(list(selected_truth.values()))
    pairs = draw_pairs(first, partners, users, each=_PAIRS_EACH, generator=generator_for(seed, "pairs"))
    chosen = dataclasses.replace(view.select(anonymous), known=view.known.select(of_known), pairs=pairs)
    if selection.names == "shuffled":
        chosen = under_other_names(chosen, seed=seed)
    return chosen, selected_truth


def under_other_names(view: History, *, seed: int) -> History:
    """The view with the known users' names permuted at random, those of hold-out users among themselves."""
    assert view.known is not None
    priors = view.known.priors
    # Users are named by their known devices, and by the owners of the server's examples, if it has such.
    example_users = {}
    if EXAMPLE_USERS in view.auxiliary:
        example_users[EXAMPLE_USERS] = view.auxiliary[EXAMPLE_USERS]
    users = torch.unique(torch.cat([priors[USERS], *example_users.values()]))
    is_holdout = torch.isin(users, priors[USERS][priors[HOLDOUT]]) if HOLDOUT in priors else torch.zeros_like(users) > 0
    names = users.clone()
    for group in (is_holdout, ~is_holdout):
        order = torch.randperm(int(group.sum()), generator=generator_for(seed, "other names"))
        names[group] = users[group][order]
    renamed_examples = {name: names[torch.searchsorted(users, value)] for name, value in example_users.items()}
    renamed_devices = names[torch.searchsorted(users, priors[USERS])]
    known_devices = dataclasses.replace(view.known, priors={**priors, USERS: renamed_devices})
    return dataclasses.replace(view, known=known_devices, auxiliary={**view.auxiliary, **renamed_examples})


def _within(view: History, rounds: tuple[int, int] | None) -> Tensor:
    if rounds is None:
        return torch.arange(view.victims)
    return ((view.sent_in >= rounds[0]) & (view.sent_in < rounds[1])).nonzero().flatten()


def _few(users: Tensor, most: int, seed: int) -> Tensor:
    """Positions of at most `most` messages of every user."""
    # In a random order, sorted by user: the first `most` of each user's messages are a random choice.
    order = torch.randperm(len(users), generator=generator_for(seed, "known messages"))
    by_user = order[users[order].argsort(stable=True)]
    sorted_users = users[by_user]
    begins = torch.searchsorted(sorted_users, sorted_users)
    number_within_user = torch.arange(len(users)) - begins
    return by_user[number_within_user < most].sort().values


def draw_pairs(first: Tensor, second: Tensor, users: Tensor, *, each: int, generator: torch.Generator) -> Tensor:
    """Pairs of messages to compare: for every message in `first`, as many of the same user as of another user.

    The draw uses the ground truth to balance both kinds, but must not reveal it: the server knows the owners of some
    messages, and which messages share a pseudonym. Users are therefore drawn into couples, and each message of a couple
    is paired with equally many messages of both users, so the partners of a message are equally often of either user.
    With an odd number of users, the last three form a ring in which each is paired with itself and the next. The pairs
    are in random order.

    Args:
        first: ``(A,)`` message numbers.
        second: ``(B,)`` message numbers; no message is paired with itself.
        users: owner by message number.
        each: number of pairs of either kind per message in `first`; fewer if a user of the couple has fewer messages.
        generator: source of the draws.

    Returns:
        ``(M, 2)`` distinct pairs.
    """
    # Users who have a pair of messages of their own, in couples of a random order.
    same_user = users[first][:, None] == users[second]
    same = same_user & (first[:, None] != second)
    able = torch.unique(users[first][same.any(1)])
    order = torch.randperm(len(able), generator=generator)
    chosen = torch.zeros_like(same)
    for group in _groups(able[order]):
        # As many pairs of each kind as every message of the group has of both users.
        fewest = []
        for user in group.tolist():
            partners = same[users[first] == user].sum(1)
            fewest.append(int(partners.min()))
        wanted = min(each, *fewest)
        for user, decoy in zip(group, group.roll(-1), strict=True):
            rows = (users[first] == user).nonzero().flatten()
            of_decoy = (users[second] == decoy).expand(len(rows), -1)
            own_partners = _some(same[rows], wanted, generator)
            chosen[rows] = own_partners | _some(of_decoy, wanted, generator)
    row, column = chosen.nonzero(as_tuple=True)
    pairs = torch.stack([first[row], second[column]], dim=1)
    return pairs[torch.randperm(len(pairs), generator=generator)]


def _groups(users: Tensor) -> list[Tensor]:
    """Couples of users in the given order; the last group has three users if their number is odd."""
    groups = []
    count = len(users) // 2
    for number in range(count):
        end = 2 * number + 2 if number < count - 1 else None
        groups.append(users[2 * number : end])
    return groups


def _some(choice: Tensor, wanted: int, generator: torch.Generator) -> Tensor:
    """``(A, B)`` bool: at most `wanted` True entries of each row of `choice`, drawn at random."""
    # Random keys; those of other entries come last in descending order. The second argsort gives ranks.
    keys = torch.rand(choice.shape, generator=generator).masked_fill(~choice, -1)
    return keys.argsort(dim=1, descending=True).argsort(dim=1) < wanted
