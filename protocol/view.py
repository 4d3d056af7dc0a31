"""What the server sees of its clients: the wall between an attack and the clients' data."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import torch
from torch import Tensor

from protocol import simulators
from protocol.simulators import AnySimulator

ITEM_EMBEDDING = "item_embedding.weight"
"""Name of the public item table in every recommender's parameters."""
POPULARITY = "popularity"
"""Prior ``(V, R)``: how many other users interacted with each served item."""
USERS = "users"
"""Prior ``(P,)``: the user of each of the server's own devices."""
HOLDOUT = "holdout"
"""Prior ``(P,)`` bool: whether a known device only teaches what strangers are like (deanonymization, section 6.1.2)."""
LEANING = "leaning"
"""Prior ``(V,)``: -1 for a client that dislikes more of its items than it likes, +1 for the contrary."""
_Kind = TypeVar("_Kind")


class ViewError(Exception):
    """A server view lacks what an attack needs, or holds something no attack can use."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """What the clients publicly do to their deltas before sending (a defence's parameters are not secret).

    Attributes:
        clip: L2 norm to which the released parameters are clipped, or None.
        noise_scale: standard deviation of the Gaussian noise on each released number, 0 for none.
        parameters: names of the parameters that are clipped and noised together.
    """

    clip: float | None = None
    noise_scale: float = 0.0
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ServerView:
    """What the server saw of a few clients in one round. Nothing in it comes from a client but its update.

    Attributes:
        round: number of the communication round.
        pseudonyms: ``(V,)`` int64, the names under which the clients sent.
        example_counts: ``(V,)`` number of local examples as reported by the clients.
        deltas: by parameter; ``(V, *shape)``, or ``(V, R, *row_shape)`` for the names in `row_parameters`, whose
            rows are aligned with `served` and zero where padded. Where the server called the clients more than once,
            the sum of the messages; see `updates`.
        row_parameters: parameters of which only the rows of the served items are kept.
        served: ``(V, R)`` int64, items the server showed to each client, in an order that says nothing about the
            interactions; padded with -1. None where the server shows nothing.
        lists: ``(V, R)`` int64, which of the client's ranked lists a served item stands in, list after list and in
            displayed order within each; padded with -1. None where nothing is ranked.
        features: ``(V, R, F)`` features of the served items as the server sent them, zero where padded, or None.
        model: the global model before the round, by parameter.
        client_models: by parameter ``(V, *shape)``, where each client was sent a model of its own; None where all got
            `model`.
        releases: what the clients publicly do to their deltas before sending.
        learner: the clients' algorithm, None where it is unknown.
        updates: ``(V, R)`` in how many of the messages that `deltas` sums up each row was sent; None for one message.
        messages: ``(V,)`` how many rounds' messages `deltas` sums up, where that differs from client to client; None
            where it does not.
        auxiliary: public data that the adversary holds, by name; every use is stated in the threat model.
        priors: what the adversary knows of each victim before it sees an update, by name, ``(V, ...)``; see
            `POPULARITY`, `USERS`, `HOLDOUT` and `LEANING`.
        pairs: ``(M, 2)`` pairs of messages that a matching attack is asked about: messages are numbered, first those of
            this view, then those of `known`. None where nothing is asked.
        manipulation: name of what the server sends in place of what the protocol says, None for an honest server.
        earlier: what the server saw of the same victims, in the same order, in earlier rounds, the first first.
        sent_in: ``(V,)`` the round of each message, where a view joins the messages of several rounds and a pseudonym
            may stand in it more than once; None for one round.
        round_models: where it does, the global model before each round, by its number.
        known: what the server saw of devices of its own, which train on what it knows of users beforehand; whose they
            are is ``known.priors["users"]`` ``(P,)``. None where it has none.
    """

    round: int
    pseudonyms: Tensor
    example_counts: Tensor
    deltas: Mapping[str, Tensor]
    model: Mapping[str, Tensor]
    row_parameters: frozenset[str] = frozenset()
    served: Tensor | None = None
    lists: Tensor | None = None
    features: Tensor | None = None
    client_models: Mapping[str, Tensor] | None = None
    releases: tuple[Release, ...] = ()
    learner: AnySimulator | None = None
    updates: Tensor | None = None
    messages: Tensor | None = None
    auxiliary: Mapping[str, Tensor] = field(default_factory=dict)
    priors: Mapping[str, Tensor] = field(default_factory=dict)
    pairs: Tensor | None = None
    manipulation: str | None = None
    earlier: tuple["ServerView", ...] = ()
    sent_in: Tensor | None = None
    round_models: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)
    known: "ServerView | None" = None

    @property
    def victims(self) -> int:
        """Number of clients in this view."""
        return int(self.pseudonyms.shape[0])

    @property
    def served_mask(self) -> Tensor:
        """``(V, R)`` True where `served` holds an item."""
        if self.served is None:
            raise ViewError("this recording does not say which items the server served")
        return self.served >= 0

    def require(self, kind: type[_Kind]) -> _Kind:
        """The learner as a simulator of one kind.

        Args:
            kind: a protocol of `protocol.simulators`, or any class.

        Raises:
            ViewError: the learner is unknown or of another kind.
        """
        if not isinstance(self.learner, kind):
            found = "no learner" if self.learner is None else type(self.learner).__name__
            raise ViewError(f"expected a learner of the kind {kind.__name__}, got {found}")
        return self.learner

    def select(self, positions: Tensor) -> "ServerView":
        """The view of some of its victims; the only way to cut a view.

        Args:
            positions: ``(W,)`` int64, which victims and in which order.

        Returns:
            A view of W victims. Of the pairs that are asked about, those of which both messages remain.
        """
        if len(positions) == self.victims and bool((positions == torch.arange(self.victims)).all()):
            return self
        cut = {name: _cut(getattr(self, name), positions) for name in OF_VICTIMS}
        earlier = tuple(view.select(positions) for view in self.earlier)
        return dataclasses.replace(self, **cut, earlier=earlier, pairs=self._pairs_among(positions))

    def _pairs_among(self, positions: Tensor) -> Tensor | None:
        if self.pairs is None:
            return None
        known = 0 if self.known is None else self.known.victims
        moved = torch.full((self.victims + known,), -1)
        moved[positions] = torch.arange(len(positions))
        moved[self.victims :] = len(positions) + torch.arange(known)
        pairs = moved[self.pairs]
        return pairs[(pairs >= 0).all(1)]

    def sent_models(self) -> Mapping[str, Tensor]:
        """The model that each client was sent, by parameter ``(V, *shape)``."""
        if self.client_models is not None:
            return self.client_models
        return {name: value.expand(self.victims, *value.shape) for name, value in self.model.items()}

    def noise_scale(self, parameter: str) -> float:
        """Standard deviation of the Gaussian noise that clients add to `parameter` (0 where there is none)."""
        variances = [r.noise_scale**2 for r in self.releases if parameter in r.parameters]
        return math.sqrt(sum(variances))

    def clip(self, parameter: str) -> float | None:
        """Smallest L2 norm to which clients clip an update that holds `parameter`, None where they do not."""
        clips = [r.clip for r in self.releases if parameter in r.parameters and r.clip is not None]
        return min(clips) if clips else None

    def missing(self, needs: tuple[str, ...]) -> list[str]:
        """Names in `needs` that this view cannot give: fields, or entries such as ``"deltas:PARAMETER"``.

        Raises:
            ViewError: no view has a field of that name.
        """
        known = {field.name for field in fields(self)}
        unknown = [name for name in needs if name.partition(":")[0] not in known or _unknown_learner(name)]
        if unknown:
            raise ViewError(
                f"expected needs among the fields of a server view ({', '.join(sorted(known))}); found"
                f" {', '.join(unknown)}. Fix `needs` in the attack's threat model."
            )
        return [name for name in needs if not self._has(name)]

    def _has(self, name: str) -> bool:
        head, _, key = name.partition(":")
        value = getattr(self, head)
        if head == "learner" and key:
            return isinstance(value, getattr(simulators, key))
        return key in value if key else value is not None


def features_of(items: Tensor, served: Tensor) -> Tensor:
    """``(V, R, F)`` features of served items, of which one copy is kept where all clients were served the same.

    Args:
        items: ``(I, F)`` features of all items.
        served: ``(V, R)`` rows of `items`, padded with -1.
    """
    alike = len(served) > 0 and bool((served == served[:1]).all())
    own = served[:1] if alike else served
    features = items[own.clamp(min=0)] * (own >= 0)[..., None]
    return features.expand(len(served), -1, -1) if alike else features


OF_VICTIMS = (
    *("pseudonyms", "example_counts", "deltas", "served", "lists", "features", "client_models", "updates"),
    *("priors", "sent_in", "messages"),
)
"""Fields of a view with one entry for each victim, cut by `ServerView.select`."""


def _unknown_learner(name: str) -> bool:
    head, _, kind = name.partition(":")
    return head == "learner" and bool(kind) and not hasattr(simulators, kind)


def _cut(value: Any, positions: Tensor) -> Any:
    """Rows of a tensor, of every tensor of a mapping, or None; rows that all victims share stay shared."""
    if isinstance(value, Mapping):
        return {name: _cut(tensor, positions) for name, tensor in value.items()}
    if value is not None and value.stride(0) == 0:
        return value[:1].expand(len(positions), *value.shape[1:])
    return None if value is None else value[positions]
