"""Hashes of the received model against the policy's."""

from fnmatch import fnmatchcase

from fedleak_guard.check import Check, Measured, NotMadeError
from fedleak_guard.message import Message, tensors_hash
from fedleak_guard.policy import Policy


class ReceivedHash(Check):
    """Hash of the model of a job's first round, and of frozen tensors in every round, that the policy does not list.

    A later round's model is a mean of updates, so that no hash of it can be listed; what it may not contain is the
    question of the checks of the received model.
    """

    name = "received-hash"
    text = "number of hashes of the received model that are not in the policy"

    @classmethod
    def lacking(cls, policy: Policy) -> str:
        rules = policy.received
        return "" if rules.first_round is not None or rules.frozen else "received.first_round"

    def concerns(self, message: Message, policy: Policy, *, first: bool) -> bool:
        is_asked = (first and policy.received.first_round is not None) or bool(policy.received.frozen)
        return message.sent is not None and is_asked

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        rules, wrong = policy.received, []
        if not self.concerns(message, policy, first=first):
            return None
        if message.received is None:
            raise NotMadeError("the received model is unknown")
        if first and rules.first_round is not None:
            found = tensors_hash(message.model)
            wrong += [] if found in rules.first_round else [f"the first model has the hash {found}"]
        if rules.frozen:
            names = [name for name in message.model if any(fnmatchcase(name, one) for one in rules.frozen)]
            found = tensors_hash({name: message.model[name] for name in names})
            wrong += [] if found in rules.frozen_hashes else [f"{len(names)} frozen tensors have the hash {found}"]
        sentence = f"{'; '.join(wrong)}, which the policy does not list"
        return Measured(value=len(wrong), found=bool(wrong), limit=0, sentence=sentence)
