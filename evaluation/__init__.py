"""Runs attacks on views, opens the truth, and scores."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from evaluation.auditing import AuditResult as AuditResult
    from evaluation.auditing import audit as audit
    from evaluation.evaluate import evaluate_recording as evaluate_recording
    from evaluation.guardrail import Guardrail as Guardrail
    from evaluation.message_selection import MessageSelection as MessageSelection
    from evaluation.runner import Evaluation as Evaluation
    from evaluation.runner import attack_view as attack_view
    from evaluation.summary import summarise as summarise

__all__ = exports(__name__)
