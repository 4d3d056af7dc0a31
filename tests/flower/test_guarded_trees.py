"""Trees of Flower's clients at the site's guard: bytes of a model, later more of them than were received."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from fedleak_guard import Guard, RefusedError
from fedleak_guard.flower import released_content
from fedleak_recorder.frameworks.flower import received_model
from tests.tree_toys import SITE_LABELS, SITE_ROWS, site_model


def released(folder: Path, number: int, received: tuple[float, ...], sent: tuple[float, ...]) -> bytes:
    """What leaves of a reply with trees of these thresholds, as the client of ``FedXgbBagging`` sends it."""
    # Flower makes messages only within a task.
    TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1
    records = []
    for thresholds in (received, sent):
        content = json.dumps(site_model(*thresholds)).encode() if thresholds else b""
        records.append(ArrayRecord({"0": Array(np.frombuffer(content, np.uint8))}))
    content = RecordDict({"arrays": records[0], "config": ConfigRecord({"server-round": number})})
    task = Message(content=content, dst_node_id=1, message_type="train")
    left = released_content(
        Guard(folder / "policy.yaml"),
        task,
        RecordDict({"arrays": records[1], "metrics": MetricRecord({"num-examples": 200})}),
        job="job",
        received=received_model(task),
        examples_key="num-examples",
        records=("arrays", "metrics"),
    )
    content_of_reply: bytes = left.array_records["arrays"]["0"].numpy().tobytes()
    return content_of_reply


def test_a_site_keeps_trees_with_small_leaves(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", records=SITE_ROWS, labels=SITE_LABELS)
    (tmp_path / "policy.yaml").write_text(
        f"format: 1\nevidence: {tmp_path}/evidence\ntensors: [{{name: '0', dtype: uint8}}]\n"
        f"own: {{data: {tmp_path}/own.npz}}\ntrees: {{smallest_leaf: 20}}\n"
    )
    assert released(tmp_path, 1, (), (0.5,)) == json.dumps(site_model(0.5)).encode()
    # The received trees have small leaves, which are of other sites.
    assert released(tmp_path, 2, (0.01, 0.02), (0.5,)) == json.dumps(site_model(0.5)).encode()
    for sent in ((0.05,), (0.01, 0.02, 0.05)):
        with pytest.raises(RefusedError, match="tree-limits"):
            released(tmp_path, 3, (0.01, 0.02), sent)
