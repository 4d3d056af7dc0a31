"""How many bits a message that a policy allows can carry at most, whoever makes it: part by part.

The bound is a count: a part that can leave in N ways carries ``log2(N)`` bits, and parts that are chosen independently
add up. It holds for a sender who knows the policy, the received model and this code. What has no bound is infinite.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedleak_guard.known_checks import known_checks
from fedleak_guard.plain_message import MOST_EXAMPLES
from fedleak_guard.policy import BITS, Policy, TensorRule

Shapes = Mapping[str, tuple[int, ...]]
_FLOATS = "float16", "bfloat16", "float32", "float64"
"""Types among which a sender chooses where the policy names none."""


@dataclass(frozen=True)
class Part:
    """A part of a message.

    Attributes:
        name: of the part.
        bits: most bits that it carries; infinite if nothing bounds them.
        text: why.
    """

    name: str
    bits: float
    text: str


def parts_of(policy: Policy, model: Shapes | None = None) -> list[Part]:
    """Capacity of each part of a message.

    Args:
        policy: of the site.
        model: shape of each tensor of the model that the site receives; None if it is not known.
    """
    return [
        _tensors(policy, model),
        Part("names of tensors", 0.0, "those of the received model, or of rules without wildcards, in a fixed order"),
        # NVFlare also sends an empty model or an empty change, which a policy without rules for tensors allows.
        Part("kind of tensors", 2.0, "a model, a change, or none at all"),
        _metrics(policy),
        _examples(policy),
        Part("whether it leaves", 1.0, "a message or a refusal"),
    ]


def total_of(parts: Sequence[Part]) -> float:
    """Most bits of a whole message."""
    return sum(part.bits for part in parts)


def lines_of(policy: Policy, model: Shapes | None = None) -> list[str]:
    """The capacity of a message, of a job and of the site, as lines for a person."""
    parts = parts_of(policy, model)
    total = total_of(parts)
    lines = [f"  {part.name}: {_shown(part.bits)} ({part.text})" for part in parts]
    lines.append(f"  a message: {_shown(total)}")
    budget = policy.budget
    limits = (
        ("a job", "job_messages", budget.job_messages),
        ("the site", "site_messages", budget.site_messages),
    )
    for name, key, most in limits:
        if most is None:
            lines.append(f"  {name}: not bounded (budget.{key} is not set)")
        else:
            # Each message that leaves was counted with the choice to send it.
            lines.append(f"  {name}: {_shown(most * total)}, and one bit for each message that is refused")
    lines.append("  not counted: the time at which a message leaves, the order of messages of several jobs, and what a")
    lines.append("  framework sends where a client fails or sends no message")
    return lines


def _tensors(policy: Policy, model: Shapes | None) -> Part:
    """Bits of the numbers of all tensors."""
    name = "numbers of tensors"
    if not policy.tensors:
        return Part(name, 0.0, "no tensor may leave")
    if _only_logged(policy, "allowed-tensors"):
        return Part(name, math.inf, "findings.allowed-tensors is log")
    received_shapes = model or {}
    for rule in policy.tensors:
        # Bytes of trees may be as many as the sender likes, whatever was received.
        is_fixed = rule.name in received_shapes and policy.trees is None
        if _chooses_shape(rule) and not is_fixed:
            return Part(name, math.inf, f"the rule {rule.name[:60]} lets a message choose the shape")
    if not received_shapes and any(rule.has_wildcards for rule in policy.tensors):
        return Part(name, math.inf, "rules with wildcards allow what the received model has; give it to know how much")
    bits = 0.0
    numbers = 0
    for tensor, shapes in _shapes(policy, received_shapes).items():
        rule_of_tensor = policy.rule(tensor)
        assert rule_of_tensor is not None
        types = [rule_of_tensor.dtype] if rule_of_tensor.dtype else list(_FLOATS)
        # A tensor of n numbers of b bits can be sent in 2 ** (n b) ways in each shape and type that are allowed, or not
        # at all, which is one way more (2 ** 0).
        exponents = [0.0]
        for shape in shapes:
            for dtype in types:
                exponents.append(math.prod(shape) * BITS[dtype])
        bits += _log2_sum(exponents)
        numbers += max(math.prod(shape) for shape in shapes)
    sparse = _sparse_bits(policy, received_shapes)
    if sparse < bits:
        return Part(name, sparse, f"at most a share of {policy.update.max_changed:g} of {numbers} numbers changes")
    return Part(name, bits, f"all bits of {numbers} numbers; no limit on norms lowers them by much")


def _sparse_bits(policy: Policy, model: Shapes) -> float:
    """Bits of the tensors where `update.max_changed` allows few numbers to change; infinite where it bounds nothing."""
    share = policy.update.max_changed
    if share is None or _only_logged(policy, "changed-share"):
        return math.inf
    shapes = _shapes(policy, model)
    types = []
    for tensor in shapes:
        rule = policy.rule(tensor)
        if rule is not None:
            types.append(rule.dtype)
    # The share is one of floating-point numbers; whole numbers may change besides.
    if not all(dtype in _FLOATS for dtype in types):
        return math.inf
    # With several shapes for a tensor, the number of numbers is the sender's choice.
    if any(len(choices) > 1 for choices in shapes.values()):
        return math.inf
    numbers = sum(math.prod(choices[0]) for choices in shapes.values())
    changed = math.floor(share * numbers + 1e-3)  # 0.29 * 100 is 28.999999999999996
    # The entropy bounds the sum over all smaller numbers of changes up to a half of the numbers only.
    if 2 * changed >= numbers:
        return math.inf
    # Which numbers change (at most 2 ** (n H(k / n)) ways), to what, and which tensors are sent.
    bits_of_positions = numbers * _entropy(changed / max(numbers, 1))
    bits_of_numbers = changed * max(BITS[str(dtype)] for dtype in types)
    return bits_of_positions + bits_of_numbers + len(shapes)


def _entropy(share: float) -> float:
    """Entropy of a coin, in bits."""
    return -sum(part * math.log2(part) for part in (share, 1 - share) if part > 0)


def _shapes(policy: Policy, model: Shapes) -> dict[str, list[tuple[int, ...]]]:
    """Shapes in which each tensor may leave."""
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for tensor, shape in model.items():
        rule = policy.rule(tensor)
        if rule is not None and rule.fits(shape):
            shapes[tensor] = [shape]
    # Besides, those of rules that fix name and shape, unless an earlier rule decides about that name.
    for rule in policy.tensors:
        decides = policy.names(rule.name) and policy.fixes_shape(rule.name) and policy.rule(rule.name) is rule
        if decides and rule.shape is not None and rule.shape not in shapes.get(rule.name, []):
            shapes.setdefault(rule.name, []).append(rule.shape)
    return shapes


def _chooses_shape(rule: TensorRule) -> bool:
    """Whether a rule names a tensor that may leave in a shape of the sender's, where the received model lacks it."""
    return not rule.has_wildcards and (rule.shape is None or -1 in rule.shape)


def _metrics(policy: Policy) -> Part:
    limits = policy.metrics
    if _only_logged(policy, "metric-values"):
        return Part("metrics", math.inf, "findings.metric-values is log")
    if not limits.names:
        return Part("metrics", 0.0, "no metric may leave")
    return Part("metrics", limits.max_bits, "metrics.max_bits, with names, values, lists and mappings")


def _examples(policy: Policy) -> Part:
    most = MOST_EXAMPLES
    if policy.update.max_examples is not None and not _only_logged(policy, "example-count"):
        most = policy.update.max_examples
    # 0 to the largest, or none is reported.
    return Part("number of examples", math.log2(most + 2), f"at most {most}, or none; update.max_examples bounds it")


def _only_logged(policy: Policy, check: str) -> bool:
    """Whether a message with a finding of a check may leave, so that its limit bounds nothing."""
    return policy.action(check, known_checks()[check].action) != "refuse"


def _log2_sum(exponents: Sequence[float]) -> float:
    """``log2`` of the sum of ``2 ** e``."""
    # The largest is taken out, so that nothing overflows; from 2 ** -1000 of it on, a term adds nothing.
    largest = max(exponents)
    rest = sum(2.0 ** max(exponent - largest, -1000.0) for exponent in exponents)
    return largest + math.log2(rest)


def _shown(bits: float) -> str:
    if not math.isfinite(bits):
        return "not bounded"
    return f"{math.ceil(10 * bits) / 10:,.1f} bits"  # rounded up, so that the line is a bound too


def shapes_of(model: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor of a model."""
    return {name: tuple(value.shape) for name, value in model.items()}
