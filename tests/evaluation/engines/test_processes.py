"""Processes of this machine give results in order, in the caller's folder."""

import os
from pathlib import Path

import pytest

from fedleak.core.errors import InputError
from fedleak.evaluation.engines.processes import Processes
from tests.engine_work import doubled, refused, where


@pytest.mark.integration
def test_results_are_in_order_and_from_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(Processes(jobs=2).run(doubled, range(5))) == [0, 2, 4, 6, 8]
    for process, folder, _ in Processes(jobs=2).run(where, [1, 2]):
        assert process != os.getpid()
        assert folder == str(tmp_path)
    with pytest.raises(InputError, match=r"expected a number but 2; found 2\. Give 3\."):
        list(Processes(jobs=2).run(refused, [1, 2]))


def test_one_job_is_this_process() -> None:
    engine = Processes(jobs=1)
    assert engine.in_this_process
    assert [process for process, _, _ in engine.run(where, [1, 2])] == [os.getpid()] * 2
