"""Ways to make something arrive at the SuperLink that no check saw: none does, and the gateway's log counts the calls.

An app knows everything but the SuperNode's private key. What it does over its reply is tested as pairs: two replies
that differ in one thing alone arrive as the same bytes.
"""

import base64
import contextlib
import datetime
import io
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
pytest.importorskip("flwr")

import httpx
import numpy as np
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.app.message import array as flower_array
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_id, get_object_tree
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message

from fedleak_guard import gateway_server
from fedleak_guard.chained_log import read_log
from fedleak_guard.flower_gateway import Gateway, capacity, server_of
from fedleak_guard.gateway_task import size_of
from fedleak_recorder.errors import InputError
from tests.flower.gateway_parts import NODE, REFUSED, Clock, SuperLink, SuperNode, headers_of, trained
from tests.fuzz.gateway_kills import GatewayOfASite
from tests.fuzz.kills import kill
from tests.guard_toys import model, update, write_policy

UNKNOWN_FIELD = b"\xfa\x7f\x09patient 7"
"""Field 2047 of a message of protobuf, which no type of Flower has."""
ORDER_P384 = int("ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973", 16)


def site(folder: Path, link: SuperLink, **options: Any) -> SuperNode:
    """A SuperNode whose gateway reaches a SuperLink."""
    clock, policy = Clock(), write_policy(folder, "metrics: {names: [loss, other]}\n")
    transport = httpx.MockTransport(link)
    return SuperNode(Gateway("http://superlink", str(policy), clock=clock, transport=transport, **options), clock)


def counted(folder: Path) -> dict[str, int]:
    """Refused calls by reason, of all entries of the gateway's log."""
    total: dict[str, int] = {}
    for entry in read_log(folder / "evidence/gateway.jsonl")[0]:
        for reason, number in entry.get("refused", {}).items():
            total[reason] = total.get(reason, 0) + number
    return total


# Calls without the SuperNode's key


def _time(node: SuperNode, seconds: float = 0.0, **changes: Any) -> str:
    moment = datetime.datetime.fromtimestamp(node.clock() + seconds, datetime.UTC)
    return moment.replace(**changes).isoformat()


def _signed(node: SuperNode, timestamp: str, change: Callable[[bytes], bytes] = bytes) -> dict[str, str]:
    return headers_of(node.public, timestamp, change(sign_message(node.private, timestamp.encode())))


def _mirrored(signature: bytes) -> bytes:
    """The other signature of the same text that everybody can compute from one."""
    first, second = decode_dss_signature(signature)
    return bytes(encode_dss_signature(first, ORDER_P384 - second))


def _longer(signature: bytes) -> bytes:
    """The same numbers with a zero in front of the first, which DER does not allow."""
    size = signature[3]
    return bytes([0x30, signature[1] + 1, 0x02, size + 1, 0, *signature[4:]])


def _others(key: Any) -> dict[str, str]:
    content = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return headers_of(content, "2026-01-01T00:00:00+00:00", b"text")


FORGED: dict[str, Callable[[SuperNode], dict[str, str]]] = {
    "nothing": lambda _: {},
    "texts": lambda _: headers_of(b"patient 7", "1961-02-03", b"C50.9"),
    "the key alone": lambda node: {"flwr-public-key": base64.b64encode(node.public).decode()},
    "another key": lambda node: SuperNode(node.gateway, node.clock).signed(),
    "a key of another kind": lambda _: _others(ed25519.Ed25519PrivateKey.generate()),
    "a wrong signature": lambda node: _signed(node, _time(node), lambda _: encode_dss_signature(5, 7)),
    "a signature of other bytes": lambda node: _signed(node, _time(node), _longer),
    "trailing bytes": lambda node: _signed(node, _time(node), lambda signature: signature + b"patient 7"),
    "an old time": lambda node: _signed(node, _time(node, -400)),
    "a future time": lambda node: _signed(node, _time(node, 60)),
    "a time of another form": lambda node: _signed(node, _time(node).replace("T", " ")),
    "a time of another zone": lambda node: _signed(node, _time(node).replace("+00:00", "+00:00:00.000001")),
    "spaces in a header": lambda node: {name: f" {text}" for name, text in node.signed().items()},
    "no padding": lambda node: {name: text.rstrip("=") + "=" * 3 for name, text in node.signed().items()},
    "a long header": lambda node: {**node.signed(), "flwr-timestamp": "9" * 10**6},
}


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("name", ["send-node-heartbeat", "register-node", "pull-messages", "unregister-node"])
def test_a_call_without_the_supernodes_signature_does_nothing(tmp_path: Path, forged: str, name: str) -> None:
    link = SuperLink()
    node = site(tmp_path, link)
    node.connect()
    before = list(link.calls)
    body = heartbeat_pb2.SendNodeHeartbeatRequest(node=node.node).SerializeToString()
    assert node.gateway.answer(f"/v1/fleet/{name}", FORGED[forged](node), body) == (401, b"")
    assert link.calls == before
    node.gateway.step()
    assert sum(counted(tmp_path).values()) == 1
    assert "patient" not in (tmp_path / "evidence/gateway.jsonl").read_text()


def test_a_signed_time_is_used_once_also_in_its_mirrored_form(tmp_path: Path) -> None:
    node = site(tmp_path, SuperLink())
    node.connect()
    body = heartbeat_pb2.SendNodeHeartbeatRequest(node=node.node).SerializeToString()
    signed = node.signed()
    mirrored = _mirrored(base64.b64decode(signed["flwr-signature"]))
    again = {**signed, "flwr-signature": base64.b64encode(mirrored).decode()}
    node.private.public_key().verify(mirrored, signed["flwr-timestamp"].encode(), ec.ECDSA(hashes.SHA256()))
    statuses = [node.gateway.answer("/v1/fleet/send-node-heartbeat", part, body)[0] for part in (signed, signed, again)]
    assert statuses == [200, 401, 401]


@pytest.mark.parametrize(
    "path", ["/v1/fleet/get-run?note=patient", "/v1/fleet/../fleet/get-run", "/v1/fleet/Get-Run", "/v1/control/x", "x"]
)
def test_another_path_is_no_call(tmp_path: Path, path: str) -> None:
    node = site(tmp_path, SuperLink())
    assert node.gateway.answer(path, node.signed(), b"")[0] == 403


def test_a_flood_of_calls_is_one_entry_a_minute(tmp_path: Path) -> None:
    node = site(tmp_path, SuperLink())
    for minute in range(3):
        for _ in range(500):
            node.gateway.answer("/v1/fleet/get-run", {}, b"")
            node.gateway.step()
        node.clock.now += 60
        assert len(read_log(tmp_path / "evidence/gateway.jsonl")[0]) <= minute + 2
    node.gateway.step()
    assert counted(tmp_path) == {"no signature": 1500}


# Calls with it: how many, and when


def test_the_gateway_makes_the_same_calls_however_often_the_supernode_calls(tmp_path: Path) -> None:
    """Calls of the SuperNode between the beats change neither number nor time of the calls that arrive."""
    calls = []
    for number in (1, 50):
        link = SuperLink()
        link.waits = False
        (tmp_path / str(number)).mkdir()
        node = site(tmp_path / str(number), link)
        node.connect()
        beats = []
        for _ in range(40):
            for _ in range(number):
                assert node.call("pull-messages", fleet_pb2.PullMessagesRequest(node=node.node)) == 200
                heartbeat = heartbeat_pb2.SendNodeHeartbeatRequest(node=node.node, heartbeat_interval=number)
                assert node.call("send-node-heartbeat", heartbeat) == 200
            node.clock.now += 3
            node.gateway.step()
            beats.append(len(link.calls))
        calls.append((link.calls, beats))
    assert calls[0] == calls[1]
    assert calls[0][0].count("send-node-heartbeat") == 40 * 3 // 24


def test_a_supernode_that_comes_and_goes_connects_once_a_minute(tmp_path: Path) -> None:
    link = SuperLink()
    node = site(tmp_path, link)
    node.connect()
    for _ in range(10):
        assert node.call("deactivate-node", fleet_pb2.DeactivateNodeRequest(node_id=NODE)) == 200
        node.gateway.step()
        again = node.call("activate-node", fleet_pb2.ActivateNodeRequest(public_key=node.public))
        assert again == 503
        node.clock.now += 3
    assert link.calls.count("activate-node") == 1
    node.clock.now += 60
    assert node.call("activate-node", fleet_pb2.ActivateNodeRequest(public_key=node.public)) == 200


def test_a_silent_supernode_is_no_longer_there(tmp_path: Path) -> None:
    link = SuperLink()
    node = site(tmp_path, link)
    node.connect()
    node.clock.now += 61
    before = list(link.calls)
    node.gateway.step()
    assert link.calls == before


def test_a_message_that_the_supernode_gave_up_is_answered(tmp_path: Path) -> None:
    link = SuperLink()
    node = site(tmp_path, link)
    node.pull(link)
    assert node.call("pull-messages", fleet_pb2.PullMessagesRequest(node=node.node)) == 200
    node.gateway.step()
    assert link.reply().error.reason == "the client failed"


# Replies: pairs that differ in one thing


class Replies:
    """Replies to one message of the server, and what arrives of each."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.first = folder, SuperLink()
        self.now = self.first.asked.metadata.created_at + 100.0
        self.number = 0

    def arrived(
        self,
        content: RecordDict | Error,
        *,
        change: Callable[[Message], None] = lambda _: None,
        request: Callable[[bytes], bytes] = bytes,
        root: Callable[[bytes], bytes] = bytes,
        turned: bool = False,
        seconds: float = 0.0,
        runtime: float = 1.0,
    ) -> list[tuple[str, bytes]]:
        """Calls with their bodies that arrive after the SuperNode has the message."""
        self.number += 1
        folder = self.folder / str(self.number)
        folder.mkdir()
        link = SuperLink()
        link.asked, link.objects = self.first.asked, self.first.objects
        node = site(folder, link)
        node.clock.now = self.now
        node.pull(link)
        before = len(link.requests)
        reply = Message(content, reply_to=link.asked)
        change(reply)
        self._push(node, reply, request, root, turned, runtime, seconds)
        node.clock.now = self.now + 3
        node.gateway.step()
        return [(made.url.path, made.content) for made in link.requests[before:]]

    def _push(
        self,
        node: SuperNode,
        reply: Message,
        request: Callable[[bytes], bytes],
        root: Callable[[bytes], bytes],
        turned: bool,
        runtime: float,
        seconds: float,
    ) -> None:
        objects = {name: part.deflate() for name, part in get_all_nested_objects(reply).items()}
        tree = get_object_tree(reply)
        content = root(objects.pop(tree.object_id))
        tree.object_id = get_object_id(content)
        objects[tree.object_id] = content
        reply.metadata.__dict__["_message_id"] = tree.object_id
        made = fleet_pb2.PushMessagesRequest(
            node=node.node,
            messages_list=[message_to_proto(remove_content_from_message(reply))],
            message_object_trees=[tree],
            clientapp_runtime_list=[runtime],
        )
        status, body = node.gateway.answer("/v1/fleet/push-messages", node.signed(), request(made.SerializeToString()))
        assert status == 200
        session = fleet_pb2.PushMessagesResponse.FromString(body).session_id
        node.clock.now += seconds
        for name in sorted(objects, reverse=turned):
            part = message_pb2.PushObjectRequest(
                node=node.node, run_id=1, object_id=name, object_content=objects[name], session_id=session
            )
            assert node.call("push-object", part) == 200


@pytest.fixture
def replies(tmp_path: Path) -> Replies:
    return Replies(tmp_path)


def _content(
    arrays: dict[str, Array] | None = None, metrics: dict[str, Any] | None = None, *, turned: bool = False
) -> RecordDict:
    """A reply of two tensors and three metrics."""
    given = {name: Array(value + update()[name]) for name, value in model().items()} | (arrays or {})
    numbers = {"num-examples": 20, "loss": 0.5, "other": 2.0} | (metrics or {})
    records: dict[str, Any] = {"arrays": ArrayRecord(given), "metrics": MetricRecord(numbers)}
    return RecordDict(dict(reversed(records.items())) if turned else records)


def _bytes(value: Any, *, version: tuple[int, int] = (1, 0), order: str = "C", dtype: str = "<f4") -> Array:
    """An array whose NumPy file is written in another way."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.array(value, dtype=dtype, order=order), version=version)  # type: ignore[call-overload]
    return Array("float32", value.shape, "numpy.ndarray", file.getvalue())


def _weight() -> Any:
    return model()["weight"] + update()["weight"]


def _turned(content: RecordDict) -> RecordDict:
    """The same with its tensors and metrics in another order."""
    (arrays,), (metrics,) = content.array_records.values(), content.metric_records.values()
    records = {"arrays": ArrayRecord(dict(reversed(arrays.items())))}
    return RecordDict({**records, "metrics": MetricRecord(dict(reversed(metrics.items())))})


def _set(name: str, value: Any) -> Callable[[Message], None]:
    def change(message: Message) -> None:
        message.metadata.__dict__[name] = value

    return change


def _with_unknown_field(content: bytes) -> bytes:
    """An object of a message whose body has a field that Flower does not know."""
    head, _, body = content.partition(b"\0")
    kind, children, _ = head.decode().split(" ")
    body += UNKNOWN_FIELD
    return f"{kind} {children} {len(body)}".encode() + b"\0" + body


SAME: dict[str, Callable[[Replies], Any]] = {
    "run time": lambda replies: replies.arrived(_content(), runtime=float(int.from_bytes(b"SECRET"))),
    "time within a beat": lambda replies: replies.arrived(_content(), seconds=1.2345),
    "time of making": lambda replies: replies.arrived(_content(), change=_set("_created_at", 1961.0203)),
    "time to live": lambda replies: replies.arrived(_content(), change=_set("_ttl", 5.125)),
    "group": lambda replies: replies.arrived(_content(), change=_set("_group_id", "patient 7")),
    "type": lambda replies: replies.arrived(_content(), change=_set("_message_type", "train.patient7")),
    "source": lambda replies: replies.arrived(_content(), change=_set("_src_node_id", 1961)),
    "destination": lambda replies: replies.arrived(_content(), change=_set("_dst_node_id", 1961)),
    "run": lambda replies: replies.arrived(_content(), change=_set("_run_id", 1961)),
    "task": lambda replies: replies.arrived(_content(), change=_set("_src_task_id", 1961)),
    "order of objects": lambda replies: replies.arrived(_content(), turned=True),
    "order of records": lambda replies: replies.arrived(_content(turned=True)),
    "order of tensors and metrics": lambda replies: replies.arrived(_turned(_content())),
    "unknown field of the call": lambda replies: replies.arrived(_content(), request=lambda body: body + UNKNOWN_FIELD),
    "unknown field of the message": lambda replies: replies.arrived(_content(), root=_with_unknown_field),
    "version of the array": lambda replies: replies.arrived(_content({"weight": _bytes(_weight(), version=(2, 0))})),
    "order of numbers": lambda replies: replies.arrived(_content({"weight": _bytes(_weight(), order="F")})),
    "type of a metric": lambda replies: replies.arrived(_content(metrics={"other": 2})),
    "empty record": lambda replies: replies.arrived(RecordDict({**_content(), "note": ConfigRecord({})})),
    "empty record of metrics": lambda replies: replies.arrived(RecordDict({**_content(), "patient 7": MetricRecord()})),
    "empty record of arrays": lambda replies: replies.arrived(RecordDict({**_content(), "patient 7": ArrayRecord()})),
}


@pytest.mark.parametrize("name", SAME)
def test_replies_that_differ_in_what_is_no_content_arrive_as_the_same_bytes(replies: Replies, name: str) -> None:
    plain = replies.arrived(_content())
    assert [path.rpartition("/")[2] for path, _ in plain][:2] == ["push-messages", "push-object"]
    assert SAME[name](replies) == plain


def test_pieces_of_an_array_arrive_as_the_same_bytes(replies: Replies, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, content = replies.arrived(_content()), _content()
    with monkeypatch.context() as patched:
        patched.setattr(flower_array, "FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE", 100)
        (record,) = content.array_records.values()
        assert sum(len(array.slice_array()) for array in record.values()) > 20  # which the arrays remember
    assert replies.arrived(content) == plain


def test_another_order_of_bytes_is_the_same_or_refused(replies: Replies) -> None:
    turned = replies.arrived(_content({"weight": _bytes(_weight(), dtype=">f4")}))
    refused = replies.arrived(_content(metrics={"patient 7": 1.0}))
    assert turned in (replies.arrived(_content()), refused)


@pytest.mark.parametrize(
    "error", [Error(2, "patient 7"), Error(7000, ""), Error(6, REFUSED), Error(0, "\0"), Error(8, "a" * 10**5)]
)
def test_errors_of_an_app_arrive_as_the_same_bytes(replies: Replies, error: Error) -> None:
    assert replies.arrived(error) == replies.arrived(Error(1, ""))


def test_a_refused_reply_says_no_more_than_that_and_when(replies: Replies) -> None:
    refused = [
        _content({"patient 7": Array(np.ones(3, "f"))}),
        _content(metrics={"patient 7": 1.0}),
        RecordDict({**_content(), "note": ConfigRecord({"patient": 7})}),
        RecordDict({"patient 7": ArrayRecord({"weight": Array(_weight())})}),
        RecordDict({"arrays": _content()["metrics"], "metrics": _content()["arrays"]}),
        RecordDict({**_content(), "metrics": MetricRecord({"loss": []})}),
        _content(metrics={"num-examples": 2.5}),
    ]
    arrived = [replies.arrived(content) for content in refused]
    assert all(one == arrived[0] for one in arrived)
    assert REFUSED.encode() in arrived[0][0][1]


def test_two_replies_to_one_message_are_one(tmp_path: Path) -> None:
    link = SuperLink()
    node = site(tmp_path, link)
    node.pull(link)
    assert set(node.push(Message(trained(), reply_to=link.asked))) == {200}
    assert node.push(Message(Error(1, ""), reply_to=link.asked)) == [403]
    node.gateway.step()
    assert len(link.pushed) == 1


def test_a_reply_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    link = SuperLink()
    node = site(tmp_path, link, largest=1000)
    node.pull(link)
    assert 413 in node.push(Message(trained(), reply_to=link.asked))
    assert link.reply().error.reason == REFUSED


def test_a_reply_that_names_its_parts_over_and_over_is_an_error(tmp_path: Path) -> None:
    """1,000 names of one array, and an array of 1,000 times one piece, are as large as they would be written out."""
    array = Array(np.zeros(2000, "f"))
    plain = RecordDict({"arrays": ArrayRecord({"weight": array})})
    many = RecordDict({"arrays": ArrayRecord({f"weight{number}": array for number in range(1000)})})
    for content, factor in ((plain, 1), (many, 1000)):
        objects = {name: part.deflate() for name, part in get_all_nested_objects(content).items()}
        assert len(objects) == 4
        assert 8000 * factor < size_of(content.object_id, objects) < 9000 * factor
    link = SuperLink()
    node = site(tmp_path, link, largest=1_000_000)
    node.pull(link)
    assert set(node.push(Message(many, reply_to=link.asked))) == {200}
    assert link.reply().error.reason == REFUSED
    assert not (tmp_path / "evidence/log.jsonl").exists()


def test_objects_that_are_none_of_flowers_are_an_error() -> None:
    for content in (b"", b"Array  5\0[1,2]", b"Array x 2\0{}", b'Array  9\0{"arraychunk_ids": [3]}', b"\xff"):
        with pytest.raises(InputError):
            size_of("root", {"root": content})
    with pytest.raises(InputError):
        size_of("root", {"root": b"Message root 0\0"})


def test_the_last_object_again_is_stored(tmp_path: Path) -> None:
    link = SuperLink()
    node = site(tmp_path, link)
    node.pull(link)
    node.push(Message(trained(), reply_to=link.asked))
    again = message_pb2.PushObjectRequest(
        node=node.node, run_id=1, object_id="x", session_id=node.gateway._last_session
    )
    assert node.call("push-object", again, message_pb2.PushObjectResponse).stored
    again.session_id = ""
    assert node.call("push-object", again) == 403


def test_a_superlink_that_was_started_anew_gets_the_node_again(tmp_path: Path) -> None:
    link = SuperLink()
    node = site(tmp_path, link)
    node.connect()
    link.knows = False
    node.clock.now += 30
    heartbeat = heartbeat_pb2.SendNodeHeartbeatRequest(node=node.node)
    node.call("send-node-heartbeat", heartbeat)
    node.gateway.step()
    assert not node.call("send-node-heartbeat", heartbeat, heartbeat_pb2.SendNodeHeartbeatResponse).success
    link.knows = True
    node.clock.now += 60
    node.connect()
    assert node.call("send-node-heartbeat", heartbeat, heartbeat_pb2.SendNodeHeartbeatResponse).success
    assert link.calls.count("register-node") == link.calls.count("activate-node") == 2


def test_without_its_log_the_gateway_lets_nothing_out(tmp_path: Path) -> None:
    link = SuperLink()
    node = site(tmp_path, link)
    node.pull(link)
    log = tmp_path / "evidence/gateway.jsonl"
    log.rename(tmp_path / "kept")
    log.mkdir()
    node.gateway.answer("/v1/fleet/get-run", {}, b"")
    node.push(Message(trained(), reply_to=link.asked))
    assert not link.pushed
    log.rmdir()
    (tmp_path / "kept").rename(log)
    node.gateway.step()
    assert len(link.pushed) == 1


def test_the_printed_capacity_is_that_of_outcomes_and_beats() -> None:
    assert "15.4 bits" in capacity(3.0)
    assert "one of 721" in capacity(60.0)
    assert "11.1 bits" in capacity(60.0)


# Keys


def _written(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def test_a_key_that_the_site_names_is_the_only_one(tmp_path: Path) -> None:
    private, public = generate_key_pairs()
    line = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    node = site(tmp_path, SuperLink(), supernode_key=_written(tmp_path, "key.pub", line))
    assert node.call("register-node", fleet_pb2.RegisterNodeFleetRequest(public_key=node.public)) == 401
    node.private, node.public = private, public_key_to_bytes(public)
    node.connect()


@pytest.mark.parametrize("content", [b"", b"ssh-ed25519 AAAA", b"-----BEGIN PUBLIC KEY-----\nAAAA\n"])
def test_a_file_that_is_no_key_is_said_so(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match="public key"):
        site(tmp_path, SuperLink(), supernode_key=_written(tmp_path, "key.pub", content))
    with pytest.raises(InputError, match="private key"):
        site(tmp_path, SuperLink(), superlink_key=_written(tmp_path, "key", content))
    with pytest.raises(InputError, match="certificates"):
        site(tmp_path, SuperLink(), root_certificates=_written(tmp_path, "ca.pem", content))


def test_with_a_key_that_the_superlink_knows_the_gateway_does_not_register(tmp_path: Path) -> None:
    link, (private, public) = SuperLink(), generate_key_pairs()
    content = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    node = site(tmp_path, link, superlink_key=_written(tmp_path, "key", content))
    node.connect()
    assert link.calls == ["activate-node"]
    sent = fleet_pb2.ActivateNodeRequest.FromString(link.requests[0].content)
    assert sent.public_key == public_key_to_bytes(public)
    assert base64.b64decode(link.requests[0].headers["flwr-public-key"]) == sent.public_key


def test_headers_that_arrive_are_the_gateways_own(tmp_path: Path) -> None:
    link = SuperLink()
    node = site(tmp_path, link)
    node.push(Message(trained(), reply_to=node.pull(link)))
    names = {frozenset(request.headers) for request in link.requests}
    assert len(names) == 1
    assert all(request.headers["flwr-public-key"] != node.signed()["flwr-public-key"] for request in link.requests)


# The server


@contextlib.contextmanager
def listening(folder: Path) -> Iterator[tuple[int, SuperNode]]:
    node = site(folder, SuperLink())
    server = server_of(node.gateway, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1], node
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def said(port: int, raw: bytes, *, ends: bool = True) -> bytes:
    """The first line of the answer to raw bytes, after which nothing follows; empty if the connection was closed.

    Args:
        port: of the gateway.
        raw: all that is sent.
        ends: whether the gateway learns that nothing follows.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(raw)
        if ends:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            return connection.recv(4096).partition(b"\r\n")[0]
    return b""


def _raw(node: SuperNode, more: str, headers: dict[str, str] | None = None) -> bytes:
    lines = [f"{name}: {text}" for name, text in (node.signed() if headers is None else headers).items()]
    return "\r\n".join(["POST /v1/fleet/get-run HTTP/1.1", "Host: x", *lines, *filter(None, [more]), "", "xx"]).encode()


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ("Content-Length: abc", 411),
        ("Content-Length: -1", 411),
        ("Content-Length: +2", 411),
        ("Content-Length: 10000000000000", 411),
        ("Content-Length: 9999999999", 413),
        ("Content-Length: 2\r\nContent-Length: 2", 411),
        ("Content-Length: 2\r\nTransfer-Encoding: chunked", 411),
        ("Transfer-Encoding: chunked", 411),
        ("", 411),
        ("Content-Length: 3", 400),
        ("Content-Length: 2", 403),
        ("Content-Length: 2\r\nflwr-timestamp: patient", 400),
    ],
)
def test_a_length_that_is_none_ends_in_a_clean_status(
    tmp_path: Path, more: str, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with listening(tmp_path) as (port, node):
        node.connect()
        assert said(port, _raw(node, more)).startswith(f"HTTP/1.1 {status} ".encode())
        assert said(port, _raw(node, more, headers={})).startswith(b"HTTP/1.1 4")
        node.gateway.step()
    assert sum(counted(tmp_path).values()) == 2
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"patient 7\r\n\r\n",
        b"POST / HTTP/9.9\r\n\r\n",
        b"CONNECT superlink:8000 HTTP/1.1\r\n\r\n",
        b"POST /v1/fleet/get-run HTTP/1.1\r\n" + b"x: y\r\n" * 200 + b"\r\n",
        b"POST /" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03patient 7\r\n\r\n",
    ],
)
def test_what_is_no_call_ends_without_a_traceback(
    tmp_path: Path, raw: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with listening(tmp_path) as (port, node):
        said(port, raw)
        node.gateway.step()
    assert sum(counted(tmp_path).values()) == 1
    assert "Traceback" not in capfd.readouterr().err


def test_a_connection_that_says_nothing_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_server, "FIRST_CALL", -1.0)
    with listening(tmp_path) as (port, node):
        assert said(port, b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: ", ends=False) == b""
        node.gateway.step()
    assert counted(tmp_path)["no call in time"] == 1


def test_there_is_room_for_so_many_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_server, "MOST_CONNECTIONS", 0)
    with listening(tmp_path) as (port, node):
        assert said(port, b"POST ") == b""
        node.gateway.step()
    assert counted(tmp_path) == {"too many connections": 1}


def test_a_new_connection_closes_the_oldest_that_said_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_server, "MOST_CONNECTIONS", 1)
    with listening(tmp_path) as (port, node), socket.create_connection(("127.0.0.1", port), timeout=20) as silent:
        node.connect()
        assert said(port, _raw(node, "Content-Length: 2")).startswith(b"HTTP/1.1 403 ")
        assert silent.recv(1) == b""
        node.gateway.step()
    assert counted(tmp_path)["too many connections"] == 1


def test_a_connection_of_the_supernode_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_server, "MOST_CONNECTIONS", 1)
    with listening(tmp_path) as (port, node), socket.create_connection(("127.0.0.1", port), timeout=20) as own:
        node.connect()
        for _ in range(2):
            own.sendall(_raw(node, "Content-Length: 2"))
            assert own.recv(4096).startswith(b"HTTP/1.1 403 ")
            assert said(port, b"POST ") == b""


def test_the_gateways_log_is_a_chain(tmp_path: Path) -> None:
    node = site(tmp_path, SuperLink())
    node.connect()
    entries, _ = read_log(tmp_path / "evidence/gateway.jsonl")
    assert [entry["event"] for entry in entries] == ["started", "connected"]
    assert json.dumps(entries).count("supernode_key") == 1


@pytest.mark.integration
def test_what_arrives_from_a_gateway_that_is_killed_is_in_the_log(tmp_path: Path) -> None:
    report = kill(GatewayOfASite(tmp_path / "work"), 3, seed=1)
    assert report.kills == 3
    assert not report.problems
