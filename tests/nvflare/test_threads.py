"""NVFlare fires the events of several clients at once, each in a thread of its own."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants

from fedleak.recordings.recording import Recording
from fedleak_recorder import nvflare as module
from fedleak_recorder.nvflare import RoundRecorder

CLIENTS = 6


def context(number: int, key: str, value: float, client: str = "") -> FLContext:
    """Context of an event about a model of equal numbers."""
    dxo = DXO(DataKind.WEIGHTS, data={"weight": np.full((2, 3), value, np.float32)})
    dxo.set_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND, 4)
    content = dxo.to_shareable()
    content.set_header(AppConstants.CURRENT_ROUND, number)
    made = FLContext()
    made.set_prop(FLContextKey.TASK_NAME, "train")
    made.set_prop(FLContextKey.CURRENT_JOB_ID, "job")
    made.set_prop(key, content)
    peer = FLContext()
    peer.set_prop(ReservedKey.IDENTITY_NAME, client)
    made.set_peer_context(peer)
    return made


def at_once(recorder: RoundRecorder, event: str, contexts: list[FLContext]) -> None:
    """Fires an event in as many threads as there are contexts."""
    threads = [threading.Thread(target=recorder.handle_event, args=(event, one)) for one in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_tasks_and_results_of_a_round_may_come_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between what a thread reads of the recorder and what it writes, every other one gets its turn."""

    def slow(content: Shareable) -> Any:
        time.sleep(0.02)
        return from_shareable(content)

    monkeypatch.setattr(module, "from_shareable", slow)
    recorder = RoundRecorder(str(tmp_path / "deltas"))
    for number in range(3):
        tasks = [context(number, FLContextKey.TASK_DATA, float(number)) for _ in range(CLIENTS)]
        at_once(recorder, EventType.BEFORE_TASK_DATA_FILTER, tasks)
        results = [context(number, FLContextKey.TASK_RESULT, number + 1.0, f"site-{one}") for one in range(CLIENTS)]
        at_once(recorder, EventType.BEFORE_TASK_RESULT_FILTER, results)
    recorder.handle_event(EventType.END_RUN, FLContext())
    recording = Recording(tmp_path / "deltas")
    sizes: Mapping[int, int] = {number: len(recording.pseudonyms(number)) for number in recording.rounds}
    assert sizes == {0: CLIENTS, 1: CLIENTS, 2: CLIENTS}
    assert recording.closed
