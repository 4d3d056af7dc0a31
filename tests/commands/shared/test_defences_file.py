"""A file of defences names them, their strengths and their order; mistakes end in one line."""

from pathlib import Path

import pytest

from fedleak.commands import program
from fedleak.commands.shared.defences_file import read_defences
from fedleak.core.errors import InputError
from fedleak.defenses.compression import Clip, Sign, TopK
from tests.places import ROOT


def written(place: Path, text: str) -> Path:
    file = place / "defences.yaml"
    file.write_text(text)
    return file


def test_strengths_lists_and_short_names(tmp_path: Path) -> None:
    text = """
    top-k: {"0.5, 0.1": {class_path: TopK, init_args: {share: $}}}
    sign: Sign
    both: [{class_path: fedleak.defenses.compression.Clip, init_args: {norm: 0.5}}, Sign]
    """
    found = read_defences(written(tmp_path, text))
    assert list(found) == [("top-k", 0.5), ("top-k", 0.1), ("sign", None), ("both", None)]
    (first,) = found["top-k", 0.5]
    assert isinstance(first, TopK)
    assert first.share == 0.5
    assert [type(one) for one in found["both", None]] == [Clip, Sign]


def test_the_file_of_the_documentation_is_read() -> None:
    assert len(read_defences(ROOT / "configs" / "what_if.yaml")) > 15


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "expected defences; found none"),
        ("a: Sing", "Did you mean Sign"),
        ("a: {class_path: TopK, init_args: {share: 2}}", "share"),
        ("a: 3", "defences by class and arguments as a in"),
        ("- a", "mapping"),
        (f"a: [{', '.join(['Sign'] * 33)}]", "at most 32 classes as a in"),
        ('a: {"1, !1": Sign}', "a list of values as '1, !1'"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_defences(written(tmp_path, text))


def test_a_control_says_nothing_of_defences(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = str(written(tmp_path, "sign: Sign"))
    assert program.main(["audit", str(tmp_path), "--what-if", file, "--control", "noise"]) == 2
    assert "--what-if without --control" in capfd.readouterr().err
