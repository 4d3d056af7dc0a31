"""Papers' numbers: each stands next to its own cell only, and Decaf's follow from what it prints."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fedleak.evaluation.scores import AttackInfo
from fedleak.reports import papers
from fedleak.reports.papers import PaperTable, paper_tables, with_papers
from fedleak.training.class_proportions import decaf_compositions
from tests.places import ROOT
from tests.reports.toys import cell, table

FAMILIES = ("recommendation", "ranking", "images", "re-identification", "matching", "composition", "identifiability")
RANKED = {"data": "MQ2008", "ranker": "linear", "click_model": "informational", "queries": 4, "epsilon": 100}
CODEBOOK = {**RANKED, "manipulation": "codebook"}
PASSIVE = {**RANKED, "data": "MQ2007", "epsilon": "inf", "manipulation": "none", "prior": "count"}
CROWD = {**CODEBOOK, "participants": 100}
IMAGES = {"data": "imagenet", "extractor": "densenet121", "ranker": "neural-4", "ratio": 2, "epsilon": "inf"}
NOISE = {**IMAGES, "manipulation": "noise"}
SMALL = {**NOISE, "data": "cifar10"}
DRAWN = {**NOISE, "data": "synthetic-features", "features": 512}
PRIVATE = {"data": "ml-100k", "epsilon": 500, "defence": 0}
DEFENDED = {"data": "steam-200k", "defence": 1, "epsilon": "inf"}
LAYER = {"data": "blog", "prior": "random", "layer": "output"}
LIKENESS = {"data": "imagenet", "extractor": "resnet18", "manipulation": "noise"}
CHRONO = {"data": "blog", "prior": "chrono"}
MNIST = {"data": "MNIST", "variant": "adadelta", "round": 1}
PROMISE = {"data": "ml-100k", "theorem": 1, "delta": 0.05, "noise": 0, "loss": "margin"}
AT_THE_BOUND = {**PROMISE, "of_bound": 1.0}


Number = tuple[float, str] | None


def numbers(attack: str, metric: str, settings: dict[str | None, dict[str, Any]]) -> dict[str | None, Number]:
    """The paper's number next to a cell of an attack, and where it stands, by family."""
    rows = [cell(attack, 0.5, metric=metric, **setting) for setting in settings.values()]
    families: Any = list(settings)
    made = table(*rows, lines={attack: AttackInfo(role="ours")}).assign(family=families)
    found: dict[str | None, Number] = {}
    for family, row in zip(settings, with_papers(made).to_dict("records"), strict=True):
        assert (row["paper"] != row["paper"]) == (row["source"] is None)
        found[family] = None if row["source"] is None else (round(float(row["paper"]), 3), str(row["source"]))
    return found


def number(attack: str, metric: str, family: str | None, setting: dict[str, Any]) -> Number:
    return numbers(attack, metric, {family: setting})[family]


@pytest.mark.parametrize(
    ("attack", "metric", "family", "setting", "value", "source"),
    [
        ("raifle", "auc", "recommendation", {"data": "ml-100k"}, 0.998, "RAIFLE Table V"),
        ("matched-filter", "auc", "recommendation", PRIVATE, 0.739, "RAIFLE Table XIII"),
        ("imia", "f1", "recommendation", DEFENDED, 0.206, "RAIFLE Table VI"),
        ("codebook", "auc", "ranking", CODEBOOK, 0.77, "RAIFLE Table XIV"),
        ("codebook", "auc", "ranking", CROWD, 0.54, "RAIFLE Table XI, MQ2007"),
        ("raifle", "auc", "ranking", {**CODEBOOK, "scale": 0.1, "search": "grid"}, 0.77, "RAIFLE Table XIV"),
        ("list-posterior", "auc", "ranking", PASSIVE, 0.87, "RAIFLE Table VII"),
        ("affine-inversion", "auc", "images", NOISE, 0.935, "RAIFLE Table VIII"),
        ("raifle", "auc", "images", {**NOISE, "epsilon": 500}, 0.545, "RAIFLE Table XV"),
        ("raifle", "auc", "images", SMALL, 0.935, "RAIFLE Table VIII, images and weights of ImageNet"),
        ("raifle", "psnr", None, LIKENESS, 25.8, "RAIFLE Table XII"),
        ("reid-mlp", "times-chance", "re-identification", CHRONO, 25, "Deanonymization Table 3"),
        ("fingerprint", "ap", "re-identification", CHRONO, 0.448, "Deanonymization Table 3"),
        ("matching-siamese", "ap", "matching", CHRONO, 0.919, "Deanonymization Table 4"),
        ("reid-mlp", "ap", "re-identification", LAYER, 0.388, "Deanonymization Table 5"),
        ("global-model", "top5", None, {"data": "blog", "prior": "random"}, 0.28, "Deanonymization Table 2"),
        ("decaf", "l1", "composition", MNIST, 0.185, "Decaf Table III"),
        ("decaf-match", "l1", "composition", {**MNIST, "variant": "null-classes-kept"}, 0.463, "Decaf Table XIV"),
        ("decaf", "l1", "composition", {**MNIST, "data": "cifar10", "variant": "vgg16"}, 0.228, "Decaf Table XIII"),
        ("pac", "success", "identifiability", AT_THE_BOUND, 0.95, "PAC identifiability, Theorem 1, at least"),
    ],
)  # fmt: skip
def test_a_number_stands_next_to_its_cell(
    attack: str, metric: str, family: str | None, setting: dict[str, Any], value: float, source: str
) -> None:
    assert number(attack, metric, family, setting) == (value, source)
    # Of another question's attack it says nothing, nor in a setting that the paper does not have.
    others = numbers(attack, metric, {other: setting for other in FAMILIES if other != family}) if family else {}
    assert {other for other, found in others.items() if found} <= {"matching", "re-identification"}
    assert number(attack, metric, family, {**setting, "something": "else"}) is None


@pytest.mark.parametrize(
    ("attack", "metric", "family", "setting"),
    [
        ("popularity", "auc", "interactions", {"data": "ml-100k"}),
        ("an-attack-of-another", "auc", "recommendation", {"data": "ml-100k"}),  # no attack of theirs
        ("imia", "auc", "recommendation", {"data": "ml-100k"}),
        ("raifle", "auc", "ranking", {"data": "ml-100k", "learner": "mf"}),
        ("raifle", "auc", "ranking", {**CODEBOOK, "guardrail": 0.6}),
        ("raifle", "auc", "ranking", {**CODEBOOK, "scale": 0.3}),
        ("raifle", "auc", "ranking", {**CODEBOOK, "manipulation": "half-noise"}),
        ("codebook", "auc", "ranking", {**CROWD, "aggregate": "one-target"}),
        ("reid-mlp", "ap", "re-identification", {**CHRONO, "seen": 0.5}),
        ("reid-mlp", "ap", "re-identification", {"data": "blog", "prior": "iid"}),
        ("reid-mlp", "ap", "re-identification", {"data": "sent140", "prior": "random"}),
        ("uniform-present", "l1", "composition", MNIST),
        ("decaf", "l1", "composition", {**MNIST, "variant": "vgg16"}),
        ("raifle", "auc", "images", DRAWN),
        ("decaf", "l1", "composition", {**MNIST, "variant": "auxiliary-2"}),
        ("pac", "success", "identifiability", {**PROMISE, "of_bound": 0.5}),
        ("pac-spectral", "success", "identifiability", {**PROMISE, "of_bound": 1}),
    ],
)
def test_there_is_none_next_to_others(attack: str, metric: str, family: str, setting: dict[str, Any]) -> None:
    assert number(attack, metric, family, setting) is None


def test_every_table_has_the_columns_of_the_schema() -> None:
    assert len(paper_tables()) == len(list((ROOT / "fedleak/reports/paper_values").glob("*.yaml"))) >= 8
    for found in paper_tables():
        assert {"table", "attack", "metric", "statistic", "value"} <= set(found.values)
        assert pd.to_numeric(found.values["value"]).notna().all()
        keys = set(found.values) - {"table", "attack", "metric", "statistic", "value", "note"}
        assert not keys & set(found.ignored)
        assert set(found.same) <= keys | set(found.defaults)
        attacks = set(found.values["attack"])
        assert {theirs for others in found.next_to.values() for theirs in others} <= attacks
        assert not attacks & set(found.next_to)


def test_tables_of_no_results_have_no_numbers() -> None:
    empty = table(cell("raifle", 0.5)).iloc[:0]
    assert len(with_papers(empty)) == 0


def test_a_table_of_another_paper_is_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new.csv").write_text("table,attack,metric,statistic,value,data\n1,theirs,auc,mean,0.7,d\n")
    (tmp_path / "new.yaml").write_text("source: New Table {table}\nfamilies: [ranking]\nnext_to: {mine: [theirs]}\n")
    monkeypatch.setattr(papers, "paper_tables", lambda: (PaperTable.read(tmp_path / "new.csv"),))
    assert number("mine", "auc", "ranking", {"data": "d"}) == (0.7, "New Table 1")
    assert number("other", "auc", "ranking", {"data": "d"}) is None


def decaf_values() -> pd.DataFrame:
    """The numbers of Decaf's tables III to XV.

    ``proportion`` is what the attack inferred of a user and class; a class without a row was called null. ``l1``,
    ``l2`` and ``linf`` are printed for tables IX, X and XII to XV only, for the attack and for a random guess
    (``chance``). Of table XI the privacy budgets are lost; its rows stand in the order of the noise multipliers of
    section V-C, and it names no data set.
    """
    folder = Path(papers.__file__).parent / "paper_values"
    values = pd.read_csv(folder / "decaf_shares.csv", dtype={"user": "Int64", "class": "Int64"})
    words = ["attack", "data", "network", "defence", "variant", "step"]
    values[words] = values[words].fillna("")
    return values


def decaf_distances() -> pd.DataFrame:
    """L1, L2 and L-infinity between printed true and inferred proportions, for every table and user that has both."""
    inferred = decaf_values()
    inferred = inferred[inferred["metric"] == "proportion"]
    cells = inferred[["table", "data", "network", "variant", "user"]].drop_duplicates()
    every = cells.merge(decaf_compositions()[["data", "user", "class", "proportion"]], on=["data", "user"])
    every = every.merge(inferred[["table", "user", "class", "value"]], on=["table", "user", "class"], how="left")
    every["error"] = (every["proportion"] - every["value"].fillna(0.0)).abs()
    errors = every.groupby(["table", "data", "network", "variant", "user"], sort=False)["error"]
    return errors.agg(l1="sum", l2=lambda error: float(np.sqrt((error**2).sum())), linf="max").reset_index()


def test_the_means_that_are_joined_follow_from_the_shares() -> None:
    (joined,) = (one.values for one in paper_tables() if one.source == "Decaf Table {table}")
    means = decaf_distances().groupby("table")[["l1", "l2", "linf"]].mean()
    assert len(joined) == means.size
    for row in joined.to_dict("records"):
        assert float(row["value"]) == pytest.approx(means.loc[row["table"], row["metric"]], abs=5e-7)


PRINTED = ("IX", "X", "XII", "XIII", "XIV", "XV")
MISPRINTS = {("XV", 4, "l1"): 0.0070, ("XV", 9, "l1"): 0.0006}
"""Where the paper's distance is not that of its own proportions, and by how much."""


def test_printed_distances_follow_from_printed_proportions() -> None:
    values = decaf_values()
    printed = values[(values["attack"] == "decaf") & values["metric"].isin(["l1", "l2", "linf"])]
    classes = values[values["metric"] == "proportion"].groupby(["table", "user"]).size()
    computed = decaf_distances().set_index(["table", "user"])
    assert set(printed["table"]) == set(PRINTED)
    assert len(printed) == 3 * (7 + 7 + 10 + 10 + 10 + 10)
    for row in printed.itertuples():
        key = (str(row.table), int(str(row.user)), str(row.metric))
        difference = abs(float(str(row.value)) - computed.loc[key[:2], key[2]])
        # Percentages with two digits, true, inferred and in sum: .00005 each.
        rounding = 0.0001 * classes.loc[key[:2]] + 0.00005
        misprint = MISPRINTS.get(key, 0.0)
        assert misprint == 0 or difference > rounding
        assert difference == pytest.approx(misprint, abs=rounding), key


def test_inferred_proportions_sum_to_one() -> None:
    values = decaf_values()
    sums = values[values["metric"] == "proportion"].groupby(["table", "user"])["value"].sum()
    assert len(sums) == 3 * 10 + 2 * 7 + 2 * 7 + 4 * 10
    odd = sums[(sums - 1).abs() > 0.00035]
    # Misprints, or the paper's rounding.
    assert {key: round(value, 4) for key, value in odd.items()} == {("IV", 8): 1.0008, ("V", 4): 0.9939}


def test_null_classes_are_all_found_but_where_they_are_not_looked_for() -> None:
    values, truth = decaf_values(), decaf_compositions()
    inferred = values[values["metric"] == "proportion"]
    present = {
        str(data): set(zip(rows["user"], rows["class"], strict=True))
        for data, rows in truth[truth["proportion"] > 0].groupby("data")
    }
    for (number_of, data), rows in inferred.groupby(["table", "data"]):
        found = set(zip(rows["user"], rows["class"], strict=True))
        assert (found == present[str(data)]) == (number_of != "XIV"), number_of


def test_a_random_guess_does_not_depend_on_the_network() -> None:
    values = decaf_values()
    guesses = values[values["attack"] == "chance"].groupby(["data", "user", "metric"])["value"]
    assert (guesses.nunique() == 1).all()
    assert (guesses.size() == 2).all()


def test_the_other_tables() -> None:
    values = decaf_values()
    assert values[values["table"] == "VIII"].groupby("data")["value"].sum().round(3).to_dict() == {
        "MNIST": 27.646, "cifar10": 32.115
    }  # fmt: skip
    noisy = values[(values["table"] == "XI") & (values["defence"] == "dp")].set_index("noise_multiplier")["value"]
    assert noisy.sort_index().to_dict() == {0.1: 0.9311, 0.25: 0.9216, 1.0: 0.8709, 4.0: 0.7963, 16.0: 0.589}


@pytest.mark.parametrize(
    ("table", "mean"), [("III", 0.185), ("IV", 0.262), ("V", 0.192), ("VI", 0.174), ("VII", 0.154)]
)
def test_mean_distances_of_the_main_tables(table: str, mean: float) -> None:
    distances = decaf_distances()
    assert distances[distances["table"] == table]["l1"].mean() == pytest.approx(mean, abs=5e-4)
