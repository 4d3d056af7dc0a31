"""What the server and its clients both know: views, threat models, metrics, seeds, errors."""

from typing import TYPE_CHECKING

from protocol.exports import exports

if TYPE_CHECKING:
    from protocol.errors import InputError as InputError
    from protocol.errors import ViewError as ViewError
    from protocol.metric_table import Metric as Metric
    from protocol.metric_table import add_metric as add_metric
    from protocol.seeding import generator_for as generator_for
    from protocol.threat_model import ThreatModel as ThreatModel
    from protocol.view import Release as Release
    from protocol.view import RoundView as RoundView

__all__ = exports(__name__)
