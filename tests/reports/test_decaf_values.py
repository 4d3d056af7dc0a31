"""The transcription of Decaf's tables, checked by the paper's own arithmetic."""

import pytest

from datamodules.composition import decaf_compositions
from reports.decaf_values import decaf_distances, decaf_values

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
    for (table, data), rows in inferred.groupby(["table", "data"]):
        found = set(zip(rows["user"], rows["class"], strict=True))
        assert (found == present[str(data)]) == (table != "XIV"), table


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
    ("table", "mean"),
    [("III", 0.185), ("IV", 0.262), ("V", 0.192), ("VI", 0.174), ("VII", 0.154)],
)
def test_mean_distances_of_the_main_tables(table: str, mean: float) -> None:
    distances = decaf_distances()
    assert distances[distances["table"] == table]["l1"].mean() == pytest.approx(mean, abs=5e-4)
