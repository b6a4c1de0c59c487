"""Every metric is declared once, named as Prometheus wants, and on the page."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.observe.declarations import METRICS
from penstock.observe.histogram import Histogram
from penstock.observe.page import Sample, render
from tests.promtool import complaints

LABELS = {"job": "j1", "name": "vwap"}
ABBREVIATED = re.compile(r"_(ms|us|ns|sec|s|b|kb|mb|gb|min|h|d)(_|$)")


def page() -> bytes:
    latency = Histogram()
    latency.add(0.3)
    return render(
        [
            Sample("records_processed_total", 12.0, LABELS),
            Sample("processing_latency_seconds", latency, LABELS),
            Sample("checkpoint_duration_seconds", latency, LABELS),
            Sample("watermark_lag_ms", 1500.0, LABELS),
            Sample("state_rows", 3.0, {**LABELS, "node": "vwap"}),
            Sample("manager_active", 1.0),
        ]
    )


def test_the_page_has_every_declared_metric() -> None:
    text = page().decode()
    assert [one.name for one in METRICS if f"# HELP {one.name} " not in text] == []


def test_values_are_on_the_page_in_base_units() -> None:
    found = {family.name: family for family in text_string_to_metric_families(page().decode())}
    assert found["penstock_records_processed"].samples[0].value == 12
    assert found["penstock_watermark_lag_seconds"].samples[0].value == 1.5
    assert found["penstock_state_rows"].samples[0].labels == {**LABELS, "node": "vwap"}
    assert found["penstock_processing_latency_seconds"].type == "histogram"


def test_names_follow_the_rules_of_prometheus() -> None:
    for one in METRICS:
        assert one.name.endswith("_total") == (one.kind == "counter"), one.name
        assert not ABBREVIATED.search(one.name), one.name
        assert one.help.endswith(".")
    assert len({one.name for one in METRICS}) == len(METRICS)


def test_a_metric_that_is_not_declared_is_an_error() -> None:
    with pytest.raises(KeyError, match="speed"):
        render([Sample("speed", 1.0)])


def test_promtool_finds_nothing_wrong() -> None:
    assert complaints(page()) == ""


def test_promtool_finds_what_is_wrong() -> None:
    assert "no help text" in complaints(b"# TYPE speed gauge\nspeed 1\n")
