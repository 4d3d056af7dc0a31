"""What known users' devices would send: their data, trained on from the global model of a recorded round."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attacks.base import ServerView, ViewError
from attacks.deanonymization.messages import layer_vectors, unit

FEATURES, LABELS, OWNERS = "prior_features", "prior_labels", "prior_users"
"""Names in the auxiliary data of the adversary's examples ``(M, ...)``, their labels, and their users ``(M,)``."""
PRIOR = (f"auxiliary:{FEATURES}", f"auxiliary:{LABELS}", f"auxiliary:{OWNERS}")
_AT_ONCE = 16
"""Devices simulated together; their whole models are in memory."""


@dataclass(frozen=True)
class Simulated:
    """Deltas that the server made itself.

    Attributes:
        vectors: ``(S, D)`` of length one, less the mean of the round's, which all users share; of length one again.
        users: ``(S,)`` whose data each is of.
    """

    vectors: Tensor
    users: Tensor


def simulated_parts(
    view: ServerView, layers: Sequence[str] | None, *, rounds: int, parts: int, generator: torch.Generator
) -> Simulated:
    """Trains on parts of every user's data, from global models of the recording that are spread evenly over it.

    Several parts of one user's data differ as an anonymous device's data differ from what is known of its user. The
    messages of one device in several rounds do not: its data stay the same.

    Args:
        view: what the server has, with a learner, the global models and the adversary's examples.
        layers: see `layer_vectors`.
        rounds: how many of the recorded rounds.
        parts: devices into which each user's data are cut, in the order in which they were written.
        generator: source of the order of mini-batches.

    Raises:
        ViewError: a user has fewer examples than parts, or no global model is recorded.
    """
    numbers = sorted(view.round_models)
    if not numbers:
        raise ViewError("expected the global models of the recorded rounds, got none")
    owners = view.auxiliary[OWNERS]
    users, counts = torch.unique(owners, return_counts=True)
    if int(counts.min()) < parts:
        raise ViewError(f"expected {parts} examples of every known user, got {int(counts.min())} of one")
    held = [part for user in users for part in torch.tensor_split((owners == user).nonzero().flatten(), parts)]
    chosen = [numbers[int(place)] for place in torch.linspace(0, len(numbers) - 1, min(rounds, len(numbers)))]
    found = [_simulate(view, layers, number, held, generator) for number in chosen]
    own = [unit(unit(vectors) - unit(vectors).mean(0)) for vectors in found]
    return Simulated(torch.cat(own), users.repeat_interleave(parts).repeat(len(found)))


def _simulate(
    view: ServerView, layers: Sequence[str] | None, number: int, held: list[Tensor], generator: torch.Generator
) -> Tensor:
    """``(B, D)`` deltas of devices that hold some examples, those of like size together."""
    order = sorted(range(len(held)), key=lambda place: len(held[place]))
    model, made = view.round_models[number], []
    for start in range(0, len(order), _AT_ONCE):
        some = [held[place] for place in order[start : start + _AT_ONCE]]
        examples = pad_sequence(some, batch_first=True, padding_value=-1)
        deltas = view.example_learner().simulate_examples(
            model, view.auxiliary[FEATURES], view.auxiliary[LABELS], examples, generator=generator
        )
        # In the order of the recording: a model may have its parameters in another.
        recorded = {name: deltas[name] for name in view.deltas}
        made.append(layer_vectors(_dense(view, recorded, len(some)), layers))
    back = torch.tensor(order).argsort()
    return torch.cat(made)[back]


def _dense(view: ServerView, deltas: dict[str, Tensor], count: int) -> ServerView:
    """The deltas as a view of their own, with no table in rows."""
    nobody = torch.arange(count)
    return ServerView(round=view.round, pseudonyms=nobody, example_counts=nobody, deltas=deltas, model=view.model)
