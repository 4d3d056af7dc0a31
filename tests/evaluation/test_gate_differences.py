"""A limit on a difference holds, fails or stays undecided by the interval of the difference on the same clients."""

import numpy as np
import pandas as pd
import pytest

from fedleak.attacks.composition.baselines import EqualCounts
from fedleak.attacks.composition.decaf import Decaf
from fedleak.attacks.composition.last_layer import LastLayerCounts
from fedleak.core.attack import Attack
from fedleak.core.errors import InputError
from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.changes import changes
from fedleak.evaluation.gate import LimitError, Verdict, gate
from fedleak.evaluation.limited_value import hidden
from fedleak.evaluation.limits import limits_of
from fedleak.evaluation.runner import Evaluation
from fedleak.evaluation.scores import AttackInfo, concat, score_table
from fedleak.evaluation.stored_run import StoredRun
from fedleak.evaluation.summary import summarise
from tests.frames import line_of
from tests.wording import lacking

DATA = {"name": "d", "sha256": "0"}
LABELS = ("decaf", "last-layer-counts", "equal-counts", "linkability")
CLIENTS = 400
BEFORE = np.linspace(0.5, 0.7, CLIENTS)
NOISE = 0.01 * np.sin(np.arange(CLIENTS))


def audited(
    metric: str = "l1", *, lines: dict[str, AttackInfo] | None = None, trainings: int = 3, **values: np.ndarray
) -> AuditResult:
    """An audit with values of clients by attack, the same in every training."""
    tables = [
        score_table(label.replace("_", "-"), {metric: own}, setting={"data": "d"}, seed=seed, victims=range(len(own)))
        for label, own in values.items()
        for seed in range(trainings)
    ]
    evaluation = Evaluation(scores=concat(tables), lines=lines or {name: line_of(name) for name in LABELS})
    attacks: list[Attack] = [Decaf(), LastLayerCounts(), EqualCounts()]
    return AuditResult(evaluation, [metric], DATA, attacks=attacks)


def verdict(found: AuditResult, name: str, limit: float, reference: AuditResult | None = None) -> Verdict:
    (one,) = found.check({name: limit}, reference=reference, accept=("failed", "undecided", "unchecked"))
    return one


RISES = {
    "more, beyond": (BEFORE - 0.2 + NOISE, "failed"),
    "more, within": (BEFORE - 0.02 + NOISE, "ok"),
    "less": (BEFORE + 0.4 + NOISE, "ok"),
    "equal": (BEFORE, "ok"),
    "about the limit": (BEFORE - 0.05 + 10 * NOISE, "undecided"),
}


def test_two_audits_of_one_recording_need_no_number_of_clients() -> None:
    few = audited(decaf=BEFORE[:3], trainings=1)
    found = verdict(few, "change", 0.0, few)
    assert found.verdict == "ok"
    assert found.message.endswith("every client has the same value in both, n = 3)")


@pytest.mark.parametrize(
    ("name", "rise"),
    [
        *[("change", rise) for rise in RISES],
        ("composition/change", "more, beyond"),
        ("what share of its examples each class has/change", "about the limit"),
    ],
)
def test_rise_of_the_leak_is_limited(name: str, rise: str) -> None:
    values, expected = RISES[rise]
    found = verdict(audited(decaf=values), name, 0.05, audited(decaf=BEFORE))
    assert (found.verdict, found.metric, found.n) == (expected, name, CLIENTS)
    assert "composition: l1 0.600 by decaf in the reference" in found.message


def test_rise_is_that_of_the_best_attack_of_either_run() -> None:
    before = audited(decaf=BEFORE, last_layer_counts=BEFORE + 0.3)
    after = audited(decaf=BEFORE + 0.001 * NOISE, last_layer_counts=BEFORE + 0.01)  # rose, but is not the best
    assert verdict(after, "change", 0.05, before).verdict == "ok"
    after = audited(decaf=BEFORE, last_layer_counts=BEFORE - 0.2 + NOISE)
    found = verdict(after, "change", 0.05, before)
    assert (found.verdict, found.attack) == ("failed", "last-layer-counts")
    assert found.value == pytest.approx(0.2, abs=0.01)


def test_exposure_of_a_few_clients_is_not_hidden_by_the_mean() -> None:
    after = BEFORE + 0.1 + NOISE
    after[:6] = 0.0
    found = verdict(audited(decaf=after), "change", 0.05, audited(decaf=BEFORE))
    assert (found.verdict, "clients are beyond the limit" in found.message) == ("undecided", True)


@pytest.mark.parametrize(("beyond", "shown"), [(1, False), (4, False), (5, True)])
def test_the_mean_of_exposed_clients_is_that_of_five_or_more(beyond: int, shown: bool) -> None:
    values = pd.Series([0.9] * beyond + (0.1 + 0.001 * np.arange(40)).tolist())
    said = hidden(values, limit=0.5, tests=1, binary=False)
    assert said is not None
    assert ("on average" in said) == shown


def test_the_mean_of_exposed_clients_is_not_said_where_it_gives_the_value_of_the_only_other() -> None:
    values = pd.Series([0.1, *np.linspace(0.501, 0.51, 20), *np.linspace(0.51, 0.9, 19)])
    said = hidden(values, limit=0.5, tests=1, binary=False)
    assert not lacking(said or "", "39 of 40 clients", "beyond the limit")


def test_one_training_a_side_proves_no_change_of_the_system() -> None:
    """Two trainings of one system differ too, and no interval over clients covers that."""
    before, after = (audited(decaf=values, trainings=1) for values in (BEFORE, BEFORE - 0.2 + NOISE))
    found = verdict(after, "change", 0.05, before)
    assert (found.verdict, "each side is one training" in found.message) == ("undecided", True)
    assert verdict(before, "change", 0.05, before).verdict == "ok"  # the same scores of every client


def test_attacks_that_only_the_reference_has_are_named_next_to_an_ok() -> None:
    before = audited(decaf=BEFORE, last_layer_counts=BEFORE - 0.3)
    found = verdict(audited(decaf=BEFORE), "change", 0.05, before)
    assert found.verdict == "ok"
    assert "Only in the reference, and not compared: last-layer-counts. Of these, last-layer-counts" in found.message


def test_nothing_in_common_is_unchecked() -> None:
    found = verdict(audited(decaf=BEFORE), "change", 0.05, audited(last_layer_counts=BEFORE))
    assert (found.verdict, "could not be checked" in found.message) == ("unchecked", True)


GAINS = {
    "better": (BEFORE - 0.3 + NOISE, "failed"),
    "hardly better": (BEFORE - 0.02 + NOISE, "ok"),
    "worse": (BEFORE + 0.2, "ok"),
    "about the limit": (BEFORE - 0.05 + 10 * NOISE, "undecided"),
}


@pytest.mark.parametrize(("values", "expected"), GAINS.values(), ids=GAINS)
def test_gain_over_the_best_baseline_is_limited(values: np.ndarray, expected: str) -> None:
    found = verdict(audited(decaf=values, equal_counts=BEFORE), "beyond-baseline", 0.05)
    assert found.verdict == expected
    assert "equal-counts 0.600" in found.message


def test_gain_is_paired_on_clients() -> None:
    spread = np.linspace(0.1, 0.9, CLIENTS)
    assert verdict(audited(decaf=spread - 0.1, equal_counts=spread), "beyond-baseline", 0.05).verdict == "failed"


def test_guessing_is_a_baseline_and_a_distance_needs_one() -> None:
    link = {"linkability": AttackInfo(role="ours", family="linkability", question="LinkEstimate", tells="links")}
    found = verdict(audited("auc", lines=link, linkability=0.9 + NOISE), "beyond-baseline", 0.05)
    assert (found.verdict, "guessing 0.5" in found.message) == ("failed", True)
    assert found.value == pytest.approx(0.4, abs=0.01)
    found = verdict(audited(decaf=BEFORE), "beyond-baseline", 0.05)
    assert (found.verdict, "no baseline for composition/l1" in found.message) == ("unchecked", True)


def test_python_check_raises_with_the_sentences_of_the_gate() -> None:
    found = audited(decaf=BEFORE - 0.3, equal_counts=BEFORE)
    with pytest.raises(AssertionError, match=r"GATE FAILED: decaf l1 0\.300 is below the limit 0\.5") as broken:
        found.check(l1=0.5)
    assert isinstance(broken.value, LimitError)
    assert [one.verdict for one in broken.value.verdicts] == ["failed"]
    (held,) = found.check(l1=0.1)
    assert held.verdict == "ok"
    with pytest.raises(LimitError, match="UNDECIDED"):
        audited(decaf=BEFORE[:3]).check(l1=0.1)
    assert audited(decaf=BEFORE[:3]).check(l1=0.1, accept=["undecided"])[0].verdict == "undecided"


def test_python_check_refuses_wrong_names() -> None:
    found = audited(decaf=BEFORE)
    for name, way_out in (("l11", "Did you mean l1"), ("compositon/l1", "Did you mean composition"), ("change", "RUN")):
        with pytest.raises(InputError, match=way_out):
            found.check({name: 0.5})
    with pytest.raises(InputError, match="at least 0"):
        found.check({"beyond-baseline": -0.1})
    with pytest.raises(InputError, match="a limit to check"):
        found.check()


def test_gate_of_the_command_gives_the_same_verdict() -> None:
    before, after = audited(decaf=BEFORE), audited(decaf=BEFORE - 0.2 + NOISE)
    stored = StoredRun("the reference", before.evaluation, DATA)
    check = gate(
        limits_of({"change": 0.05}), after.attacks, lambda own: changes(stored, StoredRun("this audit", own, DATA))
    )
    assert check(summarise(after.evaluation), after.evaluation) == [verdict(after, "change", 0.05, before)]
