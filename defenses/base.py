"""What a client does to protect itself: a penalty while it trains, a change of the update before it is sent."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from protocol.view import Release, ServerView


@dataclass
class Update:
    """The deltas of several clients.

    Attributes:
        deltas: by parameter; ``(C, *shape)``, or ``(C, R, *row_shape)`` for the names in `rows` (zero where padded).
        rows: by row parameter, ``(C, R)`` int64 row numbers, padded with -1. All other rows are zero.
        background_scale: by row parameter, standard deviation of the noise on every number of the rows that are *not*
            in `rows`. That noise is independent of everything, so it is drawn once for the cohort's weighted sum, with
            exactly the law of the sum of the clients' draws.
        sent: ``(C,)`` True for the clients that send, None for all; who does not has a zero update and no weight.
        clients: ``(C,)`` their numbers, None where they do not matter.
    """

    deltas: dict[str, Tensor]
    rows: dict[str, Tensor] = field(default_factory=dict)
    background_scale: dict[str, float] = field(default_factory=dict)
    sent: Tensor | None = None
    clients: Tensor | None = None

    def row_mask(self, parameter: str) -> Tensor:
        """Mask of the real rows, shaped to multiply ``deltas[parameter]``."""
        delta = self.deltas[parameter]
        return (self.rows[parameter] >= 0).reshape(*delta.shape[:2], *[1] * (delta.dim() - 2))


def hold_back(update: Update, sent: Tensor) -> Update:
    """The update with nothing of the clients that do not send.

    Args:
        update: what would be sent.
        sent: ``(C,)`` True for the clients that send, if they did so before.
    """
    if update.sent is not None:
        sent = sent & update.sent
    deltas = {
        name: value * sent.reshape(-1, *[1] * (value.dim() - 1)).to(value) for name, value in update.deltas.items()
    }
    return dataclasses.replace(update, deltas=deltas, sent=sent)


def with_whole_tables(update: Update, names: Collection[str], model: Mapping[str, Tensor]) -> Update:
    """The update with some row parameters as whole tables, zero in the rows that a client did not train.

    Args:
        update: the clients' deltas.
        names: which of ``update.rows``.
        model: the global model, for the shapes of the tables.
    """
    deltas, rows = dict(update.deltas), dict(update.rows)
    for name in names:
        own = rows.pop(name)
        client, place = (own >= 0).nonzero(as_tuple=True)
        whole = deltas[name].new_zeros(len(own), *model[name].shape)
        whole[client, own[client, place]] = deltas[name][client, place]
        deltas[name] = whole
    return dataclasses.replace(update, deltas=deltas, rows=rows)


OwnView = Callable[[Update], tuple[ServerView, Tensor]]
"""What the server will see of an update, and ``(C, R)`` the clients' own interactions with what they were served."""


class Defense:
    """A client's defence. A subclass overrides what it does; its constructor arguments are its hyper-parameters."""

    joint: ClassVar[bool] = False
    """Whether it works on all clients of a round together, which are then never taken apart to save memory."""

    def placed(self, before: Sequence["Defense"]) -> None:
        """Learns which defences change an update before this one does; called when the learner is built.

        Args:
            before: in their order.
        """

    def prepare(self, known: Tensor | None) -> None:
        """Called before the first round of a training.

        Args:
            known: ``(num_clients,)`` True for the adversary's own devices; None where the data have no such devices.
        """

    def penalty(
        self, parameters: Mapping[str, Tensor], received: Mapping[str, Tensor], elements: Mapping[str, Tensor]
    ) -> Tensor | None:
        """A term added to every client's local loss.

        Args:
            parameters: the clients' current public parameters, ``(C, ...)`` each; a row parameter holds the client's
                rows only, and padded rows equal those received.
            received: the same parameters as the server sent them.
            elements: ``(C,)`` how many numbers of each public parameter a client trains; of a row parameter, those of
                its own rows, padding left out.

        Returns:
            ``(C,)`` penalties, or None for none.
        """
        return None

    def willing(self, received: Mapping[str, Tensor], clients: Tensor) -> Tensor | None:
        """Which clients train at all on what the server sent; the others send nothing, and nothing of theirs changes.

        Args:
            received: the public parameters as the server sent them.
            clients: ``(C,)`` their numbers.

        Returns:
            ``(C,)`` bool, or None for all.
        """
        return None

    def protect(self, update: Update, generators: Callable[[int], torch.Generator]) -> Update:
        """Changes the update before it is sent.

        Args:
            update: the clients' deltas. What is returned keeps every field that the defence does not change
                (`dataclasses.replace`).
            generators: the random generator of the client at a position in the cohort: the same object whenever it is
                asked for, so that two parameters, or two defences, never draw the same noise.
        """
        return update

    def seen(self, update: Update) -> tuple[Update, Tensor | None]:
        """What the server sees of what is sent; what it learns from stays the same.

        Args:
            update: the clients' deltas as sent.

        Returns:
            The update seen, with every field cut to the same clients, and the positions in the cohort ``(V,)`` of the
            clients that its rows are about; None for all clients.
        """
        return update, None

    def review(self, update: Update, own_view: OwnView, generators: Callable[[int], torch.Generator]) -> Update:
        """Decides whether to send, once all defences have protected the update.

        Args:
            update: what would be sent.
            own_view: what the clients know, made when it is asked for.
            generators: the random generator of the client at a position in the cohort.
        """
        return update

    def noises_whole(self, parameters: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the public `parameters` of which every number is noised, rows that a client did not train too."""
        return ()

    def releases(self, parameters: tuple[str, ...]) -> tuple[Release, ...]:
        """What is public about this defence, given the names of the public parameters."""
        return ()
