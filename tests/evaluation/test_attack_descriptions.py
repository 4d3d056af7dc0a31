"""Descriptions of attacks are those of the registry, from the cache as from the source."""

from pathlib import Path

import pytest

from fedleak.core.cache import CACHE_VARIABLE
from fedleak.evaluation import attack_descriptions
from fedleak.evaluation.attack_descriptions import Descriptions, described
from fedleak.evaluation.registry import REGISTRY


def test_descriptions_are_those_of_the_registry() -> None:
    for read, kind in zip(described(), REGISTRY.values(), strict=True):
        assert (read.name, read.family, read.cost) == (kind.name, kind.family, kind.cost)
        assert (read.baseline, read.exact, read.references) == (kind.baseline, kind.exact, [*kind.references])
        assert read.inferred == kind.estimates.inferred
        assert read.question.startswith(("Attacks ", "Baselines ", "Checks "))
        assert read.names == [*kind.public_names().names]
        assert read.needs == [*kind.threat_model.described_needs]


def test_cache_is_read_until_the_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    first = described()
    (file,) = tmp_path.glob("attacks-*.json")
    with monkeypatch.context() as without_import:
        without_import.setattr(attack_descriptions, "_imported", lambda: Descriptions([], [], {}))
        assert described() == first
        file.write_text(file.read_text().replace('"key": "', '"key": "0'))
        assert described() == []
    for damaged in ("", "{}", "[]", '{"key": 1}'):
        file.write_text(damaged)
        assert described() == first
    assert file.stat().st_size > 1000


def test_folder_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file" / "below"))
    assert len(described()) == len(REGISTRY)
