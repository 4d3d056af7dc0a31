"""The one place that runs an attack on a view and scores what it infers."""

import time
import traceback
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from attacks.base import Attack
from attacks.estimates import Estimate, EstimateError, Scores
from evaluation.scores import Line, concat, score_table, with_setting
from protocol.errors import InputError
from protocol.seeding import generator_for
from protocol.view import ServerView, ViewError

_PROFILE = ("true", "inferred", "low", "high")


@dataclass
class Evaluation:
    """The scores of attacks, and what reports say about them.

    Attributes:
        scores: see `evaluation.scores.SCHEMA`.
        lines: by label, what the line is.
        roc: by label, the sum of the victims' true-positive rates at `ROC_GRID` ``(G,)``, and how many victims these
            are.
        missing: by attack that could not run, what it lacks.
        figures: captions and SVG texts in addition to those of every report.
        profiles: one row per victim, round, attack and class: ``true``, ``inferred``, ``low`` and ``high`` share.
    """

    scores: pd.DataFrame = field(default_factory=lambda: concat([]))
    lines: dict[str, Line] = field(default_factory=dict)
    roc: dict[str, tuple[Tensor, int]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    figures: list[tuple[str, str]] = field(default_factory=list)
    profiles: pd.DataFrame = field(default_factory=pd.DataFrame)


def joined(evaluations: Sequence[Evaluation]) -> Evaluation:
    """All scores together, in their order."""
    whole = Evaluation(scores=concat([evaluation.scores for evaluation in evaluations]))
    profiles = [evaluation.profiles for evaluation in evaluations if len(evaluation.profiles)]
    whole.profiles = pd.concat(profiles, ignore_index=True) if profiles else whole.profiles
    for evaluation in evaluations:
        whole.lines |= evaluation.lines
        whole.missing |= evaluation.missing
        whole.figures += evaluation.figures
        for label, (rates, count) in evaluation.roc.items():
            before, already = whole.roc.get(label, (torch.zeros_like(rates), 0))
            whole.roc[label] = before + rates, already + count
    return whole


def infer(attack: Attack, view: ServerView, generator: torch.Generator) -> Estimate:
    """Runs an attack on a view; every call of an attack in the project is this one.

    Raises:
        ViewError: the view lacks what the attack needs.
        InputError: the attack is defective, or numbers of a stranger's recording made its estimate none.
    """
    try:
        return attack(view, generator=generator)
    except EstimateError as error:
        raise InputError(
            expected=f"a recording with numbers that {attack.name} can compute with",
            found=f"an estimate that is none ({error}) in round {view.round}",
            way_out="Look for very large numbers in the recording; if there are none, the attack has a defect.",
        ) from error
    except (InputError, ViewError):
        raise
    except Exception as error:
        if type(attack).__module__.partition(".")[0] == "attacks":
            raise  # a defect of our own, whose traceback is needed
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise InputError(
            expected=f"an attack {attack.name} that runs on round {view.round}",
            found=f"{type(error).__name__}: {error} ({where.filename}, line {where.lineno})",
            way_out="Fix the attack.",
        ) from error


def unfit(attack: Attack, view: ServerView, truth: Mapping[str, Tensor]) -> str | None:
    """Why an attack cannot be run on a view and scored, None where it can."""
    lacking = view.missing(attack.threat_model.needs)
    if lacking:
        return f"the recording lacks {', '.join(_in_words(name) for name in lacking)}"
    unknown = [name for name in attack.estimates.truth if name not in truth]
    if unknown:
        return f"without {', '.join(unknown)} in truth/ of the recording it cannot be scored"
    return None


def _in_words(need: str) -> str:
    head, _, entry = need.partition(":")
    return f"{head} ({entry})" if entry else head


def attack_view(
    attack: Attack,
    view: ServerView,
    truth: Mapping[str, Tensor],
    *,
    seed: int,
    setting: Mapping[str, Any],
    label: str | None = None,
) -> Evaluation:
    """Attacks one view and scores the estimate.

    Args:
        attack: what to run.
        view: what the server saw.
        truth: of the same victims.
        seed: seed of the training, and of the attack's draws.
        setting: the cell that the rows belong to.
        label: of the rows; None for the attack's own.

    Raises:
        ViewError: the view lacks what the attack needs.
        InputError: the attack is defective.
    """
    own = attack.label(view)
    label = label or own
    start = time.perf_counter()
    key = (int(view.pseudonyms[0]) % 2**31,) if attack.scope == "round" else ()
    estimate = infer(attack, view, generator_for(seed, own, view.round, *key))
    seconds = (time.perf_counter() - start) / max(view.victims, 1)
    scores = _scored(attack, estimate, view, truth)
    metrics = {**scores.metrics, **successes(scores.metrics, setting)}
    people = truth.get("clients") if scores.units is None else None
    found = Evaluation(lines={label: Line.of(attack, view)})
    victims = view.pseudonyms if scores.units is None else scores.units
    common: dict[str, Any] = {"setting": setting, "seed": seed, "round": view.round}
    found.scores = score_table(
        label,
        metrics,
        victims=victims,
        people=people,
        items=0 if scores.items is None else scores.items,
        positives=0 if scores.positives is None else scores.positives,
        influences=scores.influences,
        seconds=seconds,
        **common,
    )
    if view.messages is not None and scores.units is None:
        found.scores = with_setting(found.scores, rounds=view.messages.tolist() * len(metrics))
    if scores.roc is not None and len(scores.roc):
        found.roc[label] = scores.roc.double().sum(0), len(scores.roc)
    if scores.profiles is not None:
        found.profiles = _profile_table(label, scores.profiles, victims=victims, **common)
    return found


def _scored(attack: Attack, estimate: Estimate, view: ServerView, truth: Mapping[str, Tensor]) -> Scores:
    scores = estimate.score(view, truth)
    unknown = set(scores.metrics) - set(estimate.metric_names())
    size = view.victims if scores.units is None else len(scores.units)
    wrong = [name for name, value in scores.metrics.items() if tuple(value.shape) != (size,)]
    if unknown or wrong:
        raise InputError(
            expected=f"of {type(estimate).__name__}.score the metrics {', '.join(estimate.metric_names())}, of shape"
            f" ({size},)",
            found=f"{', '.join(sorted(unknown) or wrong)} from {attack.name}",
            way_out="Add the metric to the class attribute `metrics`, or return one value for each victim.",
        )
    return scores


def successes(metrics: Mapping[str, Tensor], setting: Mapping[str, Any]) -> dict[str, Tensor]:
    """``success``: whether each client's error is at most the setting's tolerance; nothing where it has none."""
    if "error" not in metrics or "tolerance" not in setting:
        return {}
    return {"success": (metrics["error"] <= setting["tolerance"]).double()}


def _profile_table(
    label: str, profiles: Tensor, *, victims: Tensor, setting: Mapping[str, Any], seed: int, round: int
) -> pd.DataFrame:
    """One row per victim and class, from ``(V, K, 4)``."""
    count, classes, _ = profiles.shape
    rows: dict[str, list[Any]] = defaultdict(list)
    rows["victim"] = victims.repeat_interleave(classes).tolist()
    rows["class"] = torch.arange(classes).repeat(count).tolist()
    made = pd.DataFrame({**rows, **dict(zip(_PROFILE, profiles.reshape(-1, 4).T.tolist(), strict=True))})
    fixed: dict[str, Any] = {"attack": label, "seed": seed, "round": round}
    return with_setting(made.assign(**fixed), **setting)
