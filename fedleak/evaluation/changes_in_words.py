"""Sentences on a comparison of two runs: how clients were matched, what verdicts mean, and what was not compared."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedleak.evaluation.change import Change
from fedleak.evaluation.compared_side import CellScores, ComparedSide, Key, Rank
from fedleak.evaluation.limits import FEWEST
from fedleak.evaluation.paired_means import crossed
from fedleak_recorder.pseudonyms import KEY_VARIABLE


def not_compared_sentences(
    side: ComparedSide,
    cells: CellScores,
    of_other: CellScores,
    settings: Sequence[str],
    ranks: Mapping[tuple[str, Key], Rank],
) -> list[str]:
    """Sentence on the attacks that only one run has, and on those of them that are better than all that both have."""
    labels, better = [], []
    for (attack, key), rows in cells.items():
        if (attack, key) in of_other:
            continue
        label = side.label(rows, settings)
        question = side.info(rows).question
        labels.append(label)
        # Ranks of the attacks at the same question, metric and settings that both runs have.
        compared = []
        for (common_attack, common_key), common_rows in cells.items():
            if (common_attack, common_key) not in of_other or common_key != key:
                continue
            if side.info(common_rows).question == question:
                compared.append(ranks[common_attack, common_key])
        if compared and ranks[attack, key] > max(compared):
            name = str(rows["metric"].iloc[0])
            mean = float(np.nanmean(crossed(rows).to_numpy()))
            better.append(f"{label} ({name} {mean:.3f})")
    if not labels:
        return []
    sentence = f"Only in {side.name}, and not compared: {', '.join(dict.fromkeys(labels))}."
    if better:
        sentence += f" Of these, {', '.join(dict.fromkeys(better))} infers more than every attack that was compared."
    return [sentence]


def matching_sentences(
    before: ComparedSide, after: ComparedSide, rows: Sequence[Change], why_not: str | None
) -> list[str]:
    """Sentence on how clients were matched."""
    if not rows:
        return [
            "Nothing can be compared: no attack has a value of the same metric on the same data set in both"
            f" {before.name} and {after.name}."
        ]
    minus = f"Differences are {after.name} minus {before.name}"
    if why_not is not None:
        sentences = [
            f"{minus}. They are not paired, because {why_not}: the intervals are those of independent clients."
        ]
        if before.people and after.people and not before.people & after.people:
            way_out = f"Clients have the same numbers in audits with one {KEY_VARIABLE}, or with --persons"
            sentences.append(f"{way_out}; those of other systems, if they were recorded with that key too.")
        return sentences
    shared = len(before.people & after.people)
    counts = f"{len(before.people)} in {before.name}, {len(after.people)} in {after.name}"
    sentences = [f"{minus}, paired on the clients that have the same number in both: {shared} ({counts})."]
    unpaired = sum(row.gaps is None for row in rows)
    if unpaired:
        text = (
            f"Of {len(rows)} rows, {unpaired} are not paired, because fewer than {FEWEST} of their clients are in both"
        )
        sentences.append(f"{text} runs; their intervals are those of independent clients.")
    # The mean of few clients is nearly their own values, and two published means give it.
    for side, opposite in ((after, before), (before, after)):
        alone = len(side.people - opposite.people)
        if 0 < alone < FEWEST:
            verb = "is" if alone == 1 else "are"
            sentences.append(
                f"{alone} of {side.name} {verb} in no pair: the means over pairs and those over all clients give their"
                " mean, so pass both on only to those who may know them."
            )
    return sentences


def reading_sentences(rows: Sequence[Change]) -> list[str]:
    """Sentences on what verdicts mean; none without a row."""
    if not rows:
        return []
    best = sum(row.best for row in rows)
    sentences = [
        f"More and less are about what is inferred: they need the whole 95% interval and {FEWEST} clients. Equal"
        f" means that no client's value differs. Each of the {len(rows)} intervals holds by itself."
    ]
    if any(row.seeds < 2 for row in rows):
        sentences.append(
            "Where each run has one training, the interval is over clients and about these two models. Two trainings of"
            " one system differ as well, so that a difference is a sign of a change of the system only where several"
            " trainings of each show it."
        )
    sentences.append(
        "A row of the best attack compares the attack that is best at the question in each run, as an attacker who"
        f" adapts would choose it, by the same data ({best} of the rows)."
    )
    return sentences
