"""YAML of a policy: its keys stand once, and nothing in it repeats or grows what the file says."""

import re
from typing import Any

import yaml

_DEEPEST = 32
"""Levels of nesting of a policy, whose parser is quadratic in them."""
_WITHOUT_SIGN = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$")
"""Numbers such as 1e-5 and 1.5e3, which YAML 1.1 reads as texts."""


class PolicyLoader(yaml.SafeLoader):
    """Safe loader that refuses keys that stand twice, merge keys, and values that are nested too deeply.

    Of a key that stands twice YAML would silently take the last one.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next value, which must not be nested too deeply."""
        self._depth += 1
        if self._depth > _DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "values that are nested too deeply", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Refuses a merge key, which would be replaced here by the keys that it names, and theirs in turn."""
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(None, None, "a merge key (<<)", key.start_mark)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys stand once."""
        keys = set[str]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key that is no text", key.start_mark)
            if key.value in keys:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key.value[:60]!r} twice", key.start_mark)
            keys.add(key.value)
        return super().construct_mapping(node, deep)


PolicyLoader.add_implicit_resolver("tag:yaml.org,2002:float", _WITHOUT_SIGN, list("-+0123456789"))
