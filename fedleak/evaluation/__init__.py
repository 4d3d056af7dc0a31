"""Runs attacks on views, opens the truth, and scores."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.evaluation.auditing import AuditResult as AuditResult
    from fedleak.evaluation.auditing import audit as audit
    from fedleak.evaluation.evaluate import evaluate_recording as evaluate_recording
    from fedleak.evaluation.guardrail import Guardrail as Guardrail
    from fedleak.evaluation.message_selection import MessageSelection as MessageSelection
    from fedleak.evaluation.runner import Evaluation as Evaluation
    from fedleak.evaluation.runner import attack_view as attack_view
    from fedleak.evaluation.summary import summarise as summarise
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "AuditResult": "fedleak.evaluation.auditing",
            "audit": "fedleak.evaluation.auditing",
            "evaluate_recording": "fedleak.evaluation.evaluate",
            "Guardrail": "fedleak.evaluation.guardrail",
            "MessageSelection": "fedleak.evaluation.message_selection",
            "Evaluation": "fedleak.evaluation.runner",
            "attack_view": "fedleak.evaluation.runner",
            "summarise": "fedleak.evaluation.summary",
        },
    )
