"""`penstock submit`: hand a pipeline to the job manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.cli.control.access import on_server
from penstock.cli.control.commands import waiting
from penstock.cli.control.job_text import line, raise_failure
from penstock.cli.shared_options import Sets
from penstock.cli.tables import Json, show_json
from penstock.errors import BadEntry, BadValue

if TYPE_CHECKING:
    from penstock.control.api.jobs import Job
    from penstock.control.client import Client


SourceTarget = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py[:name]|FILE.sql|FOLDER[:FILE]",
        help="Python or SQL file, or a folder whose code is sent as a zip; and the pipeline if there are several.",
    ),
]
SettingPairs = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", metavar="KEY=VALUE", help="Setting of the job, such as checkpoint_interval=10s, repeatable."
    ),
]


def read_pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    """Return the pairs of a repeatable KEY=VALUE; the last one of a key counts.

    >>> read_pairs("--set", ["window=30s", "rows=5"])
    {'window': '30s', 'rows': '5'}
    """
    pairs = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not (equals and key.strip()):
            message = f"{option} {text}: a key and a value are needed"
            raise BadEntry(message, hint=f"as in: {option} window=30s")
        pairs[key.strip()] = value
    return pairs


Until = Literal["stopped", "drained", "ended"]


@on_server
def submit(
    client: Client,
    target: SourceTarget,
    name: Annotated[str | None, typer.Option(help="Name of the job; default: the name of the pipeline.")] = None,
    sets: Sets = None,
    until: Annotated[
        Until,
        typer.Option(
            help="stopped: until it is stopped. drained: until the available input is read. "
            "ended: the same, then all windows are closed."
        ),
    ] = "stopped",
    parallelism: Annotated[int | None, typer.Option(min=1, help="How many tasks run at once.")] = None,
    pool: Annotated[
        str | None, typer.Option(metavar="NAME", help="Small jobs of one pool share a driver and its JVM.")
    ] = None,
    restart: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Restart policy: none, fixed_delay:delay=5s,attempts=3, exponential:max_delay=1m,attempts=10 or "
            "failure_rate:failures=3,interval=5m. Default: exponential.",
        ),
    ] = None,
    autoscale: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Autoscaling policy: lag:up=10000,down=100,maximum=8, latency:up=5s,down=1s, utilisation:target=0.7, "
            "throughput or custom:expression=ceil(lag / 5000).",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --autoscale: record the decisions, and do not act.")
    ] = False,
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of the driver, such as 2g.")] = None,
    cores: Annotated[float | None, typer.Option(min=0.1, help="Cores that the job needs to start.")] = None,
    settings: SettingPairs = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait",
            help="Wait until the job runs; with --until drained or ended, until it has finished. "
            "Ctrl-C stops waiting only.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Submit a pipeline to the job manager and print its job.

    The job manager builds the plan first: a mistake is the same error that `penstock explain` prints.

    Example: penstock submit examples/vwap.py --name prices --set data=market --until ended --wait
    """
    job = client.submit(
        target,
        name,
        until=until,
        parallelism=parallelism,
        pool=pool,
        restart_policy=restart,
        autoscaling=_scaling(autoscale, dry_run=dry_run),
        memory=memory,
        cores=cores,
        settings=read_pairs("--setting", settings),
        arguments=read_pairs("--set", sets),
    )
    if wait:
        job = _wait(client, job)
    _show(job, json=json)
    if wait:
        raise_failure(job)


def _scaling(policy: str | None, *, dry_run: bool) -> str | dict[str, Any] | None:
    if not dry_run:
        return policy
    if policy is None:
        message = "--dry-run is for --autoscale"
        raise BadValue(message, hint="as in: --autoscale lag --dry-run")
    from penstock.control.autoscaling.policies import autoscaling_policy

    return {**autoscaling_policy(policy).to_json(), "dry_run": True}


def _wait(client: Client, job: Job) -> Job:
    with waiting(f"job {job.name}") as show:
        for current in client.watch(job.id):
            job = current
            show(str(job.state))
            if job.until == "stopped" and job.state == "RUNNING":
                break
    return job


def _show(job: Job, *, json: bool) -> None:
    if json:
        show_json(job)
        return
    typer.echo(line(job))
    typer.echo(f"  watch it: penstock job show {job.name}      its output: penstock logs {job.name} -f")
