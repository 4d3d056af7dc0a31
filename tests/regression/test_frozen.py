"""No number moves unnoticed: tables and trainings run tiny, and give what lies in ``frozen/``; all: `make frozen`."""

import warnings
from pathlib import Path

import pytest
import torch

from fedleak.core.cache import CACHE_VARIABLE
from fedleak.evaluation.registry import find
from tests.regression.cases import Values, attacks_in, names, reductions, run_case, run_cases, shrunk, table_command
from tests.regression.cover import compared_in, covering_cases
from tests.regression.data import write_data
from tests.regression.frozen import FOLDER, differences, new_rows, path_of, read_frozen, write_frozen
from tests.tables.tables import check_by_hand

FAMILIES = (
    "raifle_table13",
    "raifle_table14",
    "raifle_table15_drawn",
    "decaf_figure6",
    "deanon_table4",
    "pac_theorem3",
)
"""A table of recommendation, of rankings, of images, of compositions, of devices and of private vectors."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Values]:
    """Folder and numbers of a table or training, by its name."""
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(folder / "cache"))
        return folder, run_case(request.param, data=data, folder=folder)


@pytest.mark.integration
@pytest.mark.parametrize("run", covering_cases(), indirect=True)
def test_numbers_are_as_frozen(run: tuple[Path, Values], request: pytest.FixtureRequest) -> None:
    name, values = request.node.callspec.params["run"], run[1]
    lines = differences(name, values)
    if added := new_rows(name, values):
        warnings.warn("\n".join([f"{name} has rows that are not frozen", *added]), stacklevel=1)
    assert not lines, "\n".join(["", *lines, f"If they are to move: python -m tests.regression --write {name}"])


@pytest.mark.integration
@pytest.mark.parametrize("run", FAMILIES, indirect=True)
def test_the_printed_commands_give_the_same_numbers(
    run: tuple[Path, Values], request: pytest.FixtureRequest, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, folder = request.node.callspec.params["run"], run[0]
    check_by_hand(table_command(name, data=data, folder=folder), capsys)


def test_the_arithmetic_is_that_of_the_frozen_values() -> None:
    assert torch.backends.cpu.get_cpu_capability() in ("AVX2", "DEFAULT", "NO AVX")


@pytest.mark.inventory
def test_every_table_and_training_is_run() -> None:
    """But a new one without an entry in ``reductions.yaml``, which `make frozen` names."""
    assert {*reductions()} <= {*names("paper", "table", "train")}
    assert sorted(path.stem for path in FOLDER.iterdir()) == run_cases()


def test_every_attack_of_a_table_has_a_number() -> None:
    missing, silent = {}, {}
    for name in names("paper", "table"):
        if path_of(name).is_file():
            scored = {attack for _, attack, _ in read_frozen(name)}
            kinds = [find(attack) for attack in attacks_in(name)]
            missing[name] = {kind.name for kind in kinds if not scored & {*kind.names()}}
            silent[name] = set(reductions()[name].get("silent", []))
    assert missing
    assert missing == silent


@pytest.mark.inventory
def test_every_attack_and_class_is_compared_by_a_share_of_the_cases() -> None:
    chosen = covering_cases()
    compared = set().union(*(compared_in(name) for name in chosen))
    assert compared == set().union(*(compared_in(name) for name in run_cases()))
    assert len(chosen) < len(run_cases()) / 2


def test_a_configuration_is_changed_where_it_says() -> None:
    content = {"a": 1, "b": {"c": [1, 2], "d": None}, "e": [{"f": 1, "g": 2}, {"f": 3}, {"f": 4}]}
    change = {"a": None, "b": {"c": [5]}, "e": {0: {"f": 9}, 2: {}}, "h": 7}
    assert shrunk(content, change) == {"b": {"c": [5], "d": None}, "e": [{"f": 9, "g": 2}, {"f": 4}], "h": 7}


def test_what_moves_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.regression.frozen.FOLDER", tmp_path)
    name, setting = "decaf_figure5", '{"data": "MNIST"}'
    rows = ["same", "nan", "mean", "n", "gone"]
    frozen: Values = {(setting, row, "l1"): (0.1234567, 10) for row in rows}
    frozen[setting, "nan", "l1"] = (float("nan"), 0)
    frozen[setting, "model", "round_seconds"] = (0.5, 1)
    write_frozen(name, frozen)
    assert differences(name, frozen) == []
    now = {**frozen, (setting, "mean", "l1"): (0.1236, 10), (setting, "n", "l1"): (0.1234567, 9)}
    now |= {(setting, "new", "l1"): (0.0, 1), (setting, "model", "round_seconds"): (0.9, 1)}
    del now[setting, "gone", "l1"]
    assert [line.split()[0] for line in differences(name, now)] == ["gone", "mean", "n"]
    assert [line.split()[0] for line in new_rows(name, now)] == ["new"]
    assert "frozen 0.123457 (n=10)" in differences(name, now)[1]
