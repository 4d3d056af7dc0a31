"""What can the server of a federated-learning system, or another participant, learn about its clients?

The names below are what a user needs: `audit` and `show`, what they read and return, and the base classes of what one
adds. Each is imported when it is first asked for, so that ``import fedleak`` takes neither torch nor numpy.
"""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.callbacks.delta_recorder import DeltaRecorder as DeltaRecorder
    from fedleak.client.engine.local_hyperparameters import LocalTraining as LocalTraining
    from fedleak.core.answers import Choices as Choices
    from fedleak.core.answers import Quantities as Quantities
    from fedleak.core.attack import Attack as Attack
    from fedleak.core.errors import InputError as InputError
    from fedleak.core.errors import ViewError as ViewError
    from fedleak.core.estimates import Candidates as Candidates
    from fedleak.core.estimates import Estimate as Estimate
    from fedleak.core.estimates import Scores as Scores
    from fedleak.core.history import History as History
    from fedleak.core.metric import Metric as Metric
    from fedleak.core.metric_table import add_metric as add_metric
    from fedleak.core.reconstruction import Reconstruction as Reconstruction
    from fedleak.core.threat_model import ThreatModel as ThreatModel
    from fedleak.core.version import __version__ as __version__
    from fedleak.core.view import RoundView as RoundView
    from fedleak.defenses.base import Defense as Defense
    from fedleak.defenses.base import Update as Update
    from fedleak.defenses.manipulation_checks import Check as Check
    from fedleak.defenses.model_checks.base import ModelCheck as ModelCheck
    from fedleak.evaluation.audit_plan import AuditPlan as AuditPlan
    from fedleak.evaluation.auditing import AuditResult as AuditResult
    from fedleak.evaluation.auditing import audit as audit
    from fedleak.evaluation.auditing import run_audit as run_audit
    from fedleak.evaluation.steps.step import RecordingStep as RecordingStep
    from fedleak.evaluation.steps.step import Step as Step
    from fedleak.recordings.recording import Recording as Recording
    from fedleak.reports.exporters.exporter import Exporter as Exporter
    from fedleak.reports.notebook import show as show
    from fedleak.server.deviation import Deviation as Deviation
    from fedleak.tables.after.step import AfterStep as AfterStep
    from fedleak.tables.quiet import quiet_trainer as quiet_trainer
    from fedleak.training.data import FederatedDataModule as FederatedDataModule
    from fedleak.training.federated import FederatedModule as FederatedModule
    from fedleak.training.network_learner import NetworkLearner as NetworkLearner
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "DeltaRecorder": "fedleak.callbacks.delta_recorder",
            "LocalTraining": "fedleak.client.engine.local_hyperparameters",
            "Choices": "fedleak.core.answers",
            "Quantities": "fedleak.core.answers",
            "Attack": "fedleak.core.attack",
            "InputError": "fedleak.core.errors",
            "ViewError": "fedleak.core.errors",
            "Candidates": "fedleak.core.estimates",
            "Estimate": "fedleak.core.estimates",
            "Scores": "fedleak.core.estimates",
            "History": "fedleak.core.history",
            "Metric": "fedleak.core.metric",
            "add_metric": "fedleak.core.metric_table",
            "Reconstruction": "fedleak.core.reconstruction",
            "ThreatModel": "fedleak.core.threat_model",
            "__version__": "fedleak.core.version",
            "RoundView": "fedleak.core.view",
            "Defense": "fedleak.defenses.base",
            "Update": "fedleak.defenses.base",
            "Check": "fedleak.defenses.manipulation_checks",
            "ModelCheck": "fedleak.defenses.model_checks.base",
            "AuditPlan": "fedleak.evaluation.audit_plan",
            "AuditResult": "fedleak.evaluation.auditing",
            "audit": "fedleak.evaluation.auditing",
            "run_audit": "fedleak.evaluation.auditing",
            "RecordingStep": "fedleak.evaluation.steps.step",
            "Step": "fedleak.evaluation.steps.step",
            "NetworkLearner": "fedleak.training.network_learner",
            "Recording": "fedleak.recordings.recording",
            "Exporter": "fedleak.reports.exporters.exporter",
            "show": "fedleak.reports.notebook",
            "Deviation": "fedleak.server.deviation",
            "AfterStep": "fedleak.tables.after.step",
            "quiet_trainer": "fedleak.tables.quiet",
            "FederatedDataModule": "fedleak.training.data",
            "FederatedModule": "fedleak.training.federated",
        },
    )
