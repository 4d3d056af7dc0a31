"""Support vectors and their coefficients."""

from collections.abc import Iterator

from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.finding import Finding
from fedleak_recorder.lint.name_words import last_words
from fedleak_recorder.lint.settings import Settings

_NAMES = {"support", "support vectors", "support x", "support y", "support indices", "dual coef", "n support"}
"""Names of scikit-learn and of NVFlare's examples, without underscores."""


def findings(message: AnyMessage, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001 - as every check
    """Arrays with the names of a support vector machine's."""
    for name, array in message.arrays.items():
        words = " ".join(last_words(name))
        if words in _NAMES and array.size > 1:
            what = f"{len(array)} entries of {words}: support vectors are rows of the training data"
            yield Finding("support-vectors", what, name, "certain")
