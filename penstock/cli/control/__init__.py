"""Commands of the job manager: they start it, or talk to it with `penstock.Client`."""
