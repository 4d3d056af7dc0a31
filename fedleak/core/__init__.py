"""What the server and its clients both know: views, threat models, metrics, seeds, errors."""

from typing import TYPE_CHECKING

from fedleak.core.exports import attach

if TYPE_CHECKING:
    from fedleak.core.errors import InputError as InputError
    from fedleak.core.errors import ViewError as ViewError
    from fedleak.core.metric import Metric as Metric
    from fedleak.core.metric_table import add_metric as add_metric
    from fedleak.core.release import Release as Release
    from fedleak.core.seeding import generator_for as generator_for
    from fedleak.core.threat_model import ThreatModel as ThreatModel
    from fedleak.core.view import RoundView as RoundView
else:
    __getattr__, __dir__, __all__ = attach(
        __name__,
        {
            "InputError": "fedleak.core.errors",
            "ViewError": "fedleak.core.errors",
            "Metric": "fedleak.core.metric",
            "add_metric": "fedleak.core.metric_table",
            "generator_for": "fedleak.core.seeding",
            "ThreatModel": "fedleak.core.threat_model",
            "Release": "fedleak.core.release",
            "RoundView": "fedleak.core.view",
        },
    )
