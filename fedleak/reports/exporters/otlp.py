"""OpenTelemetry metrics of a run, pushed by OTLP over HTTP to a collector."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from fedleak.core.errors import InputError, require
from fedleak.evaluation.result_names import ATTACKS
from fedleak.evaluation.run import Run
from fedleak.evaluation.scores import describe, records, setting_of
from fedleak.reports.exporters.exporter import Exporter

GAUGES = {"": "mean over clients", ".low": "lower end of the 95% interval", ".high": "upper end of the 95% interval"}
"""What each gauge ``fedleak.leak`` with a suffix holds; its unit is that of the metric."""
_COLUMNS = {"": "mean", ".low": "low", ".high": "high"}
_PATH = "/v1/metrics"


@dataclass(frozen=True)
class Otlp(Exporter):
    """Gauges ``fedleak.leak``, ``fedleak.leak.low`` and ``fedleak.leak.high`` with a data point per result.

    The attributes of a data point are ``attack``, ``metric``, ``setting``, ``family`` and ``role`` (``attack`` or
    ``baseline``); those of the resource name the run, its data and the commit. Values that are not finite are left out.

    Attributes:
        endpoint: address of the collector, e.g. ``http://127.0.0.1:4318``; by default that of the environment variable
            ``OTEL_EXPORTER_OTLP_ENDPOINT``, as are headers (``OTEL_EXPORTER_OTLP_HEADERS``) in any case.
        timeout: seconds after which a collector that does not answer is given up.
    """

    name: ClassVar[str] = "otlp"

    endpoint: str | None = None
    timeout: float = 10.0

    def export(self, run: Run, directory: Path) -> str:
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.sdk.metrics.export import MetricExportResult
        except ImportError as error:
            way_out = "Install the extra: in the checkout, pip install ./recorder '.[otel]'."
            raise InputError(expected="the packages of OpenTelemetry", found=str(error), way_out=way_out) from None
        # The address of a collector, with or without the path of metrics; None for that of the environment.
        address = None
        if self.endpoint:
            address = self.endpoint.rstrip("/").removesuffix(_PATH) + _PATH
        exporter = OTLPMetricExporter(endpoint=address, timeout=self.timeout)
        points, data = _collected(run)
        result = exporter.export(data, timeout_millis=self.timeout * 1000)
        exporter.shutdown()
        collector = address or "the collector of OTEL_EXPORTER_OTLP_ENDPOINT"
        require(
            result is MetricExportResult.SUCCESS,
            f"a collector at {collector}",
            "none that took the metrics",
            "Start the collector, or correct --to.endpoint.",
        )
        return f"{points} data points at {collector}"


def _collected(run: Run) -> tuple[int, Any]:
    """Number of data points, and the metrics of the SDK that hold them."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.resources import Resource

    resource = Resource(
        {
            "service.name": "fedleak",
            "fedleak.run": run.experiment,
            "fedleak.commit": run.commit or "unknown",
            "fedleak.data": run.data["name"],
            "fedleak.data.sha256": run.data["sha256"],
        }
    )
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    meter = provider.get_meter("fedleak")
    points = 0
    for suffix, description in GAUGES.items():
        gauge = meter.create_gauge(f"fedleak.leak{suffix}", description=description)
        for row in records(run.results):
            value = row[_COLUMNS[suffix]]
            if value is not None and math.isfinite(value):
                gauge.set(value, _attributes(row))
                points += 1
    data = reader.get_metrics_data()
    provider.shutdown()
    return points, data


def _attributes(row: dict[str, Any]) -> dict[str, str]:
    return {
        "attack": row["attack"],
        "metric": row["metric"],
        "setting": describe(setting_of(row)),
        "family": str(row["family"] or ""),
        "role": "attack" if row["role"] in ATTACKS else str(row["role"] or ""),
    }
