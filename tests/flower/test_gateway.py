"""The gateway between a SuperNode and the SuperLink: an app that names no guard cannot leave it out."""

import os
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
pytest.importorskip("flwr")

import httpx
import numpy as np
from flwr.app import ConfigRecord, Error, Message, MetricRecord
from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2
from flwr.proto.node_pb2 import Node

from fedleak_guard.chained_log import read_log
from fedleak_guard.flower_gateway import Gateway
from fedleak_recorder.errors import InputError
from tests.flower.gateway_parts import NODE, REFUSED, Clock, SuperLink, SuperNode, trained
from tests.flower.network import Network, network
from tests.guard_toys import log_of, model, update, write_policy


@pytest.fixture
def link() -> SuperLink:
    return SuperLink()


@pytest.fixture
def node(tmp_path: Path, link: SuperLink) -> SuperNode:
    clock = Clock()
    policy = write_policy(tmp_path, "metrics: {names: [loss]}\n")
    return SuperNode(Gateway("http://superlink", str(policy), clock=clock, transport=httpx.MockTransport(link)), clock)


def test_an_allowed_reply_leaves_in_a_message_of_the_gateways_own(
    tmp_path: Path, link: SuperLink, node: SuperNode
) -> None:
    reply = Message(trained(), reply_to=node.pull(link))
    reply.metadata.__dict__["_group_id"] = "patient 7"
    reply.metadata.__dict__["_message_type"] = "train.patient7"
    assert set(node.push(reply)) == {200}
    left = link.reply()
    for name, value in model().items():
        assert np.array_equal(left.content["arrays"][name].numpy(), value + update()[name])
    assert dict(left.content["metrics"]) == {"num-examples": 20, "loss": 0.5}
    assert link.pushed[0].metadata.reply_to_message_id == link.asked.metadata.message_id
    assert "patient" not in str(link.pushed)
    assert not any(b"patient" in content for content in link.arrived.values())
    (entry,) = read_log(log_of(tmp_path))[0]
    assert (entry["event"], entry["round"], entry["job"]) == ("released", 3, "1")


@pytest.mark.parametrize("fault", ["tensor", "metric", "text", "error"])
def test_a_refused_reply_is_replaced_by_an_error(link: SuperLink, node: SuperNode, fault: str) -> None:
    asked, content = node.pull(link), trained(**({"extra": np.ones(3, "f")} if fault == "tensor" else {}))
    if fault == "metric":
        content["metrics"] = MetricRecord({"patient 7": 0.5})
    if fault == "text":
        content["config"] = ConfigRecord({"note": "patient 7"})
    reply = Message(Error(7000, "patient 7"), reply_to=asked) if fault == "error" else Message(content, reply_to=asked)
    assert set(node.push(reply)) == {200}
    assert link.reply().error.reason == ("the client failed" if fault == "error" else REFUSED)
    assert not any(b"patient" in content for content in link.arrived.values())


def test_no_call_of_the_supernode_is_forwarded(link: SuperLink, node: SuperNode) -> None:
    """The calls that arrive are those of the gateway's own steps, whatever the SuperNode sends and how often."""
    node.pull(link)
    expected = ["register-node", "activate-node", "pull-messages", "get-run", "get-fab"]
    expected += ["pull-object"] * len(link.objects) + ["confirm-message-received"]
    assert link.calls == expected
    fab = {"node": node.node, "run_id": 1}
    run = run_pb2.GetRunRequest(node=node.node, run_id=1)
    refused = {
        "register-node": fleet_pb2.RegisterNodeFleetRequest(public_key=b"patient 7"),
        "activate-node": fleet_pb2.ActivateNodeRequest(public_key=b"patient 7"),
        "pull-messages": fleet_pb2.PullMessagesRequest(node=Node(node_id=8)),
        "get-run": run_pb2.GetRunRequest(node=node.node, run_id=8),
        "get-fab": fab_pb2.GetFabRequest(**fab, hash_str="patient 7"),
        "pull-object": node.pulled("patient 7"),
        "confirm-message-received": message_pb2.ConfirmMessageReceivedRequest(**fab, message_object_id="patient 7"),
        "push-object": message_pb2.PushObjectRequest(**fab, object_id="x", object_content=b"patient 7"),
        "push-messages": fleet_pb2.PushMessagesRequest(node=node.node),
        "patient-7": run,
    }
    statuses = {name: node.call(name, request) for name, request in refused.items()}
    assert statuses == {**dict.fromkeys(refused, 403), "register-node": 401, "activate-node": 401}
    assert node.gateway.answer("/v1/fleet/get-run", node.signed(), b"\xff\xff")[0] == 400
    answered = {
        "get-run": run,
        "send-node-heartbeat": heartbeat_pb2.SendNodeHeartbeatRequest(node=node.node),
        "get-fab": fab_pb2.GetFabRequest(**fab, hash_str="the app"),
        "deactivate-node": fleet_pb2.DeactivateNodeRequest(node_id=NODE),
        "unregister-node": fleet_pb2.UnregisterNodeFleetRequest(node_id=NODE),
    }
    assert {name: node.call(name, request) for name, request in answered.items()} == dict.fromkeys(answered, 200)
    assert link.calls == expected


def test_a_message_that_is_no_reply_stays(link: SuperLink, node: SuperNode) -> None:
    node.pull(link)
    assert node.push(Message(trained(), dst_node_id=1, message_type="train")) == [403]
    assert not link.pushed


def test_an_object_with_another_content_stays(link: SuperLink, node: SuperNode) -> None:
    reply = Message(trained(), reply_to=node.pull(link))
    assert set(node.push(reply, lambda _, content: content + b"x")) == {403}
    assert not link.pushed


def test_a_superlink_that_does_not_answer_gets_the_reply_once_it_does(
    tmp_path: Path, link: SuperLink, node: SuperNode
) -> None:
    """The release is in the log once, and a later beat sends the same message."""
    reply = Message(trained(), reply_to=node.pull(link))
    link.answers = False
    assert set(node.push(reply)) == {200}
    node.clock.now += 30
    node.gateway.step()
    assert not link.pushed
    link.answers = True
    node.clock.now += 30
    node.gateway.step()
    node.gateway.step()
    assert not link.reply().has_error()
    assert len(read_log(log_of(tmp_path))[0]) == 1


def test_without_a_policy_no_gateway(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="policy"):
        Gateway("http://superlink", str(tmp_path / "none"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    with network(tmp_path_factory.mktemp("network")) as made:
        yield made


@pytest.mark.integration
@pytest.mark.parametrize(
    ("fault", "arrived"),
    [
        ("none", {"error": None, "sum": 2.5}),
        ("tensor", {"error": REFUSED, "sum": None}),
        ("text", {"error": REFUSED, "sum": None}),
        ("raises", {"error": "the client failed", "sum": None}),
    ],
)
def test_an_app_of_a_real_network_that_names_no_guard(running: Network, fault: str, arrived: dict[str, Any]) -> None:
    assert running.run(fault) == [arrived], (running.folder / "said").read_text()


@pytest.mark.integration
def test_a_real_network_with_keys_and_tls(tmp_path: Path) -> None:
    """The SuperLink knows the gateway's key, the gateway the SuperNode's, and an app without it does nothing."""
    with network(tmp_path, authenticated=True) as running:
        assert running.run("none") == [{"error": None, "sum": 2.5}], (tmp_path / "said").read_text()
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        with httpx.Client(base_url=f"https://127.0.0.1:{running.gateway}", verify=context) as app:
            public = (tmp_path / "supernode.pub").read_bytes()
            registered = fleet_pb2.RegisterNodeFleetRequest(public_key=public).SerializeToString()
            assert app.post("/v1/fleet/register-node", content=registered).status_code == 401
    entries, _ = read_log(tmp_path / "evidence/gateway.jsonl")
    assert [entry["event"] for entry in entries][:2] == ["started", "connected"]
