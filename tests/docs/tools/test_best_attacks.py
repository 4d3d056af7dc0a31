"""A default audit leaves out only attacks that no published or frozen table needs."""

from collections.abc import Mapping

import pytest

from docs.tools.attack_cells import Cell, CellKey, Value, measured_cells
from docs.tools.best_attacks import lines, lost_cells, needs_no_more, reasons_to_stay, standing
from fedleak.client import ImageClassifierAlgorithm, NetworkAlgorithm
from fedleak.core.threat_model import Need, ThreatModel
from fedleak.evaluation.registry import REGISTRY

LEFT_OUT = {name for name, kind in REGISTRY.items() if kind.for_comparison}
RLU, LLG, CLOSED_FORM = "composition/rlu", "composition/llg", "composition/closed-form"
IDLG, SLOW = "composition/idlg-labels", "reconstruction/fedavg-matching"


@pytest.fixture(scope="module")
def cells() -> dict[CellKey, Cell]:
    return measured_cells()


def cell(**values: float) -> Cell:
    """Values by the last parts of names in composition, none of them shown."""
    return {
        f"composition/{name.replace('_', '-')}": Value((False, value, value), value) for name, value in values.items()
    }


def of_settings(*settings: Cell) -> dict[CellKey, Cell]:
    return {("results/table", "question", "auc", str(number)): one for number, one in enumerate(settings)}


@pytest.mark.integration
def test_no_table_loses_by_what_a_default_audit_leaves_out(cells: Mapping[CellKey, Cell]) -> None:
    lost = lost_cells(LEFT_OUT, cells)
    assert lost == {}, "an attack with for_comparison is the best here: remove the attribute"


@pytest.mark.integration
def test_each_attack_that_is_left_out_has_substitutes_that_need_no_more(cells: Mapping[CellKey, Cell]) -> None:
    reasons = reasons_to_stay(cells)
    assert {name: reasons[name] for name in LEFT_OUT if reasons[name]} == {}


def test_only_published_attacks_are_left_out() -> None:
    assert LEFT_OUT
    for name in LEFT_OUT:
        kind = REGISTRY[name]
        assert kind.references, name
        assert not any((kind.baseline, kind.exact, kind.certifies)), name


@pytest.mark.integration
def test_the_tables_measure_most_attacks(cells: Mapping[CellKey, Cell]) -> None:
    attacks = {name for name, kind in REGISTRY.items() if not kind.baseline}
    measured = {name for one in cells.values() for name in one}
    assert measured <= attacks
    assert len(measured) > 0.9 * len(attacks)
    assert len(cells) > 1000


def test_a_cell_is_lost_where_the_best_is_removed() -> None:
    measured = of_settings(cell(rlu=0.9, llg=0.8), cell(rlu=0.7, llg=0.7), cell(rlu=0.6))
    lost = lost_cells({RLU}, measured)
    assert [setting for _, _, _, setting in lost] == ["0", "2"]
    assert [*lost.values()] == [pytest.approx(0.1), float("inf")]
    assert lost_cells({LLG}, measured) == {}


def test_a_leak_that_is_shown_is_lost_with_its_attack_although_the_value_stays() -> None:
    shown = {RLU: Value((True, 0.5, 0.7), 0.7), LLG: Value((False, 0.6, 0.8), 0.8)}
    assert [*lost_cells({RLU}, of_settings(shown)).values()] == [0.0]


def test_a_slow_attack_makes_up_for_none_that_is_not() -> None:
    values = {RLU: Value((False, 0.5, 0.5), 0.5), SLOW: Value((False, 0.9, 0.9), 0.9)}
    assert [*lost_cells({RLU}, of_settings(values)).values()] == [float("inf")]
    assert lost_cells({RLU}, of_settings({**values, **cell(llg=0.5)})) == {}


def test_a_published_attack_goes_if_others_are_as_good_everywhere() -> None:
    settings = [
        cell(rlu=0.5, llg=0.5, closed_form=0.4),
        cell(rlu=0.6, llg=0.5, closed_form=0.7),
        cell(rlu=0.1, llg=0.2),
    ]
    reasons = reasons_to_stay(of_settings(*settings))
    assert reasons[RLU] == ""
    assert reasons[CLOSED_FORM] == "ours"
    assert reasons[LLG].startswith("best in ")  # of two that tie, one stays
    assert reasons_to_stay(of_settings(*settings[:2]))[RLU].endswith("say too little")


def test_frozen_tables_alone_say_too_little() -> None:
    settings = of_settings(*[cell(rlu=0.4, llg=0.5, closed_form=0.6)] * 3)
    frozen = {("frozen/table", question, metric, where): one for (_, question, metric, where), one in settings.items()}
    assert reasons_to_stay(settings)[RLU] == ""
    assert reasons_to_stay(frozen)[RLU] == "no published table has it, and frozen ones are small"


def test_one_that_is_the_best_in_one_cell_stays() -> None:
    settings = [cell(rlu=0.501, llg=0.5), cell(rlu=0.4, llg=0.5), cell(rlu=0.1, llg=0.2)]
    assert reasons_to_stay(of_settings(*settings))[RLU] == "best in 1 cell, by up to 0.001"


def test_one_that_needs_less_than_all_better_ones_stays() -> None:
    settings = of_settings(*[cell(idlg_labels=0.4, closed_form=0.5)] * 3)
    assert reasons_to_stay(settings)[IDLG] == "where a better one lacks what it needs: in 3 cells"


@pytest.mark.parametrize(
    ("one", "other", "holds"),
    [
        (("deltas",), ("deltas", "model"), True),
        (("deltas", "model"), ("deltas",), False),
        (("deltas",), ("deltas:output.weight",), True),
        (("deltas:output.weight",), ("deltas",), False),
        ((NetworkAlgorithm,), (ImageClassifierAlgorithm,), True),
        ((ImageClassifierAlgorithm,), (NetworkAlgorithm,), False),
        (("algorithm",), (NetworkAlgorithm,), True),
    ],
)
def test_what_one_attack_needs_another_may_need_too(
    one: tuple[Need, ...], other: tuple[Need, ...], holds: bool
) -> None:
    first, second = (ThreatModel(sees="", knows="", needs=needs) for needs in (one, other))
    assert needs_no_more(first, second) is holds


def test_standing_counts_cells_ties_and_the_largest_lead() -> None:
    stands = standing(RLU, of_settings(cell(rlu=0.9, llg=0.8), cell(rlu=0.7, llg=0.702), cell(rlu=0.1, llg=0.5)))
    assert (stands.cells, stands.settings, stands.best, stands.strictly_best) == (3, 3, 2, 1)
    assert stands.largest_lead == pytest.approx(0.1)


@pytest.mark.integration
def test_the_printed_table_has_a_line_for_each_attack(cells: Mapping[CellKey, Cell]) -> None:
    text = lines(cells)
    attacks = [name for name, kind in REGISTRY.items() if not kind.baseline]
    assert [line.split()[0] for line in text[2:]] == attacks
