"""Records of a topic in bulk: batches are fetched as they lie in the log, and become Arrow arrays at once.

No Python object is made per record. librdkafka makes one (`connectors/fetch.py`); it is left for what is unknown here.
"""
