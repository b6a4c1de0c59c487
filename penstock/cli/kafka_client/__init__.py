"""The Kafka client of the commands: connection options, and librdkafka in `cluster`, `consumer` and `producer`.

Only those three import librdkafka, and commands import them when they run: it takes long to load.
"""
