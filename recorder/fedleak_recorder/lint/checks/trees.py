"""Trees, whose leaves count people."""

from collections.abc import Iterator

from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.file_kinds import TREES, kind_of
from fedleak_recorder.lint.finding import Finding
from fedleak_recorder.lint.settings import Settings

_KEYS = {
    "gradient_booster": "XGBoost",
    "oblivious_trees": "CatBoost",
    "tree_structure": "LightGBM",
}
"""A level of a library's JSON that no other has, by which its trees are known."""


def findings(message: AnyMessage, settings: Settings) -> Iterator[Finding]:  # noqa: ARG001 - as every check
    """Bytes and nested values that are boosted trees."""
    for name, content in message.contents.items():
        if kind_of(content) == TREES:
            yield Finding("trees", f"{len(content)} bytes of boosted trees", name, "certain")
    libraries: dict[str, str] = {}
    for part in (*message.arrays, *message.texts, *message.numbers):
        for key in _KEYS.keys() & {*part.split("/")}:
            libraries.setdefault(key, part.partition(key)[0].rstrip("/"))
    for key, parent in libraries.items():
        yield Finding("trees", f"boosted trees of {_KEYS[key]}", parent or key, "certain")
