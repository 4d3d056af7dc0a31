"""The server view, all that an attack is given: what the server sees of its clients."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor

from fedleak.core.errors import ViewError
from fedleak.core.release import Release
from fedleak.core.shared_work import SharedWork
from fedleak.core.threat_model import Need, described_need
from fedleak_recorder.format import ATTRIBUTE as ATTRIBUTE
from fedleak_recorder.format import ATTRIBUTE_PSEUDONYMS as ATTRIBUTE_PSEUDONYMS
from fedleak_recorder.format import CANARY_PSEUDONYMS as CANARY_PSEUDONYMS
from fedleak_recorder.format import CANDIDATE_LABELS as CANDIDATE_LABELS
from fedleak_recorder.format import CANDIDATES as CANDIDATES

ITEM_EMBEDDING = "item_embedding.weight"
"""Name of the public item table in every recommender's parameters."""
POPULARITY = "popularity"
"""Prior ``(V, R)``: number of other users who interacted with each served item."""
USERS = "users"
"""Prior ``(P,)``: the user of each of the server's own devices."""
HOLDOUT = "holdout"
"""Prior ``(P,)`` bool: whether a known device only represents unseen users (deanonymization, section 6.1.2)."""
LEANING = "leaning"
"""Prior ``(V,)``: -1 for a client that dislikes more of its items than it likes, +1 otherwise."""
PUBLIC_INTERACTIONS = "public_interactions"
"""Auxiliary ``(P, 2)``: number of a person who is no client, and of an item that the person interacted with."""
CANARY_PLUS = "canary/plus/"
CANARY_MINUS = "canary/minus/"
"""Priors by parameter: a canary's update before the clip in the worlds +1 and -1, zero for other clients. Without the
second, the worlds are opposite."""
_Kind = TypeVar("_Kind")


@dataclass(frozen=True, kw_only=True)
class View:
    """What the server saw of some clients, in one round (`RoundView`) or several (`History`); only deltas are theirs.

    Attributes:
        round: number of the communication round; of a history, the one under which scores are listed.
        pseudonyms: ``(V,)`` int64 pseudonyms of the clients.
        example_counts: ``(V,)`` number of local examples that the clients report.
        deltas: by parameter; ``(V, *shape)``, or ``(V, R, *row_shape)`` for the names in `row_parameters`, whose rows
            are aligned with `served` and zero where padded. If the server called the clients more than once, the sum of
            the messages; see `updates`.
        model: the global model before the round, by parameter.
        row_parameters: parameters of which only the rows of the served items are kept.
        served: ``(V, R)`` int64 items that the server showed to each client, in an order independent of the
            interactions, padded with -1. None if the server shows nothing.
        client_models: by parameter ``(V, *shape)``, if each client was sent its own model; None if all got `model`.
        releases: what the clients publicly do to their deltas before sending.
        rounded: parameters whose deltas the recording stores with fewer digits than they were sent with.
        algorithm: what the clients run, a `fedleak.client.ClientAlgorithm`; None if it is unknown.
        updates: ``(V, R)`` number of messages with each row in the sum `deltas`; None for one message.
        messages: ``(V,)`` number of rounds in the sum `deltas`, if it differs between clients; else None.
        participants: ``(V, P)`` int64 pseudonyms of the clients whose updates each of `deltas` sums up, padded with -1;
            None if each is the update of one client.
        auxiliary: public data that the adversary holds, by name; stated in the threat model of attacks that use it.
        priors: prior knowledge about each victim, by name, ``(V, ...)``; see `POPULARITY`, `USERS`, `HOLDOUT` and
            `LEANING`.
        manipulation: name of the server's manipulation, None for an honest server.
        shared: what attacks on this view compute once for all of them; a part or a copy of the view has its own.
    """

    of_victims: ClassVar[tuple[str, ...]] = (
        "pseudonyms",
        "example_counts",
        "deltas",
        "served",
        "client_models",
        "updates",
        "priors",
        "messages",
        "participants",
    )
    """Fields with one entry per victim, selected by `select`."""

    round: int
    pseudonyms: Tensor
    example_counts: Tensor
    deltas: Mapping[str, Tensor]
    model: Mapping[str, Tensor]
    row_parameters: frozenset[str] = frozenset()
    served: Tensor | None = None
    client_models: Mapping[str, Tensor] | None = None
    releases: tuple[Release, ...] = ()
    rounded: frozenset[str] = frozenset()
    algorithm: object | None = None
    updates: Tensor | None = None
    messages: Tensor | None = None
    participants: Tensor | None = None
    auxiliary: Mapping[str, Tensor] = field(default_factory=dict)
    priors: Mapping[str, Tensor] = field(default_factory=dict)
    manipulation: str | None = None
    shared: SharedWork = field(default_factory=SharedWork, init=False, repr=False, compare=False)

    @property
    def victims(self) -> int:
        """Number of clients in this view."""
        return int(self.pseudonyms.shape[0])

    @property
    def served_mask(self) -> Tensor:
        """``(V, R)`` True where `served` holds an item."""
        return self.served_items >= 0

    @property
    def served_items(self) -> Tensor:
        """``(V, R)`` `served`, for attacks that need it.

        Raises:
            ViewError: the recording does not hold it.
        """
        if self.served is None:
            raise ViewError("expected the served items, got a recording without them")
        return self.served

    def require(self, kind: type[_Kind]) -> _Kind:
        """The clients' algorithm, of one kind.

        Raises:
            ViewError: it is unknown or of another kind.
        """
        if isinstance(self.algorithm, kind):
            return self.algorithm
        declared = "none" if self.algorithm is None else type(self.algorithm).__name__
        raise ViewError(f"expected the clients' algorithm, of the kind {kind.__name__}, got {declared}")

    def select(self, positions: Tensor) -> Self:
        """The view of the victims at ``positions (W,)``, in this order; the only way to select victims."""
        if len(positions) == self.victims and bool((positions == torch.arange(self.victims)).all()):
            return self
        selected = {name: _cut(getattr(self, name), positions) for name in self.of_victims}
        return dataclasses.replace(self, **selected)

    def distinct_messages(self) -> tuple[Tensor, Tensor]:
        """Positions ``(M,)`` of one victim for each message, and which of these messages ``(V,)`` is each victim's.

        They differ from all victims only for sums, each of which is listed for several participants.
        """
        if self.participants is None:
            return torch.arange(self.victims), torch.arange(self.victims)
        # Victims with the same participants have the same sum.
        groups, message_of_victim = torch.unique(self.participants, dim=0, return_inverse=True)
        first_victims = [(message_of_victim == number).nonzero()[0, 0] for number in range(len(groups))]
        return torch.stack(first_victims), message_of_victim

    def common(self) -> dict[str, Any]:
        """The fields that views of a round and of several have, by name, to make one of the other."""
        return {view_field.name: getattr(self, view_field.name) for view_field in fields(View) if view_field.init}

    def sent_models(self) -> Mapping[str, Tensor]:
        """The model that each client received, by parameter ``(V, *shape)``."""
        if self.client_models is None:
            return {name: value.expand(self.victims, *value.shape) for name, value in self.model.items()}
        return self.client_models

    def model_deltas(self) -> dict[str, Tensor]:
        """Deltas of all parameters of the model, ``(V, *shape)`` each.

        Raises:
            ViewError: some of them were not recorded.
        """
        names = self.model if self.client_models is None else self.client_models
        missing = ", ".join(name for name in names if name not in self.deltas)
        if missing:
            raise ViewError(f"expected the deltas of {missing}, got {', '.join(self.deltas)}; record all of them")
        return {name: self.deltas[name] for name in names}

    def noise_scale(self, parameter: str) -> float:
        """Standard deviation of the Gaussian noise that clients add to `parameter`, 0 for none."""
        # Variances of independent noise add up.
        variance = sum(release.noise_scale**2 for release in self.releases if parameter in release.parameters)
        return math.sqrt(variance)

    def clip(self, parameter: str) -> float | None:
        """Smallest L2 norm to which clients clip updates that hold `parameter`, or None."""
        releases = [release for release in self.releases if parameter in release.parameters]
        return min((release.clip for release in releases if release.clip is not None), default=None)

    def clip_factors(self, parameter: str, deltas: Mapping[str, Tensor]) -> Tensor:
        """``(B,)`` factors of at most 1 by which all releases in turn clip `parameter` in deltas ``(B, ...)``."""
        # Only the lengths of parameters in a clip count.
        clipped: set[str] = set()
        for release in self.releases:
            if release.clip is not None:
                clipped |= set(release.parameters)
        squares = {name: delta.flatten(1).square().sum(1) for name, delta in deltas.items() if name in clipped}
        if not squares:
            return torch.ones(len(deltas[parameter]), device=deltas[parameter].device)
        return self.clip_factors_of(parameter, squares)

    def clip_factors_of(self, parameter: str, squares: Mapping[str, Tensor]) -> Tensor:
        """Factors of at most 1 by which all releases in turn clip `parameter` in updates of given lengths.

        Args:
            parameter: a name.
            squares: squared L2 norm of each parameter before the clip, of any shape that they share. Where the
                parameters are clipped together, one name may stand for all of them.
        """
        squares = dict(squares)
        first = next(iter(squares.values()))
        factors = torch.ones(first.shape, device=first.device)
        for release in self.releases:
            of_release = release.clip_factors(squares)
            if of_release is None:
                continue
            if parameter in release.parameters:
                factors = factors * of_release
            # The next release clips what this one has left.
            for name in release.parameters:
                if name in squares:
                    squares[name] = squares[name] * of_release.square()
        return factors

    def missing(self, needs: tuple[Need, ...]) -> list[str]:
        """Those of `needs` that this view does not have: fields, entries such as ``"deltas:PARAMETER"``, or kinds.

        Raises:
            ViewError: no view has a field of that name.
        """
        known_fields: set[str] = set()
        for kind in View.__subclasses__():
            known_fields |= {view_field.name for view_field in fields(kind)}
        absent = []
        for need in needs:
            if isinstance(need, type):
                if not isinstance(self.algorithm, need):
                    absent.append(described_need(need))
                continue
            # "deltas:PARAMETER" needs an entry of a field, "deltas" the field alone.
            name, _, key = need.partition(":")
            if name not in known_fields:
                listed_fields = ", ".join(sorted(known_fields))
                raise ViewError(
                    f"expected needs among the fields of a server view ({listed_fields}); found {need}. Fix `needs` in"
                    " the attack's threat model."
                )
            value: Any = getattr(self, name, None)
            if value is None or (key and key not in value):
                absent.append(need)
        return absent


@dataclass(frozen=True, kw_only=True)
class RoundView(View):
    """What the server saw of some clients in one round.

    Attributes:
        lists: ``(V, R)`` int64 number of the ranked list of each served item; the items are in displayed order, list
            after list; padded with -1. None if nothing is ranked.
        features: ``(V, R, F)`` features of the served items as sent, zero where padded, or None.
        earlier: views of the same victims, in the same order, in earlier rounds, the first one first.

    Example:
        >>> import torch
        >>> from fedleak import RoundView
        >>> view = RoundView(
        ...     round=0,
        ...     pseudonyms=torch.tensor([7, 8]),
        ...     example_counts=torch.tensor([10, 30]),
        ...     deltas={"bias": torch.tensor([[-0.1, 0.3, -0.2], [0.2, -0.1, -0.1]])},
        ...     model={"bias": torch.zeros(3)},
        ... )
        >>> view.victims
        2
        >>> view.select(torch.tensor([1])).deltas["bias"]
        tensor([[ 0.2000, -0.1000, -0.1000]])
    """

    of_victims: ClassVar[tuple[str, ...]] = (*View.of_victims, "lists", "features")

    lists: Tensor | None = None
    features: Tensor | None = None
    earlier: tuple["RoundView", ...] = ()

    def select(self, positions: Tensor) -> Self:
        """Also selects the victims in `earlier`."""
        chosen = super().select(positions)
        if chosen is self:
            return self
        return dataclasses.replace(chosen, earlier=tuple(view.select(positions) for view in self.earlier))


def _cut(value: Any, positions: Tensor) -> Any:
    """Rows of a tensor, of every tensor of a mapping, or None; rows shared by all victims stay shared."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {name: _cut(tensor, positions) for name, tensor in value.items()}
    # A stride of 0: all victims share one row of memory, as after `expand`.
    if value.stride(0) == 0:
        return value[:1].expand(len(positions), *value.shape[1:])
    return value[positions]
