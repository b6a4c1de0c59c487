"""URLs of object stores: which schemes there are, and that credentials are not in them."""

from __future__ import annotations

from penstock.errors import SettingsError
from penstock.masking import has_login, masked

# The prefix of the variables with the credentials of each.
VARIABLES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
SCHEMES = tuple(VARIABLES)


def refuse_login(url: str) -> None:
    """Raise SettingsError for a URL with a login: stores ignore it, but checkpoints, plans and errors would show it."""
    if has_login(url):
        message = f"{masked(url)!r} contains a login, which the URL of a store must not"
        raise SettingsError(message, hint=f"set the credentials in the variables {VARIABLES[url.partition(':')[0]]}*")
