"""Backends that joblib has registered run work too; threads are refused."""

from pathlib import Path

import pytest
from joblib import register_parallel_backend
from joblib.parallel import BACKENDS

from fedleak.core.errors import InputError
from fedleak.evaluation.engines import EngineOptions, engine_of
from fedleak.evaluation.engines.joblib_backend import has_backend
from tests.engine_work import doubled, where


@pytest.mark.integration
def test_a_registered_backend_runs_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    assert not has_backend("their-system")
    register_parallel_backend("their-system", BACKENDS["loky"])
    request.addfinalizer(lambda: BACKENDS.pop("their-system"))
    engine = engine_of("their-system", EngineOptions(folder=tmp_path, jobs=2))
    assert engine.in_words == "joblib's backend their-system, 2 at a time"
    assert list(engine.run(doubled, [1, 2, 3])) == [2, 4, 6]
    for _, folder, umask in engine.run(where, [1, 2]):
        assert (folder, umask) == (str(tmp_path), 0o077)


@pytest.mark.parametrize("name", ["threading", "sequential"])
def test_workers_that_are_threads_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"whose workers are threads\. Use --engine processes\."):
        list(engine_of(name, EngineOptions(folder=tmp_path, jobs=2)).run(doubled, [1, 2]))


def test_a_backend_whose_system_is_not_here_says_what_is_missing(tmp_path: Path) -> None:
    engine = engine_of("dask", EngineOptions(folder=tmp_path, jobs=2))
    with pytest.raises(InputError, match="expected joblib's backend dask to start"):
        list(engine.run(doubled, [1, 2]))


def test_ray_is_registered_where_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the name stands for the package, which is not installed here."""
    package = tmp_path / "ray" / "util"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "joblib.py").write_text(
        "from joblib import register_parallel_backend\n"
        "from joblib.parallel import BACKENDS\n"
        "def register_ray():\n"
        "    register_parallel_backend('ray', BACKENDS['loky'])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(BACKENDS, "ray", raising=False)
    assert has_backend("ray")
    assert BACKENDS.pop("ray") is BACKENDS["loky"]
