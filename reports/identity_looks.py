"""What of a recording an attack is given: some layers, some rounds, some messages, pairs to be matched."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from attacks.base import ServerView
from attacks.deanonymization.estimates import PAIRS
from attacks.deanonymization.messages import HOLDOUT, USERS
from datamodules.keys import generator_for
from datamodules.messages import part_of
from datamodules.open_world import HOLDOUT as HELD_OUT
from errors import InputError
from reports.identities import draw_pairs

_PAIRS_EACH = 4
"""Pairs of either kind for every anonymous message."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What differs from one look at a recording to the next.

    Attributes:
        setting: how results call it, e.g. ``{layer: lstm}``.
        layers: whose deltas are taken, None for those of the data set.
        known_messages: messages of every known device, drawn at random; None for all (figure 6).
        known_rounds: first round, and the one after the last, of the known messages; None for all (figure 8).
        anonymous_rounds: the same of the anonymous ones.
        pairs: ``prior``: pairs of an anonymous message with a known one (table 4); ``anonymous``: of two anonymous ones
            (figure 4).
        attacks: which to run, None for all.
    """

    setting: dict[str, Any] = field(default_factory=dict)
    layers: list[str] | None = None
    known_messages: int | None = None
    known_rounds: tuple[int, int] | None = None
    anonymous_rounds: tuple[int, int] | None = None
    pairs: Literal["prior", "anonymous"] = "prior"
    attacks: list[str] | None = None

    def __post_init__(self) -> None:
        """Refuses impossible values."""
        if self.pairs not in ("prior", "anonymous") or (self.known_messages is not None and self.known_messages < 1):
            raise InputError(
                expected="pairs prior or anonymous, and known_messages of at least 1",
                found=f"{self.pairs}, {self.known_messages}",
                way_out="Mend `looks`.",
            )


def look_at(view: ServerView, users: Tensor, look: Look, *, seed: int, roles: Tensor) -> tuple[ServerView, Tensor]:
    """The view that the attacks get, and its truth.

    Whose the known devices are is what the server itself has written down (``known_users`` of the recording's auxiliary
    file): the truth only scores.

    Args:
        view: all messages; those of known devices with their users in the auxiliary data.
        users: ``(V + P,)`` the truth.
        look: what of it.
        seed: seed of the draws.
        roles: ``(U,)`` see `datamodules.open_world`.

    Raises:
        InputError: nothing is left of it.
    """
    assert view.known is not None
    own, others = users[: view.victims], users[view.victims :]
    kept = _within(view, look.anonymous_rounds)
    known, owners = _within(view.known, look.known_rounds), view.known.auxiliary[USERS]
    if look.known_messages is not None:
        known = known[_few(owners[known], look.known_messages, seed)]
    if not len(kept) or not len(known):
        raise InputError(
            expected="anonymous and known messages in a look",
            found=f"{len(kept)} and {len(known)}",
            way_out="Mend the rounds in `looks`; a round has few devices.",
        )
    auxiliary = {USERS: owners[known]}
    if bool((roles == HELD_OUT).any()):
        auxiliary[HOLDOUT] = torch.isin(owners[known], (roles == HELD_OUT).nonzero().flatten())
    whose = dataclasses.replace(part_of(view.known, known), auxiliary=auxiliary)
    seen = dataclasses.replace(part_of(view, kept), known=whose)
    truth = torch.cat([own[kept], others[known]])
    return _asked(seen, truth, look, seed), truth


def _asked(view: ServerView, truth: Tensor, look: Look, seed: int) -> ServerView:
    everything = torch.arange(len(truth))
    first, second = everything[: view.victims], everything[view.victims :]
    if look.pairs == "anonymous":
        second = first
    generator = generator_for(seed, "pairs")
    pairs = draw_pairs(first, second, truth, each=_PAIRS_EACH, generator=generator)
    return dataclasses.replace(view, auxiliary={**view.auxiliary, PAIRS: pairs})


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
