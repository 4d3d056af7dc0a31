"""Classes that users name by a path."""

import sys
from pathlib import Path

import pytest

from fedleak.core.attack import Attack
from fedleak.core.class_paths import class_at, find_in_current_folder
from fedleak.core.errors import InputError


def test_the_current_folder_comes_last_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["first", "second"])
    find_in_current_folder()
    find_in_current_folder()
    assert sys.path == ["first", "second", str(tmp_path)]


def test_a_class_of_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "of_a_user_of_this_test.py").write_text("class NoAttack: ...\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"which is <class 'of_a_user_of_this_test\.NoAttack'>"):
        class_at("of_a_user_of_this_test.NoAttack", Attack)
    with pytest.raises(InputError, match="in this folder"):
        class_at("not_there_in_this_test.NoAttack", Attack)
