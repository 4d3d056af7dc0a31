"""Figure of a family of attacks: the means of the published tables, one dot for each setting."""

import io

import matplotlib as mpl
import pandas as pd
import seaborn as sns

from fedleak.core.metric_table import METRICS
from fedleak.reports.figures.figure_data import styled

_MOST_ATTACKS, _MOST_BASELINES = 14, 4
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
    rows, lower = judged[judged["metric"] == name], METRICS[name].lower_is_better
    medians = rows.groupby(["role", "attack"])["mean"].median().reset_index()
    medians["place"] = medians["role"].isin(("baseline", "reference"))
    medians = medians.sort_values("mean", ascending=lower).drop_duplicates("attack")
    order = [
        *medians[~medians["place"]]["attack"][:_MOST_ATTACKS],
        *medians[medians["place"]]["attack"][:_MOST_BASELINES],
    ]
    rows = rows[rows["attack"].isin(order)]
    with mpl.rc_context({"svg.hashsalt": "family", "svg.fonttype": "none"}):
        figure, ((axes,),) = styled(7, 0.28 * len(order) + 1)
        roles = [role for role in _COLOURS if role in set(rows["role"])]
        options = {"hue": "role", "hue_order": roles, "palette": {role: _COLOURS[role] for role in roles}}
        sns.stripplot(rows, x="mean", y="attack", order=order, jitter=0.25, size=4, alpha=0.6, ax=axes, **options)
        axes.set(xlabel=name, ylabel="")
        axes.legend(title="", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        if METRICS[name].guessing is not None:
            axes.axvline(METRICS[name].guessing, color=".5", ls=":", zorder=0)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    side = "left" if lower else "right"
    caption = (
        f"{name} in the published tables: a dot is the mean of one setting (data, round, defence), over clients and"
        f" seeds. Further {side} is more leakage; settings differ between attacks, so compare within a table."
    )
    return drawn.getvalue(), caption
