"""Tensors that the policy does not allow."""

from fedleak_guard.check import Check, Measured
from fedleak_guard.message import Message
from fedleak_guard.policy import Policy


class AllowedTensors(Check):
    """Tensors whose name, shape or type the policy does not allow."""

    name = "allowed-tensors"
    text = "number of tensors whose name, shape or type is not in the policy"

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        if message.sent is None:
            return None
        wrong = []
        for name, value in message.tensors.items():
            rule, dtype = policy.rule(name), message.dtypes.get(name, str(value.dtype))
            if rule is None:
                wrong.append(f"{name[:80]!r}, which no rule names")
            elif not rule.fits(value.shape):
                wrong.append(f"{name[:80]!r} of shape {value.shape} where the policy has {rule.shape}")
            elif rule.dtype != dtype if rule.dtype else value.dtype.kind != "f":
                wanted = rule.dtype or "floating-point numbers"
                wrong.append(f"{name[:80]!r} of type {dtype} where the policy has {wanted}")
        sentence = f"{len(wrong)} tensors that the policy does not allow: {'; '.join(wrong[:3])}"
        return Measured(value=len(wrong), found=bool(wrong), limit=0, sentence=sentence)
