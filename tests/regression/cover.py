"""A share of the frozen tables that has every attack and every class that a configuration names.

All 142 take more than a third of the time of the tests. `make frozen` runs them all; `make test` runs this share, so
that a number of every attack, learner, data set, defence and manipulation is compared.
"""

import functools
import re
from collections.abc import Iterator
from typing import Any

import yaml

from fedleak.core.places import table_files
from tests.places import CONFIGS
from tests.regression.cases import run_cases
from tests.regression.frozen import read_frozen

_CLASS = re.compile(r"(?:\w+\.)*([A-Z]\w*[a-z]\w*)")
"""A class by its name, or by its path."""


def classes_named(content: Any) -> Iterator[str]:
    """Names of classes in a configuration."""
    if isinstance(content, dict):
        for value in content.values():
            yield from classes_named(value)
    elif isinstance(content, list):
        for value in content:
            yield from classes_named(value)
    elif isinstance(content, str):
        named = _CLASS.fullmatch(content)
        if named:
            yield named.group(1)


def compared_in(name: str) -> set[str]:
    """Attacks and metrics of which a case has a frozen number, and the classes of its configuration."""
    path = table_files().get(name) or CONFIGS / "train" / f"{name}.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    attacks = {f"attack {attack}" for _, attack, _ in read_frozen(name)}
    return attacks | {f"class {named}" for named in classes_named(content)}


@functools.cache
def covering_cases() -> list[str]:
    """Cases that compare together what all cases compare.

    Greedy: the case with the most that is still missing for each of its numbers, which stand for its time, comes next.
    """
    compared = {name: compared_in(name) for name in run_cases()}
    numbers = {name: len(read_frozen(name)) for name in compared}
    missing = set().union(*compared.values())
    chosen = []
    while missing:
        best = max(compared, key=lambda name: (len(compared[name] & missing) / (10 + numbers[name]), name))
        chosen.append(best)
        missing -= compared[best]
    return sorted(chosen)
