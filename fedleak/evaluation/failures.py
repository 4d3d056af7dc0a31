"""Why attacks failed, and why they could not run: one sentence each, from results, measured causes and missing data."""

import inspect
import itertools
import math
import re
from collections.abc import Mapping, Sequence

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
_VIEWS, _VICTIMS = 4, 16


def explain(results: pd.DataFrame, recording: Recording, *, seed: int) -> list[Cause]:
    """Causes of the failures in the results on a recording; views are read only if an attack failed."""
    empty, failed = no_reconstructions(results), near_guessing(results)
    if not failed:
        return empty
    learner = recorded_learner(recording)
    views = recording.views(victims_per_view=_VICTIMS, rounds=recording.rounds[:_VIEWS], learner=learner)
    measured = measured_causes(list(itertools.islice(views, _VIEWS)), seed=seed)
    cells = Cells(results)
    return empty + [cause.of(row) for row in failed for cause in _causes(row, cells, measured)]


def _causes(row: Row, cells: Cells, measured: Sequence[Cause]) -> list[Cause]:
    """Measured causes that explain a row; else too few victims; else a better attack in the cell; else unknown."""
    fitting = [cause for cause in measured if cause.metrics is None or row["metric"] in cause.metrics]
    certain, possible = ([one for one in fitting if (one.cause == POSSIBLE) is last] for last in (False, True))
    if certain:
        return certain
    if few := _few_victims(row, cells):
        return [few, *possible]
    if better := _succeeded(row, cells):
        other = f"{better['attack']}: {better['metric']} {better['mean']:.3f}"
        sentence = f"another attack succeeds on the same recording ({other})"
        return [Cause("attack", sentence, {"other": better["mean"]})]
    known = "noise, rank, local steps, silence, precision, quantisation, sparsity, weight decay"
    return possible or [Cause("unknown", f"none of the measured causes ({known}) applies", {})]


def _few_victims(row: Row, cells: Cells) -> Cause | None:
    gains = [cells.most_gain(row, row[end]) for end in ("low", "high")]
    low, high = sorted(math.nan if gain is None else gain for gain in gains)
    if not (low <= 0 < NEAR < high and high - low > _WIDE):
        return None
    sentence = f"too few victims: n = {row['n']}, {row['metric']} {row['low']:.3f} to {row['high']:.3f}"
    return Cause("few-victims", sentence, {"n": row["n"]})


def _succeeded(row: Row, cells: Cells) -> Row | None:
    """Best other attack in the cell that did not fail."""
    others = [other for other in cells.attacks(row) if other["attack"] != row["attack"] and not cells.is_near(other)]
    return max(others, key=cells.rank, default=None)


def unfit(attack: Attack, view: View, truth: Mapping[str, Tensor]) -> Reason | None:
    """Reason why an attack cannot run on a view or be scored, with the remedy; None if it can."""
    inapplicable = attack.estimates.inapplicable(view, truth)
    if inapplicable is not None:
        return Reason("inapplicable", says=inapplicable)
    kinds = [need for need in attack.threat_model.needs if isinstance(need, type)]
    other = [kind for kind in kinds if not isinstance(view.algorithm, kind)]
    if view.algorithm is not None and other:
        names = ", no ".join(kind.__name__ for kind in other)
        return Reason(
            "other-clients",
            tuple(dict.fromkeys(map(_described, other))),
            says=f"the clients' algorithm is {type(view.algorithm).__name__}, no {names}",
        )
    lacking = view.missing(attack.threat_model.needs)
    if lacking:
        return lacks(lacking)
    if attack.quadratic and (size := 8 * view.victims**2) > memory_bound():
        needed = f"it compares {view.victims:,} messages with each other, which takes {gibibytes(size)}"
        return Reason(
            "quadratic",
            way_out="give --victims",
            says=f"{needed}, and it may use {gibibytes(memory_bound())}",
        )
    unknown = tuple(name for name in attack.estimates.truth if name not in truth)
    if not unknown or attack.certifies:
        misfit = attack.misfit(view, truth)
        return None if misfit is None else Reason("misfit", way_out=misfit.way_out, says=misfit.says)
    if truth:
        way_out = f"add {', '.join(unknown)} to the truth of each client (docs/reference/recording-format.md)"
    else:
        way_out = "the recording was published without truth/, audit it where that is"
    return Reason("unscored", unknown, way_out)


def unreadable(recording: Recording, attacks: Sequence[Attack], error: InputError) -> Reason:
    """Reason why attacks on all messages cannot read those of a recording, of which an error was raised."""
    needs = {need for attack in attacks for need in attack.threat_model.needs}
    if needs & {"known", "pairs"} and not len(recording.auxiliary().get(KNOWN_PSEUDONYMS, ())):
        return lacks(["known"])
    return Reason("unread", says=f"expected {error.expected}")


def _described(kind: type) -> str:
    """First sentence of the documentation of a kind of algorithm."""
    sentence = re.split(r"[.;](?=\s|$)", inspect.getdoc(kind) or kind.__name__)[0].replace("``", "")
    return f"{sentence[:1].lower()}{sentence[1:]}"
