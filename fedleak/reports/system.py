"""What was recorded, for the first lines of a page: data, learner, rounds, clients, readers of the updates, date."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fedleak.evaluation.result_names import ATTACKS

if TYPE_CHECKING:
    from fedleak.evaluation.auditing import AuditResult
    from fedleak.recordings.recording import Recording

EVALUATED = "evaluated"
"""Name of the line with the date."""


def system_lines(found: AuditResult) -> dict[str, str]:
    """Lines by what they are about; a table of several trainings has those that do not depend on one recording."""
    recording, scores, infos = found.recording, found.evaluation.scores, found.evaluation.lines
    attacks = {label for label, info in infos.items() if info.role in ATTACKS}
    lines = {"data": found.data["name"]}
    if recording is not None:
        learner = recording.manifest.learner
        lines["learner"] = "unknown" if learner is None else str(learner["name"])
        lines["rounds"] = f"{len(recording.rounds)} recorded"
    lines["clients"] = f"{scores['person'][scores['attack'].isin(attacks)].nunique()} attacked"
    if recording is not None:
        lines["readers"] = _readers(recording)
    lines[EVALUATED] = datetime.now(UTC).date().isoformat()
    return lines


def _readers(recording: Recording) -> str:
    """Who could read what of the updates, as far as the recording declares it."""
    manifest = recording.manifest
    sums = recording.rounds and recording.participants(recording.rounds[0])
    parts = [f"the server, {'sums of updates of several clients' if sums else 'the update of each client by itself'}"]
    if (manipulation := manifest.config.get("manipulation")) is not None:
        parts.append(f"it deviated from the protocol ({manipulation})")
    if manifest.releases:
        parts.append("clipped or with noise, as clients declare")
    return ", ".join(parts)
