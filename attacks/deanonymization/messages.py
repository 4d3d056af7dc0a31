"""Messages as vectors: the deltas of some layers, flattened, with or without what all users share, of length one."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from attacks.base import ServerView, ViewError
from attacks.deanonymization.estimates import UNSEEN

_ALIKE = 1e-5
"""Distance of two vectors of length one below which they are the same: rounding in float32."""
USERS, HOLDOUT = "users", "holdout"
"""Names in the known devices' auxiliary data of the user of each message, and of whether that user is one whose
messages teach the adversary what strangers are like (section 6.1.2); without the latter none is."""


@dataclass(frozen=True)
class Messages:
    """What the adversary works with.

    Attributes:
        anonymous: ``(V, D)`` vectors of the messages to be named.
        known: ``(P, D)`` vectors of the messages of known devices.
        labels: ``(P,)`` which column of `users` each known message is of.
        users: ``(U,)`` ascending numbers of the known users; `UNSEEN`, first, where the view has a hold-out.
        whole: numbers of a message as it was sent, where the vectors are coordinates in a smaller space; else D.
    """

    anonymous: Tensor
    known: Tensor
    labels: Tensor
    users: Tensor
    whole: int


def known_view(view: ServerView) -> ServerView:
    """What the server saw of its own devices.

    Raises:
        ViewError: it has none.
    """
    if view.known is None or not view.known.victims:
        raise ViewError("expected messages of known devices, got none; the adversary needs data of users beforehand")
    return view.known


def read_messages(view: ServerView, layers: Sequence[str] | None) -> Messages:
    """The vectors of a view, as they are; the hold-out's messages are those of `UNSEEN`.

    Args:
        view: what the server has.
        layers: see `layer_vectors`.

    Raises:
        ViewError: the known messages are zero or all point one way, so that they teach nothing.
    """
    known = known_view(view)
    owners = known.auxiliary[USERS]
    if HOLDOUT in known.auxiliary:
        owners = torch.where(known.auxiliary[HOLDOUT], UNSEEN, owners)
    users, labels = torch.unique(owners, return_inverse=True)
    anonymous, learned = layer_vectors(view, layers), layer_vectors(known, layers)
    _check_different(learned)
    return Messages(anonymous, learned, labels, users, anonymous.shape[1])


def unit(vectors: Tensor) -> Tensor:
    """Each of length one (section 5, "Representing")."""
    return normalize(vectors, dim=1)


def layer_vectors(view: ServerView, layers: Sequence[str] | None) -> Tensor:
    """The deltas of some layers, flattened and joined (section 5, "Representing").

    Args:
        view: what the server saw.
        layers: names of layers, such as ``lstm`` for all parameters ``lstm.*``, or of parameters; None for all.

    Returns:
        ``(V, D)``; of a table that is sent in rows all rows, zero where none was sent.

    Raises:
        ViewError: a layer is not recorded.
    """
    recorded = list(view.deltas)
    for layer in layers or ():
        if not any(_of_layer(name, layer) for name in recorded):
            raise ViewError(f"expected the deltas of layer {layer!r}, got a recording of {', '.join(recorded)}")
    chosen = [name for name in recorded if layers is None or any(_of_layer(name, layer) for layer in layers)]
    return torch.cat([_whole(view, name).flatten(1) for name in chosen], dim=1)


def _check_different(known: Tensor) -> None:
    directions = unit(known)
    if float(torch.linalg.vector_norm(directions - directions[0], dim=1).max()) < _ALIKE:
        raise ViewError(f"expected known messages that differ, got {len(known)} that are zero or all point one way")


def _of_layer(name: str, layer: str) -> bool:
    return name == layer or name.startswith(f"{layer}.")


def _whole(view: ServerView, name: str) -> Tensor:
    delta = view.deltas[name]
    if name not in view.row_parameters:
        return delta
    assert view.served is not None
    whole = delta.new_zeros(len(delta), *view.model[name].shape)
    message, place = view.served_mask.nonzero(as_tuple=True)
    whole[message, view.served[message, place]] = delta[message, place]
    return whole


def seen_only(messages: Messages) -> Messages:
    """Without the hold-out, which belongs to no user."""
    if int(messages.users[0]) != UNSEEN:
        return messages
    kept = messages.labels > 0
    return Messages(
        messages.anonymous, messages.known[kept], messages.labels[kept] - 1, messages.users[1:], messages.whole
    )
