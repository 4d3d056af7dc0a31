"""Checks of the received model that the main package has."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fedleak.guard_checks.model_statistics import model_statistics, names_of_statistics
from fedleak.guard_checks.simulated_rounds import simulated_rounds
from fedleak_guard.check import Measurement, NotMadeError
from fedleak_guard.declared_checks import ReceivedModel, SimulatedTrainings
from fedleak_guard.earlier_round import earlier_round
from fedleak_guard.message import Message
from fedleak_guard.own_data import chosen_records, network_of
from fedleak_guard.policy import Policy
from fedleak_guard.thresholds import RECORDS, TENSORS, Thresholds, read_thresholds, tensors_of
from fedleak_recorder.arrays import Array
from fedleak_recorder.errors import require


class StatisticsOfModel(ReceivedModel):
    """Checks of the received model in `fedleak.defenses.model_checks` whose statistic exceeds its threshold.

    The thresholds are those of honest rounds of the same network, see `fedleak_guard.thresholds`; those of another one,
    or of another number of records, are an error. A check of these that lacks what it reads makes the whole one not
    made, unless another has a finding.
    """

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if message.sent is None:
            return None
        rules = policy.received
        if not rules.is_compared:
            raise NotMadeError("the policy has no received.thresholds, which `fedleak-guard calibrate` makes")
        if message.received is None:
            raise NotMadeError("the received model is unknown")
        earlier = earlier_round(policy, message.job)
        examples = chosen_records(message.records, message.labels)
        records = 0
        if examples is not None:
            inputs, _ = examples
            records = len(inputs)
        tensors = tensors_of(message.model)
        limits = None
        if rules.thresholds is not None:
            limits = read_thresholds(Path(rules.thresholds))
            _check_kind(limits, records, tensors)
        statistics = model_statistics(message.model, earlier=earlier, examples=examples, network=network_of(message))
        logged = {**statistics, RECORDS: records, TENSORS: tensors}
        if limits is None:
            reason = "the policy has no received.thresholds; the statistics are in the log, to calibrate from"
            raise NotMadeError(reason, logged)
        above = []
        for name, limit in limits.thresholds.items():
            # Not `statistic > limit`, which is false of NaN: a statistic that is no number is a finding.
            if name in statistics and not statistics[name] <= limit:
                above.append(f"{name} is {statistics[name]:.4g}, above {limit:.4g}")
        # A server could make a check impossible, so that one that is missing is no check without a finding.
        lacking = sorted(limits.thresholds.keys() - statistics.keys())
        if lacking and not above:
            raise NotMadeError(f"{', '.join(lacking)} could not be computed, of which there are thresholds", logged)
        sentence = f"{len(above)} checks find something in the received model: {'; '.join(above)}"
        return Measurement(value=len(above), found=bool(above), limit=0, sentence=sentence, statistics=logged)

    def honest_rounds(
        self, network: Callable[[], Any], records: Array, labels: Array, simulated: SimulatedTrainings
    ) -> Iterator[dict[str, float]]:
        return simulated_rounds(network, records, labels, simulated)


def _check_kind(limits: Thresholds, records: int, tensors: str) -> None:
    """Refuses thresholds of another model, of another number of records, or of checks that do not exist.

    To leave the check out would let a server switch it off, by a tensor that it adds to its model.
    """
    require(
        (limits.tensors, limits.records) == (tensors, records),
        f"thresholds of {records} records and of the received model",
        f"those of {limits.records} records and of another model, or one of the two",
        "Calibrate for this model, or give its jobs a policy of their own.",
    )
    unknown = ", ".join(sorted(limits.thresholds.keys() - names_of_statistics()))
    require(not unknown, "thresholds of checks that fedleak has", f"{unknown} could not be computed", "Calibrate anew.")
