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
        column = torch.searchsorted(users, self.users).clamp(max=len(users) - 1)
        is_known = users[column] == self.users
        has_holdout = users[0] == UNSEEN
        return torch.where(is_known, column, 0), is_known | has_holdout


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
    chosen_layers = None
    if layers is not None:
        chosen_layers = tuple(layers)
    key = "simulated messages", chosen_layers, rounds, parts
    return view.shared.value(key, lambda: _simulated(view, chosen_layers, rounds, parts))


def _simulated(view: History, layers: Sequence[str] | None, rounds: int, parts: int) -> SimulatedMessages:
    recorded_rounds = sorted(view.round_models)
    if not recorded_rounds:
        raise ViewError("expected the global models of the recorded rounds, got none")
    owners = view.auxiliary[OWNERS]
    users, counts = torch.unique(owners, return_counts=True)
    if int(counts.min()) < parts:
        raise ViewError(f"expected {parts} examples of every known user, got {int(counts.min())} of one")
    # Examples of each device: a part of a user's, in their order.
    examples_of: list[Tensor] = []
    for user in users:
        examples_of_user = (owners == user).nonzero().flatten()
        examples_of += torch.tensor_split(examples_of_user, parts)
    # Rounds evenly spaced over the recording.
    count = min(rounds, len(recorded_rounds))
    positions = torch.linspace(0, len(recorded_rounds) - 1, count)
    chosen = [recorded_rounds[int(position)] for position in positions]
    vectors = [_simulate(view, layers, round_number, examples_of) for round_number in chosen]
    sizes = torch.tensor([len(examples) for examples in examples_of])
    return SimulatedMessages(
        vectors=torch.cat(vectors),
        users=users.repeat_interleave(parts).repeat(count),
        counts=sizes.repeat(count),
        rounds=count,
    )


def _simulate(view: History, layers: Sequence[str] | None, round_number: int, examples_of: list[Tensor]) -> Tensor:
    """``(B, D)`` deltas of devices that hold given examples; devices of similar size are simulated together."""
    by_size = sorted(range(len(examples_of)), key=lambda device: len(examples_of[device]))
    model = view.round_models[round_number]
    generator = generator_for(0, "simulated devices", round_number)
    vectors = []
    for start in range(0, len(by_size), _AT_ONCE):
        some = [examples_of[device] for device in by_size[start : start + _AT_ONCE]]
        examples = pad_sequence(some, batch_first=True, padding_value=-1)
        deltas = view.require(ExampleAlgorithm).simulate_examples(
            model,
            view.auxiliary[FEATURES],
            view.auxiliary[LABELS],
            examples,
            generator=generator,
        )
        # In the order of the recording, which may differ from the model's.
        recorded = {name: deltas[name] for name in view.deltas}
        ids = torch.arange(len(some))
        dense = RoundView(round=round_number, pseudonyms=ids, example_counts=ids, deltas=recorded, model=model)
        vectors.append(layer_vectors(dense, layers))
    # Back in the order of the devices.
    return torch.cat(vectors)[torch.tensor(by_size).argsort()]
