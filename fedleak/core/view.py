"""The server view, all that an attack is given: what the server sees of its clients."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from torch import Tensor

from fedleak.core.errors import ViewError
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
CANARY_PLUS, CANARY_MINUS = "canary/plus/", "canary/minus/"
"""Priors by parameter: a canary's update before the clip in the worlds +1 and -1, zero for other clients. Without the
second, the worlds are opposite."""
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
"""Last parts of the names of batch-norm statistics, which a client sends if it sends its whole state."""
_Kind = TypeVar("_Kind")


def is_statistic(name: str) -> bool:
    """Whether a tensor of the model is a running statistic of a batch norm, which no gradient changes."""
    return name.rpartition(".")[2] in STATISTICS


@dataclass(frozen=True, kw_only=True)
class Release:
    """What the clients publicly do to their deltas before sending.

    Attributes:
        clip: L2 norm to which the parameters are clipped, or None.
        noise_scale: standard deviation of the Gaussian noise on each number, 0 for none.
        parameters: names of the parameters that are clipped and noised together.
        own_devices: whether the server's own devices do it too.
        epsilon: epsilon of one send, as the clients declare it; None if they declare none.
        delta: its delta.
        neighbours: two data sets that epsilon makes hard to tell apart: ``replace``, a client's whole data and any
            other, whose clipped updates are up to 2 * `clip` apart; ``add``, with the client and without, up to `clip`.
        bits: mean number of bits that a number of the message can carry, by the count of possible messages: log2 of
            that count, less 64 for what all numbers have in common, over their number; None for any float.
        participants: number of clients whose updates the server gets as one sum. Above 1, the release is what the
            others add to a client's message: `noise_scale` is that of the sum of their noise.
    """

    clip: float | None = None
    noise_scale: float = 0.0
    parameters: tuple[str, ...] = ()
    own_devices: bool = True
    epsilon: float | None = None
    delta: float | None = None
    neighbours: Literal["replace", "add"] = "replace"
    bits: float | None = None
    participants: int = 1

    def clip_factors(self, squares: Mapping[str, Tensor]) -> Tensor | None:
        """Factors of at most 1 by which the release clips its parameters; None without a clip.

        Args:
            squares: squared L2 norm of each parameter before the clip, of any shape that they share, such as ``(B,)``;
                parameters without one do not count.
        """
        squares_of_clipped = [squares[name] for name in self.parameters if name in squares]
        if self.clip is None or not squares_of_clipped:
            return None
        norms = torch.stack(squares_of_clipped).sum(0).clamp(min=1e-24).sqrt()
        return (self.clip / norms).clamp(max=1)

    def described(self) -> dict[str, Any]:
        """The release in the manifest of a recording, without optional entries at their defaults."""
        optional = {one.name: one.default for one in fields(self)[3:]}
        kept = {name: value for name in optional if (value := getattr(self, name)) != optional[name]}
        return {"clip": self.clip, "noise_scale": self.noise_scale, "parameters": list(self.parameters), **kept}


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
        *(
            "pseudonyms",
            "example_counts",
            "deltas",
            "served",
            "client_models",
            "updates",
            "priors",
            "messages",
            "participants",
        ),
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
        if not isinstance(self.algorithm, kind):
            found = "none" if self.algorithm is None else type(self.algorithm).__name__
            raise ViewError(f"expected the clients' algorithm, of the kind {kind.__name__}, got {found}")
        return self.algorithm

    def select(self, positions: Tensor) -> Self:
        """The view of the victims at ``positions (W,)``, in this order; the only way to select victims."""
        if len(positions) == self.victims and bool((positions == torch.arange(self.victims)).all()):
            return self
        return dataclasses.replace(self, **{name: _cut(getattr(self, name), positions) for name in self.of_victims})

    def distinct_messages(self) -> tuple[Tensor, Tensor]:
        """Positions ``(M,)`` of one victim for each message, and which of these messages ``(V,)`` is each victim's.

        They differ from all victims only for sums, each of which is listed for several participants.
        """
        if self.participants is None:
            return torch.arange(self.victims), torch.arange(self.victims)
        groups, place = torch.unique(self.participants, dim=0, return_inverse=True)
        return torch.stack([(place == number).nonzero()[0, 0] for number in range(len(groups))]), place

    def common(self) -> dict[str, Any]:
        """The fields that views of a round and of several have, by name, to make one of the other."""
        return {one.name: getattr(self, one.name) for one in fields(View) if one.init}

    def sent_models(self) -> Mapping[str, Tensor]:
        """The model that each client received, by parameter ``(V, *shape)``."""
        if self.client_models is not None:
            return self.client_models
        return {name: value.expand(self.victims, *value.shape) for name, value in self.model.items()}

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
        return math.sqrt(sum(r.noise_scale**2 for r in self.releases if parameter in r.parameters))

    def clip(self, parameter: str) -> float | None:
        """Smallest L2 norm to which clients clip updates that hold `parameter`, or None."""
        clips = [r.clip for r in self.releases if parameter in r.parameters and r.clip is not None]
        return min(clips) if clips else None

    def clip_factors(self, parameter: str, deltas: Mapping[str, Tensor]) -> Tensor:
        """``(B,)`` factors of at most 1 by which all releases in turn clip `parameter` in deltas ``(B, ...)``."""
        clipped = {name for release in self.releases if release.clip is not None for name in release.parameters}
        squares = {name: value.flatten(1).square().sum(1) for name, value in deltas.items() if name in clipped}
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
        known = {field.name for kind in View.__subclasses__() for field in fields(kind)}
        absent = []
        for need in needs:
            if isinstance(need, type):
                absent += [] if isinstance(self.algorithm, need) else [described_need(need)]
                continue
            head, _, key = need.partition(":")
            if head not in known:
                raise ViewError(
                    f"expected needs among the fields of a server view ({', '.join(sorted(known))}); found {need}. Fix"
                    " `needs` in the attack's threat model."
                )
            value: Any = getattr(self, head, None)
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


def features_of(items: Tensor, served: Tensor) -> Tensor:
    """``(V, R, F)`` features of ``served (V, R)`` among ``items (I, F)``, stored once if all are equal."""
    alike = len(served) > 0 and bool((served == served[:1]).all())
    own = served[:1] if alike else served
    features = items[own.clamp(min=0)] * (own >= 0)[..., None]
    return features.expand(len(served), -1, -1) if alike else features


def _cut(value: Any, positions: Tensor) -> Any:
    """Rows of a tensor, of every tensor of a mapping, or None; rows shared by all victims stay shared."""
    if isinstance(value, Mapping):
        return {name: _cut(tensor, positions) for name, tensor in value.items()}
    if value is not None and value.stride(0) == 0:
        return value[:1].expand(len(positions), *value.shape[1:])
    return None if value is None else value[positions]
