"""Promise: only a broker, which answers with error codes, loads kio: its import takes longer than a task."""

from __future__ import annotations

import subprocess
import sys

from penstock.kafka.errors import CORRUPT_MESSAGE, ProtocolError
from penstock.log.errors import ErrorCode, LogError


def test_a_code_given_by_name_is_kafkas() -> None:
    error = ProtocolError(CORRUPT_MESSAGE, "its checksum does not match")
    assert (error.code, error.message) == (ErrorCode.corrupt_message, "its checksum does not match")
    assert ProtocolError(CORRUPT_MESSAGE).message == "corrupt message"


def test_errors_of_the_log_are_errors_of_the_protocol() -> None:
    assert issubclass(LogError, ProtocolError)
    assert LogError(ErrorCode.invalid_request).code is ErrorCode.invalid_request


def test_reading_a_topic_does_not_load_kio() -> None:
    code = "import sys, penstock.connectors.topics.source; print('kio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
