"""Files written epoch by epoch: `sink` keeps the contract, `places` say where, `ledger` what is committed."""

from penstock.connectors.file_sink.sink import FileSink

__all__ = ["FileSink"]
