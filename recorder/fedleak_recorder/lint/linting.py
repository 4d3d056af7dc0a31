"""The lint of a message: all checks, in the order of their names."""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence

from fedleak_recorder.lint import checks
from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.finding import Certainty, Finding, Kind
from fedleak_recorder.lint.settings import Settings

MessageCheck = Callable[[AnyMessage, Settings], Iterator[Finding]]
_MOST_OF_A_KIND = 20
"""Findings of one kind that are given; a column of a thousand texts is one thing."""
_SUREST_FIRST: tuple[Certainty, ...] = ("certain", "likely", "possible")


@functools.cache
def message_checks() -> Sequence[MessageCheck]:
    """The checks in the folder of checks."""
    names = sorted(module.name for module in pkgutil.iter_modules(checks.__path__))
    return [importlib.import_module(f"{checks.__name__}.{name}").findings for name in names]


def linted(message: AnyMessage, settings: Settings | None = None) -> list[Finding]:
    """What of a message may hold more of the data than an update does.

    It needs no model: names, sizes and values decide. The rules and their limits are in docs/audit/lint.md.

    Args:
        message: of any parts.
        settings: what counts as few; None for fewer than 5 people.

    Example:
        >>> import numpy as np
        >>> times = np.array([5, 6, 6, 9, 10, 13, 16, 22, 23, 32])
        >>> message = AnyMessage.of({"T": times, "E": times % 2, "num-examples": 10})
        >>> sorted({finding.kind for finding in linted(message)})
        ['per-record', 'raw-rows']
    """
    settings = settings or Settings()
    by_kind: dict[Kind, list[Finding]] = {}
    for findings in message_checks():
        for finding in findings(message, settings):
            by_kind.setdefault(finding.kind, []).append(finding)
    given: list[Finding] = []
    for kind, of_kind in by_kind.items():
        # The surest ones first, so that those left out are at most as sure as those given.
        of_kind.sort(key=lambda finding: _SUREST_FIRST.index(finding.how_sure))
        given += of_kind[:_MOST_OF_A_KIND]
        left_out = of_kind[_MOST_OF_A_KIND:]
        if left_out:
            what = f"{len(left_out)} further parts of this kind"
            given.append(Finding(kind, what, left_out[-1].where, left_out[0].how_sure))
    return given
