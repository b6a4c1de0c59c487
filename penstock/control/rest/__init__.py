"""The REST API of the job manager: FastAPI over the `Manager` protocol, one module a noun.

Routes are thin: they check a request by its model, call the manager in a thread, and return what it returns. What
goes around them is in `guard` (who may ask), `body_limits`, `audit` and `problems` (every error as problem+json).
"""
