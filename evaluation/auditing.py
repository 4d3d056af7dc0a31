"""AuditResult of a recording in Python: results as a DataFrame, with figures in a notebook."""

import dataclasses
import functools
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from attacks.base import Attack
from attacks.registry import REGISTRY, built
from evaluation.derived import derived
from evaluation.drawing import Drawing
from evaluation.evaluate import evaluate_recording, metrics_of, relevant, truth_names
from evaluation.learner_match import with_learner_check
from evaluation.runner import Evaluation
from evaluation.scores import differing, setting_columns, stacked
from evaluation.summary import summarise
from evaluation.update_table import UPDATES, update_table
from protocol.metric_table import METRICS, metric
from recordings.recording import Recording

_SHOWN = ("attack", "role", "metric", "mean", "low", "high", "n")


@dataclasses.dataclass(repr=False)
class AuditResult:
    """What attacks infer from a recording; a notebook shows the table and the figures.

    Attributes:
        evaluation: scores of each victim, and the reasons for which attacks could not run.
        metrics: metrics that the attacks report.
        data: name and hash of the data.
    """

    evaluation: Evaluation
    metrics: list[str]
    data: dict[str, str]

    @functools.cached_property
    def results(self) -> pd.DataFrame:
        """One row per attack, setting and metric: mean, 95% interval, n; see `evaluation.summary.summarise`."""
        scores = self.evaluation.scores
        reported = dataclasses.replace(self.evaluation, scores=scores[scores["metric"].isin(self.metrics)])
        whole = stacked([summarise(reported), derived(self.evaluation)])
        return whole[whole["metric"].isin(self.metrics)].reset_index(drop=True)

    @property
    def scores(self) -> pd.DataFrame:
        """One row per attack, victim, round and metric."""
        return self.evaluation.scores

    @property
    def missing(self) -> dict[str, str]:
        """Reason by attack that could not run, of the questions that fit the recording."""
        return self.evaluation.missing

    @property
    def table(self) -> pd.DataFrame:
        """The columns of `results` that a person compares."""
        settings = [name for name in setting_columns(self.results) if name in differing(self.results)]
        return self.results[[*_SHOWN[:2], *settings, *_SHOWN[2:]]]

    @functools.cached_property
    def figures(self) -> list[Drawing]:
        """One figure per question, of the first metric that judges its attacks; then reconstructed examples."""
        judged = [name for name, entry in METRICS.items() if entry.judged]
        rows = self.results[self.results["metric"].isin(judged) & self.results["mean"].notna()]
        drawn = []
        for question, own in rows.groupby("question", sort=False):
            name = min(own["metric"], key=judged.index)
            drawn.append(_by_attack(own[own["metric"] == name], name, str(question)))
        return drawn + self.evaluation.figures

    def __repr__(self) -> str:
        """The table as text."""
        return self.table.to_string(index=False, float_format="{:.3f}".format)

    def _repr_html_(self) -> str:
        """The table and the figures, as a notebook shows them."""
        table = self.table.to_html(index=False, float_format="{:.3f}".format, border=0)
        captions = [f"{one.svg}<figcaption>{html.escape(one.caption)}</figcaption>" for one in self.figures]
        return "\n".join([table, *(f"<figure>{figure}</figure>" for figure in captions)])


def audit(
    deltas: str | Path | Recording,
    attacks: Sequence[Attack | str] = (),
    *,
    seed: int = 0,
    victims: int | None = None,
    rounds: Sequence[int] | None = None,
    slow: bool = False,
    progress: bool = True,
) -> AuditResult:
    """Runs attacks on a recording and scores them, as ``attack.py audit`` does.

    Args:
        deltas: recording, or its folder.
        attacks: attacks, also by name or class path; none for all of this project. Those that do not fit the recording
            are listed in `AuditResult.missing` if their question fits.
        seed: seed of the attacks' draws.
        victims: number of clients to attack, drawn at random; None for all.
        rounds: numbers of the rounds to attack, from 0; None for all.
        slow: whether to run attacks that take minutes too, on a few clients of the first round.
        progress: whether to show a progress bar.

    Raises:
        InputError: there is no recording, it is damaged, or no attack has a given name.
    """
    recording = deltas if isinstance(deltas, Recording) else Recording(deltas)
    chosen = [built(one) for one in attacks] or [kind() for kind in REGISTRY.values()]
    options: dict[str, Any] = {"seed": seed, "victims": victims, "rounds": rounds, "progress": progress}
    found = evaluate_recording(recording, chosen, slow="few" if slow else "none", separate=True, **options)
    evaluation = with_learner_check(relevant(found, chosen, truth_names(recording)), recording, chosen, seed=seed)
    evaluation.details[UPDATES] = update_table(recording)
    return AuditResult(evaluation, metrics_of(chosen), dict(recording.manifest.data))


def _by_attack(rows: pd.DataFrame, name: str, question: str) -> Drawing:
    """Means with 95% intervals; the attack that infers most is at the top, comparisons are grey."""
    from matplotlib.figure import Figure  # slow to import

    entry = metric(name)
    ordered = rows.sort_values("mean", ascending=not entry.lower_is_better, kind="stable")
    figure = Figure(figsize=(7, 0.3 * len(rows) + 1), layout="constrained")
    axes = figure.subplots()
    for place, (_, row) in enumerate(ordered.iterrows()):
        colour = "tab:blue" if row["role"] in ("ours", "published") else "0.55"
        axes.plot([row["low"], row["high"]], [place, place], color=colour)
        axes.plot(row["mean"], place, "o", color=colour)
    axes.set(yticks=range(len(ordered)), yticklabels=list(ordered["attack"]), xlabel=name)
    if entry.guessing is not None:
        axes.axvline(entry.guessing, color="0.5", linestyle=":")
    side = f" Further {'left' if entry.lower_is_better else 'right'} is more leakage." if entry.leak else ""
    dotted = "" if entry.guessing is None else " The dotted line is guessing."
    return Drawing(f"{question}: {name} with 95% intervals; baselines are grey.{side}{dotted}", figure)
