"""Fuzz target: raw requests to the gateway of a Flower site, where Flower is installed.

An app of the site can send what it likes to the gateway's port. What reaches the SuperLink may hold nothing that such a
caller chose, and the gateway goes on to answer.
"""

import base64
import contextlib
import datetime
import functools
import json
import os
import random
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2, run_pb2
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message

from fedleak_guard.chained_log import read_log
from fedleak_guard.flower_gateway import Gateway, server_of
from tests.flower.gateway_parts import NODE, SuperLink, SuperLinkServer
from tests.fuzz.children import AcceptedError
from tests.fuzz.mutations import change_bytes
from tests.fuzz.recordings import Files
from tests.fuzz.user_files import Mutant, Parts, nothing_wrong
from tests.guard_toys import log_of, model, update, write_policy

_CALLS = "calls.json"
_SECRET = b"JaneDoe1970"
"""What a mutant puts wherever it may choose something."""
_TEXT = _SECRET.decode()
_PATIENCE = 3.0
"""Seconds for the answer to a request that is whole."""
_PREFIX = "/v1/fleet/"
_STEPS = ("register-node", "activate-node", "heartbeat", "pull-messages", "get-run", "pull-object", "push-messages")


def whole_calls() -> Files:
    """A session without anything odd."""
    return {_CALLS: b"[]"}


def change_calls(files: Files, draws: random.Random) -> Mutant:
    """One or two odd requests of the session; each is made again from its own seed."""
    hows = [*_ODD, "header", "omit"]
    odd = [[draws.choice(_STEPS), draws.choice(hows), draws.randrange(10**6)] for _ in range(draws.choice([1, 2]))]
    return {_CALLS: json.dumps(odd).encode()}, str(odd)


class Upstream(SuperLinkServer):
    """The SuperLink on a port of this machine, which keeps every byte that arrives."""

    def __init__(self, link: SuperLink) -> None:
        self.link, self.arrived = link, list[bytes]()
        super().__init__(self._kept_and_answered)

    def _kept_and_answered(self, path: str, headers: bytes, body: bytes) -> bytes:
        self.arrived += [path.encode(), headers, body]
        try:
            return self.link.answer(path, body)
        except Exception:  # what the toy does not know
            return b""


@functools.cache
def _keys() -> tuple[Any, bytes]:
    private, public = generate_key_pairs()
    return private, public_key_to_bytes(public)


def _headers() -> dict[str, str]:
    """Headers by which the SuperNode authenticates itself."""
    private, public = _keys()
    timestamp = datetime.datetime.now(datetime.UTC).isoformat()
    signature = sign_message(private, timestamp.encode())
    encoded = {"flwr-public-key": public, "flwr-signature": signature}
    named = {name: base64.b64encode(value).decode() for name, value in encoded.items()}
    return {"host": "gateway", "content-type": "application/protobuf", "flwr-timestamp": timestamp, **named}


def _request(name: str, body: bytes, **changed: str) -> bytes:
    lines = {**_headers(), "content-length": str(len(body)), **changed}
    head = "".join(f"{key}: {value}\r\n" for key, value in lines.items())
    return f"POST {_PREFIX}{name} HTTP/1.1\r\n{head}\r\n".encode("utf-8", "surrogateescape") + body


def _other_body(name: str, body: bytes, draws: random.Random) -> list[bytes]:
    return [_request(name, change_bytes(body, draws)[0])]


def _further_field(name: str, body: bytes, draws: random.Random) -> list[bytes]:
    """A text in a known or an unknown field, or a field that says to be longer than the body."""
    tag = draws.choice([b"\x0a", b"\x12", b"\x1a", b"\x22", b"\xfa\x7f", b"\x92\x03"])
    fields = [tag + bytes([len(_SECRET)]) + _SECRET, b"\x0a\xff\xff\xff\xff\x07", b"\x08" + b"\xff" * 9 + b"\x01"]
    return [_request(name, body + draws.choice(fields))]


def _other_path(name: str, body: bytes, draws: random.Random) -> list[bytes]:
    paths = [f"../{name}", f"{name}?{_TEXT}", f"{name}/{_TEXT}", _TEXT, f"{name}%00", f"//{_TEXT}/{name}", "A" * 70000]
    return [_request(draws.choice(paths), body)]


def _other_method(name: str, body: bytes, draws: random.Random) -> list[bytes]:
    method = draws.choice([b"GET", b"PUT", b"CONNECT", b"POST /", _SECRET, b"\x16\x03\x01"])
    return [method + _request(name, body)[len(b"POST") :]]


def _other_length(name: str, body: bytes, draws: random.Random) -> list[bytes]:
    lengths = ["-1", "abc", "10000000000000", "1e3", "0x10", "", "+5", "1_0", f"{len(body)}, 3", "\u0663"]
    return [_request(name, body, **{"content-length": draws.choice(lengths)})]


def _other_header(name: str, body: bytes, draws: random.Random) -> list[bytes]:
    """A header with a text, also of the form that a key or a signature has."""
    named = ["flwr-public-key", "flwr-signature", "flwr-timestamp"]
    values = [_TEXT, _TEXT * 12, "", "\udcff", base64.b64encode(_SECRET).decode(), "1970-01-01T00:00:00"]
    return [_request(name, body, **{draws.choice([*named, *named, "x", "content-type"]): draws.choice(values)})]


def _in_chunks(name: str, body: bytes, draws: random.Random) -> list[bytes]:
    chunk = draws.choice([b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\n", b"FFFFFFFFFFFFFFFF\r\n", b""])
    return [_request(name, chunk, **{"transfer-encoding": "chunked"})]


def _cut(name: str, body: bytes, draws: random.Random) -> list[bytes]:
    whole = _request(name, body)
    return [whole[: draws.randrange(1, len(whole))]]


_ODD: dict[str, Callable[[str, bytes, random.Random], list[bytes]]] = {
    **{"body": _other_body, "field": _further_field, "path": _other_path, "method": _other_method},
    **{"length": _other_length, "header": _other_header, "chunked": _in_chunks, "cut": _cut},
    "twice": lambda name, body, draws: [_request(name, body)] * draws.choice([2, 20]),
    "at once": lambda name, body, _: [2 * _request(name, body)],
}
"""Requests that come before the honest one, from the name of the call, its body and draws."""


def _bodies(link: SuperLink, step: str) -> Iterator[tuple[str, Any]]:
    """The honest calls of a step."""
    node = Node(node_id=NODE)
    if step == "register-node":
        yield step, fleet_pb2.RegisterNodeFleetRequest(public_key=_keys()[1])
    elif step == "activate-node":
        yield step, fleet_pb2.ActivateNodeRequest(public_key=_keys()[1])
    elif step == "heartbeat":
        yield "send-node-heartbeat", heartbeat_pb2.SendNodeHeartbeatRequest(node=node)
    elif step == "pull-messages":
        yield step, fleet_pb2.PullMessagesRequest(node=node)
    elif step == "get-run":
        yield step, run_pb2.GetRunRequest(node=node, run_id=1)
    elif step == "pull-object":
        for name in link.objects:
            yield step, message_pb2.PullObjectRequest(node=node, run_id=1, object_id=name)
        confirmed = link.asked.metadata.message_id
        yield (
            "confirm-message-received",
            message_pb2.ConfirmMessageReceivedRequest(node=node, run_id=1, message_object_id=confirmed),
        )


def _reply(link: SuperLink, seed: int) -> Any:
    change = update(seed)
    after = {name: value + change[name] for name, value in model().items()}
    content = RecordDict({"arrays": ArrayRecord({name: Array(value) for name, value in after.items()})})
    content["metrics"] = MetricRecord({"num-examples": 20, "loss": 0.5})
    reply = Message(content, reply_to=link.asked)
    reply.metadata.__dict__["_message_id"] = reply.object_id
    return reply


class Session:
    """Requests over connections of their own, of which some are odd.

    Args:
        port: of the gateway.
        gateway: what answers there.
        odd: steps, kinds of odd requests before theirs, and seeds of these.
        update_seed: seed of the update in the reply.
    """

    def __init__(self, port: int, gateway: Gateway, odd: list[list[Any]], update_seed: int = 1) -> None:
        self.port, self.gateway, self.odd, self.update_seed = port, gateway, odd, update_seed
        self.statuses: list[str] = []

    def run(self, link: SuperLink) -> None:
        """All steps of the session, and the reply."""
        for step in _STEPS:
            if step != "push-messages":
                for name, body in _bodies(link, step):
                    self._call(step, name, body)
                continue
            reply = _reply(link, self.update_seed)
            pushed = fleet_pb2.PushMessagesRequest(
                node=Node(node_id=NODE),
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
            )
            answer = self._call(step, step, pushed)
            session = ""
            with contextlib.suppress(Exception):
                session = fleet_pb2.PushMessagesResponse.FromString(answer).session_id
            for name, one in get_all_nested_objects(reply).items():
                part = message_pb2.PushObjectRequest(
                    node=Node(node_id=NODE),
                    run_id=1,
                    object_id=name,
                    object_content=one.deflate(),
                    session_id=session,
                )
                self._call(step, "push-object", part)

    def _call(self, step: str, name: str, request: Any) -> bytes:
        """The body of the answer to a call, after what is odd about the step."""
        for odd, how, seed in self.odd:
            if odd == step:
                if how == "omit":
                    return b""
                for one in _ODD[how](name, request.SerializeToString(), random.Random(seed)):
                    self._send(one)
        return self._send(_request(name, request.SerializeToString()))

    def _send(self, content: bytes) -> bytes:
        """The body of the answer to a request; a request that is cut gets none."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=_PATIENCE) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while not _is_whole(answer) and (part := connection.recv(2**16)):
                    answer += part
            except TimeoutError:
                raise AcceptedError(f"no answer in {_PATIENCE:g} seconds to {content[:60]!r}") from None
            except OSError:  # the gateway hung up
                pass
        self.statuses.append(answer[:12].decode("latin-1"))
        # A gateway that calls the SuperLink by itself does so here.
        getattr(self.gateway, "step", lambda: None)()
        return answer.partition(b"\r\n\r\n")[2]


def _is_whole(answer: bytes) -> bool:
    head, _, body = answer.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(lengths) and len(body) >= int(lengths[0])


def read_calls(folder: Path) -> str:
    """The statuses of a session; what it sent on has nothing of an odd caller, and what left has an entry."""
    odd = json.loads((folder / _CALLS).read_bytes())
    upstream = Upstream(SuperLink())
    policy = write_policy(folder, "metrics: {names: [loss]}\n")
    gateway = Gateway(f"http://127.0.0.1:{upstream.server_address[1]}", str(policy))
    server = server_of(gateway, "127.0.0.1", 0)
    errors: list[str] = []

    def keep_error(request: Any, client_address: Any) -> None:
        # A caller that hangs up is counted by the gateway. It would count any other error so as well.
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            errors.append(f"an error of the gateway: {error!r:.200}")

    server.handle_error = keep_error  # type: ignore[method-assign]
    for one in (upstream, server):
        threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    session = Session(int(server.server_address[1]), gateway, odd)
    try:
        session.run(upstream.link)
        last = session._send(_request("get-run", b""))
        assert isinstance(last, bytes)
    finally:
        for one in (server, upstream):
            one.shutdown()
            one.server_close()
    _check(upstream, folder, errors)
    if not session.statuses[-1].startswith("HTTP/1.1 "):
        raise AcceptedError("the gateway answers no more")
    return repr((sorted(set(session.statuses)), len(upstream.link.pushed)))


def _check(upstream: Upstream, folder: Path, errors: list[str]) -> None:
    if errors:
        raise AcceptedError(errors[0])
    forms = (_SECRET, base64.b64encode(_SECRET)[:12])
    found = [content for content in upstream.arrived if any(form in content for form in forms)]
    if found:
        raise AcceptedError(f"arrived at the SuperLink: {found[0][:80]!r}")
    entries, torn = read_log(log_of(folder)) if log_of(folder).exists() else ([], 0)
    released = sum(entry["event"] == "released" for entry in entries)
    whole = sum(not pushed.HasField("error") for pushed in upstream.link.pushed)
    if torn or whole > released:
        raise AcceptedError(f"{whole} replies left, {released} entries")


def targets() -> list[Parts]:
    """Sessions of a SuperNode with odd calls among them."""
    return [("calls of a gateway", whole_calls, change_calls, read_calls, nothing_wrong)]
