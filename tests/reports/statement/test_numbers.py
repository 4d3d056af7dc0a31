import pytest

from fedleak.reports.statement.numbers import hundredths, in_percent, shown


@pytest.mark.parametrize("value", [1.0, 50.0, 0.9999, 0.00001, 1.23456, 12345.678, 999.999, 30.0001, 0.5, 0.0])
def test_no_number_reads_as_thousands(value: float) -> None:
    """A point or comma with three digits behind it separates thousands in half of Europe."""
    for text in (shown(value), shown(value, whole=True)):
        whole, _, decimals = text.removeprefix("above ").partition(".")
        assert "," not in text
        assert len(decimals) != 3 or whole == "0", text


def test_only_a_perfect_share_is_all_or_none() -> None:
    assert [hundredths(value) for value in (0.0, 0.1, 99.8, 100.0)] == ["0", "less than 1", "more than 99", "100"]
    assert [in_percent(value) for value in (0.0, 0.0012, 0.093, 0.9999, 1.0)] == [
        "0%",
        "0.12%",
        "9.3%",
        "more than 99%",
        "100%",
    ]
    assert [shown(value) for value in (0.9999, None, "infinite")] == ["above 0.999", "undefined", "infinite"]
