"""`penstock.Client`: the job manager from Python; the command line uses it too."""

from penstock.control.client.client import Client as Client
