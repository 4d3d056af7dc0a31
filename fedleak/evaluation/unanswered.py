"""Questions that an audit asked and did not measure, with the reason, and those that it did not ask."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fedleak.evaluation.answers import Answer
from fedleak.evaluation.attack_descriptions import described, inferred_by_family, is_about_data
from fedleak.evaluation.reasons import Reason, nearest_reason


def unanswered(reasons: Mapping[str, Reason], measured: Iterable[Answer]) -> tuple[list[Answer], list[str]]:
    """Questions of this version that an audit asked and did not measure, and the families that it did not ask.

    The reason is that of the attack of a family which lacks least. A question does not apply where none of them could
    be asked of the recorded system.

    Args:
        reasons: by attack why it did not run.
        measured: answers that were measured.
    """
    families: dict[str, str] = {}
    for attack in described():
        if not attack.baseline:
            families[attack.name] = attack.family
            families[f"{attack.family}/{attack.name}"] = attack.family
    reasons_by_family: dict[str, dict[str, Reason]] = {}
    for name, reason in reasons.items():
        if name in families:
            reasons_by_family.setdefault(families[name], {})[name] = reason
    answered = {answer.family for answer in measured}
    missing = [family for family in inferred_by_family() if family not in answered]
    lacking = []
    for family in missing:
        if family not in reasons_by_family:
            continue
        # That nothing of the family applies is the last of all reasons.
        reason = nearest_reason(reasons_by_family[family])
        unmeasured = Answer(
            family=family,
            question=None,
            inferred=inferred_by_family()[family],
            status="unmeasured",
            about_data=is_about_data().get(family, True),
            reason=reason.sentence,
        )
        if reason.kind == "inapplicable":
            unmeasured = replace(unmeasured, status="inapplicable", reason=reason.says)
        lacking.append(unmeasured)
    lacking.sort(key=lambda answer: answer.place)
    not_asked = [family for family in missing if family not in reasons_by_family]
    return lacking, not_asked
