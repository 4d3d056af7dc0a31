"""Engines by name, by class path and by joblib's backends, with their options."""

from pathlib import Path
from typing import Any

import pytest

from fedleak.core.errors import InputError
from fedleak.evaluation.engines import NAMES, Engine, EngineOptions, engine_of
from fedleak.evaluation.engines.processes import Processes
from fedleak.evaluation.engines.submitit import Submitit
from tests.engine_toys import Backwards
from tests.engine_work import doubled


def options(tmp_path: Path, jobs: int | None = None, **arguments: Any) -> EngineOptions:
    return EngineOptions(folder=tmp_path / "engine", jobs=jobs, most_on_one_machine=3, arguments=arguments)


def test_every_engine_is_found_by_the_name_of_its_file(tmp_path: Path) -> None:
    assert NAMES == ("processes", "submitit")
    for name in NAMES:
        engine = engine_of(name, options(tmp_path))
        assert engine.name == name
        assert isinstance(engine, Engine)


def test_jobs_are_those_of_the_command_or_what_fits_into_the_machine(tmp_path: Path) -> None:
    assert engine_of("processes", options(tmp_path)).jobs == 3
    assert engine_of("processes", options(tmp_path, jobs=5)).jobs == 5
    assert engine_of("submitit", options(tmp_path, cluster="local")).jobs == 3
    assert engine_of("submitit", options(tmp_path)).jobs == 16
    assert engine_of("submitit", options(tmp_path, jobs=5)).jobs == 5


def test_work_is_divided_so_that_no_job_waits_long(tmp_path: Path) -> None:
    assert Processes(jobs=4).parts == 32
    assert Submitit(jobs=4, folder=tmp_path).parts == 4  # a job of a cluster takes a while to start


def test_options_are_typed_and_checked(tmp_path: Path) -> None:
    engine = engine_of(
        "submitit", options(tmp_path, partition="long", minutes="30", memory_gb=2, sbatch={"qos": "low"})
    )
    assert isinstance(engine, Submitit)
    assert (engine.partition, engine.minutes, engine.memory_gb, engine.sbatch) == ("long", 30, 2.0, {"qos": "low"})


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("submitt", {}, "Did you mean submitit?"),
        ("kubernetes", {}, "found 'kubernetes'. Where Dask or Ray run, install their package"),
        ("submitit", {"partitoin": "long"}, "Did you mean partition?"),
        ("submitit", {"minutes": 0}, "minutes: a whole number above 0"),
        ("submitit", {"cluster": "pbs"}, "cluster: one of slurm, local"),
        ("processes", {"cpus": 2}, "The engine processes has none."),
        ("tests.engine_toys.Missing", {}, "expected the path of a subclass of Engine"),
    ],
)
def test_a_mistake_is_one_message(tmp_path: Path, name: str, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as error:
        engine_of(name, options(tmp_path, **arguments))
    assert says in str(error.value)


def test_an_engine_from_outside_is_named_by_its_class_path(tmp_path: Path) -> None:
    engine = engine_of("tests.engine_toys.Backwards", options(tmp_path, times=1))
    assert isinstance(engine, Backwards)
    assert list(engine.run(doubled, [1, 2, 3])) == [2, 4, 6]
