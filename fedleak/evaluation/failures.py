"""Why attacks failed, and why they could not run: one sentence each, from results, measured causes and missing data."""

import inspect
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from torch import Tensor

from fedleak.core.attack import Attack
from fedleak.core.errors import InputError
from fedleak.core.memory import gibibytes, memory_bound
from fedleak.core.view import View
from fedleak.evaluation.cause import POSSIBLE, Cause
from fedleak.evaluation.causes import measured_causes
from fedleak.evaluation.comparisons import NEAR, Cells, Row
from fedleak.evaluation.near_guessing import near_guessing, no_reconstructions
from fedleak.evaluation.reasons import Reason, lacks
from fedleak.recordings.adversary_devices import PSEUDONYMS as KNOWN_PSEUDONYMS
from fedleak.recordings.recorded_learner import recorded_learner
from fedleak.recordings.recording import Recording

_WIDE = 0.2
"""Width of an interval, as a share of the same range, above which more victims are needed."""
_VIEWS = 4
"""Views on which causes are measured: of the first rounds."""
_VICTIMS = 16
"""Clients of each view."""


def explain(results: pd.DataFrame, recording: Recording, *, seed: int) -> list[Cause]:
    """Causes of the failures in the results on a recording; views are read only if an attack failed."""
    without_images = no_reconstructions(results)
    failed = near_guessing(results)
    if not failed:
        return without_images
    learner = recorded_learner(recording)
    views = recording.views(victims_per_view=_VICTIMS, rounds=recording.rounds[:_VIEWS], learner=learner)
    measured = measured_causes(list(itertools.islice(views, _VIEWS)), seed=seed)
    cells = Cells(results)
    causes = list(without_images)
    for row in failed:
        causes += [cause.of(row) for cause in _causes(row, cells, measured)]
    return causes


def _causes(row: Row, cells: Cells, measured: Sequence[Cause]) -> list[Cause]:
    """Measured causes that explain a row; else too few victims; else a better attack in the cell; else unknown."""
    fitting = [cause for cause in measured if cause.metrics is None or row["metric"] in cause.metrics]
    certain = [cause for cause in fitting if cause.cause != POSSIBLE]
    possible = [cause for cause in fitting if cause.cause == POSSIBLE]
    if certain:
        return certain
    few_victims = _few_victims(row, cells)
    if few_victims is not None:
        return [few_victims, *possible]
    better = _succeeded(row, cells)
    if better:
        in_words = f"{better['attack']}: {better['metric']} {better['mean']:.3f}"
        sentence = f"another attack succeeds on the same recording ({in_words})"
        return [Cause("attack", sentence, {"other": better["mean"]})]
    if possible:
        return possible
    excluded = "noise, rank, local steps, silence, precision, quantisation, sparsity, weight decay"
    return [Cause("unknown", f"none of the measured causes ({excluded}) applies", {})]


def _few_victims(row: Row, cells: Cells) -> Cause | None:
    """Too few victims: the interval reaches from the comparison, or below, to where an attack is not near it."""
    gain_of_low = cells.most_gain(row, row["low"])
    gain_of_high = cells.most_gain(row, row["high"])
    if gain_of_low is None or gain_of_high is None:
        return None
    low, high = sorted((gain_of_low, gain_of_high))
    if not (low <= 0 < NEAR < high and high - low > _WIDE):
        return None
    sentence = f"too few victims: n = {row['n']}, {row['metric']} {row['low']:.3f} to {row['high']:.3f}"
    return Cause("few-victims", sentence, {"n": row["n"]})


def _succeeded(row: Row, cells: Cells) -> Row | None:
    """Best other attack in the cell that did not fail."""
    succeeded = []
    for attack_row in cells.attacks(row):
        if attack_row["attack"] != row["attack"] and not cells.is_near(attack_row):
            succeeded.append(attack_row)
    return max(succeeded, key=cells.rank, default=None)


def unfit(attack: Attack, view: View, truth: Mapping[str, Tensor]) -> Reason | None:
    """Reason why an attack cannot run on a view or be scored, with the remedy; None if it can."""
    inapplicable = attack.estimates.inapplicable(view, truth)
    if inapplicable is not None:
        return Reason("inapplicable", says=inapplicable)
    # Kinds of algorithms that the attack needs, and the clients do not run.
    needed_kinds = [need for need in attack.threat_model.needs if isinstance(need, type)]
    other_kinds = [kind for kind in needed_kinds if not isinstance(view.algorithm, kind)]
    if view.algorithm is not None and other_kinds:
        names = ", no ".join(kind.__name__ for kind in other_kinds)
        return Reason(
            "other-clients",
            tuple(dict.fromkeys(map(_described, other_kinds))),
            says=f"the clients' algorithm is {type(view.algorithm).__name__}, no {names}",
        )
    lacking = view.missing(attack.threat_model.needs)
    if lacking:
        # The first dimension of recorded deltas is that of the clients.
        return lacks(lacking, {name: tuple(change.shape[1:]) for name, change in view.deltas.items()})
    # A matrix of messages by messages, of eight bytes a number.
    size = 8 * view.victims**2
    if attack.quadratic and size > memory_bound():
        needed = f"it compares {view.victims:,} messages with each other, which takes {gibibytes(size)}"
        return Reason(
            "quadratic",
            way_out="give --victims",
            says=f"{needed}, and it may use {gibibytes(memory_bound())}",
        )
    # An attack that certifies its answers needs no ground truth.
    absent = tuple(name for name in attack.estimates.truth if name not in truth)
    if not absent or attack.certifies:
        misfit = attack.misfit(view, truth)
        if misfit is None:
            return None
        return Reason("misfit", way_out=misfit.way_out, says=misfit.says)
    if truth:
        way_out = f"add {', '.join(absent)} to the truth of each client (docs/reference/recording-format.md)"
    else:
        way_out = "the recording was published without truth/, audit it where that is"
    return Reason("unscored", absent, way_out)


def unreadable(recording: Recording, attacks: Sequence[Attack], error: InputError) -> Reason:
    """Reason why attacks on all messages cannot read those of a recording, of which an error was raised."""
    needs: set[Any] = set()
    for attack in attacks:
        needs.update(attack.threat_model.needs)
    has_devices = len(recording.auxiliary().get(KNOWN_PSEUDONYMS, ())) > 0
    if needs & {"known", "pairs"} and not has_devices:
        return lacks(["known"])
    return Reason("unread", says=f"expected {error.expected}")


def _described(kind: type) -> str:
    """First sentence of the documentation of a kind of algorithm."""
    sentence = re.split(r"[.;](?=\s|$)", inspect.getdoc(kind) or kind.__name__)[0].replace("``", "")
    return f"{sentence[:1].lower()}{sentence[1:]}"
