"""Parts that grow with the data, over messages of several clients."""

import numpy as np

from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.growing import growing_parts

COUNTS = (30, 57, 120, 260)


def test_parts_that_follow_the_number_of_examples_are_named() -> None:
    draws = np.random.default_rng(0)
    messages = []
    for count in COUNTS:
        parts = {"weight": draws.normal(size=(4, 5)), "codes": draws.normal(size=(count, 3)), "num-examples": count}
        messages.append(AnyMessage.of({**parts, "notes": ["a"] * count, "packed": draws.bytes(7 * count)}))
    units = {finding.where: finding.what.split()[3] for finding in growing_parts(messages)}
    assert units == {"codes": "numbers", "notes": "texts", "packed": "bytes"}
    assert growing_parts(messages[:2]) == []


def test_messages_of_fixed_size_and_of_sizes_of_their_own_are_none() -> None:
    draws = np.random.default_rng(0)
    sizes = (900, 880, 905, 893)
    for lengths in ((64,) * 4, sizes):
        messages = [
            AnyMessage.of({"trees": draws.bytes(length), "num-examples": count})
            for length, count in zip(lengths, COUNTS, strict=True)
        ]
        assert growing_parts(messages) == []
