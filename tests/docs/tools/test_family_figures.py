"""Figures on the pages of the families: their attacks and baselines, of one metric."""

import pandas as pd

from docs.tools.family_figures import family_figure


def rows(attacks: dict[str, str], metric: str) -> pd.DataFrame:
    made = [
        {"attack": name, "role": role, "metric": metric, "mean": 0.5 + place / 50}
        for place, (name, role) in enumerate(attacks.items())
    ]
    return pd.DataFrame(made)


def test_baselines_stay_where_there_are_many_attacks() -> None:
    attacks = {f"attack-{place}": "ours" for place in range(20)}
    drawn, caption = family_figure(rows({**attacks, "popularity": "baseline"}, "auc"))
    assert all(name in drawn for name in ("attack-19", "popularity", "baseline"))
    assert "attack-0<" not in drawn  # the weakest
    assert "right is more leakage" in caption


def test_of_a_distance_less_is_more() -> None:
    drawn, caption = family_figure(rows({"near": "published", "uniform": "baseline"}, "l1"))
    assert drawn.startswith("<?xml")
    assert "left is more leakage" in caption


def test_one_attack_is_no_comparison() -> None:
    assert family_figure(rows({"alone": "ours"}, "auc")) == ("", "")
