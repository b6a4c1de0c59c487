"""What goes over the wire between the job manager and its clients: pydantic models, one module a noun.

Imports nothing of the server, so that the client and the dashboard can use it. Texts and options of responses are
masked by their types (`MaskedText`, `MaskedObject`): a model cannot be built with a secret that masking recognizes.
"""
