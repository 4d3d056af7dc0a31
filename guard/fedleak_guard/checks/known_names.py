"""Tensors whose name or shape the sender chose."""

from typing import ClassVar

from fedleak_guard.check import Check, Measurement
from fedleak_guard.message import Message
from fedleak_guard.policy import Action, Policy


class KnownNames(Check):
    """Tensors that are neither in the received model, with this shape, nor named by a rule without wildcards.

    A name or a shape that the sender may choose carries what it likes: ``*.weight`` fits any text before the dot.
    """

    name = "known-names"
    text = "number of tensors whose name and shape neither the received model nor a rule without wildcards has"
    actions: ClassVar[tuple[Action, ...]] = ("refuse",)

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if message.sent is None:
            return None
        chosen = [name for name, value in message.tensors.items() if not _is_known(name, value.shape, message, policy)]
        sentence = (
            f"{len(chosen)} tensors whose name or shape is neither that of the received model "
            f"nor that of a rule without wildcards: {', '.join(ascii(name[:80]) for name in chosen[:3])}"
        )
        return Measurement(value=len(chosen), found=bool(chosen), limit=0, sentence=sentence)


def _is_known(name: str, shape: tuple[int, ...], message: Message, policy: Policy) -> bool:
    """Whether a tensor's name and shape are those of the received model, or were fixed by the policy."""
    if name in message.model:
        if message.model[name].shape == shape:
            return True
    elif policy.names(name) and not policy.fixes_shape(name):
        # The policy lets the sender choose the shape of a tensor that the site did not receive.
        return True
    # A forest grows from round to round; its bytes are as many as its nodes, which the policy's trees bound.
    if policy.trees is not None and policy.names(name):
        return True
    # Another shape than the received one needs a rule that has it whole; that it fits is what allowed-tensors checks.
    return policy.names(name) and policy.fixes_shape(name)
