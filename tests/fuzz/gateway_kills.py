"""Kills of the gateway of a Flower site while replies pass: what arrived at the SuperLink is in the site's log."""

import json
import secrets
import threading
from pathlib import Path
from typing import Any

from flwr.common.serde import message_from_proto
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedleak_guard.chained_log import read_log
from fedleak_guard.flower_gateway import Gateway, server_of
from fedleak_guard.message import tensors_hash
from fedleak_recorder.errors import InputError
from tests.flower.gateway_parts import SuperLink
from tests.fuzz.gateway_calls import Session, Upstream
from tests.fuzz.kills import Subject
from tests.guard_toys import log_of, write_policy


class _AskingAgain(SuperLink):
    """A SuperLink that has its message for every SuperNode that connects."""

    def activate_node(self, body: bytes) -> Any:
        self.waits = True
        return super().activate_node(body)


class GatewayOfASite(Subject):
    """A SuperNode that connects, trains and replies through a gateway, several times, each with a gateway anew."""

    name = "gateway"
    share = 0.2
    sessions = 4

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        # The SuperLink is not killed: what it got is what left.
        self._upstream = Upstream(_AskingAgain())
        threading.Thread(target=self._upstream.serve_forever, daemon=True).start()

    def start(self, out: Path) -> int:
        """The sessions, one after the other."""
        out.mkdir(parents=True, exist_ok=True)
        policy = write_policy(out, "metrics: {names: [loss]}\n")
        for _ in range(self.sessions):
            gateway = Gateway(f"http://127.0.0.1:{self._upstream.server_address[1]}", str(policy))
            server = server_of(gateway, "127.0.0.1", 0)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            # Each reply is another one, so that no earlier entry of the log can stand for it.
            session = Session(int(server.server_address[1]), gateway, [], update_seed=secrets.randbits(32))
            session.run(self._upstream.link)
            server.shutdown()
            server.server_close()
        return 0

    def after_kill(self, out: Path) -> list[str]:
        """Whole replies that arrived without an entry; a log, of the guard or of the gateway, that is no chain."""
        released = set[str]()
        for log in map(log_of, self.folder.glob("*")):
            of_gateway = log.with_name("gateway.jsonl")
            try:
                entries = read_log(log)[0] if log.exists() else []
                if of_gateway.exists():
                    read_log(of_gateway)
            except InputError as error:
                return [f"the log is broken: {error}"]
            released |= {entry["content"] for entry in entries if entry["event"] == "released"}
        return ["a reply arrived without an entry" for reply in self._arrived() if reply not in released]

    def outcome(self, out: Path) -> str:
        """Nothing without an entry, a whole log, and a reply at least."""
        return json.dumps([self.after_kill(out), read_log(log_of(out))[1], bool(self._arrived())])

    def _arrived(self) -> list[str]:
        """Hashes of the tensors of all replies that arrived whole."""
        found = []
        for proto in list(self._upstream.link.pushed):
            name = message_from_proto(proto).metadata.message_id
            try:
                reply = inflate_object_from_contents(name, dict(self._upstream.link.arrived))
                (arrays,) = reply.content.array_records.values()
            except Exception:  # a reply that was cut, or an error in its place
                continue
            found.append(tensors_hash({name: value.numpy() for name, value in arrays.items()}))
        return found


SUBJECTS: tuple[type[Subject], ...] = (GatewayOfASite,)
