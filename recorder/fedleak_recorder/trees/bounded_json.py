"""JSON of a stranger as plain values, whose memory is bounded before it is parsed."""

from typing import Any

import numpy as np

from fedleak_recorder.errors import InputError, require
from fedleak_recorder.plain_values import parse_json

MOST_BYTES = 2**26
"""Longest message that is read: 64 MiB, some thousand trees of depth 8."""
_MOST_MEMORY = 2**29
"""Bytes that the values of a message may take: 512 MiB."""
_DEEPEST = 32
"""Levels of brackets; XGBoost's JSON has 8."""
_CHARACTER = 5
"""Bytes in memory for a byte of the file, at most: text with one rare character takes four bytes for each."""
_MOST_VALUES = 2 * 10**6
"""Numbers, texts, lists and mappings together, as many as `parse_json` accepts."""
_VALUE = 160
"""Bytes of a number or the header of a text, with its place in a list, and in that of values to be checked."""
_LIST = 90
"""Bytes of an empty list, over-allocated by its first entry."""
_MAPPING = 250
"""Bytes of a mapping with its first entry."""
FEWER = "Send fewer trees in a message."
WAY_OUT = "Give the message as the client sent it."


def read_json(content: bytes, *, where: str) -> Any:
    """A plain value from the bytes of a JSON text.

    Args:
        content: UTF-8.
        where: what it is, for errors.

    Raises:
        InputError: it is no JSON, is nested too deeply, or would take more than half a GiB of memory.

    Example:
        >>> read_json(b'{"trees": [1, 2.5]}', where="an example")
        {'trees': [1, 2.5]}
    """
    check_length(content, where=where)
    codes = np.frombuffer(content, np.uint8)
    # Setting the bit 0x20 makes [ of {, and ] of }: 0x7B and 0x7D then mark every opening and closing bracket. Those
    # within texts count too, which can only refuse more.
    folded = codes | 0x20
    brackets = folded[(folded == 0x7B) | (folded == 0x7D)]
    depths = np.cumsum(np.where(brackets == 0x7B, 1, -1), dtype=np.int32)
    deepest = int(depths.max(initial=0))
    require(deepest <= _DEEPEST, f"at most {_DEEPEST} levels in {where}", f"{deepest}", WAY_OUT)
    mappings = content.count(b"{")
    lists = content.count(b"[")
    values = content.count(b",") + content.count(b":")
    require(
        values <= _MOST_VALUES, f"at most {_MOST_VALUES} values in {where}", values, "Send fewer trees in a message."
    )
    memory = mappings * _MAPPING + lists * _LIST + values * _VALUE + len(content) * _CHARACTER
    require(
        memory <= _MOST_MEMORY,
        f"a message that takes at most {_MOST_MEMORY} bytes of memory in {where}",
        f"up to {memory} bytes: {mappings} mappings, {lists} lists, {values} values",
        FEWER,
    )
    try:
        return parse_json(content, where=where)
    except ValueError as error:  # also text that is no UTF-8, and numbers of too many digits
        raise InputError(expected=f"JSON of XGBoost in {where}", found=str(error), way_out=WAY_OUT) from None


def check_length(content: bytes, *, where: str) -> None:
    """Refuses a message that is too long to be read.

    Raises:
        InputError: it is longer than `MOST_BYTES`.
    """
    require(
        len(content) <= MOST_BYTES,
        f"at most {MOST_BYTES} bytes in {where}",
        f"{len(content)}",
        FEWER,
    )
