"""The Prometheus page: samples and histograms by declared metrics, as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from penstock.observe.declarations import BY_SERIES, METRICS, Metric
from penstock.observe.histogram import Histogram

__all__ = ["CONTENT_TYPE_LATEST", "Sample", "render"]


@dataclass(frozen=True)
class Sample:
    """A value of a metric, by the name of its series, with its labels."""

    metric: str
    value: float | Histogram
    labels: Mapping[str, str] = field(default_factory=dict)


def render(samples: Iterable[Sample]) -> bytes:
    """Return the page; every declared metric is on it, in the order of its declaration."""
    by_metric: dict[str, list[Sample]] = {}
    for one in samples:
        by_metric.setdefault(one.metric, []).append(one)
    unknown = sorted(by_metric.keys() - BY_SERIES.keys())
    if unknown:
        message = f"metrics that are not declared: {', '.join(unknown)}"
        raise KeyError(message)
    return generate_latest(_Page(by_metric))


class _Page(Collector):
    """What prometheus-client needs of a registry: families."""

    def __init__(self, samples: Mapping[str, list[Sample]]) -> None:
        self._samples = samples

    def collect(self) -> Iterator[Family]:
        """Yield the families."""
        for metric in METRICS:
            yield _family(metric, self._samples.get(metric.series, ()))


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    if metric.kind == "histogram":
        return _histogram(metric, samples)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for one in samples:
        assert not isinstance(one.value, Histogram)
        family.add_metric(_labels(metric, one), one.value * metric.factor)
    return family


def _histogram(metric: Metric, samples: Iterable[Sample]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for one in samples:
        assert isinstance(one.value, Histogram)
        family.add_metric(_labels(metric, one), one.value.buckets, one.value.total)
    return family


def _labels(metric: Metric, sample: Sample) -> list[str]:
    return [str(sample.labels.get(label, "")) for label in metric.labels]
