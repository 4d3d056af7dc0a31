"""What fits a recording before a run is what an audit of it runs."""

from pathlib import Path

import pytest

from fedleak.evaluation.audit_plan import AuditPlan
from fedleak.evaluation.evaluate import evaluate_recording
from fedleak.evaluation.execution import Execution
from fedleak.evaluation.fitting import misfits
from fedleak.evaluation.registry import REGISTRY
from fedleak.recordings.recording import Recording
from tests.toys import train


@pytest.mark.integration
def test_attacks_that_fit_are_those_that_run(tmp_path: Path) -> None:
    train(tmp_path, rounds=2, users=6)
    recording = Recording(tmp_path / "deltas")
    attacks = [kind() for kind in REGISTRY.values() if not kind.slow]
    found = evaluate_recording(AuditPlan(recording=recording, attacks=attacks), Execution(progress=False))
    ran = {(info.family, info.name) for info in found.lines.values() if info.name}
    lacking = misfits(recording, attacks)
    fitting = {(a.family, a.name) for a in attacks if f"{a.family}/{a.name}" not in lacking}
    assert fitting
    assert ran <= fitting
    failed = {name for name in found.missing if name.rpartition("/")[2] in {own for _, own in fitting - ran}}
    assert len(fitting - ran) <= len(failed)
