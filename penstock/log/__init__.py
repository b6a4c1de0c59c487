"""The event log: a durable, single-node broker that speaks the Kafka protocol. Knows no pipelines."""

from penstock.log.protocol.kio_import import import_kio

import_kio()  # before any module of the log imports kio in its own way
