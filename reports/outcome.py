"""Turns scores into what a run leaves: results.json, victims.csv, report.html, and the table on the screen."""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from attacks.base import Attack, ThreatModel
from reports import figures
from reports.anonymity import privacy_utility_figures, utilities
from reports.causes import Explain, as_json, told_causes
from reports.compositions import composition_figures, write_compositions
from reports.curves import axis_of, curve_figures, interactions_needed
from reports.dots import beside
from reports.evaluation import Evaluation, told_missing
from reports.facets import against
from reports.gate import Gate
from reports.html import write_report
from reports.intervals import paired_differences, summarise
from reports.judging import BASELINES, is_attack
from reports.pivot import across, pivot
from reports.provenance import command, commit, hardware, versions
from reports.results import Result, Run, VictimRow, write_victims
from reports.scoring import FAMILIES, ROC_GRID
from reports.settings import describe, differing
from reports.tables import aligned, text_table
from reports.wandb_log import Show

_MOST_LINES = 14
"""Curves that one figure can hold."""


def finish(
    evaluation: Evaluation,
    *,
    directory: Path,
    experiment: str,
    data: Mapping[str, str],
    seed: int,
    seconds: float,
    metrics: Sequence[str],
    kinds: Mapping[str, type[Attack]],
    explain: Explain | None = None,
    gate: Gate | None = None,
    read_back: Sequence[str] = (),
    shows: Sequence[Show] = (),
) -> Run:
    """Writes the files of a run and prints its table.

    Args:
        evaluation: the scores.
        directory: where to.
        experiment: name of the run.
        data: name and hash of the data.
        seed: first seed.
        seconds: wall time.
        metrics: the metrics to report.
        kinds: the attacks by name, for what their reports say of them.
        explain: says why attacks failed, None to leave that out.
        gate: checks limits on the results, None for no limits.
        read_back: keys of the cells that an earlier run had finished.
        shows: where else the results and figures are shown.
    """
    reported = [row for row in evaluation.rows if row.metric in metrics]
    everything = summarise(reported)
    everything += interactions_needed(evaluation.rows) + utilities(evaluation.rows)
    results = [_described(result, kinds) for result in everything if result.metric in metrics]
    causes = [] if explain is None else explain(results)
    provenance = (experiment, command(), seed, commit(), versions(), dict(data), hardware(), seconds)
    verdicts = [] if gate is None else gate(results, evaluation.missing)
    run = Run(
        *provenance,
        results,
        dict(evaluation.missing),
        as_json(causes),
        paired_differences(reported),
        [dataclasses.asdict(verdict) for verdict in verdicts],
        list(read_back),
    )
    run.write(directory)
    if evaluation.rows:
        write_victims(directory / "victims.csv", evaluation.rows)
    if evaluation.profiles:
        write_compositions(directory / "compositions.csv", evaluation.profiles)
    drawn = _figures(evaluation, results, metrics[0]) + curve_figures(everything, metrics[:2]) + evaluation.figures
    drawn += privacy_utility_figures(everything)
    page = write_report(
        directory,
        run,
        threat_models={name: kind.threat_model for name, kind in kinds.items() if name not in evaluation.missing},
        figures=drawn,
        missing=told_missing(evaluation.missing),
        causes=told_causes(causes),
    )
    _print(results, page)
    if causes:
        print("\n".join(["why attacks told little:", *(f"  {sentence}" for sentence in told_causes(causes))]))
    for show in shows:
        show(results, drawn)
    return run


def _described(result: Result, kinds: Mapping[str, type[Attack]]) -> Result:
    """With what is known of its attack."""
    kind = kinds.get(result.attack)
    model = None if kind is None else kind.threat_model
    return dataclasses.replace(
        result,
        family=None if kind is None else FAMILIES.get(kind.estimates),
        baseline=not is_attack(result.attack),
        threat_model=None if model is None else {"sees": model.sees, "knows": model.knows, "active": model.active},
    )


def combine(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Joins the cells of a table; ROC curves are kept apart by setting."""
    whole = Evaluation()
    keys = differing([evaluation.rows[0].setting for evaluation in evaluations if evaluation.rows]) | {"data"}
    for evaluation in evaluations:
        whole.rows += evaluation.rows
        whole.missing |= evaluation.missing
        whole.figures += evaluation.figures
        whole.profiles += evaluation.profiles
        for name, rate in evaluation.roc.items():
            whole.roc[f"{name} ({describe(evaluation.rows[0].setting, keys)})"] = rate
    return whole


def join_runs(directories: Sequence[Path], out: Path) -> Run:
    """One page for the results of several runs."""
    runs = [Run.read(directory / "results.json") for directory in directories]
    first = runs[0]
    joined = Run(
        " + ".join(run.experiment for run in runs),
        command(),
        first.seed,
        first.commit,
        first.versions,
        {key: " ".join(dict.fromkeys(run.data[key] for run in runs)) for key in ("name", "sha256")},
        first.hardware,
        sum(run.seconds for run in runs),
        [result for run in runs for result in run.results],
        {name: reason for run in runs for name, reason in run.not_run.items()},
        [cause for run in runs for cause in run.causes],
        [difference for run in runs for difference in run.differences],
        [verdict for run in runs for verdict in run.gate],
        [key for run in runs for key in run.read_back],
    )
    joined.write(out)
    page = write_report(out, joined, threat_models=_threat_models(runs))
    _print(joined.results, page)
    return joined


def _threat_models(runs: Sequence[Run]) -> dict[str, ThreatModel]:
    """As the runs wrote them; where two attacks share a name, with the run's name."""
    found: dict[str, dict[str, ThreatModel]] = defaultdict(dict)
    for run in runs:
        for result in run.results:
            if result.threat_model is not None:
                found[result.attack][run.experiment] = ThreatModel(**result.threat_model)
    named = {}
    for attack, models in found.items():
        several = len(set(models.values())) > 1
        for experiment, model in models.items():
            named[f"{attack} in {experiment}" if several else attack] = model
    return named


def _print(results: Sequence[Result], page: Path) -> None:
    wide = pivot(results)
    print(text_table(results) if wide is None else "\n".join(aligned(wide.header, wide.rows)))
    print(f"report: {page}")


def _figures(evaluation: Evaluation, results: Sequence[Result], metric: str) -> list[tuple[str, str]]:
    drawn = composition_figures(evaluation.profiles)
    rows = [row for row in evaluation.rows if row.metric == metric and row.value == row.value]
    rows = [row for row in rows if axis_of(row.setting) is None]
    by_data: dict[str, list[VictimRow]] = defaultdict(list)
    for row in rows:
        by_data[str(row.setting.get("data"))].append(row)
    curves = {n: r.tolist() for n, r in evaluation.roc.items() if bool(torch.isfinite(r).all())}
    if 0 < len(curves) <= _MOST_LINES:
        drawn.append(("ROC curve, mean over victims.", figures.roc(ROC_GRID.tolist(), curves)))
    for data, some in by_data.items():
        cells = [r for r in results if r.setting.get("data") == data and r.metric == metric]
        key = across(cells)
        if key == "scale":
            caption = f"{data}: {metric} against the scale of the injected noise, stars: found by search."
            drawn.append((caption, figures.auc_against_scale(cells)))
        elif key is not None and key != "interactions":  # `reports.curves` draws those
            caption = f"{data}: {metric} against {key}, 95% intervals; stars are the paper's."
            drawn.append((caption, against([r for r in cells if key in r.setting], key, metric)))
        elif key is None and len({r.attack for r in cells}) > 1:
            drawn.append((f"{data}: {metric} by attack, 95% intervals; stars are the paper's.", beside(cells, metric)))
        values = _per_victim(some)
        # A yes or no has no distribution worth drawing, and compositions have figures of their own.
        telling = {row.value for row in some} - {0.0, 1.0} and not evaluation.profiles
        if len(values) <= _MOST_LINES and telling:
            caption = f"{data}: {metric} of every victim, sorted."
            drawn.append((caption, figures.victim_distribution(values, metric)))
    return drawn


def _per_victim(rows: Sequence[VictimRow]) -> dict[str, list[float]]:
    """Scores by attack and by what differs between the settings; lines that read no update only where none differs."""
    keys = differing([row.setting for row in rows])
    values: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if not keys or row.attack not in BASELINES:
            values[", ".join(part for part in (row.attack, describe(row.setting, keys)) if part)].append(row.value)
    return values
