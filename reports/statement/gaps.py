"""What an audit did not try, by name."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence

from attacks.base import Attack
from evaluation.runner import Evaluation
from reports.statement.measured import DECLARED_PRIVACY
from reports.statement.numbers import Strict

KNOWN_CLASSES: Mapping[str, str] = {
    "reconstruction": "records (pictures, sentences, rows of a table) rebuilt from an update",
    "record-membership": "whether a certain record was in a client's training data",
    "source": "which client a certain record came from",
    "property": "properties of a client's data as a whole, other than class shares",
    "attributes": "attributes of a person, such as age, gender or health, that are not in the data",
    "released-model": "what the final model gives away to those who only query it, and copies of it (model stealing)",
    "participants": "what other participants learn from the global models that they receive",
    "eavesdropping": "what sizes and times of messages give away on the network",
    "collusion": "a server that colludes with some of the clients",
}
"""Classes of attack on federated learning by the family that would hold them."""


class NotRun(Strict):
    """Attacks that could not run for one reason."""

    question: str
    """family of the attacks"""
    attacks: list[str]
    """their names"""
    reason: str
    """what they lacked"""


class NotTried(Strict):
    """What this audit did not try."""

    not_measured: dict[str, str]
    """every question without a result, and the reason"""
    could_not_run: list[NotRun]
    """attacks on the measured questions that could not run"""
    other_questions: list[NotRun]
    """attacks on other questions, none of which the recording fits"""
    without_attack: dict[str, str]
    """known classes of attack of which this version has none"""


def not_tried(evaluation: Evaluation, attacks: Sequence[Attack], measured: Collection[str] = ()) -> NotTried:
    """What was not tried, by name; `measured` are the families with a result."""
    families = {name: attack.family for attack in attacks for name in (attack.name, f"{attack.family}/{attack.name}")}
    without = {name: what for name, what in KNOWN_CLASSES.items() if name not in families.values()}
    asking = [attack.family for attack in attacks if not attack.baseline]  # a family of baselines alone is no question
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    for name, reason in {**evaluation.missing, **evaluation.unrelated}.items():
        reasons[families.get(name, name)][reason] += 1
    open_ones = {
        name: "this version has no attack on it"
        if name in without
        else reasons[name].most_common(1)[0][0]
        if reasons[name]
        else "no attack gave a value"
        for name in sorted({*asking, *without} - {*measured, DECLARED_PRIVACY})
    }
    return NotTried(
        not_measured=open_ones,
        could_not_run=_by_reason(evaluation.missing, families),
        other_questions=_by_reason(evaluation.unrelated, families),
        without_attack=without,
    )


def _by_reason(missing: Mapping[str, str], families: Mapping[str, str]) -> list[NotRun]:
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, reason in missing.items():
        names[families.get(name, name), reason].append(name.rpartition("/")[2])
    return [NotRun(question=family, attacks=own, reason=reason) for (family, reason), own in sorted(names.items())]
