"""Documented arguments become those that the parser reads."""

import pytest

from experiments.commands.plain_names import plain_names


@pytest.mark.parametrize(
    "given",
    [["--format", "svg,tex"], ["--format=svg", "--format", "tex"], ["--format=[svg, tex]"]],
)
def test_formats_are_a_list_however_they_are_given(given: list[str]) -> None:
    assert plain_names(["report", "a", *given]) == ["report", "a", "--format", '["svg", "tex"]']
