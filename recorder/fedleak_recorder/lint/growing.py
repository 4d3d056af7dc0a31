"""Messages that grow with the data: of several messages, parts whose size follows the number of examples."""

from collections.abc import Sequence

import numpy as np

from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.finding import Finding

_FEWEST = 3
"""Messages with different numbers of examples."""
_LINEAR = 0.99
"""Correlation of size and number of examples from which on one follows the other."""


def growing_parts(messages: Sequence[AnyMessage]) -> list[Finding]:
    """Findings on parts whose size follows the number of examples over messages of several clients or rounds.

    Args:
        messages: of clients or rounds with different numbers of examples; those without a number are left out.

    Example:
        >>> messages = [AnyMessage.of({"losses": [0.5] * n, "num-examples": n}) for n in (20, 30, 55)]
        >>> print(growing_parts(messages)[0].sentence)
        losses: 20 to 55 numbers for 20 to 55 examples over 3 messages (likely)
    """
    counted = [message for message in messages if message.examples is not None]
    examples = np.array([message.examples for message in counted], float)
    if len(np.unique(examples)) < _FEWEST:
        return []
    names: dict[str, None] = {}
    for message in counted:
        names.update(dict.fromkeys((*message.arrays, *message.contents, *_lists_of_texts(message))))
    findings = []
    for name in names:
        sizes = np.array([_size(message, name) for message in counted], float)
        if sizes.min() == 0 or not _follows(sizes, examples):
            continue
        size_range = f"{sizes.min():.0f} to {sizes.max():.0f} {_unit(counted[0], name)}"
        example_range = f"{examples.min():.0f} to {examples.max():.0f} examples"
        what = f"{size_range} for {example_range} over {len(counted)} messages"
        findings.append(Finding("grows", what, name, "likely"))
    return findings


def _unit(message: AnyMessage, name: str) -> str:
    """What the size of a part counts."""
    if name in message.arrays:
        return "numbers"
    return "bytes" if name in message.contents else "texts"


def _follows(sizes: np.ndarray, examples: np.ndarray) -> bool:
    """Whether sizes rise with the numbers of examples, on a line that does not begin far above 0."""
    if len(np.unique(sizes)) < _FEWEST:
        return False
    if np.corrcoef(sizes, examples)[0, 1] < _LINEAR:
        return False
    # By least squares: a message of fixed size with a small part that grows is that part's finding.
    slope, start = np.polyfit(examples, sizes, 1)
    return bool(slope > 0 and start < 0.5 * sizes.max())


def _lists_of_texts(message: AnyMessage) -> list[str]:
    """Names of the lists of texts of a message."""
    parents = (name.rpartition("/") for name in message.texts)
    return list(dict.fromkeys(parent for parent, _, last in parents if last.isdecimal()))


def _size(message: AnyMessage, name: str) -> int:
    """Numbers, bytes or texts of a part; 0 if the message has none of that name."""
    if name in message.arrays:
        return message.arrays[name].size
    if name in message.contents:
        return len(message.contents[name])
    prefix = f"{name}/"
    return sum(text.startswith(prefix) for text in message.texts)
