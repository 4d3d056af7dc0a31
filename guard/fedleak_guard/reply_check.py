"""Check of a whole reply at the gateway: what leaves in its place."""

import logging
from collections.abc import Sequence

from flwr.app import Message, RecordDict
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedleak_guard.flower import FAILED, released_content
from fedleak_guard.gateway_task import GatewayTask, IncomingReply, size_of
from fedleak_guard.guard import Guard
from fedleak_guard.refusal import RefusedError, reason_of
from fedleak_recorder.errors import InputError, require
from fedleak_recorder.frameworks.flower import received_model

_logger = logging.getLogger("fedleak_guard")


class ReplyCheck:
    """Checks replies under the site's policy.

    Args:
        guard: the site's guard.
        examples_key: metric with the number of training examples.
        records: names of a reply's record of arrays and of its record of metrics.
        largest: bytes of the objects of a reply together.
    """

    def __init__(self, guard: Guard, *, examples_key: str, records: Sequence[str], largest: int) -> None:
        self.largest = largest
        self._guard = guard
        self._examples_key = examples_key
        self._records = tuple(records)

    def leaving(self, task: GatewayTask, complete_reply: IncomingReply) -> RecordDict | str:
        """What leaves in place of a reply: the released content, or the reason of an error."""
        message = task.message
        assert message is not None
        try:
            # Objects may name the same part many times, so that few bytes become many once they are written out.
            size = size_of(complete_reply.root, complete_reply.objects)
            require(size <= self.largest, f"a reply of at most {self.largest} bytes", size, "Send fewer numbers.")
            reply = inflate_object_from_contents(complete_reply.root, dict(complete_reply.objects))
            if not isinstance(reply, Message):
                raise InputError(
                    expected="a message", found=type(reply).__name__[:40], way_out="The SuperNode sends another object."
                )
            if reply.has_error():
                return FAILED
            return released_content(
                self._guard,
                message,
                reply.content,
                job=str(task.run),
                received=received_model(message),
                examples_key=self._examples_key,
                records=self._records,
            )
        except RefusedError as refused:
            _logger.error(refused.public)
        except Exception as error:
            _logger.error("nothing left the site: %s", reason_of(error))
        return RefusedError.TO_THE_SERVER
