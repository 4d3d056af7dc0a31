"""What an audit did not try, by name."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import server
from attacks.base import Attack
from evaluation.runner import Evaluation
from protocol.class_paths import classes_in
from protocol.taxonomy import NONE_FITS, TAXONOMY
from reports.statement.measured import DECLARED_PRIVACY
from reports.statement.numbers import Names, Strict, of_taxonomy
from server.deviation import Deviation

KNOWN_CLASSES: Mapping[str, str] = {
    "manipulated-model": "records that a server reads out of updates of a model made for it (imprints, trap weights)",
    "sums-over-rounds": "what the sums of many rounds together give away about a single client",
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

    not_measured: dict[str, str]
    """every question without a result, and the reason"""
    could_not_run: list[NotRun]
    """attacks on the measured questions that could not run"""
    other_questions: list[NotRun]
    """attacks on other questions, none of which the recording fits"""
    without_attack: dict[str, str]
    """known classes of attack of which this version has none"""
    names: dict[str, Names]
    """names in public taxonomies of every question without a result"""
    deviations: list[OtherServer]
    """what a server may do besides averaging, and the recording does not declare"""


def not_tried(
    evaluation: Evaluation, attacks: Sequence[Attack], measured: Collection[str] = (), manipulation: str | None = None
) -> NotTried:
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
        names={family: _names(family, attacks) for family in open_ones},
        deviations=[
            OtherServer(deviation=kind.__name__, does=kind.does, letter=kind.public_names().letter)
            for kind in classes_in(server, Deviation)
            if kind.name != manipulation
        ],
    )


def _names(family: str, attacks: Sequence[Attack]) -> Names:
    """Names of a family, with the letters of its attacks."""
    own = [attack.public_names() for attack in attacks if attack.family == family and not attack.baseline]
    letters = ", ".join(sorted({one.letter for one in own if one.letter}))
    found = own[0] if own and family not in TAXONOMY else TAXONOMY.get(family, NONE_FITS)
    return of_taxonomy(replace(found, letter=letters or found.letter))


def _by_reason(missing: Mapping[str, str], families: Mapping[str, str]) -> list[NotRun]:
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, reason in missing.items():
        names[families.get(name, name), reason].append(name.rpartition("/")[2])
    return [NotRun(question=family, attacks=own, reason=reason) for (family, reason), own in sorted(names.items())]
