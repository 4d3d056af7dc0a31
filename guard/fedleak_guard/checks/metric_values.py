"""Names, number and content of metrics."""

import math
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from fedleak_guard.check import Check, Measured
from fedleak_guard.message import Message, plain_numbers
from fedleak_guard.policy import MetricLimits, Policy
from fedleak_recorder.errors import InputError


class MetricValues(Check):
    """Metrics that the policy does not allow: by name, as text, too many, small counts, or with too many bits.

    A value carries ``log2(10)`` bits for each digit of its shortest decimal form, and one for its sign: 0.8731 carries
    14.3, a mean loss in full double precision about 57. The limit bounds what a message of metrics can encode.
    """

    name = "metric-values"
    text = "number of metrics that the policy does not allow, by name, kind, number, cell size or bits"

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measured | None:
        if not message.metrics:
            return None
        wrong = list(_wrong(message, policy.metrics))
        sentence = f"{len(wrong)} faults of metrics: {'; '.join(wrong[:3])}"
        return Measured(value=len(wrong), found=bool(wrong), limit=0, sentence=sentence)


def flattened(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Metrics by name, those in mappings as ``outer.inner``."""
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flattened(value, f"{name}.")
        else:
            yield name, value


def _wrong(message: Message, limits: MetricLimits) -> Iterator[str]:
    values, bits = 0, 0.0
    for name, value in flattened(message.metrics):
        shown = repr(name[:80])
        if not any(fnmatchcase(name, allowed) for allowed in limits.names):
            yield f"the metric {shown} is not in the policy"
            continue
        numbers = _numbers(value)
        if numbers is None:
            yield f"the metric {shown} is no number"
            continue
        values += len(numbers)
        bits += sum(map(value_bits, numbers))
        if len(numbers) > 1 and len(numbers) == message.examples:
            yield f"the metric {shown} has one value for each training example"
        if any(fnmatchcase(name, count) for count in limits.counts):
            small = [number for number in numbers if number != 0 and not number >= limits.min_cell]
            if small:
                yield f"the counts {shown} have {len(small)} cells below {limits.min_cell}"
    if values > limits.max_values:
        yield f"{values} values, where the policy allows {limits.max_values}"
    if bits > limits.max_bits:
        yield f"values of {bits:.0f} bits, where the policy allows {limits.max_bits:g}"


def _numbers(value: Any) -> list[float] | None:
    """The numbers of a metric; None for a text or an object."""
    try:
        waiting, numbers = [plain_numbers(value, "")], []
    except InputError:
        return None
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        else:
            numbers.append(one)
    return numbers


def value_bits(value: float) -> float:
    """Number of bits that a value can carry, by the digits of its shortest decimal form; infinite if it has none."""
    if not math.isfinite(value):
        return math.inf
    if isinstance(value, int) or float(value).is_integer():
        return 1.0 + math.log2(abs(int(value)) + 1)
    digits, _, exponent = repr(float(value)).partition("e")
    count = len(digits.replace("-", "").replace(".", "").lstrip("0"))
    return 1.0 + (count + len(exponent.lstrip("+-0"))) * math.log2(10)
