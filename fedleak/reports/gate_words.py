"""A gate's verdict in words: what is inferred, by how much of the metric's everyday unit, on how many clients."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fedleak.evaluation.limits import Limit
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.scores import number
from fedleak.reports.metric_words import number_in_words, value_in_words

_OUTCOMES: Mapping[str, str] = {
    "ok": "Limit kept",
    "failed": "Limit exceeded",
    "undecided": "Limit not decided",
    "unchecked": "Limit not checked",
}


def verdict_in_words(verdict: Mapping[str, Any], results: pd.DataFrame) -> str:
    """One sentence on a verdict; empty for a limit on a difference, or where no attack decides.

    Args:
        verdict: fields of `fedleak.evaluation.gate.Verdict`.
        results: results of the audit, which say what the attack infers.
    """
    limit = Limit.named(verdict["metric"], verdict["limit"])
    value = verdict.get("value")
    if limit.is_relative or value is None:
        return ""
    # What the attack infers, in the words of its results.
    of_attack = results[(results["attack"] == verdict.get("attack")) & results["role"].isin(ATTACKS)]
    inferred = next((text for text in of_attack["tells"] if text), "something about the client")
    # Some metrics are about the client who is worst off, others are a mean over n clients.
    n = verdict.get("n")
    if limit.entry.worst_client:
        whose = "the most exposed client"
    elif n == 1:
        whose = "one client"
    else:
        whose = f"{n} clients"
    in_round = ""
    if verdict.get("round") is not None:
        in_round = f" of round {verdict['round']}"
    bound = number_in_words(limit.metric, float(limit.bound))
    if number_in_words(limit.metric, float(value)) == bound:
        # Rounded alike, they say nothing of the side on which the value lies.
        bound += f" ({limit.metric} {number(float(value))}, limit {limit.bound:g})"
    return (
        f"{_OUTCOMES[str(verdict['verdict'])]} on {inferred}: the attack {value_in_words(limit.metric, float(value))},"
        f" measured on {whose}{in_round}; the limit is {bound}."
    )
