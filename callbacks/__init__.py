"""Callbacks of a training: recording, audit, privacy budget."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from callbacks.audit import Audit as Audit
    from callbacks.delta_recorder import DeltaRecorder as DeltaRecorder
    from callbacks.noise_search import NoiseSearch as NoiseSearch
    from callbacks.privacy_budget import PrivacyBudget as PrivacyBudget
    from callbacks.requeue import Requeue as Requeue
    from callbacks.round_progress import RoundProgress as RoundProgress
    from callbacks.run_config import RunConfig as RunConfig
    from callbacks.stop_report import StopReport as StopReport

__all__ = exports(__name__)
