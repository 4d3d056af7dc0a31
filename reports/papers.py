"""The papers' own numbers, as data."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from reports.deanonymization_values import deanonymization_value
from reports.decaf_values import decaf_distances
from reports.judging import BASELINES
from reports.results import Paper

_SERVED_IN_PAPER = frozenset({"none", "noise", "codebook"})
"""What a server may send in a cell that is set beside the paper's: our codebook is, a masked noise is not."""
_FOLDER = Path(__file__).parent / "paper_values"
_DISTANCES = frozenset({"l1", "l2", "linf"})
_DECAF_COLUMNS = {
    **dict.fromkeys(
        ("paper-level", "adadelta", "convolutional", "null-classes-removed", "calibrator"), ("convolutional", "")
    ),
    **{name: ("convolutional", name) for name in ("null-classes-kept", "no-calibrator")},
    **{name: (name, "") for name in ("resnet18", "vgg16")},
}
"""By variant the network and step of Decaf's tables III to VII, IX, X and XII to XV."""
_WITHOUT_NUMBERS = frozenset({"pir-fingerprint"})
"""What RAIFLE argues for and does not measure (section VII.C)."""
_NOISE = 0.1
"""Scale of the noise that RAIFLE injects into features of documents (section IV.C)."""


@functools.cache
def raifle_values() -> pd.DataFrame:
    """RAIFLE's tables V, VI and XIII; table IX's FNCF rows are table XIII's, rounded."""
    return pd.read_csv(_FOLDER / "raifle.csv", dtype={"epsilon": str, "defence": int})


@functools.cache
def raifle_ranking_values() -> pd.DataFrame:
    """RAIFLE's tables VII, IX, X, XI and XIV on FPDGD; of XIV the rows that can be read for certain, first."""
    values = pd.read_csv(_FOLDER / "raifle_fpdgd.csv", dtype={"epsilon": str, "attack": str})
    order = {"XIV": 0, "VII": 1, "IX": 2}
    values["participants"] = values["participants"].fillna(1)
    return values.sort_values("table", key=lambda table: table.map(order), kind="stable")


@functools.cache
def raifle_image_values() -> pd.DataFrame:
    """RAIFLE's tables VIII, XII and XV on images."""
    return pd.read_csv(_FOLDER / "raifle_images.csv", dtype={"epsilon": str, "ranker": str})


def paper_value(attack: str, metric: str, setting: Mapping[str, Any]) -> Paper | None:
    """The number to set beside a cell, None where the paper has none.

    An attack that the paper does not have is set beside RAIFLE, the paper's own.

    Args:
        attack: name of the attack.
        metric: lower-case name.
        setting: holds ``data``, and ``epsilon`` and ``defence`` where they are columns.
    """
    if "prior" in setting:
        return deanonymization_value(attack, metric, setting)
    if attack in BASELINES or attack in _WITHOUT_NUMBERS:
        return None
    if "extractor" in setting:
        return _image_value(metric, setting)
    if metric in _DISTANCES:
        return _decaf_value(attack, metric, setting)
    if _not_in_raifle(metric, setting):
        return None
    if "theorem" in setting:
        return _promise(attack, metric, setting)
    if "ranker" in setting:
        return _ranking_value(metric, setting)
    values = raifle_values()
    found = values[
        (values["attack"] == ("imia" if attack == "imia" else "raifle"))
        & (values["data"] == setting.get("data"))
        & (values["metric"] == metric)
        & (values["statistic"] == "mean")
        & (values["epsilon"] == str(setting.get("epsilon", "inf")))
        & (values["defence"] == int(setting.get("defence", 0)))
    ]
    if found.empty:
        return None
    row = found.iloc[0]
    return Paper(float(row["value"]), f"RAIFLE Table {row['table']}")


def _not_in_raifle(metric: str, setting: Mapping[str, Any]) -> bool:
    """Table X is on MSLR, other data and queries, and the guardrail is ours; one learner and noise only is attacked."""
    elsewhere = metric in ("ndcg@10", "held-back")
    return elsewhere or setting.get("learner", "fpdgd") != "fpdgd" or setting.get("scale", _NOISE) != _NOISE


def _promise(attack: str, metric: str, setting: Mapping[str, Any]) -> Paper | None:
    """What a theorem guarantees of its own attack at its own number of interactions: success with 1 - delta."""
    if attack != "pac" or metric != "success" or setting.get("of_bound") != 1:
        return None
    return Paper(1 - setting["delta"], f"PAC identifiability, Theorem {setting['theorem']}, at least")


def _decaf_value(attack: str, metric: str, setting: Mapping[str, Any]) -> Paper | None:
    """The mean over users of the distances of a table, for its network and users."""
    if attack == "uniform-present" or setting.get("variant") not in _DECAF_COLUMNS:
        return None
    network, variant = _DECAF_COLUMNS[setting["variant"]]
    values = decaf_distances()
    kept = (values["data"] == setting["data"]) & (values["network"] == network) & (values["variant"] == variant)
    found = values[kept]
    if found.empty:
        return None
    return Paper(float(found[metric].mean()), f"Decaf Table {found.iloc[0]['table']}")


def _image_value(metric: str, setting: Mapping[str, Any]) -> Paper | None:
    """Of the same network, ranker and ratio; where the features are other than the paper's, the source says which."""
    key = {"extractor": setting["extractor"], "metric": metric, "statistic": "mean"}
    key["manipulation"] = setting["manipulation"]
    if "ranker" in setting:
        key |= {"ranker": setting["ranker"], "ratio": setting["ratio"], "epsilon": str(setting["epsilon"])}
    values = raifle_image_values()
    kept = values["value"].notna()
    for name, value in key.items():
        kept &= values[name] == value
    # A cell of both stands in table VIII; XV has it once more.
    found = values[kept].sort_values("table")
    if found.empty:
        return None
    where = "" if "weights" not in setting else ", trained weights"
    where += "" if "features" not in setting or setting["data"].startswith("synthetic") else ", all features"
    return Paper(float(found.iloc[0]["value"]), f"RAIFLE Table {found.iloc[0]['table']}{where}")


def _ranking_value(metric: str, setting: Mapping[str, Any]) -> Paper | None:
    if "aggregate" in setting:
        return None  # in table XI all but the target send only noise
    if setting.get("manipulation", "none") not in _SERVED_IN_PAPER or setting.get("guardrail", "inf") != "inf":
        return None
    participants = setting.get("participants", 1)
    # Table XI was made on MQ2007, whose results are, says the paper, very similar to those on MQ2008.
    data = "MQ2007" if participants > 1 and setting["data"] == "MQ2008" else setting["data"]
    key = {
        "attack": "raifle-none" if setting.get("manipulation") == "none" else "raifle",
        "metric": metric,
        "statistic": "mean",
        "data": data,
        "ranker": setting["ranker"],
        "click_model": setting["click_model"],
        "queries": setting["queries"],
        "epsilon": str(setting["epsilon"]),
        "participants": participants,
    }
    values = raifle_ranking_values()
    kept = values["value"].notna()
    for name, value in key.items():
        kept &= values[name] == value
    found = values[kept]
    if found.empty:
        return None
    where = "" if data == setting["data"] else f", {data}"
    return Paper(float(found.iloc[0]["value"]), f"RAIFLE Table {found.iloc[0]['table']}{where}")
