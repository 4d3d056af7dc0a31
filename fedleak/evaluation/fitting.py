"""Which attacks a recording has the data for, before any of them runs."""

from collections.abc import Sequence

from torch import Tensor

from fedleak.client.algorithm import ClientAlgorithm
from fedleak.core.attack import Attack
from fedleak.core.errors import InputError
from fedleak.core.history import History
from fedleak.core.seeding import generator_for
from fedleak.evaluation.audit_plan import attack_key
from fedleak.evaluation.drawn_victims import MANY, messages_of_few
from fedleak.evaluation.failures import unfit, unreadable
from fedleak.evaluation.message_selection import MessageSelection, client_truth, message_truth, selected
from fedleak.evaluation.reasons import Reason
from fedleak.recordings.joined_view import joined_view, messages_view
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording


def misfits(recording: Recording, attacks: Sequence[Attack]) -> dict[str, Reason]:
    """Reason by ``family/name`` of the attacks that lack something in the first two rounds of a recording.

    Attacks that are left may still find that they cannot read the network's layers.
    """
    learner = recorded_learner(recording)
    rounds = recording.rounds[:2]
    first = next(recording.views(victims_per_view=1, rounds=rounds, learner=learner))
    reasons: dict[str, Reason | None] = {}
    for attack in attacks:
        if attack.view is not History:
            reasons[attack_key(attack)] = unfit(attack, first, recording.truth(first))
    for group in of_devices_and_clients(attacks):
        try:
            view, truth = together(recording, group, MessageSelection(), learner=learner, rounds=rounds, seed=0)
            for attack in group:
                reasons[attack_key(attack)] = unfit(attack, view, truth)
        except InputError as error:
            for attack in group:
                reasons[attack_key(attack)] = unreadable(recording, group, error)
    return {key: reason for key, reason in reasons.items() if reason is not None}


def of_devices_and_clients(attacks: Sequence[Attack]) -> list[list[Attack]]:
    """The attacks on all messages: those that know devices of the adversary's own, and the others; none is empty."""
    of_devices: list[Attack] = []
    of_clients: list[Attack] = []
    for attack in attacks:
        if attack.view is History:
            knows_devices = bool({"known", "pairs"} & {*attack.threat_model.needs})
            group = of_devices if knows_devices else of_clients
            group.append(attack)
    return [group for group in (of_devices, of_clients) if group]


def together(
    recording: Recording,
    group: Sequence[Attack],
    messages: MessageSelection,
    *,
    learner: ClientAlgorithm | None,
    rounds: Sequence[int] | None,
    seed: int,
    victims: int | None = None,
) -> tuple[History, dict[str, Tensor]]:
    """View and ground truth of all messages for a group of `of_devices_and_clients`; see `messages_of_few`.

    Raises:
        InputError: the adversary has no devices, or the selection leaves no message.
    """
    needs: set[str | type] = set()
    truth_names: set[str] = set()
    for attack in group:
        needs.update(attack.threat_model.needs)
        truth_names.update(attack.estimates.truth)
    if {"known", "pairs"} & needs:
        view = joined_view(recording, learner=learner, rounds=rounds)
        return selected(view, message_truth(recording, view), messages, seed=seed)
    view = messages_view(recording, learner=learner, rounds=rounds)
    if victims is not None and view.victims > MANY:
        people = client_truth(recording, view, ["clients"]).get("clients", view.pseudonyms)
        view = messages_of_few(view, people, victims, generator=generator_for(seed, "people"))
    return view, client_truth(recording, view, truth_names)
