"""Check of the learner in an evaluation: attacks that simulate clients with a wrong one infer too little."""

import dataclasses
from collections.abc import Mapping, Sequence

from fedleak.core.attack import Attack
from fedleak.core.metric_table import METRICS
from fedleak.core.seeding import generator_for
from fedleak.evaluation.evaluation import Evaluation
from fedleak.evaluation.learner_match import learner_match
from fedleak.evaluation.misassigned import misassigned
from fedleak.evaluation.scores import AttackInfo
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording

_CLIENTS = 16
"""Largest number of clients whose updates are compared."""
_BETTER = 0.1
"""Difference of two attacks' metrics that shows a wrong learner."""
_SIGNIFICANT = 3.0
"""The same in standard errors."""
_UNCHECKED = "whether the learner is the clients' was not checked"


def with_learner_check(
    evaluation: Evaluation, recording: Recording, attacks: Sequence[Attack], *, seed: int
) -> Evaluation:
    """An evaluation of `attacks` with `mismatch` and `learner_check`, if one of them simulates clients.

    Where the learner does not match, what attacks predict of themselves is left out: it assumes that it does.
    """
    learner = recorded_learner(recording)
    ran = {attack.name for attack in attacks if simulates(attack)} & {*evaluation.scores["attack"]}
    if learner is None or not ran:
        return evaluation
    view = next(recording.views(victims_per_view=_CLIENTS, rounds=recording.rounds[:1], learner=learner))
    match = learner_match(view, generator=generator_for(seed, "learner match"))
    if isinstance(match, str):
        finding, measured = "", ""
        check = f"{_UNCHECKED}: {match}"
    else:
        finding, measured = match.finding, match.measured
        check = f"{measured}; this is no sign of a wrong learner"
    # Where the updates refute nothing, results may, among them an attack without the learner that infers more.
    finding = finding or misassigned(evaluation, view) or learner_free_is_better(evaluation, attacks)
    if not finding:
        return dataclasses.replace(evaluation, learner_check=check)
    why = "; ".join(part for part in (finding, measured) if part)
    sentence = (
        f"{why}; until this is explained, results of attacks that"
        f" simulate clients may show less than a server can infer ({', '.join(sorted(ran))})"
    )
    predictions = [name for name, metric in METRICS.items() if metric.predicts is not None]
    scores = evaluation.scores[~evaluation.scores["metric"].isin(predictions)]
    return dataclasses.replace(evaluation, scores=scores, mismatch=sentence, learner_check=sentence)


def simulates(attack: Attack) -> bool:
    """Whether an attack needs the clients' learner."""
    return "algorithm" in attack.threat_model.fields


def learner_free_is_better(evaluation: Evaluation, attacks: Sequence[Attack]) -> str:
    """That an attack which does not rely on the learner infers more than all of ours that do; empty if none does.

    Ours use all of what the learner says, so they are weaker only where it says what is wrong. Both answer the same
    question about the same clients; the difference of the judged metric is significant and larger than `_BETTER` of its
    span.
    """
    simulating = {attack.name for attack in attacks if simulates(attack)}
    infos = evaluation.lines
    judged = [name for name, entry in METRICS.items() if entry.judged]
    scores = evaluation.scores[evaluation.scores["metric"].isin(judged)]
    for (question, name), rows in scores.groupby([scores["attack"].map(_question(infos)), "metric"]):
        # A row per client and round, a column per attack; more is more leakage.
        sign = METRICS[str(name)].sign
        clients = ["seed", "round", "victim"]
        table = sign * rows.pivot_table(index=clients, columns="attack", values="value", aggfunc="mean")
        labels = [str(label) for label in table]
        ours = [label for label in labels if infos[label].role == "ours" and label in simulating]
        published = [label for label in labels if infos[label].role == "published"]
        if not ours or not published or not question:
            continue
        best_of_ours = table[ours].mean().idxmax()
        best_published = table[published].mean().idxmax()
        gaps = (table[best_published] - table[best_of_ours]).dropna()
        if len(gaps) > 2 and gaps.mean() > max(_BETTER, _SIGNIFICANT * gaps.std() / len(gaps) ** 0.5):
            return (
                f"{best_published}, which relies less on the learner, infers more than {best_of_ours} ({name}"
                f" {abs(table[best_published].mean()):.3f} and {abs(table[best_of_ours].mean()):.3f}), which uses all"
                " of it"
            )
    return ""


def _question(infos: Mapping[str, AttackInfo]) -> dict[str, str]:
    """The question of each attack's label."""
    return {label: f"{info.family}/{info.tells}" for label, info in infos.items()}
