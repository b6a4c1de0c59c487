"""`python -m penstock.driver RUN_FOLDER [--spare SETTINGS_JSON]`: the process that the job manager starts."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import fcntl
import json
import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from penstock.driver.assignment import FILE, Assignment, read_assignment_file
from penstock.driver.host import DriverHost
from penstock.driver.messages import Rejected, describe_error
from penstock.driver.output import LOG, OutputCapture, RotatingFile
from penstock.driver.socket_server import SocketServer
from penstock.errors import PenstockError, RunError

LOCK = "driver.lock"
SCRATCH = "spark"
# One that was killed keeps its lock until its last thread has ended.
LOCK_SECONDS = 5.0
END_SECONDS = 10.0
_log = logging.getLogger("penstock.driver")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the driver of a run folder and return its exit code."""
    given = _parse(arguments)
    folder: Path = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    _detach()
    # Open until the process ends: closing it would let another driver in.
    lock = _lock(folder)
    if lock is None:
        print(f"RunError: another driver runs in {folder}", file=sys.stderr)
        return RunError.exit_code
    output = OutputCapture(RotatingFile(folder / LOG))
    output.start()
    _log_start(folder, spare=given.spare is not None)
    try:
        code = _drive(folder, given.spare)
    except PenstockError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        code = error.exit_code
    except Exception as error:  # the last resort: the manager reads the log and the exit code
        _log.error("the driver failed", exc_info=error)
        code = int(describe_error(error)["exit_code"])
    _log.info("driver ended with code %d", code)
    output.flush()
    return code


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("penstock.driver", description="Run a job for the job manager.")
    parser.add_argument("folder", type=Path, metavar="RUN_FOLDER")
    parser.add_argument("--spare", type=json.loads, metavar="SETTINGS_JSON", help="start Spark and wait for a job")
    return parser.parse_args(arguments)


def _detach() -> None:
    """Leave the session of whoever started this, and outlive it."""
    with contextlib.suppress(PermissionError):  # the launcher has done it
        os.setsid()
    for number in (signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)


def _lock(folder: Path) -> int | None:
    """Make sure that the folder has one driver only; the lock ends with the process."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(lock)
                return None
            time.sleep(0.1)
        else:
            return lock


def _log_start(folder: Path, *, spare: bool) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.WARNING,
        format="%(asctime)s.%(msecs)03dZ %(levelname)s [%(threadName)s] %(name)s: %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S",
    )
    logging.Formatter.converter = time.gmtime
    _log.setLevel(logging.INFO)
    # It logs what ends an epoch with its whole stack, a stop that was asked for as well; jobs report their own errors.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    about = {"event": "driver_started", "run": folder.name, "pid": os.getpid(), "spare": spare}
    about |= {"penstock": version("penstock"), "python": sys.version.split()[0], "folder": str(folder)}
    _log.info("%s", json.dumps(about))


def _drive(folder: Path, spare: dict[str, object] | None) -> int:
    assignment = None if spare is not None else read_assignment_file(folder / FILE)
    _store_scratch_files_in(folder)
    # PySpark is imported here: a driver that is refused, or has a bad assignment, ends at once.
    from penstock.driver.spark_runtime import SparkRuntime

    runtime = SparkRuntime(folder / LOG)
    host = DriverHost(folder, runtime, spare=spare is not None, token=_token(assignment))
    _stop_on_signal(host)
    if spare is not None:
        from penstock.driver.spare import start_spare

        start_spare(spare)
    server = SocketServer(folder, host)
    host.publish = server.publish
    server.start()
    if assignment is not None:
        with contextlib.suppress(Rejected):  # a signal was first
            host.run(assignment)
    host.wait()
    server.close()
    _within_limit(runtime.close)
    # What the user's code registered, as at the end of any program, and temporary folders.
    _within_limit(atexit._run_exitfuncs)
    shutil.rmtree(folder / SCRATCH, ignore_errors=True)
    return host.exit_code


def _store_scratch_files_in(folder: Path) -> None:
    """Let Spark spill into the run folder: whoever removes it after a kill -9 removes these files too."""
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(folder / SCRATCH))


def _token(assignment: Assignment | None) -> int:
    return (assignment.token or 0) if assignment else 0


def _stop_on_signal(host: DriverHost) -> None:
    """On SIGTERM and SIGINT finish the epochs and end; not in the handler, which may interrupt who holds a lock."""
    asked = threading.Event()

    def wait() -> None:
        asked.wait()
        _log.info("asked to stop by a signal")
        host.exit()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    threading.Thread(target=wait, name="driver-signals", daemon=True).start()


def _within_limit(close: Callable[[], None]) -> None:
    """End something, but do not wait for long: a JVM ends by itself once this process is gone."""

    def end() -> None:
        with contextlib.suppress(Exception):
            close()

    ending = threading.Thread(target=end, name="driver-end", daemon=True)
    ending.start()
    ending.join(END_SECONDS)


if __name__ == "__main__":
    status = main()
    # Threads of the user's code must not keep the process.
    os._exit(status)
