"""The statement on sums: for how many rounds clients are hidden, from participation and from what was measured."""

import pandas as pd
import pytest

from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, Role, score_table
from fedleak.reports.statement.sums import sums


def evaluation(
    first_after: int | None, measured: list[float] | None, rounds: int = 30, role: Role = "ours"
) -> Evaluation:
    rows = [
        {
            "what": what,
            "clients": 4,
            "rounds": rounds,
            "rank": 4,
            "determined": 4,
            "first after": first_after,
            "text": what,
        }
        for what in ("participation", "batched participation")
    ]
    made = Evaluation(details={"participation": pd.DataFrame(rows)})
    if measured is not None:
        made.scores = score_table(
            "rounds-to-reveal",
            {"rounds-to-reveal": measured},
            setting={},
            seed=0,
            round=0,
            victims=[*range(len(measured))],
        )
        made.lines = {"rounds-to-reveal": AttackInfo(role=role)}
    return made


@pytest.mark.parametrize(
    ("first_after", "measured", "hidden"),
    [
        (19, [20.0, 16.0, float("nan")], 15),
        (10, [20.0, 16.0], 9),
        (19, None, 18),
        (None, [7.0], 6),
        (None, None, 30),
    ],
)
def test_clients_are_hidden_until_the_first_is_determined_or_revealed(
    first_after: int | None, measured: list[float] | None, hidden: int
) -> None:
    found = sums(evaluation(first_after, measured))
    assert found is not None
    assert f"hidden for {hidden} rounds" in found.sentence
    assert found.earliest == first_after
    assert [one.revealed for one in found.measured] == ([] if measured is None else [sum(x == x for x in measured)])


def test_a_control_with_other_participants_reveals_nobody() -> None:
    found = sums(evaluation(None, [7.0], role="baseline"))
    assert found is not None
    assert not found.measured


def test_a_recording_without_sums_or_of_one_round_says_nothing() -> None:
    assert sums(Evaluation()) is None
    assert sums(evaluation(1, None, rounds=1)) is None
