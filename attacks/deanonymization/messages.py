"""Messages as vectors: the deltas of some layers, flattened, and their coordinates in a smaller space."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from attacks.estimates import UNSEEN
from protocol.view import HOLDOUT, USERS, ServerView, ViewError

_ALIKE = 1e-5
"""Distance of two vectors of length one below which they are the same: rounding in float32."""
_RANK = 1e-10
"""Of the largest eigenvalue, below which a direction is rounding."""


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
        ViewError: the known messages are zero or all point one way, so that nothing can be learned from them.
    """
    known = known_view(view)
    owners = known.priors[USERS]
    if HOLDOUT in known.priors:
        owners = torch.where(known.priors[HOLDOUT], UNSEEN, owners)
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
    known, labels = messages.known[kept], messages.labels[kept] - 1
    return dataclasses.replace(messages, known=known, labels=labels, users=messages.users[1:])


def in_span(training: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates in an orthonormal basis of the span of the training vectors.

    A linear machine, a nearest neighbour or the first layer of a network uses of a vector of a hundred thousand numbers
    only its products with the training vectors, and these stay what they were.

    Args:
        training: ``(P, D)``.
        others: ``(V, D)``; what of them lies outside the span is lost.

    Returns:
        ``(P, R)`` and ``(V, R)`` of the same type, where R is the rank.
    """
    products = _products(training, training)
    values, vectors = torch.linalg.eigh(products)
    kept = values > _RANK * values[-1].clamp(min=torch.finfo(torch.float64).tiny)
    basis = vectors[:, kept] / values[kept].sqrt()
    return (products @ basis).to(training), (_products(others, training) @ basis).to(training)


def _products(left: Tensor, right: Tensor) -> Tensor:
    """In float32 and summed in float64 by blocks, so that no copy in float64 is made of the whole."""
    width = 2**15
    total = torch.zeros(len(left), len(right), dtype=torch.float64)
    for start in range(0, left.shape[1], width):
        block = slice(start, start + width)
        total += left[:, block].double() @ right[:, block].double().T
    return total
