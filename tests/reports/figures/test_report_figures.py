"""Figures need no more than a metric and a setting, and show every line, panel and interval."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fedleak.evaluation.registry  # noqa: F401  # attacks define their metrics
from fedleak.core.metric_table import METRICS
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo
from fedleak.reports.figures.maps import update_maps
from fedleak.reports.figures.report_figures import FIGURES, report_figures
from tests.reports.toys import LINES, cell, table
from tests.wording import lacking


def figures(
    *rows: dict[str, Any], evaluation: Evaluation | None = None, metrics: tuple[str, ...] = ("auc",)
) -> dict[str, str]:
    """Drawings of results, by caption."""
    return {one.caption: one.svg for one in report_figures(evaluation or Evaluation(), table(*rows), metrics)}


def ranked(attack: str, epsilon: float | str, queries: int, ranker: str, **setting: Any) -> dict[str, Any]:
    mean = 0.9 if epsilon == "inf" else 0.6
    return cell(attack, mean, data="MQ2008", ranker=ranker, queries=queries, epsilon=epsilon, **setting)


RANKED = [
    ranked(attack, epsilon, queries, ranker)
    for attack in ("codebook", "raifle")
    for ranker in ("linear", "neural-4")
    for queries in (4, 8)
    for epsilon in (1, 20, "inf")
]
BUDGETS = [cell(attack, 0.6, epsilon=epsilon) for attack in ("codebook", "raifle") for epsilon in (1, "inf")]


def test_words_are_panels_and_further_numbers_are_lines() -> None:
    ((caption, svg),) = figures(*RANKED).items()
    assert not lacking(caption, "MQ2008", "auc against epsilon", "95%")
    assert svg.startswith("<svg")
    for text in ("ranker linear", "ranker neural-4", "queries 8", "codebook", "raifle", "inf", "epsilon", "auc"):
        assert f">{text}<" in svg, text
    assert ">MQ2008<" not in svg  # what does not vary is told once


def test_the_papers_numbers_are_stars() -> None:
    plain = figures(*RANKED).popitem()[1]
    caption, starred = figures(*({**row, "paper": 0.77, "source": "RAIFLE Table VII"} for row in RANKED)).popitem()
    assert caption.endswith("; stars are the paper's values.")
    of_the_papers_attack = len(RANKED) // 2  # the other attack is ours
    assert starred.count("<use") == plain.count("<use") + of_the_papers_attack


def test_every_interval_is_drawn() -> None:
    """Wider intervals are longer lines: the same picture, but for the ends."""
    one, two = (figures(*({**row, "low": row["mean"] - half} for row in BUDGETS)).popitem()[1] for half in (0.01, 0.05))
    assert one != two


def test_what_the_attacks_name_tells_is_no_panel() -> None:
    several = [cell("codebook", 0.9, manipulation=kind, ratio=r) for kind in ("none", "noise") for r in (1, 2)]
    assert ">manipulation noise<" in figures(*several).popitem()[1]
    own = (("chance", "none"), ("raifle", "noise"))
    each = [cell(name, 0.9, manipulation=kind, ratio=r) for name, kind in own for r in (1, 2)]
    assert "manipulation" not in figures(*each).popitem()[1]


def test_a_metric_from_elsewhere_has_figures_too() -> None:
    rows = [cell("codebook", 3.0, metric="a-metric-of-its-own", size=s) for s in (1, 2, 4)]
    (caption,) = figures(*rows, metrics=("a-metric-of-its-own",))
    assert not lacking(caption, "d:", "a-metric-of-its-own against size", "95%")


def test_two_settings_of_which_a_row_has_one_are_two_figures_and_a_baseline_is_level() -> None:
    rows = [cell("codebook", 1 / t, metric="error", interactions=t) for t in (1, 10, 100)]
    rows += [cell("codebook", 0.1, metric="error", of_bound=b) for b in (0.1, 1)]
    rows += [cell("chance", 0.5, metric="error", interactions=100), cell("bound", 30.0, metric="bound-of-all")]
    drawn = figures(*rows, metrics=("error",))
    axes = ("interactions", "of_bound")
    end = "with 95% intervals."
    assert list(drawn) == [f"d: error against {axis} {end}" for axis in axes]
    without = figures(*rows[:-1], metrics=("error",))
    dashes = [svgs[next(iter(drawn))].count("stroke-dasharray") for svgs in (drawn, without)]
    assert dashes[0] == dashes[1] + 1  # the theorem's number


def test_without_a_number_that_varies_attacks_stand_next_to_one_another() -> None:
    ((caption, svg),) = figures(cell("codebook", 0.9), cell("raifle", 0.8), cell("chance", 0.5)).items()
    assert not lacking(caption, "d:", "auc by attack", "95%", "right is more")
    assert all(f">{name}<" in svg for name in ("codebook", "raifle", "chance"))
    assert figures(cell("codebook", 0.9)) == {}


def test_the_headlines_figure_comes_first_and_names_of_files_hold_the_data() -> None:
    rows = [
        cell(name, mean, data=data)
        for data, best in (("a", 0.6), ("b", 0.9))
        for name, mean in (("codebook", best), ("chance", 0.5))
    ]
    found = report_figures(Evaluation(), table(*rows), ("auc",))
    assert [one.caption[0] for one in found] == ["b", "a"]
    assert [one.name for one in found] == ["auc-by-attack-b", "auc-by-attack-a"]


def test_questions_with_the_same_metric_have_figures_of_their_own() -> None:
    further = {
        "link": AttackInfo(role="ours", question="other"),
        "guess": AttackInfo(role="baseline", question="other"),
    }
    lines = {**LINES, **further}
    rows = [cell(name, 0.9) for name in ("codebook", "chance", "link", "guess")]
    one, two = report_figures(Evaluation(), table(*rows, lines=lines), ("auc",))
    assert (">link<" in one.svg) != (">link<" in two.svg)


def test_privacy_is_drawn_against_utility() -> None:
    rows = []
    for kind, amount in (("none", 0), ("noise", 0.1), ("noise", 1.0)):
        rows.append(cell("codebook", 20 - 9 * amount, metric="times-chance", mitigation=kind, amount=amount))
        rows.append(cell("global-model", 1 - amount / 2, metric="utility", mitigation=kind, amount=amount))
    drawn = figures(*rows, metrics=("times-chance", "utility"))
    svg = drawn["Privacy and utility against codebook; the upper left is better."]
    assert ">noise<" in svg
    assert ">none<" not in svg  # it is where every curve begins


def test_the_same_results_give_the_same_drawing() -> None:
    assert figures(*BUDGETS) == figures(*BUDGETS)


def test_numbers_that_are_missing_draw_nothing_wrong() -> None:
    rows = [{**cell("codebook", 0.9, rounds=r), "mean": np.nan, "low": np.nan, "high": np.nan} for r in (1, 2)]
    assert figures(*rows) == {}


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.draw.__name__.strip("_"))
def test_a_figure_is_not_drawn_without_what_it_needs(figure: Any) -> None:
    assert not figure.fits(pd.DataFrame())
    assert figure.metric is None or figure.metric in METRICS


def test_maps_name_both_kinds() -> None:
    generator = torch.Generator().manual_seed(0)
    honest, others = torch.randn(2, 9, 2, generator=generator)
    svg = update_maps({"perplexity 10": (honest, others), "perplexity 30": (honest, others)}, "c").svg
    assert all(f">{text}<" in svg for text in ("perplexity 10", "perplexity 30", "honest", "manipulated"))
