"""Answers in words: the verdict on a question, the numbers behind it, and what the update adds in bits."""

from collections.abc import Sequence

from fedleak.core.metric_table import meanings, metric
from fedleak.evaluation.added_bits import AddedBits, DeclaredBound
from fedleak.evaluation.answers import Answer
from fedleak.evaluation.comparisons import NEAR
from fedleak.evaluation.scores import describe, number
from fedleak.reports.metric_words import value_in_words


def nothing_scored(baselines: Sequence[str]) -> str:
    """The verdict where no attack has a result."""
    only = f" The values below are of {', '.join(baselines)}, which are no attacks." if baselines else ""
    return f"No attack could be scored on this recording.{only}"


def verdict_on(answer: Answer) -> str:
    """Whether the server can infer what a question asks, in one sentence."""
    row = answer.row
    if row is None:
        return ""
    where = describe(answer.setting, answer.varied | {"data"})
    inferred = answer.inferred
    # A significant gain below NEAR of the way from guessing to certainty is real, but too small to say "can infer".
    if answer.is_shown and (answer.gain is None or answer.gain >= NEAR):
        return f"On {where}, the server can infer from a client's update {inferred}."
    if answer.is_shown:
        return f"On {where}, no attack infers {inferred}{_than(answer, 'much better')}."
    if answer.is_of_too_few:
        clients = "one client is" if row["n"] == 1 else f"{row['n']} clients are"
        return f"On {where}, {clients} too few to say whether a client's update shows {inferred}."
    if answer.comparison is None:
        compared = "no baseline ran to compare with"
        return f"On {where}, {compared}, so it cannot be said whether the server can infer {inferred}."
    return f"On {where}, no attack is shown to infer {inferred}{_than(answer, 'better')}."


def _than(answer: Answer, how: str) -> str:
    """What the attacks are not better than; empty if there is nothing."""
    if answer.baseline is not None:
        return f" {how} than the baselines"
    if metric(answer.metric).guessing is None:
        return ""
    return f" {how} than guessing"


def numbers(answer: Answer) -> str:
    """The best attack's result with its interval, what it was chosen among, and what it is compared with."""
    row = answer.row
    if row is None:
        return ""
    name = answer.metric
    entry = metric(name)
    clients = "one client" if row["n"] == 1 else f"{row['n']} clients"
    # The value in everyday words where the metric has them, then the number itself.
    reaches = "reaches"
    if entry.words:
        reaches = f"{value_in_words(name, row['mean'])}:"
    # The best of several attacks on one sample looks better than it is, so the reader learns of the choice.
    among = ""
    if len(answer.attacks) > 1:
        among = f", chosen among {len(answer.attacks)} attacks by the same data"
    interval = f"95% interval {number(row['low'])} to {number(row['high'])}"
    compared = []
    if entry.guessing is not None:
        compared.append(f"guessing gives {entry.guessing:g}")
    if answer.baseline is not None:
        compared.append(f"the best baseline, {answer.baseline.name}, {number(answer.baseline.value)}")
    against = f"; {', '.join(compared)}" if compared else ""
    sentence = (
        f"The best attack, {row['attack']}, {reaches} {name} {number(row['mean'])} on {clients}"
        f" (for clients like these: {interval}{among}){against}."
    )
    return " ".join([sentence, *meanings([name])])


def bits_sentence(added: AddedBits | None) -> str:
    """Sentence on the bits that the update adds to the prior; empty where they were not measured."""
    if added is None:
        return ""
    row = added.row
    why_unbounded = row.get("unbounded")
    interval = f"95% interval {bits(row['low'])} to {bits(row['high'])}, {row['attack']}"
    # An interval that reaches 0 does not exclude that the update says nothing beyond the prior.
    if row["low"] <= 0:
        sentence = f"The update is not shown to add anything to the prior: {bits(row['mean'])} bits ({interval})"
    else:
        sentence = f"The update adds {bits(row['mean'])} bits ({interval})"
    # Unknown without the update: what it adds, and what is left after it.
    if added.left is not None:
        sentence += f" to what is known of a client, of {bits(row['mean'] + added.left)} that are unknown without it"
    if added.beyond_counts is not None:
        sentence += (
            "; how many of a client's records each class has is a part of it, and"
            f" {bits(added.beyond_counts)} bits are beyond that"
        )
    # The tightest bound that is known: that of the declared privacy, else what all answers can have at all.
    if added.bound is not None:
        allowed = f"what the clients declare to do to it allows at most {bits(added.bound.bits)}"
        sentence += f"; {allowed}{_beyond(added, added.bound)}"
    elif added.possible is not None:
        sentence += f"; all answers together have at most {bits(added.possible)}, and no smaller bound is known"
        if why_unbounded:
            sentence += f", because {why_unbounded}"
    elif why_unbounded:
        sentence += f"; no bound is known, because {why_unbounded}"
    return f"{sentence}."


def _beyond(added: AddedBits, bound: DeclaredBound) -> str:
    """What follows where an attack has more bits than a declared bound; empty where it has not."""
    if bound.is_false:
        return ": the declaration is false"
    if added.row["low"] > bound.bits:
        return (
            ", which is less: either the declaration is false, or answers that depend on one another are counted more"
            " than once"
        )
    return ""


def bits(value: float) -> str:
    """A number of bits with three digits, or one decimal.

    >>> bits(0.10649), bits(43.633), bits(3378.07)
    ('0.106', '43.6', '3378.1')
    """
    if abs(value) < 10:
        return f"{value:.3g}"
    return f"{value:.1f}"
