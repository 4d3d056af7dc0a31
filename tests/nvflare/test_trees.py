"""NVFlare's jobs of tree-based XGBoost, recorded: models travel as texts in ``model_data``."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare")

from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.app_constant import AppConstants

from fedleak.client.tree_layout import tree_count
from fedleak.recordings.recording import Recording
from fedleak_recorder.nvflare import RoundRecorder
from tests.tree_toys import model_values

TREES = {
    "parameters": {"objective": "binary:logistic", "max_depth": 2},
    "features": 5,
    "rounds": 2,
    "clients_per_round": 2,
}


def context(number: int, key: str, data: dict[str, Any], client: str = "") -> FLContext:
    """Context of an event about a model."""
    content = DXO(DataKind.WEIGHTS, data=data).to_shareable()
    content.set_header(AppConstants.CURRENT_ROUND, number)
    made = FLContext()
    made.set_prop(FLContextKey.TASK_NAME, "train")
    made.set_prop(FLContextKey.CURRENT_JOB_ID, "job")
    made.set_prop(key, content)
    peer = FLContext()
    peer.set_prop(ReservedKey.IDENTITY_NAME, client)
    made.set_peer_context(peer)
    return made


def test_bagging_whose_server_sends_the_new_trees(tmp_path: Path) -> None:
    recorder = RoundRecorder(str(tmp_path / "deltas"), trees=TREES)
    sent: dict[str, Any] = {}
    for number in range(2):
        recorder.handle_event(
            EventType.BEFORE_TASK_DATA_FILTER, context(number, FLContextKey.TASK_DATA, sent, "site-1")
        )
        updates = []
        for client in range(2):
            model = bytearray(json.dumps(model_values((2,), seed=10 * number + client)), "utf-8")
            result = context(number, FLContextKey.TASK_RESULT, {"model_data": model}, f"site-{client}")
            recorder.handle_event(EventType.BEFORE_TASK_RESULT_FILTER, result)
            updates.append(model)
        sent = {"model_data": updates}
    recorder.handle_event(EventType.END_RUN, FLContext())
    views = list(Recording(tmp_path / "deltas").views())
    assert [view.deltas["trees"].shape for view in views] == [(2, 1, 7, 8)] * 2
    assert [tree_count(view.model["trees"]) for view in views] == [0, 2]
