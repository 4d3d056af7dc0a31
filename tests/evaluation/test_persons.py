"""Clients get new numbers that need a key, and that group and pair them as before."""

import pandas as pd

from fedleak.evaluation.persons import client_labels, in_order_of_persons, without_persons
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import concat, score_table

KEY = b"a secret key"


def made() -> Evaluation:
    """Clients 3 and 4 under two seeds, that is under two pairs of pseudonyms, in two rounds."""
    tables = [
        score_table(
            "decaf",
            {"l1": [0.1, 0.2]},
            setting={"data": "d"},
            seed=seed,
            round=number,
            victims=[70 + seed, 80 + seed],
            people=[3, 4],
        )
        for seed in range(2)
        for number in range(2)
    ]
    profiles = pd.DataFrame({"attack": "decaf", "seed": [0, 1], "round": 0, "victim": [70, 81], "true": [0.5, 0.6]})
    details = {"candidate-fit": pd.DataFrame({"what": ["all", "record"], "client": [float("nan"), 4.0]})}
    return Evaluation(scores=concat(tables), profiles=profiles, details=details)


def test_new_numbers_group_clients_over_rounds_seeds_and_tables() -> None:
    before, after = made(), without_persons(made(), KEY)
    pairs = set(zip(before.scores["person"], after.scores["person"], strict=True))
    new = dict(pairs)
    assert len(pairs) == len(new) == len({*new.values()}) == 2
    assert after.scores["victim"].tolist() == after.scores["person"].tolist()
    assert after.profiles["victim"].tolist() == [new[3], new[4]]
    assert after.details["candidate-fit"]["client"].tolist()[1] == new[4]
    assert not {*new.values()} & {3, 4, 70, 71, 80, 81}
    assert after.scores["value"].tolist() == before.scores["value"].tolist()


def test_new_numbers_depend_on_the_key_alone() -> None:
    one, again, other = (without_persons(made(), key).scores["person"].tolist() for key in (KEY, KEY, b"another key"))
    assert one == again
    assert not {*one} & {*other}


def test_rows_of_files_are_in_the_order_of_the_new_numbers() -> None:
    evaluation = without_persons(made(), KEY)
    scores, ordered = evaluation.scores, in_order_of_persons(evaluation).scores
    for _, block in ordered.groupby(["seed", "round"]):
        assert block["victim"].is_monotonic_increasing
    assert list(zip(ordered["seed"], ordered["round"], strict=True))[::2] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    columns = list(scores.columns)
    pd.testing.assert_frame_equal(
        ordered.sort_values(columns, ignore_index=True), scores.sort_values(columns, ignore_index=True)
    )


def test_label_of_a_client_stays_when_others_are_left_out() -> None:
    numbers = [*range(5), *without_persons(made(), KEY).scores["person"].unique().tolist()]
    whole = client_labels(numbers)
    assert whole[3] == "3"
    assert all(client_labels([number]) == {number: label} for number, label in whole.items())
    crowd = [number * 7919 * 10**6 + 1 for number in range(1, 300)]
    assert len({*client_labels(crowd).values()}) == len(crowd)
