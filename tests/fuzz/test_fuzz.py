"""Hundreds of mutants with a fixed seed: each is a clear error, or may be true. `make fuzz` makes more of them."""

import os
import signal

import pytest
import torch

from tests.fuzz.children import CLEAR, HANG, MEMORY, SIGNAL, TRACEBACK, Answer, answers
from tests.fuzz.guard_files import is_chain, whole_log
from tests.fuzz.result_files import DRAWINGS, active_parts
from tests.fuzz.table import Table
from tests.fuzz.targets import targets

pytestmark = pytest.mark.integration

_READS, _AUDITS = 8, 1


def test_no_mutant_is_a_traceback_a_hang_or_accepted_silently() -> None:
    torch.set_num_threads(1)
    table = Table()
    for target in targets():
        count = _AUDITS if target.name.startswith("audit") else _READS
        table.run(target, seed=0, numbers=range(count))
    assert not table.failed, "\n".join(table.failed)
    assert sum(counts[CLEAR] for counts in table.counts.values()) > 150


def test_a_mutant_is_made_again_from_seed_and_number() -> None:
    for target in targets():
        assert target.mutant(3, 7) == target.mutant(3, 7)
        assert target.mutant(3, 7)[0] != target.example()


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_a_drawing_that_does_something_is_found_in_a_page(drawing: str) -> None:
    assert active_parts(f"<html><body><figure>{drawing}</figure></body></html>")


def test_a_picture_of_a_drawing_runs_nothing() -> None:
    assert not active_parts(
        '<img src="data:image/svg+xml;base64,AAAA" alt="&lt;script&gt;"><style>p {color: red}</style>'
    )


def test_a_chain_is_one_by_the_description_alone() -> None:
    content = whole_log()["evidence/log.jsonl"]
    assert is_chain(content)
    assert is_chain(content + b'{"torn')
    assert not is_chain(content.replace(b'"released"', b'"refused"', 1))
    assert not is_chain(content.partition(b"\n")[2])


def _stops() -> Answer:
    raise KeyError("x")


def _fills_memory() -> Answer:
    return Answer(CLEAR, str(torch.ones(2**31)[0]))


def _waits() -> Answer:
    while True:
        pass


def _kills_itself() -> Answer:
    os.kill(os.getpid(), signal.SIGSEGV)
    return Answer(CLEAR)


def test_a_child_says_how_each_task_ended_and_another_goes_on() -> None:
    tasks = [lambda: Answer(CLEAR), _stops, _fills_memory, _waits, _kills_itself, lambda: Answer(CLEAR)]
    kinds = [answer.kind for answer in answers(tasks, seconds=3.0)]
    assert kinds == [CLEAR, TRACEBACK, MEMORY, HANG, SIGNAL, CLEAR]
