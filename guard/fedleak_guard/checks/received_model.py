"""Checks of the received model that the main package has."""

from pathlib import Path

from fedleak_guard.check import Check, Measured, NotMadeError
from fedleak_guard.earlier_round import earlier_round
from fedleak_guard.message import Message
from fedleak_guard.model_statistics import chosen_records, model_statistics
from fedleak_guard.own_data import network_of
from fedleak_guard.policy import Policy
from fedleak_guard.thresholds import RECORDS, TENSORS, read_thresholds, tensors_of


class ReceivedModel(Check):
    """Checks of the received model in `defenses.model_checks` whose statistic exceeds its threshold.

    The thresholds are those of honest rounds of the same network, see `fedleak_guard.thresholds`. A check of these that
    lacks what it reads makes the whole one not made, unless another has a finding.
    """

    name = "received-model"
    text = (
        "number of checks of the received model whose statistic exceeds that of honest rounds (defenses.model_checks)"
    )
    exact = True
    may_lack = True

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        if message.sent is None:
            return None
        rules = policy.received
        if not rules.is_compared:
            raise NotMadeError("the policy has no received.thresholds, which `fedleak-guard calibrate` makes")
        if message.received is None:
            raise NotMadeError("the received model is unknown")
        own, earlier = chosen_records(message.records, message.labels), earlier_round(policy, message.job)
        found = model_statistics(message.model, earlier=earlier, own=own, network=network_of(message))
        records, tensors = 0 if own is None else len(own[0]), tensors_of(message.model)
        logged = {**found, RECORDS: records, TENSORS: tensors}
        if rules.thresholds is None:
            reason = "the policy has no received.thresholds; the statistics are in the log, to calibrate from"
            raise NotMadeError(reason, logged)
        limits = read_thresholds(Path(rules.thresholds))
        if (limits.tensors, limits.records) != (tensors, records):
            reason = f"the thresholds are those of {limits.records} records and of another model, or one of the two"
            raise NotMadeError(reason, logged)
        above = [
            f"{name} is {found[name]:.4g}, above {limit:.4g}"
            for name, limit in limits.thresholds.items()
            if name in found and not found[name] <= limit
        ]
        lacking = sorted(limits.thresholds.keys() - found.keys())
        if lacking and not above:
            raise NotMadeError(f"{', '.join(lacking)} could not be computed, of which there are thresholds", logged)
        sentence = f"{len(above)} checks find something in the received model: {'; '.join(above)}"
        return Measured(value=len(above), found=bool(above), limit=0, sentence=sentence, statistics=logged)
