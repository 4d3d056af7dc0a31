"""Tensors that the policy does not allow."""

from fedleak_guard.check import Check, Measurement
from fedleak_guard.message import Message
from fedleak_guard.policy import Policy, TensorRule
from fedleak_recorder.arrays import Array


class AllowedTensors(Check):
    """Tensors whose name, shape or type the policy does not allow."""

    name = "allowed-tensors"
    text = "number of tensors whose name, shape or type is not in the policy"

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if message.sent is None:
            return None
        faults = []
        for name, value in message.tensors.items():
            fault = _fault_of(value, message.dtypes.get(name, str(value.dtype)), policy.rule(name))
            if fault:
                faults.append(f"{name[:80]!r}{fault}")
        sentence = f"{len(faults)} tensors that the policy does not allow: {'; '.join(faults[:3])}"
        return Measurement(value=len(faults), found=bool(faults), limit=0, sentence=sentence)


def _fault_of(value: Array, dtype: str, rule: TensorRule | None) -> str:
    """What a rule does not allow of a tensor; empty if it allows it."""
    if rule is None:
        return ", which no rule names"
    if not rule.fits(value.shape):
        return f" of shape {value.shape} where the policy has {rule.shape}"
    if rule.dtype and rule.dtype != dtype:
        return f" of type {dtype} where the policy has {rule.dtype}"
    # Without a type in the rule, any type of floating-point numbers; whole numbers have no change to be clipped.
    if not rule.dtype and value.dtype.kind != "f":
        return f" of type {dtype} where the policy has floating-point numbers"
    return ""
