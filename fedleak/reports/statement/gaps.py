"""What an audit did not try, by name."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fedleak import server
from fedleak.core.attack import Attack
from fedleak.core.class_paths import classes_in
from fedleak.core.taxonomy import NONE_FITS, TAXONOMY
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.reasons import Reason, nearest_reason
from fedleak.reports.statement.gaps_content import DoesNotApply, NotMeasured, NotRun, NotTried, OtherServer
from fedleak.reports.statement.measured import DECLARED_PRIVACY
from fedleak.reports.statement.numbers import of_taxonomy
from fedleak.server.deviation import Deviation
from fedleak.server.model_manipulation import ModelManipulation

MANIPULATED = "manipulated-model"
COLLUSION = "collusion"
KNOWN_CLASSES: Mapping[str, str] = {
    MANIPULATED: "records that a server reads out of updates of a model made for it",
    "sums-over-rounds": "what the sums of many rounds together reveal about a single client",
    "reconstruction": "records (pictures, sentences, rows of a table) rebuilt from an update",
    "record-membership": "whether a certain record was in a client's training data",
    "source": "which client a certain record came from",
    "property": "properties of a client's data as a whole that no other question here asks about",
    "attributes": "attributes of a person, such as age, gender or health, that are not in the data",
    "released-model": "what those can infer who only query the final model, and copies of it (model stealing)",
    "participants": "what other participants can infer from the global models that they receive",
    "eavesdropping": "what can be inferred on the network from sizes and times of messages",
    COLLUSION: "what a server can infer from a sum with the help of clients that take part in it",
}
"""Classes of attack on federated learning by the family that would hold them."""
_NO_VALUE = "no attack gave a value"
_GLOBAL_MODEL = {"released-model", "participants"}
"""Classes whose adversary sees global models and no update."""


def not_tried(
    evaluation: Evaluation,
    attacks: Sequence[Attack],
    measured: Collection[str] = (),
    manipulation: str | None = None,
    summed: int = 1,
) -> NotTried:
    """What was not tried, by name.

    Args:
        evaluation: the reasons for which attacks did not run.
        attacks: attacks of the audit.
        measured: estimates (see `Estimate.question`) with a result.
        manipulation: name of what the recorded server did besides averaging, None for nothing.
        summed: largest number of clients in one message.
    """
    by_name: dict[str, Attack] = {}
    asking: dict[str, list[Attack]] = defaultdict(list)  # baselines alone are no question
    for attack in attacks:
        by_name[attack.name] = attack
        by_name[f"{attack.family}/{attack.name}"] = attack
        if not attack.baseline and attack.family != DECLARED_PRIVACY and attack.estimates.truth:
            asking[attack.estimates.question()].append(attack)
    # Questions of this version's attacks: one does not apply if no attack on it can, else it was not measured.
    not_measured: list[NotMeasured] = []
    does_not_apply: list[DoesNotApply] = []
    for name, of_question in asking.items():
        if name in measured:
            continue
        reasons = _reasons(of_question, evaluation)
        inapplicable = [reason for reason in reasons.values() if reason.kind == "inapplicable"]
        if inapplicable and len(inapplicable) == len(reasons):
            does_not_apply.append(
                DoesNotApply(
                    question=", ".join(dict.fromkeys(attack.family for attack in of_question)),
                    infers=of_question[0].estimates.inferred,
                    reason=inapplicable[0].says,
                )
            )
        else:
            not_measured.append(_not_measured(of_question, reasons))
    # Classes of attack that are no family of this version's.
    families = {attack.family for attack in attacks}
    without_family = {name: inferred for name, inferred in KNOWN_CLASSES.items() if name not in families}
    for name, inferred in without_family.items():
        if name == COLLUSION and summed == 1:
            single_updates = "the server receives the update of each client by itself"
            does_not_apply.append(DoesNotApply(question=name, infers=inferred, reason=single_updates))
        elif name != MANIPULATED or manipulation not in {model.name for model in _made_models()}:
            # Where the server sent a made model, the results of the other questions are about its updates.
            not_measured.append(_of_class(name, inferred, attacks))
    without_attack = dict(without_family)
    if _made_models():
        without_attack.pop(MANIPULATED, None)
    deviations = [
        OtherServer(deviation=deviation.__name__, does=deviation.does, letter=deviation.public_names().letter)
        for deviation in classes_in(server, Deviation)
        if deviation.name != manipulation
    ]
    return NotTried(
        not_measured=not_measured,
        does_not_apply=does_not_apply,
        could_not_run=_by_reason(evaluation.not_run, by_name),
        other_questions=_by_reason(evaluation.unrelated, by_name),
        without_attack=without_attack,
        deviations=deviations,
    )


def _of_class(name: str, inferred: str, attacks: Sequence[Attack]) -> NotMeasured:
    """A class of attack that is no family of this version's attacks."""
    reason = "this version has no attack on it"
    if name == MANIPULATED and _made_models():
        reason = (
            f"the recorded server sent no such model. This version has {len(_made_models())} ways to make one; in"
            " measurements of this project the best of them rebuilt all images of clients exactly"
        )
    elif name in _GLOBAL_MODEL and any(_reads_global_model_alone(attack) for attack in attacks):
        reason += ", only a baseline of another question that reads the global model alone"
    names = of_taxonomy(TAXONOMY.get(name, NONE_FITS))
    return NotMeasured(question=name, infers=inferred, reasons=[reason], summary=reason, names=names)


def _made_models() -> list[type[ModelManipulation]]:
    """What a server may send so that updates hold single records."""
    return classes_in(server, ModelManipulation)


def _reads_global_model_alone(attack: Attack) -> bool:
    """Whether an attack, which is then a baseline, has the global model and no update."""
    model = attack.threat_model
    return attack.baseline and model.sees == "no update" and "the global model" in model.knows


def _reasons(attacks: Sequence[Attack], evaluation: Evaluation) -> dict[str, Reason]:
    """Reason by ``family/name`` of each attack that gave no result."""
    missing = {**evaluation.missing, **evaluation.unrelated}
    reasons = {}
    for attack in attacks:
        # A name that two families share is printed with the family before it.
        full_name = f"{attack.family}/{attack.name}"
        for name in (attack.name, full_name):
            if name in missing:
                reasons[full_name] = missing[name]
    return reasons


def _not_measured(attacks: Sequence[Attack], by_attack: Mapping[str, Reason]) -> NotMeasured:
    """A question that the given attacks ask; `by_attack` has the reason of each by ``family/name``."""
    sentences_by_family: dict[str, Counter[str]] = {attack.family: Counter() for attack in attacks}
    letters = set()
    for attack in attacks:
        reason = by_attack.get(f"{attack.family}/{attack.name}")
        if reason is not None:
            sentences_by_family[attack.family][reason.sentence] += 1
        letters.add(attack.public_names().letter)
    # The most frequent reason of each family, those that families share once.
    reasons: list[str] = []
    for sentences in sentences_by_family.values():
        for sentence, _ in sentences.most_common(1):
            if sentence not in reasons:
                reasons.append(sentence)
    # The summary is of an attack that more data would let run.
    applicable = {name: reason for name, reason in by_attack.items() if reason.kind != "inapplicable"}
    summary = _NO_VALUE
    if applicable:
        summary = _plain(nearest_reason(applicable))
    all_letters = ", ".join(sorted(letter for letter in letters if letter))
    return NotMeasured(
        question=", ".join(sentences_by_family),
        infers=attacks[0].estimates.inferred,
        reasons=reasons or [_NO_VALUE],
        summary=summary,
        names=of_taxonomy(replace(attacks[0].public_names(), letter=all_letters or None)),
    )


def _plain(reason: Reason) -> str:
    """A reason in plain words, without names of classes and fields, and without what to do about it."""
    if reason.kind == "slow":
        return "the attacks on it are slow and were left out"
    if reason.kind == "late":
        return "the time of the audit was not enough for the attacks on it"
    if reason.kind == "unscored":
        return "the recording does not hold the true answers, with which a result would be compared"
    if reason.kind == "lacking":
        return reason.problem
    if reason.kind == "other-clients":
        return f"the attacks on it need {', '.join(reason.lacks)}"
    return "the attacks on it do not fit what was recorded (section 6 has the reasons)"


def _by_reason(reasons: Mapping[str, Reason], by_name: Mapping[str, Attack]) -> list[NotRun]:
    """What did not run, by question and reason; `by_name` has the attacks by ``name`` and by ``family/name``."""
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for printed_name, reason in reasons.items():
        attack = by_name.get(printed_name)
        if attack is None:
            names[printed_name, reason.sentence].append(printed_name)
        else:
            names[attack.family, reason.sentence].append(attack.name)
    return [
        NotRun(question=family, attacks=attack_names, reason=sentence)
        for (family, sentence), attack_names in sorted(names.items())
    ]
