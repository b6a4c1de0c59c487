"""The dashboard: pages that use the REST API as any client does. Sources are in `dashboard/`, built into `static/`."""

from penstock.dashboard.app import create_dashboard

__all__ = ["create_dashboard"]
