"""Questions of an audit on which attacks were scored, but not in bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from fedleak.core.metric_table import METRICS
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.scores import records

if TYPE_CHECKING:
    from fedleak.core.attack import Attack

BITS = "bits"
BITS_NEED = "need the records themselves, or the answers of at least five clients, and of two for each class"
"""What bits of a question need, in a sentence."""


def questions_without_bits(
    results: pd.DataFrame, attacks: Sequence[Attack], asked: Callable[[str, str], bool]
) -> list[str]:
    """What the questions are about that attacks answered without any bits, e.g. ``some of its training examples``.

    Bits need the records themselves, or answers that have probabilities, of at least five people and of two for each
    class (see `fedleak.evaluation.posterior.posterior`). Questions that need no ground truth, such as whether declared
    noise is there, ask nothing about a client's data.

    Args:
        results: rows of an audit.
        attacks: attacks of the audit.
        asked: whether a limit is about a question, of its family and of what it infers.
    """
    judged = [entry.name for entry in METRICS.values() if entry.judged]
    about_data = {attack.estimates.question() for attack in attacks if attack.estimates.truth}
    scored = results[results["role"].isin(ATTACKS) & results["mean"].notna()]
    with_bits = set(scored["question"][scored["metric"] == BITS])
    answered = records(scored[scored["metric"].isin(judged)].drop_duplicates("question"))
    return [
        str(row["tells"])
        for row in answered
        if row["question"] in about_data - with_bits and asked(str(row["family"]), str(row["tells"]))
    ]
