"""Names, number and content of metrics."""

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from fedleak_guard.check import Check, Measurement
from fedleak_guard.message import Message
from fedleak_guard.plain_message import NoNumber, plain_metrics
from fedleak_guard.policy import MetricLimits, Policy, has_wildcards

_KINDS = 2.0
"""Bits that say how a number is written: as a whole number, a decimal, or a fraction of 32 or of 64 bits."""
_SIGN = 1.0
"""Bits for the sign of a number."""
_LENGTHS = math.log2(65)
"""Bits for the length of a whole number, of 0 to 64 binary digits."""
_PLACES = 5.0
"""Bits for the place of a decimal's point: the first digit stands for 10**-16 to 10**15."""
_DIGITS = math.log2(14)
"""Bits for the number of a decimal's digits, 1 to 16. Without zeros at both ends, there are at most ``10**d`` decimals
of one digit and ``0.81 * 10**d`` of d digits; these shares add up to 13.15."""


class MetricValues(Check):
    """Metrics that the policy does not allow: by name, as text, too many, small counts, or with too many bits.

    `message_bits` says how many bits a message of metrics carries: at most ``2**b`` different ones carry b bits or
    fewer, whatever a sender chooses. The limit thus bounds what the metrics can encode.
    """

    name = "metric-values"
    text = "number of metrics that the policy does not allow, by name, kind, number, cell size or bits"

    def concerns(self, message: Message, policy: Policy, *, first: bool) -> bool:
        return bool(message.metrics)

    def measure(self, message: Message, policy: Policy, *, first: bool) -> Measurement | None:
        if not message.metrics:
            return None
        wrong = list(_wrong(message, policy.metrics))
        sentence = f"{len(wrong)} faults of metrics: {'; '.join(wrong[:3])}"
        return Measurement(value=len(wrong), found=bool(wrong), limit=0, sentence=sentence)


def flattened(metrics: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Metrics by name, those in mappings as ``outer.inner``; a mapping without any stands for itself."""
    for key, value in metrics.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{name}.")
        else:
            yield name, value


def _wrong(message: Message, limits: MetricLimits) -> Iterator[str]:
    """Faults of a message's metrics, as sentences."""
    metrics = plain_metrics(message.metrics)
    values = 0
    all_numbers = True
    for name, value in flattened(metrics):
        shown = ascii(name[:80])
        if not _fits(name, limits.names):
            yield f"the metric {shown} is not in the policy"
            continue
        if isinstance(value, Mapping):
            all_numbers = False
            yield f"the metric {shown} holds nothing"
            continue
        numbers = list(_numbers(value))
        if any(isinstance(number, NoNumber) for number in numbers):
            all_numbers = False
            yield f"the metric {shown} is no number"
            continue
        values += len(numbers)
        if len(numbers) > 1 and len(numbers) == message.examples:
            yield f"the metric {shown} has one value for each training example"
        if _fits(name, limits.counts):
            # A cell of nobody may leave. Written so that NaN counts as a small cell.
            small = [number for number in numbers if number != 0 and not number >= limits.min_cell]
            if small:
                yield f"the counts {shown} have {len(small)} cells below {limits.min_cell}"
    if values > limits.max_values:
        yield f"{values} values, where the policy allows {limits.max_values}"
    # Of what is no number there are no bits to count; it is a fault already.
    bits = message_bits(metrics, limits)
    if bits > limits.max_bits and all_numbers:
        yield f"metrics of {bits:.0f} bits, where the policy allows {limits.max_bits:g}"


def is_count(name: str, limits: MetricLimits) -> bool:
    """Whether the policy names a metric as one of counts, whose cells this check looks at."""
    return _fits(name, limits.counts)


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of the policy's patterns fits a name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _numbers(value: Any) -> Iterator[Any]:
    """The numbers in lists of any depth."""
    if isinstance(value, list):
        for part in value:
            yield from _numbers(part)
    else:
        yield value


def message_bits(metrics: Mapping[str, Any], limits: MetricLimits) -> float:
    """Number of bits that the copy of a message's metrics carries, with all that a sender can choose in it.

    It is the length of a code in which no message begins with the code of another (Kraft), so that at most ``2**b``
    messages have b bits or fewer: for each metric a bit that there is another one, its name, for each dot of it a bit
    that says whether a mapping begins there, and its value; at the end a bit that there is none. The order of names is
    that of the copy and carries nothing.

    Args:
        metrics: as `plain_metrics` gives them.
        limits: names of the policy; one of these without wildcards carries the choice among them alone, any other name
            8 bits for each byte and for its end.
    """
    exact = {name for name in limits.names if not has_wildcards(name)}
    # A name under a wildcard is one more choice, after which its text follows.
    choices = len(exact)
    if any(map(has_wildcards, limits.names)):
        choices += 1
    bits = 1.0  # that there is no further metric
    for name, value in flattened(metrics):
        bits += 1 + math.log2(max(choices, 1)) + name.count(".")
        if name not in exact:
            bits += 8 * (len(name.encode()) + 1)
        bits += _tree_bits(value)
    return bits


def _tree_bits(value: Any) -> float:
    """Bits of a number or of lists of numbers: one that says which, and one for each part of a list and for its end."""
    if isinstance(value, list):
        return 2.0 + len(value) + sum(map(_tree_bits, value))
    return 1.0 + value_bits(value)


def value_bits(value: Any) -> float:
    """Number of bits that a number carries; infinite if it is none, or a whole number of more than 64 bits.

    Of the ways to write it, the shortest counts: 3 takes 11.0, 0.8731 takes 25.1, a loss in single precision 34, any
    other number 66.
    """
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            return math.inf
        # The first binary digit is 1, so that it need not be written.
        digits_after_first = max(abs(value).bit_length() - 1, 0)
        return _KINDS + _SIGN + _LENGTHS + digits_after_first
    if not isinstance(value, float) or not math.isfinite(value):
        return math.inf
    fraction = 32.0 if _is_single(value) else 64.0
    # Python writes the shortest decimal that is read as this number.
    _, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    magnitude = len(digits) + int(exponent) - 1  # the first digit stands for 10**magnitude
    if not -16 <= magnitude < 16 or len(digits) > 16:
        return _KINDS + fraction
    decimal = _SIGN + _PLACES + _DIGITS + len(digits) * math.log2(10)
    return _KINDS + min(decimal, fraction)


def _is_single(value: float) -> bool:
    """Whether single precision has a number."""
    with np.errstate(over="ignore"):
        return float(np.float32(value)) == value
