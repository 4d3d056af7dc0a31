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


def system_lines(audit_result: AuditResult) -> dict[str, str]:
    """Lines by what they are about; a table of several trainings has those that do not depend on one recording."""
    recording = audit_result.recording
    scores = audit_result.evaluation.scores
    attacks = {label for label, info in audit_result.evaluation.lines.items() if info.role in ATTACKS}
    system = {"data": audit_result.data["name"]}
    if recording is not None:
        learner = recording.manifest.learner
        system["learner"] = "unknown" if learner is None else str(learner["name"])
        system["rounds"] = f"{len(recording.rounds)} recorded"
    system["clients"] = f"{scores['person'][scores['attack'].isin(attacks)].nunique()} attacked"
    if recording is not None:
        system["readers"] = _readers(recording)
    system[EVALUATED] = datetime.now(UTC).date().isoformat()
    return system


def _readers(recording: Recording) -> str:
    """Who could read what of the updates, as far as the recording declares it."""
    manifest = recording.manifest
    # Only a recording of sums says which clients took part in each message.
    has_sums = recording.rounds and recording.participants(recording.rounds[0])
    readable = "sums of updates of several clients" if has_sums else "the update of each client by itself"
    parts = [f"the server, {readable}"]
    manipulation = manifest.config.get("manipulation")
    if manipulation is not None:
        parts.append(f"it deviated from the protocol ({manipulation})")
    if manifest.releases:
        parts.append("clipped or with noise, as clients declare")
    return ", ".join(parts)
