"""Headline of a report: what the best attack infers, how well, and the values of guessing and the best baseline."""

import functools
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binom

from fedleak.core.metric_table import judges, meanings, metric
from fedleak.evaluation.as_recorded import as_recorded as as_recorded
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.limits import FEWEST
from fedleak.evaluation.luck import LEVEL, LUCK
from fedleak.evaluation.near_guessing import hardly_exceeds, same_cell
from fedleak.evaluation.scores import describe, differing, number, records, setting_columns, setting_of
from fedleak.reports.attack_descriptions import described
from fedleak.reports.metric_words import value_in_words
from fedleak.reports.run import ATTACKS
from fedleak.reports.tables import DATA

Row = dict[str, Any]
Status = Literal["leak", "undecided", "near", "measured", "unmeasured", "inapplicable"]
"""What an audit found: a leak beyond guessing and the baselines; intervals too wide, or no baseline; less than a fifth
of the way from the baseline to certainty; a metric by which attacks are not compared; nothing; and that the question
cannot be asked of the recorded system."""
_CHANCE = 1e-3
"""Probability of a result by chance below which a declaration is called false; small, as several attacks test it."""
_HALF = 0.5
"""Share of the way from the baseline to certainty before which the interval of a result near the baseline ends."""


@dataclass(frozen=True)
class Headline:
    """First lines of a report.

    Attributes:
        verdict: whether the server can infer something.
        measured: the best attack's result, and what to compare it with; empty if no attack was scored.
        metric: metric of that result, empty for none.
        question: question of that attack, None for none.
        data: data set of that result, None for none.
        adds: what the update adds to the prior, in bits; empty where it was not measured.
        status: whether that is a leak.
        row: row of the results of the best attack; None if no attack was scored.
        tried: number of attacks among which it was chosen.
    """

    verdict: str
    measured: str = ""
    metric: str = ""
    question: str | None = None
    data: Any = None
    adds: str = ""
    status: Status = field(default="unmeasured", compare=False)
    row: Row | None = field(default=None, compare=False, repr=False)
    tried: int = field(default=0, compare=False)


def headline(results: pd.DataFrame) -> Headline:
    """Headline about the attack that goes furthest from guessing, or the best baseline, towards certainty.

    An attack whose leak is shown, see `is_shown`, comes before the others. An attack on generated data has the headline
    only if no other attack was scored, and results under a defence that was tried on a recording never.
    """
    results = as_recorded(results)
    scored = results[results["role"].isin(ATTACKS) & results["mean"].notna()]
    attacks = scored[is_judged(scored)]
    if attacks.empty:  # metrics that are unknown in this process, of attacks from other packages
        attacks = scored.drop_duplicates("attack")
    if attacks.empty:
        baselines = ", ".join(dict.fromkeys(results["attack"][results["mean"].notna()]))
        only = f" The values below are of {baselines}, which are no attacks." if baselines else ""
        return Headline(f"No attack could be scored on this recording.{only}")
    real = attacks[~is_generated(attacks)]
    attacks = attacks if real.empty else real
    tried = attacks.groupby(["question", "metric"], dropna=False)["attack"].transform("nunique")
    shown = attacks[[is_shown(row, results) for row in records(attacks)]]
    attacks = attacks if shown.empty else shown
    place = attacks.index[int(np.argmax(_gains(attacks, results)))]
    best = records(attacks.loc[[place]])[0]
    among = f", chosen among {tried[place]} attacks by the same data" if tried[place] > 1 else ""
    inferred = best["tells"] or "something about the client"
    asked = results[results["question"].isna() | (results["question"] == best["question"])]
    where = describe(setting_of(best), differing(asked) | {"data"})
    parts = [_compared(best, results), *meanings([best["metric"]])]
    name, clients = best["metric"], "one client" if best["n"] == 1 else f"{best['n']} clients"
    reaches = f"{value_in_words(name, best['mean'])}:" if metric(name).words else "reaches"
    measured = (
        f"The best attack, {best['attack']}, {reaches} {name} {number(best['mean'])} on {clients}"
        f" (for clients like these: 95% interval {number(best['low'])} to {number(best['high'])}{among})"
        f"{' '.join(parts)}"
    )
    verdict, status = f"On {where}, the server can infer from a client's update {inferred}.", _status(best, results)
    if shown.empty:
        status = "undecided" if status == "leak" else status
    if shown.empty and are_too_few(best, results):
        verb = "is" if best["n"] == 1 else "are"
        verdict = f"On {where}, {clients} {verb} too few to say whether a client's update shows {inferred}."
    elif shown.empty and not comparisons(best, results):
        compared = "no baseline ran to compare with"
        verdict = f"On {where}, {compared}, so it cannot be said whether the server can infer {inferred}."
    elif shown.empty:
        verdict = f"On {where}, no attack is shown to infer {inferred}{_than(best, results, 'better')}."
    elif hardly_exceeds(best, results):
        verdict = f"On {where}, no attack infers {inferred}{_than(best, results, 'much better')}."
    said = best["metric"], best["question"], best.get(DATA), added(best, results)
    return Headline(verdict, measured, *said, status, best, int(tried[place]))


def _status(best: Row, results: pd.DataFrame) -> Status:
    """What the best attack's result is, if its leak is shown."""
    if not judges(best["metric"], best["question"]):
        return "measured"
    if not hardly_exceeds(best, results):
        return "leak"
    furthest = reach(best, best["low" if metric(best["metric"]).lower_is_better else "high"], results)
    return "near" if furthest is not None and furthest < _HALF else "undecided"


def reach(row: Row, value: float, results: pd.DataFrame) -> float | None:
    """Share of the way from guessing, or the best baseline, to certainty at which a value of a row's metric lies.

    Values that are worse than the baseline have 0. None where there is nothing to count from, or no value.
    """
    entry, least = metric(row["metric"]), comparisons(row, results)
    if not judges(row["metric"], row["question"]) or not least or value != value:
        return None
    start = min(least) if entry.lower_is_better else max(least)
    return None if start == entry.certainty else min(max((value - start) / (entry.certainty - start), 0.0), 1.0)


def most_bits(row: Row, results: pd.DataFrame) -> Row | None:
    """Result of the attack on a row's question that adds the most bits to the prior; None where none was measured."""
    cell = same_cell({**row, "metric": "bits"}, results)
    rows = records(cell[cell["role"].isin(ATTACKS) & cell["mean"].notna()])
    return max(rows, key=lambda row: (row["mean"], row["with_prior"]), default=None)


def added(row: Row, results: pd.DataFrame) -> str:
    """Sentence on the bits that the update adds to the prior, by the attack on a row's question that adds the most."""
    best = most_bits(row, results)
    if best is None:
        return ""
    left, possible = (_of_attack(best, name, results) for name in ("bits-left", "bits-possible"))
    interval = f"95% interval {bits(best['low'])} to {bits(best['high'])}, {best['attack']}"
    said = f"The update adds {bits(best['mean'])} bits ({interval})"
    if best["low"] <= 0:
        said = f"The update is not shown to add anything to the prior: {bits(best['mean'])} bits ({interval})"
    if left is not None:
        said += f" to what is known of a client, of {bits(best['mean'] + left)} that are unknown without it"
    beyond = _of_attack(best, "bits-beyond-counts", results)
    if beyond is not None:
        said += (
            f"; how many of a client's records each class has is a part of it, and {bits(beyond)} bits are beyond that"
        )
    bound = declared_bound(best, results)
    if bound is not None:
        said += f"; what the clients declare to do to it allows at most {bits(bound.bits)}{_beyond(best, bound)}"
    elif possible is not None:
        because = f", because {row['unbounded']}" if row.get("unbounded") else ""
        said += f"; all answers together have at most {bits(possible)}, and no smaller bound is known{because}"
    elif row.get("unbounded"):
        said += f"; no bound is known, because {row['unbounded']}"
    return f"{said}."


@dataclass(frozen=True)
class DeclaredBound:
    """The most bits that an update carries by what clients declare, and a test of the declaration.

    Attributes:
        bits: the bound.
        matched: share of clients that are matched with their updates, a row of results; None where it was not measured.
        allowed: the largest share that the declared epsilon allows, whatever the server knew before.
    """

    bits: float
    matched: Row | None = None
    allowed: float = 1.0

    @property
    def is_false(self) -> bool:
        """Whether so many clients are matched as the declaration allows with a probability of `_CHANCE` at most."""
        return self.chance < _CHANCE

    @property
    def right(self) -> int:
        """Number of clients that are matched."""
        return 0 if self.matched is None else round(self.matched["mean"] * self.matched["n"])

    @property
    def chance(self) -> float:
        """Probability with which so many are matched, or more, if the declaration is true."""
        return 1.0 if self.matched is None else float(binom.sf(self.right - 1, self.matched["n"], self.allowed))


def declared_bound(row: Row, results: pd.DataFrame) -> DeclaredBound | None:
    """Bound on the attack of a row with the test of it; None where clients declare nothing that bounds updates."""
    bound = _of_attack(row, "bits-bound", results)
    if bound is None:
        return None
    cell = same_cell({**row, "metric": "matched-clients"}, results)
    tests = [one for one in records(cell[cell["mean"].notna()]) if one["attack"] == row["attack"]]
    allowed = _of_attack(row, "matched-clients-bound", results)
    return DeclaredBound(bound) if not tests or allowed is None else DeclaredBound(bound, tests[0], allowed)


def false_bounds(results: pd.DataFrame) -> list[str]:
    """A sentence on each question of which an attack shows that a declared epsilon is false; see `DeclaredBound`."""
    sentences = {}
    for row in records(as_recorded(results[(results["metric"] == "bits") & results["role"].isin(ATTACKS)])):
        bound = declared_bound(row, results)
        if bound is not None and bound.is_false and bound.matched is not None:
            sentences[row["question"]] = (
                f"The declared epsilon is false: it allows {bound.allowed:.0%} of the clients to be matched with their"
                f" updates on average, whatever the server knew before, and {row['attack']} matches {bound.right} of"
                f" {bound.matched['n']}, which then has a probability of {bound.chance:.1g}"
            )
    return list(sentences.values())


def _beyond(best: Row, bound: DeclaredBound) -> str:
    """What follows where an attack has more bits than a declared bound; empty where it has not."""
    if bound.is_false:
        return ": the declaration is false"
    if best["low"] > bound.bits:
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
    return f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"


def _of_attack(row: Row, name: str, results: pd.DataFrame) -> float | None:
    cell = same_cell({**row, "metric": name}, results)
    values = cell["mean"][(cell["attack"] == row["attack"]) & cell["mean"].notna()]
    return None if values.empty else float(values.iloc[0])


def is_shown(row: Row, results: pd.DataFrame) -> bool:
    """Whether an attack on these clients is better than guessing and the best baseline, and not by luck.

    At least `FEWEST` clients are needed, something to compare with (see `comparisons`), and a probability of luck of at
    most 5% for all attacks of the question together, see `fedleak.evaluation.luck`. Where it is unknown (results of an
    earlier version, or metrics by which attacks are not compared), the whole interval must lie beyond.
    """
    least = comparisons(row, results)
    if row["n"] < FEWEST or not least:
        return False
    if (probability := row.get(LUCK, math.nan)) == probability:
        return bool(probability * tried(row, results) <= LEVEL)
    entry = metric(row["metric"])
    sign, end = (-1, "high") if entry.lower_is_better else (1, "low")
    return all(sign * (row[end] - value) > 0 for value in least)


def are_too_few(row: Row, results: pd.DataFrame) -> bool:
    """Whether so few clients were attacked that no result on them could be shown, see `is_shown`.

    Luck has a probability of at least ``2^-n`` on n clients, for each of the attacks.
    """
    return bool(row["n"] < FEWEST or 0.5 ** row["n"] * tried(row, results) > LEVEL)


def tried(row: Row, results: pd.DataFrame) -> int:
    """Number of attacks on the question and setting of a row that have its metric."""
    cell = same_cell(row, results)
    return int(cell["attack"][cell["role"].isin(ATTACKS) & cell["mean"].notna()].nunique())


def comparisons(row: Row, results: pd.DataFrame) -> list[float]:
    """Values of guessing and of the best baseline; 0 if there are none and more is better.

    It is empty where the question has a baseline that says how likely the answers are without the update, e.g. by the
    frequency of words, and none of them ran: guessing alone is then too weak.
    """
    entry, baseline = metric(row["metric"]), best_baseline(row, results)
    priors = _priors().get(row["question"] or "", set())
    if priors and priors.isdisjoint(_baselines(row, results)["attack"]):
        return []
    cell = same_cell({**row, "metric": f"{row['metric']}-by-chance"}, results)
    values = [entry.guessing, *cell["mean"][cell["attack"] == row["attack"]]]
    values = [value for value in (*values, None if baseline is None else baseline["mean"]) if value is not None]
    return values or ([] if entry.lower_is_better else [0.0])


def _than(row: Row, results: pd.DataFrame, how: str) -> str:
    """What the attacks are not better than; empty if there is nothing."""
    if best_baseline(row, results) is not None:
        return f" {how} than the baselines"
    return "" if metric(row["metric"]).guessing is None else f" {how} than guessing"


def is_generated(results: pd.DataFrame) -> pd.Series:
    """Whether the data of each row are generated."""
    return results.get(DATA, pd.Series("", results.index)).map(str).str.startswith("synthetic")


def _gains(attacks: pd.DataFrame, results: pd.DataFrame) -> NDArray[np.float64]:
    """``(A,)`` share of the range from guessing, or the best baseline, to certainty that each attack covers."""
    signs = results["metric"].map(lambda name: -1.0 if metric(name).lower_is_better else 1.0)
    certain = signs * results["metric"].map(lambda name: metric(name).certainty)
    guessing = signs * results["metric"].map(lambda name: metric(name).guessing).astype(float)
    means = signs * results["mean"]
    baselines = results.assign(baseline=means.where(results["role"] == "baseline"))

    def best(settings: list[str]) -> pd.Series:
        same = baselines.groupby(["question", "metric", *settings], sort=False, dropna=False)
        return same["baseline"].transform("max")

    guess = pd.concat([best(setting_columns(results)), guessing], axis=1).max(axis=1)
    guess = guess.fillna(best([DATA] if DATA in results else [])).fillna(certain - 1)
    gains = (means - guess) / (certain - guess).replace(0, np.nan)
    return gains.fillna(-np.inf)[attacks.index].to_numpy(dtype=np.float64)


@functools.cache
def _priors() -> dict[str, set[str]]:
    """Names of the baselines of each question that say how likely its answers are without the update."""
    names: dict[str, set[str]] = {}
    for attack in described():
        if attack.is_prior:
            names.setdefault(attack.estimates, set()).update((attack.name, f"{attack.family}/{attack.name}"))
    return names


def _baselines(row: Row, results: pd.DataFrame) -> pd.DataFrame:
    """Results of baselines for the same question and metric in the same setting, else on the same data."""
    near = same_cell(row, results)
    near = near[(near["role"] == "baseline") & near["mean"].notna()]
    if near.empty:
        same = (results["question"] == row["question"]) & (results["metric"] == row["metric"])
        same &= (results["role"] == "baseline") & results["mean"].notna()
        near = results[same & (results[DATA] == row[DATA])] if DATA in results else results[same]
    return near


def best_baseline(row: Row, results: pd.DataFrame) -> Row | None:
    """Best baseline of the same question and metric in the same setting, else on the same data."""
    near = _baselines(row, results)
    sign = -1 if metric(row["metric"]).lower_is_better else 1
    return max(records(near), key=lambda other: sign * other["mean"], default=None)


def _compared(row: Row, results: pd.DataFrame) -> str:
    guessing, baseline = metric(row["metric"]).guessing, best_baseline(row, results)
    parts = [] if guessing is None else [f"guessing gives {guessing:g}"]
    parts += [] if baseline is None else [f"the best baseline, {baseline['attack']}, {number(baseline['mean'])}"]
    return f"; {', '.join(parts)}." if parts else "."
