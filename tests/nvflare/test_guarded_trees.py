"""Trees of NVFlare's clients at the site's guard: bytes in ``model_data``, which leave as bytes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare")

from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.fl_exception import UnsafeJobError

from fedleak_guard.nvflare import EgressCheck, EgressWatch
from tests.tree_toys import SITE_LABELS, SITE_ROWS, site_model


def released(folder: Path, received: dict[str, Any], threshold: float) -> Any:
    """What leaves of a result with one tree, after the filter and the component that watches it."""
    context = FLContext()
    for key, value in (
        (FLContextKey.TASK_NAME, "train"),
        (FLContextKey.CURRENT_JOB_ID, "job"),
        (FLContextKey.CURRENT_RUN, "job"),
        (FLContextKey.TASK_DATA, DXO(DataKind.WEIGHTS, data=received).to_shareable()),
    ):
        context.set_prop(key, value)
    watch = EgressWatch()
    watch.handle_event(EventType.BEFORE_TASK_EXECUTION, context)
    content = bytearray(json.dumps(site_model(threshold)), "utf-8")
    result = DXO(DataKind.WEIGHTS, data={"model_data": content}).to_shareable()
    left = EgressCheck(str(folder / "policy.yaml")).process(result, context)
    context.set_prop(FLContextKey.TASK_RESULT, left)
    watch.handle_event(EventType.AFTER_TASK_RESULT_FILTER, context)
    return left["DXO"]["data"]["model_data"]


def test_a_site_keeps_trees_with_small_leaves(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", records=SITE_ROWS, labels=SITE_LABELS)
    (tmp_path / "policy.yaml").write_text(
        f"format: 1\nevidence: {tmp_path}/evidence\ntensors: [{{name: model_data, dtype: uint8}}]\n"
        f"own: {{data: {tmp_path}/own.npz}}\ntrees: {{smallest_leaf: 20}}\n"
    )
    # A server of bagging sends nothing in the first round, and then the list of all new trees.
    for received in ({}, {"model_data": [bytearray(b"{}")]}):
        assert released(tmp_path, received, 0.5) == json.dumps(site_model(0.5)).encode()
        with pytest.raises(UnsafeJobError):
            released(tmp_path, received, 0.05)
