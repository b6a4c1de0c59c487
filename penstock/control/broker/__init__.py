"""Topics and consumer groups of the log, for the REST API. librdkafka is loaded with the first request for them."""
