"""What an audit did not try, by name."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import server
from attacks.base import Attack
from evaluation.failures import is_slow, is_unscored
from evaluation.runner import Evaluation
from protocol.class_paths import classes_in
from protocol.taxonomy import NONE_FITS, TAXONOMY
from reports.statement.measured import DECLARED_PRIVACY
from reports.statement.numbers import Names, Strict, of_taxonomy
from server.deviation import Deviation

KNOWN_CLASSES: Mapping[str, str] = {
    "manipulated-model": "records that a server reads out of updates of a model made for it (imprints, trap weights)",
    "sums-over-rounds": "what the sums of many rounds together reveal about a single client",
    "reconstruction": "records (pictures, sentences, rows of a table) rebuilt from an update",
    "record-membership": "whether a certain record was in a client's training data",
    "source": "which client a certain record came from",
    "property": "properties of a client's data as a whole, other than class shares",
    "attributes": "attributes of a person, such as age, gender or health, that are not in the data",
    "released-model": "what those can infer who only query the final model, and copies of it (model stealing)",
    "participants": "what other participants can infer from the global models that they receive",
    "eavesdropping": "what can be inferred on the network from sizes and times of messages",
    "collusion": "what a server can infer that colludes with some of the clients",
}
"""Classes of attack on federated learning by the family that would hold them."""


class NotMeasured(Strict):
    """A question without a result."""

    question: str
    """families of the attacks on it, or the class of attack"""
    infers: str
    """what would be inferred, in words"""
    reasons: list[str]
    """why it was not measured: the most frequent reason of the attacks of each family"""
    summary: str
    """the same, without what to do about it"""
    names: Names
    """names in public taxonomies, with the letters of its attacks"""


class NotRun(Strict):
    """Attacks that could not run for one reason."""

    question: str
    """family of the attacks"""
    attacks: list[str]
    """their names"""
    reason: str
    """what they lacked"""


class OtherServer(Strict):
    """What a server may do besides averaging, and the recording does not declare."""

    deviation: str
    """class in the package server"""
    does: str
    """what the server does"""
    letter: str | None
    """threat model, A to H, of the USENIX Security 2025 systematisation"""


class NotTried(Strict):
    """What this audit did not try."""

    not_measured: list[NotMeasured]
    """every question without a result"""
    could_not_run: list[NotRun]
    """attacks on the measured questions that could not run"""
    other_questions: list[NotRun]
    """attacks on other questions, none of which the recording fits"""
    without_attack: dict[str, str]
    """known classes of attack of which this version has none"""
    deviations: list[OtherServer]
    """what a server may do besides averaging, and the recording does not declare"""


def not_tried(
    evaluation: Evaluation, attacks: Sequence[Attack], measured: Collection[str] = (), manipulation: str | None = None
) -> NotTried:
    """What was not tried, by name; `measured` are the estimates (see `Estimate.question`) with a result."""
    families = {name: attack.family for attack in attacks for name in (attack.name, f"{attack.family}/{attack.name}")}
    without = {name: what for name, what in KNOWN_CLASSES.items() if name not in families.values()}
    asking: dict[str, list[Attack]] = defaultdict(list)  # baselines alone are no question
    for attack in attacks:
        if not attack.baseline and attack.family != DECLARED_PRIVACY and attack.estimates.truth:
            asking[attack.estimates.question()].append(attack)
    unknown = "this version has no attack on it"
    return NotTried(
        not_measured=[
            *(_not_measured(own, evaluation) for name, own in asking.items() if name not in measured),
            *(
                NotMeasured(
                    question=name,
                    infers=what,
                    reasons=[unknown],
                    summary=unknown,
                    names=of_taxonomy(TAXONOMY.get(name, NONE_FITS)),
                )
                for name, what in without.items()
            ),
        ],
        could_not_run=_by_reason(evaluation.missing, families),
        other_questions=_by_reason(evaluation.unrelated, families),
        without_attack=without,
        deviations=[
            OtherServer(deviation=kind.__name__, does=kind.does, letter=kind.public_names().letter)
            for kind in classes_in(server, Deviation)
            if kind.name != manipulation
        ],
    )


def _not_measured(own: Sequence[Attack], evaluation: Evaluation) -> NotMeasured:
    """A question that the given attacks ask."""
    missing = {**evaluation.missing, **evaluation.unrelated}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in own:
        counts[one.family].update(missing[name] for name in (one.name, f"{one.family}/{one.name}") if name in missing)
    reasons = [*dict.fromkeys(of_family.most_common(1)[0][0] for of_family in counts.values() if of_family)]
    reasons = reasons or ["no attack gave a value"]
    letters = ", ".join(sorted({letter for one in own if (letter := one.public_names().letter)}))
    return NotMeasured(
        question=", ".join(counts),
        infers=own[0].estimates.inferred,
        reasons=reasons,
        summary=", or ".join(dict.fromkeys(map(_short, reasons))),
        names=of_taxonomy(replace(own[0].public_names(), letter=letters or None)),
    )


def _short(reason: str) -> str:
    """A reason without what to do about it."""
    if is_slow(reason):
        return "the attacks on it are slow and were left out"
    return "the recording lacks the truth about it" if is_unscored(reason) else reason.partition(";")[0]


def _by_reason(missing: Mapping[str, str], families: Mapping[str, str]) -> list[NotRun]:
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, reason in missing.items():
        names[families.get(name, name), reason].append(name.rpartition("/")[2])
    return [NotRun(question=family, attacks=own, reason=reason) for (family, reason), own in sorted(names.items())]
