"""Why attacks failed, and why they could not run: one sentence each, from results, measured causes and missing data."""

import inspect
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from torch import Tensor

from fedleak.attacks.composition.base import CompositionAttack, output_layer
from fedleak.core.attack import Attack
from fedleak.core.errors import InputError, ViewError
from fedleak.core.memory import gibibytes, memory_bound
from fedleak.core.metric_table import METRICS, metric
from fedleak.core.view import ATTRIBUTE_PSEUDONYMS, CANARY_PSEUDONYMS, View
from fedleak.evaluation.causes import POSSIBLE, Cause, measured_causes
from fedleak.evaluation.judging import is_judged
from fedleak.evaluation.luck import LEVEL, LUCK
from fedleak.evaluation.scores import records, setting_columns
from fedleak.evaluation.time_budget import LATE
from fedleak.recordings.adversary_devices import PSEUDONYMS as KNOWN_PSEUDONYMS
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording

_NEAR = 0.2
"""Share of the range from guessing to certainty below which an attack counts as failed; an AUC of 0.6."""
_WIDE = 0.2
"""Width of an interval, as a share of the same range, above which more victims are needed."""
_NO_IMAGE = 12.0
"""PSNR in dB that images of a data set reach with the mean image or with one another."""
_VIEWS, _VICTIMS = 4, 16
_ATTACKS = ("ours", "published")
_UNSCORED, _SLOW, _INAPPLICABLE = "without ", "it is slow", "the question does not apply: "
"""Starts of reasons."""
_LACKS, _OTHERS = "the recording lacks ", "it needs "
_LEARNER = "the clients' training algorithm"
_REMEDIES = {
    "algorithm": "add `learner:` to the manifest, or give --learner my_package.MyLearner",
    "known": "give the adversary devices of its own: known_pseudonyms and known_users in `auxiliary:`",
    "served": "give an array `served` with the items shown to each client",
    "lists": "give an array `lists` with the ranked list of each item",
    "features": "give an array `features` with the features of the items as sent",
    "sent_in": "record two rounds or more",
}
"""What to do about a field that a view lacks."""
_PLAIN = {
    "algorithm": _LEARNER,
    "learner": _LEARNER,
    "known": "devices of the server's own, whose users it knows",
    "pairs": "devices of the server's own, whose users it knows",
    "served": "the items that the server showed",
    "lists": "the ranked lists that it showed",
    "features": "the features of the items",
    "sent_in": "several rounds",
    "participants": "sums of updates",
    "model": "the global model",
    "releases": "noise or clipping that the clients declare",
    "deltas": "the updates of the parameters in question",
    "auxiliary": "data of the server's own",
}
"""Fields of a view in plain words."""
_PLAIN_DATA = {
    "candidates": "a pool of records of which the clients hold some",
    "candidate_labels": "a pool of records of which the clients hold some",
    "images": "labelled examples of the server's own",
    "labels": "labelled examples of the server's own",
    "prior_features": "examples of people who are no clients",
    "prior_labels": "examples of people who are no clients",
    "prior_users": "examples of people who are no clients",
    "columns": "the columns of the table",
    "public_interactions": "interactions of people who are no clients",
    ATTRIBUTE_PSEUDONYMS: "updates of people whose attributes the server knows",
    CANARY_PSEUDONYMS: "canaries",
}
"""Data of the server in plain words, by their entry of `auxiliary:`."""

Row = dict[str, Any]
"""Row of a table of results."""


def explain(results: pd.DataFrame, recording: Recording, *, seed: int) -> list[Cause]:
    """Causes of the failures in the results on a recording; views are read only if an attack failed."""
    empty, failed = no_reconstructions(results), near_guessing(results)
    if not failed:
        return empty
    learner = recorded_learner(recording)
    views = recording.views(victims_per_view=_VICTIMS, rounds=recording.rounds[:_VIEWS], learner=learner)
    measured = measured_causes(list(itertools.islice(views, _VIEWS)), seed=seed)
    return empty + [cause.of(row) for row in failed for cause in _causes(row, results, measured)]


def near_guessing(results: pd.DataFrame) -> list[Row]:
    """Attacks close to the best baseline by every metric that judges them, each with the first of them."""
    order = list(METRICS)
    attacks = results[results["role"].isin(_ATTACKS)]
    attacks = attacks[is_judged(attacks)]
    ordered = attacks.sort_values("metric", key=lambda names: names.map(order.index), kind="stable")
    keys = ["attack", *setting_columns(results)]
    near = ordered.assign(near=[is_near(row, results) for row in records(ordered)])
    failed = near[near.groupby(keys, dropna=False, sort=False)["near"].transform("all")] if len(near) else near
    return records(failed.drop(columns="near").drop_duplicates(keys))


def is_near(row: Row, results: pd.DataFrame) -> bool:
    """Whether a result is close to the best baseline of its setting, or may be better than it by luck.

    Where the probability of luck is unknown, the interval must not contain that baseline. Without guessing or a
    baseline, only a value of which more is better can be near: if its interval contains 0.
    """
    guess = best_guess(row, results)
    if guess is None:
        return not metric(row["metric"]).lower_is_better and bool(row["low"] <= 0)
    if hardly_exceeds(row, results):
        return True
    probability = row.get(LUCK, math.nan)
    if probability == probability:
        return bool(probability > LEVEL)
    worst = row["high"] if metric(row["metric"]).lower_is_better else row["low"]
    return _gain(row, worst, guess) <= 0


def hardly_exceeds(row: Row, results: pd.DataFrame) -> bool:
    """Whether a mean is close to guessing or the best baseline of its setting."""
    guess = best_guess(row, results)
    return guess is not None and _gain(row, row["mean"], guess) < _NEAR


def best_guess(row: Row, results: pd.DataFrame) -> float | None:
    """Best of guessing and the baselines' means for the same question and cell; None if there is neither."""
    entry, cell = metric(row["metric"]), same_cell(row, results)
    means = cell["mean"][cell["role"] == "baseline"].tolist()
    means += [] if entry.guessing is None else [entry.guessing]
    if not means:
        return None
    return float(min(means) if entry.lower_is_better else max(means))


def same_cell(row: Row, results: pd.DataFrame) -> pd.DataFrame:
    """Results of the same question, metric and setting."""
    kept: pd.Series[bool] = (results["metric"] == row["metric"]) & (results["question"] == row["question"])
    for name in setting_columns(results):
        absent = row[name] is None or row[name] != row[name]
        kept &= results[name].isna() if absent else results[name] == row[name]
    return results[kept]


def sentences(causes: Sequence[Cause]) -> list[str]:
    """One sentence per cause, with all attacks that share it."""
    attacks: dict[str, list[str]] = defaultdict(list)
    for cause in causes:
        attacks[cause.sentence].append(cause.attack)
    return [f"{', '.join(dict.fromkeys(names))}: {sentence}." for sentence, names in attacks.items()]


def no_reconstructions(results: pd.DataFrame) -> list[Cause]:
    """Attacks whose images are no reconstruction, whatever their PSNR.

    An attack has none in a cell if its images identify the true ones no better than chance, and their PSNR is at most
    12 dB or that of a baseline in this cell.
    """
    found, names = [], ("psnr", "identified", "identified-by-chance")
    for _, cell in results.groupby(["question", *setting_columns(results)], dropna=False, sort=False):
        psnr, identified, by_chance = (cell[cell["metric"] == name] for name in names)
        limit = max([_NO_IMAGE, *psnr.loc[psnr["role"] == "baseline", "mean"].dropna()])
        likeness, chance = (table.set_index("attack")["mean"] for table in (psnr, by_chance))
        for row in records(identified[identified["role"] != "baseline"]):
            name = row["attack"]
            if name not in likeness or name not in chance or row["low"] > chance[name] or likeness[name] > limit:
                continue
            sentence = (
                f"no reconstruction: PSNR {likeness[name]:.1f} dB, and its images identify {row['mean']:.1%} of the"
                f" true ones, {chance[name]:.1%} by chance"
            )
            numbers = {"psnr": float(likeness[name]), "identified": row["mean"], "chance": float(chance[name])}
            found.append(Cause("no-reconstruction", sentence, numbers).of(row))
    return found


def _gain(row: Row, value: float, guess: float) -> float:
    """Position of a value on the scale from guessing (0) to certainty (1)."""
    certain = metric(row["metric"]).certainty
    return (value - guess) / (certain - guess) if certain != guess else 0.0


def _causes(row: Row, results: pd.DataFrame, measured: Sequence[Cause]) -> list[Cause]:
    """Measured causes that explain a row; else too few victims; else a better attack in the cell; else unknown."""
    fitting = [cause for cause in measured if cause.metrics is None or row["metric"] in cause.metrics]
    certain, possible = ([one for one in fitting if (one.cause == POSSIBLE) is last] for last in (False, True))
    if certain:
        return certain
    if few := _few_victims(row, results):
        return [few, *possible]
    if better := _succeeded(row, results):
        other = f"{better['attack']}: {better['metric']} {better['mean']:.3f}"
        sentence = f"another attack succeeds on the same recording ({other})"
        return [Cause("attack", sentence, {"other": better["mean"]})]
    known = "noise, rank, local steps, silence, precision, quantisation, sparsity, weight decay"
    return possible or [Cause("unknown", f"none of the measured causes ({known}) applies", {})]


def _few_victims(row: Row, results: pd.DataFrame) -> Cause | None:
    guess = best_guess(row, results) or 0.0
    low, high = sorted(_gain(row, end, guess) for end in (row["low"], row["high"]))
    if not (low <= 0 < _NEAR < high and high - low > _WIDE):
        return None
    sentence = f"too few victims: n = {row['n']}, {row['metric']} {row['low']:.3f} to {row['high']:.3f}"
    return Cause("few-victims", sentence, {"n": row["n"]})


def _succeeded(row: Row, results: pd.DataFrame) -> Row | None:
    """Best other attack in the cell that did not fail."""
    cell = same_cell(row, results)
    others = cell[cell["role"].isin(_ATTACKS) & (cell["attack"] != row["attack"])]
    rows = [other for other in records(others) if not is_near(other, results)]
    sign = -1 if metric(row["metric"]).lower_is_better else 1
    return max(rows, key=lambda other: sign * other["mean"], default=None)


def unfit(attack: Attack, view: View, truth: Mapping[str, Tensor]) -> str | None:
    """Reason why an attack cannot run on a view or be scored, with the remedy; None if it can."""
    inapplicable = attack.estimates.inapplicable(view, truth)
    if inapplicable is not None:
        return f"{_INAPPLICABLE}{inapplicable}"
    kinds = [need for need in attack.threat_model.needs if isinstance(need, type)]
    other = [kind for kind in kinds if not isinstance(view.algorithm, kind)]
    if view.algorithm is not None and other:
        needed = ", ".join(dict.fromkeys(map(_described, other)))
        names = ", no ".join(kind.__name__ for kind in other)
        return f"{_OTHERS}{needed}; the clients' algorithm is {type(view.algorithm).__name__}, no {names}"
    lacking = view.missing(attack.threat_model.needs)
    if lacking:
        return _lacks(lacking)
    if attack.quadratic and (size := 8 * view.victims**2) > memory_bound():
        return (
            f"it compares {view.victims:,} messages with each other, which takes {gibibytes(size)}, and it may use "
            f"{gibibytes(memory_bound())}; give --victims"
        )
    unknown = ", ".join(name for name in attack.estimates.truth if name not in truth)
    if not unknown or attack.certifies:
        return _other_classes(view, truth) if isinstance(attack, CompositionAttack) else None
    added = f"add {unknown} to the truth of each client (docs/recording-format.md)"
    way_out = added if truth else "the recording was published without truth/, audit it where that is"
    return f"{_UNSCORED}{unknown} in truth/ of the recording it cannot be scored; {way_out}"


def unreadable(recording: Recording, attacks: Sequence[Attack], error: InputError) -> str:
    """Reason why attacks on all messages cannot read those of a recording, of which an error was raised."""
    needs = {need for attack in attacks for need in attack.threat_model.needs}
    if needs & {"known", "pairs"} and not len(recording.auxiliary().get(KNOWN_PSEUDONYMS, ())):
        return _lacks(["known"])
    return f"expected {error.expected}"


def _lacks(lacking: Sequence[str]) -> str:
    """Reason that a recording lacks needs of an attack: in plain words, and by name what to add to it."""
    by_field: dict[str, list[str]] = defaultdict(list)
    for need in lacking:
        field, _, entry = need.partition(":")
        by_field[field].append(entry)
    plain, ways_out = [], []
    for field, entries in by_field.items():
        plain += [_PLAIN_DATA.get(entry, _PLAIN.get(field, field)) for entry in entries]
        remedy = _remedy(field, entries)
        if remedy is not None:
            ways_out.append(remedy)
    return "; ".join([_LACKS + ", ".join(dict.fromkeys(plain)), *dict.fromkeys(ways_out)])


def reasons(missing: Mapping[str, str]) -> list[str]:
    """One sentence per reason for which attacks could not run."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, reason in missing.items():
        names[reason].append(name)
    return [f"{', '.join(of_reason)} could not run: {reason}." for reason, of_reason in names.items()]


def nearest_reason(missing: Mapping[str, str]) -> str:
    """Reason of the attack that lacks least; ``missing`` has the reason by attack, and is not empty.

    The order: only the ground truth is lacking, only time, the learner, other data, of which fewer come first; then
    attacks on clients of another kind, and last those whose question does not apply.
    """
    reasons = list(missing.values())

    def distance(reason: str) -> tuple[bool, bool, bool, bool, bool, int, int]:
        lacking = reason.partition(";")[0]
        return (
            is_inapplicable(reason),
            not is_unscored(reason),
            not (is_slow(reason) or is_late(reason)),
            not is_lacking(reason),
            _LEARNER not in reason,
            lacking.count(","),
            -reasons.count(reason),
        )

    return min(reasons, key=distance)


def nothing_scored(missing: Mapping[str, str], attacks: Sequence[Attack]) -> InputError:
    """Error for a recording on which none of `attacks` could be scored; `missing` holds the reason by attack."""
    baselines = {attack.name for attack in attacks if attack.baseline}
    of_attacks = {name: reason for name, reason in missing.items() if name not in baselines}
    least = nearest_reason(of_attacks or missing) if missing else "no victims"
    names = ", ".join(name for name, reason in missing.items() if reason == least)
    return InputError(
        expected="a recording that at least one attack can be scored on",
        found=f"none; the nearest is {names}: {least}" if names else least,
        way_out="Name the clients' learner in the recording's manifest and keep its truth/ (docs/recording-format.md),"
        " or run an attack of your own: attack.py run --attack PACKAGE.CLASS.",
    )


def _described(kind: type) -> str:
    """First sentence of the documentation of a kind of algorithm."""
    sentence = re.split(r"[.;](?=\s|$)", inspect.getdoc(kind) or kind.__name__)[0].replace("``", "")
    return f"{sentence[:1].lower()}{sentence[1:]}"


def _other_classes(view: View, truth: Mapping[str, Tensor]) -> str | None:
    """That the model's last layer has other classes than the ground truth counts; None if it has the same."""
    try:
        layer = output_layer(view)
        classes = view.deltas[f"{layer}.bias"].shape[1]
    except (ViewError, KeyError) as error:
        return str(error)
    counted = truth["class_counts"].shape[1]
    if classes == counted:
        return None
    return (
        f"the model's last layer, {layer!r}, has outputs for {classes} classes, and class_counts in truth/ counts"
        f" {counted}; if another layer is the last, give the parameters in the network's order"
    )


def slow_reason(attack: Attack) -> str:
    """Reason why an attack was left out that takes minutes."""
    return f"{_SLOW} ({attack.cost}); add --slow to run it on {attack.audited_victims} clients"


def is_slow(reason: str) -> bool:
    """Whether an attack was left out because it takes minutes."""
    return reason.startswith(_SLOW)


def is_late(reason: str) -> bool:
    """Whether an attack was left out because the time of the audit was not enough."""
    return reason.startswith(LATE)


def is_inapplicable(reason: str) -> bool:
    """Whether the question of an attack cannot be asked of the recorded system, see `Estimate.inapplicable`."""
    return reason.startswith(_INAPPLICABLE)


def why_inapplicable(reason: str) -> str:
    """The clause behind the start of such a reason."""
    return reason.removeprefix(_INAPPLICABLE)


def needs_other_clients(reason: str) -> bool:
    """Whether an attack is on clients of another kind, which the reason describes up to a semicolon."""
    return reason.startswith(_OTHERS)


def is_lacking(reason: str) -> bool:
    """Whether the recording lacks what an attack needs besides the ground truth."""
    return reason.startswith(_LACKS)


def is_unscored(reason: str) -> bool:
    """Whether an attack lacks nothing but ground truth."""
    return reason.partition("; ")[0].startswith(_UNSCORED)


def _remedy(field: str, entries: list[str]) -> str | None:
    """What to do about a field or its entries; None if nothing is known."""
    if entries == [CANARY_PSEUDONYMS]:
        return "train with the defence Canaries, see docs/canaries.md"
    if field == "auxiliary":
        return f"add {', '.join(entries)} to the server's data (`auxiliary:`)"
    if field == "deltas" and any(entries):
        return f"record the updates of {', '.join(entries)}"
    if field == "learner":
        return f"{_REMEDIES['algorithm']} (one of the kind {', '.join(entries)})"
    return _REMEDIES.get("known" if field == "pairs" else field)
