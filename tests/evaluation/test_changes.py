"""Two runs are compared on the same clients where they can be matched, and a report says where they cannot."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fedleak.attacks.composition.one_output
import fedleak.attacks.matching.estimates
import fedleak.attacks.source.source_inference  # noqa: F401 - both add their metrics
from fedleak.attacks.recommendation import Direction
from fedleak.core.errors import InputError
from fedleak.evaluation.as_recorded import COSINE, DEFENCE
from fedleak.evaluation.changes import Changes, changes, check_comparable
from fedleak.evaluation.persons import without_persons
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, score_table
from fedleak.evaluation.stored_run import StoredRun

KEY = b"k" * 32
LINES = {
    name: AttackInfo(role="ours", family="composition", question="q", tells="what share each class has")
    for name in ("decaf", "rlg", "llg", "direction")
} | {"uniform": AttackInfo(role="baseline", family="composition", question="q")}
BEFORE = np.linspace(0.2, 0.4, 12)
AFTER = BEFORE + 0.3 + 0.01 * np.sin(np.arange(12))


def run(
    name: str = "now",
    *,
    people: Sequence[int] = range(12),
    metric: str = "l1",
    seed: int = 0,
    setting: dict[str, Any] | None = None,
    sha256: str = "0",
    **attacks: Any,
) -> StoredRun:
    """A run with values of each client by attack."""
    setting = {"data": "d", **(setting or {})}
    tables = [
        score_table(label, {metric: values}, setting=setting, seed=seed, victims=people, people=people)
        for label, values in attacks.items()
    ]
    return StoredRun(name, Evaluation(scores=concat(tables), lines=LINES), {"name": "d", "sha256": sha256})


def keyed(one: StoredRun, key: bytes = KEY) -> StoredRun:
    return dataclasses.replace(one, evaluation=without_persons(one.evaluation, key))


def verdicts(found: Changes) -> list[str]:
    return [row.verdict for row in found.rows if not row.best]


def test_what_cannot_be_compared_is_refused_before_a_run() -> None:
    direction = [Direction()]
    check_comparable(run(metric="auc", direction=BEFORE), "d", direction)
    # Nothing is known of a run without scores.
    check_comparable(StoredRun("empty", Evaluation(scores=run(decaf=BEFORE).evaluation.scores[:0]), {}), "d", direction)
    with pytest.raises(InputError, match="a run of the data set d; found before, a run of other"):
        check_comparable(run("before", setting={"data": "other"}, decaf=BEFORE), "d", direction)
    with pytest.raises(InputError, match="one of the attacks direction; found before, a run of decaf, rlg"):
        check_comparable(run("before", decaf=BEFORE, rlg=AFTER, uniform=AFTER), "d", direction)


def test_a_client_that_lost_its_value_or_trainings_that_cancel_are_not_equal() -> None:
    lost = changes(run(decaf=BEFORE), run(decaf=np.where(np.arange(12) == 3, np.nan, BEFORE)))
    assert verdicts(lost) == ["undecided"]
    assert not lost.same

    def of_two_trainings(first: np.ndarray, second: np.ndarray) -> StoredRun:
        tables = [run(seed=seed, decaf=values).evaluation.scores for seed, values in enumerate((first, second))]
        return StoredRun("now", Evaluation(scores=concat(tables), lines=LINES), {"name": "d", "sha256": "0"})

    cancelling = changes(of_two_trainings(BEFORE, AFTER), of_two_trainings(AFTER, BEFORE))
    assert "equal" not in verdicts(cancelling)


def test_a_difference_of_infinite_means_is_undecided() -> None:
    infinite = np.full(12, np.inf)
    assert verdicts(changes(run(metric="mean-error", decaf=BEFORE), run(metric="mean-error", decaf=infinite))) == [
        "undecided"
    ]


def test_run_against_itself_differs_by_exactly_nothing() -> None:
    one = run(decaf=BEFORE, rlg=AFTER)
    found = changes(one, one).table
    assert found["change"].tolist() == [0.0] * 3
    assert found["verdict"].tolist() == ["equal"] * 3
    assert changes(one, one).same
    assert not changes(one, run(decaf=BEFORE, rlg=BEFORE)).same


MANY = range(120)
"""Enough people for an interval of a difference of distances, which may be as large as 2, to be short."""


def test_exchanged_runs_have_the_opposite_sign() -> None:
    one, two = (run(name, people=MANY, decaf=np.tile(own, 10)) for name, own in (("a", BEFORE), ("b", AFTER)))
    there, back = changes(one, two), changes(two, one)
    assert verdicts(there) == ["less"]  # a larger distance
    assert verdicts(back) == ["more"]
    assert [row.change for row in there.rows] == pytest.approx([-row.change for row in back.rows])
    low, high = back.rows[0].ends()
    assert there.rows[0].ends() == pytest.approx((-high, -low))
    assert there.rows[0].change == pytest.approx(0.3, abs=0.01)


def test_more_of_a_metric_that_is_better_for_the_attack_is_more() -> None:
    before, after = (run(metric="auc", people=MANY, decaf=np.tile(own, 10)) for own in (BEFORE, AFTER))
    assert verdicts(changes(before, after)) == ["more"]


def test_pairing_makes_the_interval_narrower() -> None:
    values = np.linspace(0.2, 1.4, 2000)  # spread so far that pairs have less of it
    one = run(people=range(2000), decaf=values)
    paired = changes(one, run(people=range(2000), decaf=values + 0.3))
    loose = changes(one, run(people=range(2000, 4000), decaf=values + 0.3))
    widths = [np.diff(found.rows[-1].ends())[0] for found in (paired, loose)]
    assert widths[0] < 0.5 * widths[1]
    assert paired.table["paired"].all()
    assert not loose.table["paired"].any()
    assert "not paired, because no client has the same number" in loose.notes[0]


@pytest.mark.parametrize("stored", ["neither", "reference", "run", "both"])
def test_keyed_numbers_are_matched_with_those_of_the_data(stored: str) -> None:
    sides = [run("a", decaf=BEFORE), run("b", decaf=AFTER)]
    sides = [
        keyed(one) if stored in (name, "both") else one for name, one in zip(("reference", "run"), sides, strict=True)
    ]
    found = changes(sides[0], sides[1], key=KEY)
    assert found.table["paired"].all()
    assert found.rows[-1].change == pytest.approx(float((AFTER - BEFORE).mean()))


def test_numbers_of_other_keys_are_not_matched() -> None:
    found = changes(keyed(run(decaf=BEFORE)), keyed(run(decaf=AFTER), b"x" * 32), key=KEY)
    assert not found.table["paired"].any()
    assert "FEDLEAK_KEY" in found.notes[1]


def test_clients_of_other_data_are_not_matched() -> None:
    found = changes(run(decaf=BEFORE), run(decaf=AFTER, sha256="1"))
    assert not found.table["paired"].any()
    assert "different data" in found.notes[0]
    unknown = dataclasses.replace(run(decaf=BEFORE), data={})
    assert "earlier version" in changes(unknown, run(decaf=AFTER)).notes[0]


def test_difference_is_of_the_clients_that_both_have() -> None:
    found = changes(run(decaf=BEFORE), run(decaf=[*AFTER[6:], *[9.0] * 6], people=[*range(6, 12), *range(90, 96)]))
    assert (found.rows[-1].n, found.rows[-1].gaps is None) == (6, False)
    assert found.rows[-1].change == pytest.approx(float((AFTER - BEFORE)[6:].mean()))
    assert "6 (12 in" in found.notes[0]
    few = changes(run(decaf=BEFORE), run(decaf=AFTER, people=range(9, 21)))
    assert few.rows[-1].gaps is None
    assert "fewer than 5 of their clients are in both" in few.notes[1]


def test_four_clients_decide_nothing() -> None:
    people = range(4)
    assert verdicts(changes(run(people=people, decaf=BEFORE[:4]), run(people=people, decaf=AFTER[:4]))) == ["undecided"]


def test_best_attack_of_either_run_is_compared() -> None:
    found = changes(run(decaf=BEFORE, rlg=BEFORE + 0.1), run(decaf=BEFORE + 0.5, rlg=BEFORE + 0.12))
    best, *rest = found.rows
    assert (best.reference_attack, best.attack, best.best) == ("decaf", "rlg", True)
    assert best.change == pytest.approx(0.12)
    assert [row.change for row in rest] == pytest.approx([0.5, 0.02])


def test_attacks_of_one_run_are_listed_and_the_better_ones_named() -> None:
    found = changes(run("a", decaf=BEFORE, uniform=AFTER), run("b", decaf=BEFORE, rlg=BEFORE + 0.2, llg=BEFORE - 0.1))
    assert {row.attack for row in found.rows} == {"decaf"}
    said = "Only in b, and not compared: rlg, llg. Of these, llg (l1 0.200) infers more than every attack that was"
    assert found.notes[-1] == f"{said} compared."


def test_settings_that_vary_have_to_be_equal_and_others_describe_a_run() -> None:
    cells = [run(setting={"epsilon": epsilon}, decaf=BEFORE + epsilon) for epsilon in (1, 2)]
    both = StoredRun(
        "grid", Evaluation(scores=concat([c.evaluation.scores for c in cells]), lines=LINES), cells[0].data
    )
    assert [row.change for row in changes(*cells).rows] == pytest.approx([1.0, 1.0])
    found = changes(both, both)
    assert [row.setting["setting.epsilon"] for row in found.rows] == [1, 2, 1, 2]
    assert changes(run(setting={"data": "x"}, decaf=BEFORE), run(decaf=BEFORE)).rows == []


def test_nothing_in_common_is_said() -> None:
    (note, *_) = changes(run("a", decaf=BEFORE), run("b", rlg=BEFORE)).notes
    assert note.startswith("Nothing can be compared")


def test_defences_that_were_tried_are_not_compared() -> None:
    plain = run(decaf=BEFORE)
    tried = [run(setting={DEFENCE: name}, decaf=BEFORE + shift) for name, shift in (("none", 0.0), ("clip 1", 0.5))]
    cosine = score_table("aggregate", {COSINE: [1.0]}, setting={"data": "d", DEFENCE: "none"}, seed=0, victims=[0])
    whole = Evaluation(scores=concat([*(one.evaluation.scores for one in tried), cosine]), lines=LINES)
    found = changes(plain, StoredRun("tried", whole, plain.data))
    assert [row.change for row in found.rows] == [0.0, 0.0]


def test_seeds_are_resampled_where_both_have_several() -> None:
    def trained(shift: float) -> StoredRun:
        parts = [run(seed=seed, decaf=BEFORE + shift + 0.2 * shift * seed) for seed in range(3)]
        return StoredRun(
            "s", Evaluation(scores=concat([p.evaluation.scores for p in parts]), lines=LINES), parts[0].data
        )

    found = changes(trained(0.0), trained(0.5)).rows[-1]
    assert (found.seeds, found.n) == (3, 12)
    assert found.change == pytest.approx(0.6)
    assert found.ends()[1] - found.ends()[0] > 0.1  # of the seeds: clients differ by nothing
    other = run(seed=7, decaf=BEFORE + 0.5)
    assert changes(run(decaf=BEFORE), other).rows[-1].seeds == 1


def test_binary_metric_with_equal_differences_has_an_exact_interval() -> None:
    none, every = (run(metric="source", decaf=np.full(12, value)) for value in (0.0, 1.0))
    row = changes(none, every).rows[-1]
    assert (row.change, row.ends()[1], row.verdict) == (1.0, 1.0, "more")
    assert row.ends()[0] == pytest.approx(2 * 0.025 ** (1 / 12) - 1)
    low, high = changes(none, none).rows[-1].ends()
    assert -low == high == pytest.approx(1 - 0.025 ** (1 / 12))


def test_results_without_scores_are_no_reference() -> None:
    bare = StoredRun("bare", Evaluation(lines=LINES), {"name": "d", "sha256": "0"})
    assert changes(bare, run(decaf=BEFORE)).rows == []


def test_one_client_in_no_pair_is_said_because_the_means_give_its_value() -> None:
    values = np.arange(6) / 10
    found = changes(run("a", people=range(5), decaf=values[:5]), run("b", people=range(6), decaf=values))
    (row,) = (one for one in found.rows if not one.best)
    assert row.n == 5
    assert 6 * values.mean() - 5 * row.value == pytest.approx(values[5])
    assert any("1 of b is in no pair" in note for note in found.notes)
    same = changes(run("a", people=range(6), decaf=values), run("b", people=range(6), decaf=values))
    assert not any("in no pair" in note for note in same.notes)
