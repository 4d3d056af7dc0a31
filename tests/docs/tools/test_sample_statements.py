from pathlib import Path

import pytest
import yaml

from docs.tools.sample_statements import SAMPLES, SOURCES, commands, page
from fedleak.evaluation.registry import REGISTRY
from fedleak.reports.statement.system_file import Declaration


def test_each_sample_has_a_training_and_a_system() -> None:
    assert {path.name for path in SOURCES.iterdir()} == {
        f"{name}.{part}.yaml" for name in SAMPLES for part in ("train", "system")
    }
    families = {kind.family for kind in REGISTRY.values()}
    systems = [Declaration.read(SOURCES / f"{name}.system.yaml", families).system for name in SAMPLES]
    assert len({one.system for one in systems}) == 1
    defended = [
        yaml.safe_load((SOURCES / f"{name}.train.yaml").read_text())["model"].get("defenses") for name in SAMPLES
    ]
    assert [one is not None for one in defended] == [False, True]


def test_page_leads_to_each_sample(tmp_path: Path) -> None:
    text = page()
    for name in SAMPLES:
        assert text.count(f"samples/{name}.html") == 2  # a link and a frame
        for one in commands(name, Path("runs", name)):
            assert " ".join(one) in text


@pytest.mark.parametrize("name", SAMPLES)
def test_configurations_of_the_commands_exist(name: str) -> None:
    files = [word for one in commands(name, Path("runs")) for word in one if word.endswith(".yaml")]
    assert files
    assert all((SOURCES.parents[1] / file).is_file() for file in files)
