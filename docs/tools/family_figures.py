"""Figure of a family of attacks: the means of the published tables, one dot for each setting."""

import io

import matplotlib as mpl
import pandas as pd
import seaborn as sns

from fedleak.core.metric_table import METRICS
from fedleak.reports.figures.figure_data import styled

_MOST_ATTACKS = 14
_MOST_BASELINES = 4
"""Largest number of rows of baselines, bounds and models."""
_COLOURS = {"ours": "#0072b2", "published": "#d55e00", "reference": ".2", "baseline": ".6"}


def family_figure(results: pd.DataFrame) -> tuple[str, str]:
    """SVG and caption of the judged metric that most attacks of a family have; empty if fewer than two attacks have it.

    Args:
        results: rows of published tables on the family, with the columns ``attack``, ``role``, ``metric``, ``mean``.
    """
    judged = results[results["metric"].isin([name for name, entry in METRICS.items() if entry.judged])]
    judged = judged[judged["mean"].notna()]
    attacks = judged.groupby("metric")["attack"].nunique()
    if attacks.empty or attacks.max() < 2:
        return "", ""
    name = str(attacks.idxmax())
    rows = judged[judged["metric"] == name]
    lower_leaks = METRICS[name].lower_is_better
    # The attack with the best median over its settings first, below the attacks those that are none.
    medians = rows.groupby(["role", "attack"])["mean"].median().reset_index()
    medians["is_attack"] = ~medians["role"].isin(("baseline", "reference"))
    medians = medians.sort_values("mean", ascending=lower_leaks).drop_duplicates("attack")
    order = [
        *medians[medians["is_attack"]]["attack"][:_MOST_ATTACKS],
        *medians[~medians["is_attack"]]["attack"][:_MOST_BASELINES],
    ]
    rows = rows[rows["attack"].isin(order)]
    roles = [role for role in _COLOURS if role in set(rows["role"])]
    with mpl.rc_context({"svg.hashsalt": "family", "svg.fonttype": "none"}):
        figure, ((axes,),) = styled(7, 0.28 * len(order) + 1)
        sns.stripplot(
            rows,
            x="mean",
            y="attack",
            order=order,
            jitter=0.25,
            size=4,
            alpha=0.6,
            ax=axes,
            hue="role",
            hue_order=roles,
            palette={role: _COLOURS[role] for role in roles},
        )
        axes.set(xlabel=name, ylabel="")
        axes.legend(title="", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        if METRICS[name].guessing is not None:
            axes.axvline(METRICS[name].guessing, color=".5", ls=":", zorder=0)
        svg = io.StringIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
    side = "left" if lower_leaks else "right"
    caption = (
        f"{name} in the published tables: a dot is the mean of one setting (data, round, defence), over clients and"
        f" seeds. Further {side} is more leakage; settings differ between attacks, so compare within a table."
    )
    return svg.getvalue(), caption
