"""Simulated fingerprints: what known users' data would make of the recorded global models, compared with messages."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attacks.deanonymization.messages import Messages, in_span, layer_vectors, read_messages, unit
from attacks.deanonymization.reidentification import IdentityAttack, Reidentification, standardised, svm_scores
from attacks.estimates import UNSEEN, Estimate, IdentityEstimate
from protocol.simulators import ExampleSimulator
from protocol.threat_model import ThreatModel
from protocol.view import ServerView, ViewError
from ranges import PositiveFloat, PositiveInt

FEATURES, LABELS, OWNERS = "prior_features", "prior_labels", "prior_users"
"""Names in the auxiliary data of the adversary's examples ``(M, ...)``, their labels, and their users ``(M,)``."""
_AT_ONCE = 16
"""Devices simulated together; their whole models are in memory."""


@dataclass(frozen=True, kw_only=True)
class FingerprintAttack(IdentityAttack):
    """Linear machine that learns from what known users' data make of the very global models that were sent.

    (1) What all messages share names nobody and is taken out: of the known messages their mean, of simulated ones the
    mean of their round. (2) The server need not wait until a device of its own is sampled: it trains on parts of every
    user's data from recorded global models. Parts of one user's data differ as its two devices' data do, which the
    messages of one device in several rounds do not. (3) Directions in which the parts of a user differ are shortened
    (whitening), so that a machine which is learned from known and simulated messages relies on the others. (4)
    Distances are made probabilities message by message, so that messages compare.

    Threat model: passive server, all rounds; it has data of users and knows how devices train.

    Args:
        layers: whose deltas are taken; None for all that are recorded.
        rounds: recorded rounds from whose global models is simulated.
        parts: AtLeastTwoo which each user's data are cut for it.
        penalty: C of the machine.
        floor: added to the variance of every direction before whitening, as a multiple of their mean.
        sharpness: see `CentredSVM`.
    """

    name = "fingerprint"
    cost = "`rounds` times `parts` simulated trainings per known user"
    threat_model = ThreatModel(
        sees="the deltas of some layers of every message, each round, and the global models",
        knows="the devices' training algorithm, and data of every user beforehand",
        needs=(
            *Reidentification.threat_model.needs,
            "learner:ExampleSimulator",
            *(f"auxiliary:{name}" for name in (FEATURES, LABELS, OWNERS)),
        ),
    )
    linked: ClassVar[bool] = False
    """Whether the evidence of all messages under one pseudonym is summed."""

    layers: Sequence[str] | None = None
    rounds: PositiveInt = 2
    parts: int = 4
    penalty: PositiveFloat = 1.0
    floor: PositiveFloat = 0.3
    sharpness: PositiveFloat = 3.0

    def run(self, view: ServerView, *, generator: torch.Generator) -> Estimate:
        messages = read_messages(view, self.layers)
        single = self.log_probabilities(view, messages, messages.anonymous, generator)
        return IdentityEstimate(scores=self.probabilities(single, view.pseudonyms), users=messages.users)

    def probabilities(self, single: Tensor, pseudonyms: Tensor) -> Tensor:
        """``(V, U)`` probabilities of the users, from the log-probabilities that each message gives by itself."""
        return over_pseudonyms(single, pseudonyms) if self.linked else single.exp()

    def log_probabilities(
        self, view: ServerView, messages: Messages, asked: Tensor, generator: torch.Generator
    ) -> Tensor:
        """``(A, U)`` of the users of `messages`, for vectors ``(A, D)``."""
        simulated, users = simulated_parts(view, self.layers, rounds=self.rounds, parts=self.parts, generator=generator)
        mean = unit(messages.known).mean(0)
        learned, labels = _with_simulated(messages, simulated, users, mean)
        training, others = in_span(learned, unit(unit(asked) - mean))
        own = training[len(messages.known) :]
        shorter = whitening(own, labels[len(messages.known) :], self.floor)
        ready = dataclasses.replace(
            messages, known=unit(training @ shorter), anonymous=unit(others @ shorter), labels=labels
        )
        return standardised(svm_scores(ready, self.penalty, generator), self.sharpness)


class LinkedFingerprint(FingerprintAttack):
    """`FingerprintAttack`, with the evidence of all messages under one pseudonym summed.

    A device keeps its pseudonym over the rounds. What misleads in one of its messages, the order of its mini-batches
    and the state of the model, misleads less in their sum.

    Threat model: that of `FingerprintAttack`, as are the arguments; a device keeps its pseudonym over the rounds.
    """

    name = "fingerprint-linked"
    threat_model = dataclasses.replace(
        FingerprintAttack.threat_model, sees=f"{FingerprintAttack.threat_model.sees}; which messages bear one pseudonym"
    )
    linked = True


def over_pseudonyms(log_probabilities: Tensor, pseudonyms: Tensor) -> Tensor:
    """``(V, U)`` probabilities from the evidence of all messages under a message's pseudonym.

    Args:
        log_probabilities: ``(V, U)`` of each message by itself.
        pseudonyms: ``(V,)``.
    """
    _, place = torch.unique(pseudonyms, return_inverse=True)
    total = log_probabilities.new_zeros(int(place.max()) + 1, log_probabilities.shape[1])
    return total.index_add_(0, place, log_probabilities).softmax(1)[place]


def whitening(vectors: Tensor, labels: Tensor, floor: float) -> Tensor:
    """The inverse root of how vectors of one label vary about their mean.

    Args:
        vectors: ``(S, R)``.
        labels: ``(S,)`` int64.
        floor: see `FingerprintAttack`.

    Returns:
        ``(R, R)``, to multiply vectors with.
    """
    _, place, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    means = vectors.new_zeros(len(counts), vectors.shape[1]).index_add_(0, place, vectors) / counts[:, None]
    rest = (vectors - means[place]).double()
    variances, directions = torch.linalg.eigh(rest.T @ rest / len(rest))
    scales = (variances.clamp(min=0) + floor * variances.mean()).rsqrt()
    shorter: Tensor = (directions * scales) @ directions.T
    return shorter.to(vectors)


def _with_simulated(messages: Messages, simulated: Tensor, users: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Known messages without their shared part, then the simulated ones of the same users; and whose they are.

    Users of the hold-out stand under one name, the first; without a hold-out, a user without messages is left out.
    """
    place = torch.searchsorted(messages.users, users).clamp(max=len(messages.users) - 1)
    found = messages.users[place] == users
    kept = found | (messages.users[0] == UNSEEN)
    labels = torch.where(found, place, 0)[kept]
    vectors = torch.cat([unit(unit(messages.known) - mean), simulated[kept]])
    return vectors, torch.cat([messages.labels, labels])


def simulated_parts(
    view: ServerView, layers: Sequence[str] | None, *, rounds: int, parts: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Trains on parts of every user's data, from global models of the recording that are spread evenly over it.

    Several parts of one user's data differ as an anonymous device's data differ from what is known of its user. The
    messages of one device in several rounds do not: its data stay the same.

    Args:
        view: what the server has, with a learner, the global models and the adversary's examples.
        layers: see `layer_vectors`.
        rounds: how many of the recorded rounds.
        parts: devices into which each user's data are cut, in the order in which they were written.
        generator: source of the order of mini-batches.

    Returns:
        ``(S, D)`` deltas of length one, less the mean of their round's, which all users share, and of length one again;
        and ``(S,)`` whose data each is of.

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
    return torch.cat(own), users.repeat_interleave(parts).repeat(len(found))


def _simulate(
    view: ServerView, layers: Sequence[str] | None, number: int, held: list[Tensor], generator: torch.Generator
) -> Tensor:
    """``(B, D)`` deltas of devices that hold some examples, those of like size together."""
    order = sorted(range(len(held)), key=lambda place: len(held[place]))
    model, made = view.round_models[number], []
    for start in range(0, len(order), _AT_ONCE):
        some = [held[place] for place in order[start : start + _AT_ONCE]]
        examples = pad_sequence(some, batch_first=True, padding_value=-1)
        deltas = view.require(ExampleSimulator).simulate_examples(
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
