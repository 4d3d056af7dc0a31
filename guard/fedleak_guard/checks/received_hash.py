"""Hashes of the received model against the policy's."""

from fnmatch import fnmatchcase

from fedleak_guard.check import Check, Measurement, NotMadeError
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
        if rules.first_round is not None or rules.frozen:
            return ""
        return "received.first_round"

    def concerns(self, message: Message, policy: Policy, *, first: bool) -> bool:
        is_asked = (first and policy.received.first_round is not None) or bool(policy.received.frozen)
        return message.sent is not None and is_asked

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if not self.concerns(message, policy, first=first):
            return None
        if message.received is None:
            raise NotMadeError("the received model is unknown")
        rules = policy.received
        faults = []
        if first and rules.first_round is not None:
            model_hash = tensors_hash(message.model)
            if model_hash not in rules.first_round:
                faults.append(f"the first model has the hash {model_hash}")
        if rules.frozen:
            frozen = {}
            for name, value in message.model.items():
                if any(fnmatchcase(name, pattern) for pattern in rules.frozen):
                    frozen[name] = value
            frozen_hash = tensors_hash(frozen)
            if frozen_hash not in rules.frozen_hashes:
                faults.append(f"{len(frozen)} frozen tensors have the hash {frozen_hash}")
        sentence = f"{'; '.join(faults)}, which the policy does not list"
        return Measurement(value=len(faults), found=bool(faults), limit=0, sentence=sentence)
