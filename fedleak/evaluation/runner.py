"""Run of an attack on a view and score of its estimate; all attacks of the project are called here."""

import dataclasses
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from fedleak.core.answers import Choices, Quantities
from fedleak.core.attack import Attack
from fedleak.core.errors import InputError, ViewError
from fedleak.core.estimates import Estimate, EstimateError, Scores
from fedleak.core.metric import ANY
from fedleak.core.metric_table import metric
from fedleak.core.seeding import generator_for
from fedleak.core.view import RoundView, View
from fedleak.evaluation.attack_line import line_of
from fedleak.evaluation.channel import pure_epsilon, update_bits
from fedleak.evaluation.estimate_store import EstimateStore
from fedleak.evaluation.evaluation import Evaluation as Evaluation
from fedleak.evaluation.evaluation import joined as joined
from fedleak.evaluation.scores import AttackInfo, from_records, score_table, with_setting

MOST_CANDIDATES = 2**22
"""Number of an attack's candidates after which further views' are not kept."""
_SPAN_TOLERANCE = 1e-5
"""Rounding by which a value may lie beyond the span of its metric."""
_PROFILE = ("true", "inferred", "low", "high")


def append(evaluations: list[Evaluation], new: Evaluation) -> None:
    """Appends the evaluation of an attack's next view, without candidates and answers if earlier ones have enough."""
    candidates = 0
    for earlier in evaluations:
        candidates += sum(len(of_label.scores) for of_label in earlier.candidates.values())
    if candidates >= MOST_CANDIDATES:
        new.candidates, new.answers = {}, {}
    evaluations.append(new)


class AttackError(InputError):
    """A defect of one attack, or numbers that it cannot read; it says nothing about the others."""


def infer(attack: Attack, view: View, generator: torch.Generator) -> Estimate:
    """Estimate of an attack on a view.

    Raises:
        ViewError: the view lacks what the attack needs.
        AttackError: the attack is defective, or its estimate is not finite on a foreign recording.
    """
    try:
        return attack(view, generator=generator)
    except EstimateError as error:
        raise AttackError(
            expected=f"a recording on which {attack.name} returns a valid estimate",
            found=f"an invalid estimate in round {view.round}: {error}",
            way_out="Look for very large numbers in the recording; if there are none, the attack has a defect.",
        ) from error
    except (InputError, ViewError):
        raise
    except Exception as error:
        if type(attack).__module__.startswith("fedleak."):
            raise  # a defect of this project: keep the traceback
        where = traceback.extract_tb(error.__traceback__)[-1]
        raise AttackError(
            expected=f"attack {attack.name} to run on round {view.round}",
            found=f"{type(error).__name__}: {error} ({where.filename}, line {where.lineno})",
            way_out="Fix the attack.",
        ) from error


def estimate_of(attack: Attack, view: View, *, seed: int, store: EstimateStore | None = None) -> tuple[Estimate, float]:
    """Estimate of an attack on a view, and the seconds that it took.

    The time of an attack includes that of what another attack on the view had computed before. An estimate that is in
    the `store` is read back, and a new one is added.

    Raises:
        ViewError: the view lacks what the attack needs.
        InputError: the attack is defective.
    """
    name = attack.label(view)
    if store is not None:
        stored = store.read(attack, name, view)
        if stored is not None:
            return stored
    # Draws of an attack on some clients do not depend on which other views there are, but on its first client.
    first_victim = (int(view.pseudonyms[0]) % 2**31,) if attack.view is RoundView else ()
    generator = generator_for(seed, name, view.round, *first_victim)
    view.shared.start_attack()
    start = time.perf_counter()
    estimate = infer(attack, view, generator)
    seconds = time.perf_counter() - start + view.shared.seconds_before
    if store is not None:
        store.write(attack, name, view, estimate, seconds)
    return estimate, seconds


def attack_view(
    attack: Attack,
    view: View,
    truth: Mapping[str, Tensor],
    *,
    seed: int,
    setting: Mapping[str, Any],
    label: str | None = None,
    unscored: Tensor | None = None,
    store: EstimateStore | None = None,
) -> Evaluation:
    """Scores of an attack on one view, by the ground truth of its victims, in a cell of a table.

    The label of the rows is the attack's own unless one is given; victims in the mask ``unscored (V,)`` have undefined
    scores. For the `store`, see `estimate_of`.

    Raises:
        ViewError: the view lacks what the attack needs.
        InputError: the attack is defective.
    """
    label = label or attack.label(view)
    estimate, seconds_of_view = estimate_of(attack, view, seed=seed, store=store)
    seconds = seconds_of_view / max(view.victims, 1)
    scores = _scored(attack, estimate, view, truth)
    # Scores are of the view's victims, or of the users of a history, who have none of their attributes.
    of_victims = scores.units is None
    context = ScoreContext(
        setting=setting,
        seed=seed,
        round=view.round,
        victims=view.pseudonyms if scores.units is None else scores.units,
        people=truth.get("clients") if of_victims else None,
        messages=view.messages.tolist() if view.messages is not None and of_victims else None,
        unscored=unscored if of_victims else None,
        capacity=_of_units(update_bits(view), truth, scores.units),
        epsilon=_of_units(pure_epsilon(view), truth, scores.units),
    )
    if "bits" in scores.metrics:
        metrics = {**scores.metrics, **bounds(scores.metrics["bits"], context.capacity)}
        scores = dataclasses.replace(scores, metrics=metrics)
    evaluation = tabulated(label, scores, context, info=line_of(attack, view), seconds=seconds)
    if scores.answers is not None:
        info = evaluation.lines[label]
        answers = AttackAnswers(attack, scores.answers, context, info, seconds, scores.settings)
        evaluation.answers[label] = [answers]
    return evaluation


def bounds(bits: Tensor, capacity: Tensor) -> dict[str, Tensor]:
    """``(V,)`` most bits and the share of them that ``bits (V,)`` are; empty where no bound is known."""
    if not bool(capacity.isfinite().all()):
        return {}
    return {"bits-bound": capacity, "bits-share": bits / capacity}


def _of_units(values: Tensor, truth: Mapping[str, Tensor], units: Tensor | None) -> Tensor:
    """``(V,)`` values of the updates of each victim, or of each user of a history: the sum over its messages."""
    if units is None:
        return values
    for name in ("user", "clients"):
        if name in truth:
            return torch.where(truth[name] == units[:, None], values, 0.0).sum(1)
    # Without knowing whose the messages are, nothing is known of a user's sum.
    return torch.full((len(units),), torch.inf, dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class ScoreContext:
    """Where the scores of an estimate belong in the table.

    Attributes:
        setting: cell of the table.
        seed: seed of the training.
        round: round of the view.
        victims: ``(V,)`` pseudonyms, or numbers of users.
        people: ``(V,)`` client numbers of the pseudonyms, None if unknown or if `victims` are users.
        messages: number of messages of each victim, where they differ; else None.
        unscored: ``(V,)`` victims whose scores are undefined; None for none.
        capacity: ``(V,)`` most bits that the updates of each can carry, infinite where no bound is known.
        epsilon: ``(V,)`` epsilon that is declared for all updates of each with a delta of 0, infinite without.
    """

    setting: Mapping[str, Any]
    seed: int
    round: int
    victims: Tensor
    people: Tensor | None
    messages: list[int] | None
    unscored: Tensor | None
    capacity: Tensor
    epsilon: Tensor


@dataclass(frozen=True)
class AttackAnswers:
    """What an attack's estimate says of the answers, where its scores belong, and their further settings."""

    attack: Attack
    answers: Choices | Quantities
    context: ScoreContext
    info: AttackInfo
    seconds: float
    settings: Mapping[str, Sequence[str | int]] = field(default_factory=dict)


def tabulated(label: str, scores: Scores, context: ScoreContext, *, info: AttackInfo, seconds: float) -> Evaluation:
    """Scores of one estimate as an evaluation."""
    if context.unscored is not None:
        scores = scores.without(context.unscored)
    metrics = {**scores.metrics, **successes(scores.metrics, context.setting)}
    evaluation = Evaluation(lines={label: info})
    evaluation.scores = score_table(
        label,
        metrics,
        victims=context.victims,
        people=context.people,
        items=0 if scores.items is None else scores.items,
        positives=0 if scores.positives is None else scores.positives,
        influences=scores.influences,
        seconds=seconds,
        setting=context.setting,
        seed=context.seed,
        round=context.round,
    )
    # A table has the rows of each metric one after another, so a column of victims is repeated for each.
    if context.messages is not None:
        evaluation.scores = with_setting(evaluation.scores, rounds=context.messages * len(metrics))
    if scores.settings:
        settings = {key: list(values) * len(metrics) for key, values in scores.settings.items()}
        evaluation.scores = with_setting(evaluation.scores, **settings)
    _add_what_no_metric_shows(evaluation, label, scores, context)
    return evaluation


def _add_what_no_metric_shows(evaluation: Evaluation, label: str, scores: Scores, context: ScoreContext) -> None:
    """Adds curves, candidates, class shares, pictures and details of an estimate to its evaluation."""
    # The sum of the defined curves and their number, of which later the mean is taken over all views.
    if scores.roc is not None:
        curves = scores.roc[~scores.roc.isnan().any(1)].double()
        if len(curves):
            evaluation.roc[label] = curves.sum(0).cpu().numpy(), len(curves)
    if scores.candidates is not None:
        owners = scores.candidates.owners
        if scores.units is None:
            numbers = context.victims if context.people is None else context.people
            owners = numbers[owners]
        evaluation.candidates[label] = dataclasses.replace(scores.candidates, owners=owners)
    if scores.profiles is not None:
        evaluation.profiles = _profile_table(label, scores.profiles, context)
    if scores.reconstruction is not None:
        evaluation.pictures[label] = scores.reconstruction.as_arrays()
    if scores.details:
        evaluation.details[label] = from_records(scores.details)


def _scored(attack: Attack, estimate: Estimate, view: View, truth: Mapping[str, Tensor]) -> Scores:
    """Scores of an estimate, checked: metrics of its kind, one value per victim, within the span of each metric."""
    scores = estimate.score(view, truth)
    undeclared = set(scores.metrics) - set(estimate.metric_names())
    size = view.victims if scores.units is None else len(scores.units)
    misshapen = [name for name, values in scores.metrics.items() if tuple(values.shape) != (size,)]
    if undeclared or misshapen:
        raise InputError(
            expected=f"metrics {', '.join(estimate.metric_names())} of shape ({size},) from {type(estimate).__name__}",
            found=f"{', '.join(sorted(undeclared) or misshapen)} of attack {attack.name}",
            way_out="Add the metric to the class attribute `metrics`, or return one value per victim.",
        )
    # Single values of a metric with influences (jackknife pseudo-values) may lie beyond its span.
    for name, values in scores.metrics.items():
        if name not in scores.influences:
            _check_span(attack, name, values)
    return scores


def _check_span(attack: Attack, name: str, values: Tensor) -> None:
    """Checks that values lie within the span of their metric, on which the interval of their mean relies.

    Raises:
        AttackError: one does not.
    """
    least, most = metric(name).span or ANY
    defined = values[~values.isnan()].double()
    beyond = defined[(defined < least - _SPAN_TOLERANCE) | (defined > most + _SPAN_TOLERANCE)]
    if len(beyond):
        raise AttackError(
            expected=f"values of {name} of attack {attack.name} within its span, {least:g} to {most:g}",
            found=f"{float(beyond[0]):g}",
            way_out="Correct the score of the estimate, or `span` of the Metric.",
        )


def successes(metrics: Mapping[str, Tensor], setting: Mapping[str, Any]) -> dict[str, Tensor]:
    """``success``: whether each client's error is at most the setting's tolerance; empty without a tolerance."""
    if "error" not in metrics or "tolerance" not in setting:
        return {}
    return {"success": (metrics["error"] <= setting["tolerance"]).double()}


def _profile_table(label: str, profiles: Tensor, context: ScoreContext) -> pd.DataFrame:
    """Rows of class shares, one per victim and class, from ``(V, K, 4)``."""
    count, classes, _ = profiles.shape
    columns: dict[str, list[int] | list[float]] = {
        "victim": context.victims.repeat_interleave(classes).tolist(),
        "class": torch.arange(classes).repeat(count).tolist(),
    }
    by_column = profiles.reshape(-1, 4).T
    for name, values in zip(_PROFILE, by_column, strict=True):
        columns[name] = values.tolist()
    table = pd.DataFrame(columns).assign(attack=label, seed=context.seed, round=context.round)
    return with_setting(table, **context.setting)
