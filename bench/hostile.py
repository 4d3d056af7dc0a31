"""What an audit says of federations that are not what they declare: check, cause, gate, best attack and predictions.

python -m bench.hostile                  all of them, and the honest ones, one line each
python -m bench.hostile negated "4 bits" those alone, with all sentences
python -m bench.hostile --false-alarms 48 how often the learner of random honest federations is called wrong
"""

import argparse
import tempfile
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from bench.hostile_federations import HONEST, HOSTILE, Federation, honest
from fedleak.core.metric_table import METRICS
from fedleak.evaluation import audit
from fedleak.evaluation.added_bits import false_bounds
from fedleak.evaluation.answers import leading, recorded_answers
from fedleak.evaluation.as_recorded import as_recorded
from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.comparisons import Cells
from fedleak.evaluation.gate import gate
from fedleak.evaluation.limits import limits_of
from fedleak.evaluation.scores import records
from fedleak.reports.answer_words import bits_sentence, numbers, verdict_on

ATTACKS = (
    *("equal-counts", "random-guess", "uniform-present", "closed-form", "exact-counts", "last-layer-counts"),
    *("output-counts", "output-counts-alone", "decaf", "decaf-match", "decaf-one-epoch-whole", "soft-labels", "rlu"),
    *("llg", "ilrg", "idlg-labels", "candidate-fit", "fedmia-2", "class-counts", "random-member"),
    *("linear-inversion", "linear-ratio", "linear-peeling", "mean-image", "linkability", "link-counts"),
)
"""Attacks that decide what is said about these federations, without those that take minutes."""
LIMITS = limits_of({"composition/l1": 0.5, "record-membership/auc": 0.6, "reconstruction/recovered": 0.1, "bits": 5.0})


def audited(federation: Federation) -> AuditResult:
    """Audit of a federation."""
    with tempfile.TemporaryDirectory() as folder:
        federation.record(Path(folder) / "deltas")
        result = audit(Path(folder) / "deltas", ATTACKS, progress=False)
        result.causes  # noqa: B018 - they are computed from the recording, which is deleted
        return result


def line(name: str, result: AuditResult) -> dict[str, str]:
    """What decides, in one row."""
    results, evaluation = result.results, result.evaluation
    verdicts = gate(LIMITS, result.attacks)(as_recorded(results), evaluation)
    check = "wrong" if evaluation.mismatch else "right" if "no sign" in evaluation.learner_check else "-"
    row = {"federation": name, "check": check}
    row |= {verdict.metric.rpartition("/")[2]: verdict.verdict for verdict in verdicts}
    attacks = results[results["role"].isin(("ours", "published"))]
    for metric in ("l1", "auc"):
        rows = attacks[(attacks["metric"] == metric) & (attacks["attack"] != "linkability")].sort_values("mean")
        if len(rows):
            best = rows.iloc[0 if METRICS[metric].lower_is_better else -1]
            row[f"best {metric}"] = f"{best['mean']:.3f} {best['attack']}"
    means = {(result_row["attack"], result_row["metric"]): result_row["mean"] for result_row in records(results)}
    for (attack, metric), mean in means.items():
        predicted_metric = METRICS[metric].predicts
        if predicted_metric is not None:
            measured = means[attack, predicted_metric]
            row[f"{attack} {predicted_metric}"] = f"{mean:.2f}, is {measured:.2f}"
    return row


def sentences(name: str, result: AuditResult) -> str:
    """All that the audit says, for a person to judge."""
    answer = leading(recorded_answers(result.results))[0]
    false = [*result.evaluation.false_declarations, *false_bounds(Cells(as_recorded(result.results)))]
    verdicts = gate(LIMITS, result.attacks)(as_recorded(result.results), result.evaluation)
    causes = {cause.sentence for cause in result.causes if cause.cause != "few-victims"}
    return "\n".join(
        [
            f"== {name}",
            f"headline: {verdict_on(answer)} {numbers(answer)} {bits_sentence(answer.bits)}",
            f"learner: {result.evaluation.learner_check}",
            *(verdict.message for verdict in verdicts),
            *(f"declared: {sentence}" for sentence in false),
            *(f"cause: {cause}" for cause in sorted(causes)),
        ]
    )


def false_alarms(count: int) -> None:
    """Prints the honest federations whose learner is called wrong."""
    wrong = 0
    for number in tqdm(range(count)):
        evaluation = audited(honest(number)).evaluation
        if evaluation.mismatch:
            wrong += 1
            tqdm.write(f"{number}: {honest(number)}\n  {evaluation.mismatch}")
    print(f"{wrong} of {count} honest federations are said to run another learner")


def main() -> None:
    """Audits the named federations, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join([*HONEST, *HOSTILE]))
    parser.add_argument("--false-alarms", type=int, default=0, metavar="N")
    options = parser.parse_args()
    if options.false_alarms:
        false_alarms(options.false_alarms)
        return
    federations = {**HONEST, **HOSTILE}
    rows = []
    for name in tqdm(options.names or federations):
        result = audited(federations[name])
        rows.append(line(name, result))
        if options.names:
            tqdm.write(sentences(name, result))
    print(pd.DataFrame(rows).fillna("").to_string(index=False))


if __name__ == "__main__":
    main()
