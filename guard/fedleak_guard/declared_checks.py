"""Checks that the main package makes, as policies and logs speak of them.

A policy names them whether fedleak is installed or not, and reading it imports nothing of fedleak. Each class here says
what a policy may choose, and that the check is not made. The plug-in of the same name in `fedleak.guard_checks` extends
it and takes its place.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from fedleak_guard.check import Check, Measurement, NotMadeError
from fedleak_guard.message import Message
from fedleak_guard.own_attack import NOT_INSTALLED, OwnAttack
from fedleak_guard.policy import Action, Policy
from fedleak_recorder.arrays import Array


class OwnRecords(OwnAttack):
    """Training records that the server can solve for."""

    name = "own-records"
    text = "number of training records that the server can solve for (linear-inversion)"


class OwnWords(OwnAttack):
    """Words whose rows of the embedding table move, where others do not."""

    name = "own-words"
    text = "number of words that the server can read off the rows of an embedding table (touched-rows)"


class OwnAdapterWords(OwnAttack):
    """Words that explain the update of low-rank adapters; needs the client's algorithm."""

    name = "own-adapter-words"
    text = "number of words that the server can solve for from the update of adapters (adapter-words)"


class OwnLabelCounts(OwnAttack):
    """Share of the client's examples whose class follows from the change of the last layer.

    It needs the labels, with which the inferred counts are compared. The class counts of a classifier's client follow
    from its update in most trainings without noise, so a finding is logged unless the policy says otherwise.
    """

    name = "own-label-counts"
    text = "share of the examples that the server assigns to the right classes (output-counts)"
    action: ClassVar[Action] = "log"
    most = 0.9


class ReleaseCheck(Check):
    """Findings of release-check: law, scale and resolution of the declared noise, its reuse, and the clip."""

    name = "release-check"
    text = "number of findings of release-check in the message"
    actions: ClassVar[tuple[Action, ...]] = ("refuse", "noise", "log")
    exact = True
    may_lack = True
    limited = True

    @classmethod
    def lacking(cls, policy: Policy) -> str:
        return "privacy.noise" if policy.privacy is None or policy.privacy.noise is None else ""

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if message.sent is None or self.lacking(policy):
            return None
        raise NotMadeError(NOT_INSTALLED)


@dataclass(frozen=True, kw_only=True)
class SimulatedTrainings:
    """Honest trainings that a site simulates with its own records and network.

    Attributes:
        trainings: their number, each from an initialisation of its own.
        rounds: rounds of each.
        clients: clients of each round.
        examples: records of each other client.
        learning_rate: of the clients' SGD.
        epochs: passes over a client's records in a round.
        batch_size: records of a step; None for all.
        seed: of the draws.
    """

    trainings: int
    rounds: int
    clients: int
    examples: int
    learning_rate: float
    epochs: int
    batch_size: int | None
    seed: int = 0


class ReceivedModel(Check):
    """Checks of the received model in `fedleak.defenses.model_checks` whose statistic exceeds its threshold."""

    name = "received-model"
    text = (
        "number of checks of the received model whose statistic exceeds that of honest rounds "
        "(fedleak.defenses.model_checks)"
    )
    exact = True
    may_lack = True

    @classmethod
    def lacking(cls, policy: Policy) -> str:
        return "received.thresholds" if policy.received.thresholds is None else ""

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if message.sent is None:
            return None
        raise NotMadeError(NOT_INSTALLED)

    def honest_rounds(
        self, network: Callable[[], Any], records: Array, labels: Array, simulated: SimulatedTrainings
    ) -> Iterator[dict[str, float]]:
        """Statistics of the received model in each round of simulated honest trainings, to make thresholds from.

        Args:
            network: makes the site's network, with initial weights that it draws.
            records: ``(N, ...)`` the site's records.
            labels: ``(N,)`` their classes.
            simulated: the trainings.

        Raises:
            NotMadeError: no plug-in has the statistics.
        """
        raise NotMadeError(NOT_INSTALLED)
