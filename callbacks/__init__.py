"""Callbacks of a training: recording, audit, privacy budget."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.callbacks.audit import Audit as Audit
    from fedleak.callbacks.delta_recorder import DeltaRecorder as DeltaRecorder
    from fedleak.callbacks.noise_search import NoiseSearch as NoiseSearch
    from fedleak.callbacks.privacy_budget import PrivacyBudget as PrivacyBudget
    from fedleak.recordings.stop_report import StopReport as StopReport
    from fedleak.training.lightning.requeue import Requeue as Requeue
    from fedleak.training.lightning.round_progress import RoundProgress as RoundProgress
    from fedleak.training.lightning.run_config import RunConfig as RunConfig
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "Audit": "fedleak.callbacks.audit",
            "DeltaRecorder": "fedleak.callbacks.delta_recorder",
            "NoiseSearch": "fedleak.callbacks.noise_search",
            "PrivacyBudget": "fedleak.callbacks.privacy_budget",
            "Requeue": "fedleak.training.lightning.requeue",
            "RoundProgress": "fedleak.training.lightning.round_progress",
            "RunConfig": "fedleak.training.lightning.run_config",
            "StopReport": "fedleak.recordings.stop_report",
        },
    )
