"""What in the messages of a recording looks like more than an update, by the lint of any message."""

import itertools
from collections.abc import Iterator

import pandas as pd

from fedleak.core.view import RoundView
from fedleak.evaluation.scores import from_records
from fedleak.recordings.recording import Recording
from fedleak_recorder.lint.any_message import AnyMessage
from fedleak_recorder.lint.finding import Finding, Kind
from fedleak_recorder.lint.linting import linted

_VIEWS = 4
"""Views whose messages are looked at: of the first rounds."""
_VICTIMS = 8
"""Clients of each view."""


def lint_table(recording: Recording) -> pd.DataFrame:
    """One row per tensor and kind of finding, with how many messages have it; empty if none has.

    Tables of which clients send rows are left out, as are sums over several clients. What only a size makes possible
    is no row.
    """
    first = recording.rounds[:_VIEWS]
    messages = 0
    clients_by_finding: dict[tuple[str, Kind], int] = {}
    examples: dict[tuple[str, Kind], Finding] = {}
    for view in itertools.islice(recording.views(victims_per_view=_VICTIMS, rounds=first), _VIEWS):
        for message in _messages(view):
            messages += 1
            sure = [finding for finding in linted(message) if finding.how_sure != "possible"]
            for finding in sure:
                key = finding.where, finding.kind
                clients_by_finding[key] = clients_by_finding.get(key, 0) + 1
                examples.setdefault(key, finding)
    rows = []
    for key, count in clients_by_finding.items():
        finding = examples[key]
        row = {"tensor": finding.where, "what": finding.kind, "seen in the first": finding.what}
        rows.append(
            {**row, "messages": f"{count} of {messages}", "how sure": finding.how_sure, "way out": finding.way_out}
        )
    return from_records(rows)


def _messages(view: RoundView) -> Iterator[AnyMessage]:
    """Messages of the clients of a view, each its own and of one round."""
    if view.updates is not None or view.messages is not None or view.participants is not None:
        return
    names = [name for name in view.deltas if name not in view.row_parameters]
    for victim in range(view.victims):
        arrays = {name: view.deltas[name][victim].float().numpy() for name in names}
        count = int(view.example_counts[victim])
        # A count of 0 says that it is unknown.
        yield AnyMessage.of(arrays, examples=count or None)
