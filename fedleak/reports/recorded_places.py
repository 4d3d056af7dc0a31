"""Which recording was attacked, and where in it each verdict of a gate was found."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fedleak.core.history import History
from fedleak.core.metric_table import METRICS, metric
from fedleak.evaluation.auditing import AuditResult
from fedleak.evaluation.limits import Limit
from fedleak.evaluation.run import Recorded, RecordedLine
from fedleak.evaluation.scores import SETTING
from fedleak.recordings.recording import Recording
from fedleak_recorder.format import MANIFEST
from fedleak_recorder.journal import journals_in


def recorded_places(audit_result: AuditResult, verdicts: Sequence[Mapping[str, Any]]) -> Recorded | None:
    """Folder and hash of the recording, and a place for each verdict; None where there is no single recording.

    ``folder`` is relative to the working directory, or the folder's name if it lies elsewhere. A place is the round in
    which the deciding attack infers most, the ``line`` of the journal ``file`` that names the round's first ``shard``,
    and the ``shards`` of the round that it names. An attack on all messages together, and a limit that nothing
    measured, have the first line of the manifest and the round None.
    """
    recording = audit_result.recording
    if recording is None:
        return None
    on_all_rounds: set[str] = set()
    for attack in audit_result.attacks:
        if attack.view is History:
            on_all_rounds.update(attack.names())
    rounds = [_round(verdict, audit_result.evaluation.scores, on_all_rounds) for verdict in verdicts]
    # Journals are read once for each round, not for each verdict.
    places = {number: _place(recording, number) for number in dict.fromkeys(rounds)}
    folder = Path(os.path.relpath(recording.directory))
    return Recorded(
        folder=recording.directory.resolve().name if ".." in folder.parts else folder.as_posix(),
        sha256=recording.sha256(),
        places=[places[number] for number in rounds],
    )


def _round(verdict: Mapping[str, Any], scores: pd.DataFrame, on_all_rounds: set[str]) -> int | None:
    """The round of a verdict, else that in which its attack infers most; None for an attack on all rounds, or none."""
    if verdict["round"] is not None:
        return int(verdict["round"])
    # A limit on a distance from a baseline is about any metric that judges attacks.
    limit = Limit.named(verdict["metric"], verdict["limit"])
    metrics = [limit.metric]
    if limit.is_relative:
        metrics = [name for name, entry in METRICS.items() if entry.judged]
    of_attack = scores["attack"] == verdict["attack"]
    for key, value in verdict["setting"].items():
        if SETTING + key in scores:
            of_attack &= scores[SETTING + key].map(repr) == repr(value)
    deciding = scores[of_attack & scores["metric"].isin(metrics) & scores["value"].notna()]
    if deciding.empty or verdict["attack"] in on_all_rounds:
        return None
    name = str(deciding["metric"].iloc[0])
    means = deciding[deciding["metric"] == name].groupby("round")["value"].mean()
    return int(means.idxmin() if metric(name).lower_is_better else means.idxmax())


def _place(recording: Recording, number: int | None) -> RecordedLine:
    """The journal's line that names the first shard of a round; the manifest's first line for no round."""
    if number is not None:
        for journal in journals_in(recording.directory):
            files = [_file(line) for line in journal.read_text(encoding="utf-8").splitlines()]
            shards = sorted({name for name in files if name.startswith(f"rounds/{number:06d}-")})
            if shards:
                # A later line of a file replaces an earlier one, so the last that names the shard counts.
                last_line = max(position for position, name in enumerate(files, start=1) if name == shards[0])
                return RecordedLine(round=number, file=journal.name, line=last_line, shards=shards)
    return RecordedLine(round=None, file=MANIFEST, line=1, shards=[])


def _file(line: str) -> str:
    """File that a line of a journal names; empty for another line."""
    try:
        entry = json.loads(line)
    except ValueError:  # cut by a crash
        return ""
    if not isinstance(entry, dict):
        return ""
    return str(entry.get("file", ""))
