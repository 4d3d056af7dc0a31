"""Messages as vectors: flattened deltas of some layers, and their coordinates in a smaller space.

References:
    [Orekondy18], section 5, "Representing".
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedleak.attacks.re_identification.estimates import UNSEEN
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.view import HOLDOUT, USERS, View

_ALIKE = 1e-5
"""Distance below which two unit vectors are considered equal (float32 rounding)."""


@dataclass(frozen=True)
class Messages:
    """Vectors of the anonymous and of the known messages.

    Attributes:
        anonymous: ``(V, D)`` messages to identify.
        known: ``(P, D)`` messages of known devices.
        labels: ``(P,)`` column of `users` of each known message.
        users: ``(U,)`` known users, ascending; `UNSEEN`, first, if the view has a hold-out.
        whole: length of a message as sent, if the vectors are coordinates in a smaller space; else D.
    """

    anonymous: Tensor
    known: Tensor
    labels: Tensor
    users: Tensor
    whole: int


def known_view(view: History) -> History:
    """What the server saw of its own devices.

    Raises:
        ViewError: it has none.
    """
    if view.known is None or not view.known.victims:
        raise ViewError("expected messages of known devices, got none; the adversary needs devices of its own")
    return view.known


def owners_of(devices: History) -> Tensor:
    """``(P,)`` users of known devices; those of the hold-out belong to `UNSEEN`."""
    owners = devices.priors[USERS]
    if HOLDOUT not in devices.priors:
        return owners
    return torch.where(devices.priors[HOLDOUT], UNSEEN, owners)


def read_messages(view: History, layers: Sequence[str] | None) -> Messages:
    """The message vectors of a view (`layer_vectors`); messages of hold-out devices belong to `UNSEEN`."""
    known_devices = known_view(view)
    users, labels = torch.unique(owners_of(known_devices), return_inverse=True)
    anonymous = layer_vectors(view, layers)
    learned = layer_vectors(known_devices, layers)
    check_known(learned)
    return Messages(anonymous, learned, labels, users, anonymous.shape[1])


def check_known(vectors: Tensor) -> None:
    """Raises `ViewError` if known messages ``(P, D)`` are zero or all have the same direction."""
    directions = unit(vectors)
    distances = torch.linalg.vector_norm(directions - directions[0], dim=1)
    if float(distances.max()) < _ALIKE:
        raise ViewError(f"expected known messages that differ, got {len(vectors)} that are zero or all point one way")


def unit(vectors: Tensor) -> Tensor:
    """The vectors ``(V, D)``, normalised to length one."""
    return normalize(vectors, dim=1)


def layer_vectors(view: View, layers: Sequence[str] | None) -> Tensor:
    """``(V, D)`` flattened and concatenated deltas of some layers; rows of a table that were not sent are zero.

    `layers` are names of layers, e.g. ``lstm`` for all parameters ``lstm.*``, or of parameters; None for all.

    Raises:
        ViewError: a layer is not recorded.
    """
    recorded = list(view.deltas)
    for layer in layers or ():
        if not any(_of_layer(name, layer) for name in recorded):
            raise ViewError(f"expected the deltas of layer {layer!r}, got a recording of {', '.join(recorded)}")
    vectors = [whole_table(view, name).reshape(view.victims, -1) for name in _chosen(view, layers)]
    return torch.cat(vectors, dim=1)


def noise_scales(view: View, layers: Sequence[str] | None) -> Tensor:
    """``(D,)`` standard deviation of the declared noise on each coordinate of `layer_vectors`."""
    chosen = _chosen(view, layers)
    widths = [view.model[name].numel() for name in chosen]
    return torch.tensor([view.noise_scale(name) for name in chosen]).repeat_interleave(torch.tensor(widths))


def class_means(vectors: Tensor, labels: Tensor, classes: int) -> Tensor:
    """``(U, D)`` means of vectors ``(S, D)`` by label ``(S,)``; zero without any."""
    sums = vectors.new_zeros(classes, vectors.shape[1]).index_add_(0, labels, vectors)
    means: Tensor = sums / labels.bincount(minlength=classes).clamp(min=1)[:, None]
    return means


def mean_over_pseudonyms(values: Tensor, pseudonyms: Tensor) -> Tensor:
    """``(V, D)`` mean of the values ``(V, D)`` of all messages under the pseudonym ``(V,)`` of each."""
    names, device = torch.unique(pseudonyms, return_inverse=True)
    return class_means(values, device, len(names))[device]


def round_means(values: Tensor, known_devices: History, view: History) -> Tensor:
    """``(V, ...)`` mean of the known messages' values ``(P, ...)`` in the round of each message of the view.

    The mean over all rounds counts as one more message of each round.
    """
    mean_of_all = values.mean(0)
    sent_in = torch.cat([known_devices.sent_in, view.sent_in])
    rounds, round_numbers = torch.unique(sent_in, return_inverse=True)
    round_of_known, round_of_query = round_numbers.split([known_devices.victims, view.victims])
    sums = mean_of_all.repeat(len(rounds), 1).index_add_(0, round_of_known, values)
    counts = 1 + round_of_known.bincount(minlength=len(rounds))
    means: Tensor = sums / counts[:, None]
    return means[round_of_query]


def _chosen(view: View, layers: Sequence[str] | None) -> list[str]:
    """Names of the parameters of some layers, in the order of the recording."""
    if layers is None:
        return list(view.deltas)
    return [name for name in view.deltas if any(_of_layer(name, layer) for layer in layers)]


def _of_layer(name: str, layer: str) -> bool:
    return name == layer or name.startswith(f"{layer}.")


def whole_table(view: View, name: str) -> Tensor:
    """``(V, *shape)`` deltas of a parameter; rows of a table that a client does not send are zero."""
    delta = view.deltas[name]
    if name not in view.row_parameters:
        return delta
    table = delta.new_zeros(len(delta), *view.model[name].shape)
    message, column = view.served_mask.nonzero(as_tuple=True)
    table[message, view.served_items[message, column]] = delta[message, column]
    return table


def seen_only(messages: Messages) -> Messages:
    """The messages without those of hold-out devices."""
    if int(messages.users[0]) != UNSEEN:
        return messages
    # The hold-out has the first column.
    is_of_user = messages.labels > 0
    return dataclasses.replace(
        messages,
        known=messages.known[is_of_user],
        labels=messages.labels[is_of_user] - 1,
        users=messages.users[1:],
    )
