"""Cells of tables are of the attacks of the registry."""

from pathlib import Path

from docs.tools.attack_cells import measured_cells


def test_a_table_has_its_cells_by_the_attacks_of_the_registry(tmp_path: Path) -> None:
    lines_of_table = [
        "attack\tmetric\tmean\tn\tsetting",
        'decaf\tl1\t0.2\t9\t{"data": "MNIST"}',
        'output-counts\tl1\t0.3\t9\t{"data": "MNIST"}',
        'output-counts+prior\tl1\t0.1\t9\t{"data": "MNIST"}',
        'uniform\tl1\t0.4\t9\t{"data": "MNIST"}',
        'client\tl1\t0.0\t9\t{"data": "MNIST"}',
    ]
    (tmp_path / "small.tsv").write_text("\n".join(lines_of_table))
    measured = measured_cells(tmp_path, tmp_path)
    assert [*measured] == [("frozen/small", "CompositionEstimate", "l1", '{"data": "MNIST"}')]
    (only,) = measured.values()
    assert {name: value.leakage for name, value in only.items()} == {
        "composition/decaf": -0.2,
        "composition/output-counts": -0.1,
    }


def test_a_name_of_several_families_is_of_that_of_the_table(tmp_path: Path) -> None:
    text = "attack\tmetric\tmean\tn\tsetting\nraifle\tauc\t0.7\t9\t{}\nmatched-filter\tauc\t0.8\t9\t{}\n"
    (tmp_path / "small.tsv").write_text(text)
    (only,) = measured_cells(tmp_path, tmp_path).values()
    assert set(only) == {"recommendation/raifle", "recommendation/matched-filter"}
