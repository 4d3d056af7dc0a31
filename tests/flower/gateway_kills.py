"""A gateway that is killed while replies pass: ``python -m tests.flower.gateway_kills NUMBER`` kills it so often.

A SuperNode sends one random model after the other through a gateway of the command; the SuperLink keeps what arrives.
"""

import contextlib
import datetime
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto import fleet_pb2, message_pb2
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes, sign_message

from fedleak_guard.chained_log import read_log
from fedleak_guard.message import tensors_hash
from tests.flower.gateway_parts import NODE, SuperLink, SuperLinkServer, headers_of
from tests.guard_toys import log_of, model, write_policy
from tests.places import ROOT


class Killed(NamedTuple):
    """What all gateways of a run did.

    Attributes:
        arrived: replies that arrived whole.
        released: entries of the site's log.
        unlogged: replies that arrived and are not in it.
    """

    arrived: int
    released: int
    unlogged: int


@contextlib.contextmanager
def listening(link: SuperLink) -> Iterator[int]:
    """Serves a SuperLink over HTTP, one call after the other; gives the port."""
    lock = threading.Lock()

    def answer(path: str, _: bytes, body: bytes) -> bytes:
        with lock:
            link.waits = True
            return link.answer(path, body)

    with SuperLinkServer(answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


class Sender:
    """A SuperNode that sends random models."""

    def __init__(self) -> None:
        self.private, public = generate_key_pairs()
        self.public, self.node = public_key_to_bytes(public), Node(node_id=NODE)

    def send(self, address: str, link: SuperLink) -> Iterator[None]:
        """Sends one reply after the other, until the gateway is gone."""
        with httpx.Client(base_url=f"http://{address}/v1/fleet/", timeout=30) as client:
            self.client = client
            self._post("register-node", fleet_pb2.RegisterNodeFleetRequest(public_key=self.public))
            self._post("activate-node", fleet_pb2.ActivateNodeRequest(public_key=self.public))
            while True:
                answer = self._post("pull-messages", fleet_pb2.PullMessagesRequest(node=self.node))
                if not fleet_pb2.PullMessagesResponse.FromString(answer).messages_list:
                    continue
                confirmed = message_pb2.ConfirmMessageReceivedRequest(
                    node=self.node, run_id=1, message_object_id=link.asked.metadata.message_id
                )
                self._post("confirm-message-received", confirmed)
                self._reply(link.asked)
                yield

    def _reply(self, asked: Message) -> None:
        draws = np.random.default_rng()
        after = {name: value + draws.random(value.shape, dtype="f") for name, value in model().items()}
        record = ArrayRecord({name: Array(value) for name, value in after.items()})
        reply = Message(RecordDict({"arrays": record}), reply_to=asked)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        request = fleet_pb2.PushMessagesRequest(
            node=self.node,
            messages_list=[message_to_proto(remove_content_from_message(reply))],
            message_object_trees=[get_object_tree(reply)],
        )
        session = fleet_pb2.PushMessagesResponse.FromString(self._post("push-messages", request)).session_id
        for name, part in get_all_nested_objects(reply).items():
            pushed = message_pb2.PushObjectRequest(
                node=self.node, run_id=1, object_id=name, object_content=part.deflate(), session_id=session
            )
            self._post("push-object", pushed)

    def _post(self, name: str, request: Any) -> bytes:
        timestamp = datetime.datetime.now(datetime.UTC).isoformat()
        signature = sign_message(self.private, timestamp.encode())
        headers = headers_of(self.public, timestamp, signature)
        return bytes(self.client.post(name, content=request.SerializeToString(), headers=headers).content)


def kill(folder: Path, times: int, seed: int) -> Killed:
    """Kills a gateway at random times after its first reply, and starts it again."""
    draws, link, sender = random.Random(seed), SuperLink(), Sender()
    policy = write_policy(folder)
    with listening(link) as port:
        for _ in range(times):
            command = [sys.executable, "-m", "fedleak_guard.command", "flower-gateway", "--insecure", "--pace", "0.02"]
            command += ["--superlink", f"127.0.0.1:{port}", "--policy", str(policy), "--listen", "127.0.0.1:0"]
            with subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            ) as gateway:
                assert gateway.stdout is not None
                line = next(line for line in gateway.stdout if " listens at " in line)
                killer = threading.Timer(draws.random(), gateway.kill)
                with contextlib.suppress(httpx.HTTPError):
                    for number, _ in enumerate(sender.send(line.split()[-1], link)):
                        if number == 0:
                            killer.start()
                killer.cancel()
                gateway.kill()
    entries, _ = read_log(log_of(folder))
    read_log(folder / "evidence/gateway.jsonl")
    released = {entry["content"] for entry in entries if entry["event"] == "released"}
    arrived = list(_arrived(link))
    return Killed(len(arrived), len(entries), sum(content not in released for content in arrived))


def _arrived(link: SuperLink) -> Iterator[str]:
    """Hash of the tensors of each reply that arrived with all of its objects."""
    for proto in link.pushed:
        message = message_from_proto(proto)
        if message.has_error():
            continue
        with contextlib.suppress(KeyError):
            whole = inflate_object_from_contents(message.metadata.message_id, dict(link.arrived))
            assert isinstance(whole, Message)
            (record,) = whole.content.array_records.values()
            yield tensors_hash({name: array.numpy() for name, array in record.items()})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(kill(Path(made), int(sys.argv[1]), seed=0))
