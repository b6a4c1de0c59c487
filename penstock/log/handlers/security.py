"""All requests about who may speak to the log and how much."""

from __future__ import annotations

from penstock.log.handlers import acls, credentials, logins, quotas

HANDLERS = {**logins.HANDLERS, **acls.HANDLERS, **credentials.HANDLERS, **quotas.HANDLERS}
