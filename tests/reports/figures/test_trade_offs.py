"""Figures of two measures take the best attack of each choice."""

import re
from typing import Any

from fedleak.evaluation.what_if import COSINE
from fedleak.reports.figures.figure_data import FigureData
from fedleak.reports.figures.line_styles import line_styles
from fedleak.reports.figures.trade_offs import against_rank, detectability, privacy_and_utility, signal_kept
from tests.reports.toys import cell, table


def test_a_point_per_defence_at_its_best_attack() -> None:
    rows = []
    for defence, mean, utility in (("none", 1.0, 0.4), ("ldp 500", 0.9, 0.39), ("ldp 20", 0.6, 0.3)):
        rows += [cell("codebook", mean, defence=defence, manipulation="codebook")]
        rows += [cell("raifle", mean - 0.1, defence=defence, manipulation="none")]
        rows += [cell("chance", 0.99, defence=defence, manipulation="none")]
        rows += [cell("none", utility, metric="ndcg@10", defence=defence, manipulation="none")]
    results = table(*rows)
    (drawing,) = privacy_and_utility(
        FigureData(results[results["metric"] == "auc"], "auc", results, line_styles(results))
    )
    caption, svg = drawing.caption, drawing.svg
    assert caption.startswith("d: ndcg@10 of the model against the AUC of the best attack")
    assert all(f">{text}<" in svg for text in ("none", "ldp 500", "ldp 20", "ndcg@10"))
    # Both points of local DP are on one line, from the best attack at either budget.
    weaker = table(*(row for row in rows if row["attack"] != "raifle"))
    same = privacy_and_utility(FigureData(weaker[weaker["metric"] == "auc"], "auc", weaker, line_styles(weaker)))
    assert re.sub(r"<clipPath.*", "", same[0].svg) == re.sub(r"<clipPath.*", "", svg)
    assert detectability(FigureData(results, "auc", results, line_styles(results))) == []


def test_a_point_per_manipulation_and_a_panel_per_other_setting() -> None:
    rows = []
    for queries in ("4", "16"):
        for manipulation, mean, flagged in (("none", 0.7, 0.1), ("codebook", 1.0, 1.0)):
            setting: dict[str, Any] = {"manipulation": manipulation, "queries": queries}
            rows += [cell("codebook", mean, **setting), cell("any-check", flagged, metric="flagged", **setting)]
            rows += [cell("equal-scores", 0.0, metric="flagged", **setting)]
    results = table(*rows)
    (drawing,) = detectability(FigureData(results[results["metric"] == "auc"], "auc", results, line_styles(results)))
    caption, svg = drawing.caption, drawing.svg
    assert "at least one check" in caption
    assert all(f">{text}<" in svg for text in ("queries 4", "queries 16", "codebook", "flagged"))


def test_a_line_per_network_by_the_share_of_dimensions_that_updates_use() -> None:
    rows = []
    for network, dimensions in (("small", 40), ("large", 400)):
        for batch in (1, 2, 4):
            setting: dict[str, Any] = {"network": network, "batch": batch}
            rank = min(dimensions, 10 * batch)
            rows += [cell("codebook", float(rank < dimensions), metric="recovered", **setting)]
            rows += [cell("codebook", rank, metric="rank", **setting)]
            rows += [cell("codebook", dimensions - rank, metric="spare", **setting)]
            rows += [cell("chance", 0.1, metric="recovered", **setting)]
    results = table(*rows)
    recovered = results[results["metric"] == "recovered"]
    (drawing,) = against_rank(FigureData(recovered, "recovered", results, line_styles(results)))
    assert "d: Share of exactly recovered records" in drawing.caption
    assert drawing.figure is not None
    lines: dict[Any, Any] = {line.get_label(): line for line in drawing.figure.axes[0].containers}
    assert set(lines) == {"codebook, network small", "codebook, network large"}
    points = lines["codebook, network small"].lines[0].get_xydata().tolist()
    assert points == [[0.25, 1.0], [0.5, 1.0], [1.0, 0.0]]
    assert against_rank(FigureData(recovered, "recovered", recovered, line_styles(results))) == []


def tried(count: int) -> FigureData:
    """Defences of which each second leaks as the one before it, and keeps less."""
    rows = [cell("codebook", 0.9, defence="none"), cell("aggregate", 1.0, metric=COSINE, defence="none")]
    for number in range(count):
        name = f"top-k {number}"
        rows.append(cell("codebook", 0.8 - 0.02 * (number // 2), defence=name))
        rows.append(cell("aggregate", 0.9 - 0.02 * number, metric=COSINE, defence=name))
    results = table(*rows)
    return FigureData(results[results["metric"] == "auc"], "auc", results, line_styles(results))


def test_few_defences_have_their_names_and_many_have_numbers_that_the_caption_lists() -> None:
    (few,), (many,) = signal_kept(tried(4)), signal_kept(tried(20))
    assert all(f">top-k {number}<" in few.svg for number in range(4))
    assert "Filled" not in few.caption
    assert ">top-k 3<" not in many.svg
    assert "<title>top-k 3: auc of the best attack 0.780 (codebook), aggregate-cosine 0.840</title>" in many.svg
    filled, others = many.caption.partition("Filled: ")[2].split(". Others: ")
    numbers = {
        name: int(number) for number, name in (one.split(" ", 1) for one in (filled + "; " + others[:-1]).split("; "))
    }
    assert {name for name in numbers if "top-k" in name} == {f"top-k {number}" for number in range(20)}
    assert "top-k 2" in filled
    assert "top-k 3" in others
    assert all(f">{number}<" in many.svg for number in numbers.values())
