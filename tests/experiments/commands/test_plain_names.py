"""Arguments in their documented form."""

import pytest

from experiments.commands.plain_names import plain_names


@pytest.mark.parametrize(
    ("args", "plain"),
    [
        (["audit", "--slow"], ["audit", "--slow=true"]),
        (["audit", "--slow", "--victims", "3"], ["audit", "--slow=true", "--victims", "3"]),
        (["audit", "--slow", "false"], ["audit", "--slow", "false"]),
        ([], []),
        (["audit", "--gate", "auc=0.6", "--gate", "l1=1"], ["audit", "--gate", '["auc=0.6", "l1=1"]']),
        (["reproduce", "t", "--data.root", "d"], ["reproduce", "t", "--root", "d"]),
    ],
)
def test_documented_arguments_are_what_the_parser_reads(args: list[str], plain: list[str]) -> None:
    assert plain_names(args) == plain
