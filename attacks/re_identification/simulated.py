"""Simulated messages: deltas of devices that hold parts of the known users' data, from the recorded global models."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedleak.attacks.re_identification.estimates import UNSEEN
from fedleak.attacks.re_identification.messages import layer_vectors
from fedleak.client.algorithm import ExampleAlgorithm
from fedleak.core.errors import ViewError
from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from fedleak.core.threat_model import Need
from fedleak.core.view import RoundView

FEATURES, LABELS, OWNERS = "prior_features", "prior_labels", "prior_users"
"""Names of the adversary's examples ``(M, ...)``, their labels and their users ``(M,)`` in the auxiliary data."""
NEEDS: tuple[Need, ...] = (ExampleAlgorithm, *(f"auxiliary:{name}" for name in (FEATURES, LABELS, OWNERS)))
"""What a simulation needs of a view."""
PARTS = 4
"""Default number of parts into which each user's data are split."""
_AT_ONCE = 16
"""Devices simulated together, with their whole models in memory."""


@dataclass(frozen=True)
class SimulatedMessages:
    """Messages of simulated devices.

    Attributes:
        vectors: ``(S, D)`` flattened deltas.
        users: ``(S,)`` user of each.
        counts: ``(S,)`` number of examples of each.
        rounds: number of global models; each has the same S / rounds devices, in the same order.
    """

    vectors: Tensor
    users: Tensor
    counts: Tensor
    rounds: int

    def centred(self) -> Tensor:
        """``(S, D)`` vectors minus the mean of their round."""
        by_round = self.vectors.reshape(self.rounds, -1, self.vectors.shape[1])
        return (by_round - by_round.mean(1, keepdim=True)).flatten(0, 1)

    def over_steps(self, learner: ExampleAlgorithm) -> "SimulatedMessages":
        """The mean vectors per local step."""
        return dataclasses.replace(self, vectors=self.vectors / learner.steps(self.counts)[:, None])

    def places(self, users: Tensor) -> tuple[Tensor, Tensor]:
        """``(S,)`` column of each message's user among ``users (U,)``, and True for the messages to use.

        Users who are not among them belong to the hold-out (column 0) or, without a hold-out, are left out.
        """
        place = torch.searchsorted(users, self.users).clamp(max=len(users) - 1)
        found = users[place] == self.users
        return torch.where(found, place, 0), found | (users[0] == UNSEEN)


def simulated_parts(view: History, layers: Sequence[str] | None, *, rounds: int, parts: int) -> SimulatedMessages:
    """Deltas of simulated devices that hold parts of a user's data, from global models over the whole recording.

    There are `rounds` global models, evenly spaced, and each user's data are split into `parts`, in their recorded
    order. The order of mini-batches is a function of the round alone, so all attacks on a view share the simulated
    messages.

    Raises:
        ViewError: the view lacks `NEEDS`, a user has fewer examples than parts, or no global model is recorded.
    """
    missing = view.missing(NEEDS)
    if missing:
        raise ViewError(f"expected {', '.join(missing)} for simulated messages, which this recording does not have")
    chosen_layers = None if layers is None else tuple(layers)
    key = "simulated messages", chosen_layers, rounds, parts
    return view.shared.value(key, lambda: _simulated(view, chosen_layers, rounds, parts))


def _simulated(view: History, layers: Sequence[str] | None, rounds: int, parts: int) -> SimulatedMessages:
    numbers = sorted(view.round_models)
    if not numbers:
        raise ViewError("expected the global models of the recorded rounds, got none")
    owners = view.auxiliary[OWNERS]
    users, counts = torch.unique(owners, return_counts=True)
    if int(counts.min()) < parts:
        raise ViewError(f"expected {parts} examples of every known user, got {int(counts.min())} of one")
    held = [part for user in users for part in torch.tensor_split((owners == user).nonzero().flatten(), parts)]
    chosen = [numbers[int(place)] for place in torch.linspace(0, len(numbers) - 1, min(rounds, len(numbers)))]
    vectors = torch.cat([_simulate(view, layers, number, held) for number in chosen])
    sizes = torch.tensor([len(part) for part in held]).repeat(len(chosen))
    return SimulatedMessages(vectors, users.repeat_interleave(parts).repeat(len(chosen)), sizes, len(chosen))


def _simulate(view: History, layers: Sequence[str] | None, number: int, held: list[Tensor]) -> Tensor:
    """``(B, D)`` deltas of devices that hold given examples; devices of similar size are simulated together."""
    order = sorted(range(len(held)), key=lambda place: len(held[place]))
    model, made = view.round_models[number], []
    generator = generator_for(0, "simulated devices", number)
    for start in range(0, len(order), _AT_ONCE):
        some = [held[place] for place in order[start : start + _AT_ONCE]]
        examples = pad_sequence(some, batch_first=True, padding_value=-1)
        deltas = view.require(ExampleAlgorithm).simulate_examples(
            model, view.auxiliary[FEATURES], view.auxiliary[LABELS], examples, generator=generator
        )
        # In the order of the recording, which may differ from the model's.
        recorded, ids = {name: deltas[name] for name in view.deltas}, torch.arange(len(some))
        dense = RoundView(round=number, pseudonyms=ids, example_counts=ids, deltas=recorded, model=model)
        made.append(layer_vectors(dense, layers))
    return torch.cat(made)[torch.tensor(order).argsort()]
