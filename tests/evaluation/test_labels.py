"""Labels of curves and tables are made of parts, and taken apart only where an earlier version stored no parts."""

import pytest

from fedleak.evaluation.labels import Label, label_of_text


@pytest.mark.parametrize(
    ("label", "text"),
    [
        (Label("decaf"), "decaf"),
        (Label("ranking/codebook+prior", "digits, epsilon 1"), "ranking/codebook+prior (digits, epsilon 1)"),
        (Label("updates", run="first"), "updates in first"),
        (Label("updates", "digits", "first"), "updates (digits) in first"),
    ],
)
def test_a_label_is_printed_with_its_setting_and_its_run(label: Label, text: str) -> None:
    assert str(label) == text


def test_a_label_that_was_stored_as_text_is_of_the_longest_fitting_attack() -> None:
    attacks = ["codebook", "codebook+prior", "codebook (x)"]
    assert label_of_text("codebook+prior (d, epsilon 1)", attacks) == Label("codebook+prior", "d, epsilon 1")
    assert label_of_text("codebook (x) (d)", attacks) == Label("codebook (x)", "d")
    assert label_of_text("codebook", attacks) == Label("codebook")
    assert label_of_text("another (d)", attacks) == Label("another (d)")
