"""`penstock acl`: the access control lists of a broker with authentication."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from penstock.cli import command_group
from penstock.cli.kafka_client.access import on_broker
from penstock.cli.tables import Json, count_text, show_json, show_table
from penstock.errors import BrokerRefused, UnknownSetting, choices

if TYPE_CHECKING:
    from penstock.cli.kafka_client.cluster import Cluster

app = command_group("Add, list and remove ACLs: what users are allowed and denied.")
_HEAD = ("principal", "host", "permission", "operation", "resource", "pattern", "name")
_CLUSTER = "kafka-cluster"

Principal = Annotated[str, typer.Argument(metavar="User:NAME", help="The user; User:* is every user.")]
Operations = Annotated[
    list[str],
    typer.Option(
        "--operation",
        "-o",
        metavar="NAME",
        help="Operation, repeatable: read, write, create, delete, alter, describe, ... or all.",
    ),
]
Topic = Annotated[str | None, typer.Option(help="Topic; '*' is every topic.")]
Group = Annotated[str | None, typer.Option(help="Consumer group.")]
Transaction = Annotated[str | None, typer.Option("--transactional-id", help="Transactional id.")]
OnCluster = Annotated[bool, typer.Option("--cluster", help="The cluster: its users, ACLs and quotas.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="The names are prefixes.")]
Host = Annotated[str, typer.Option(help="Client address; '*' is every address.")]


@app.command("add")
@on_broker
def add(
    cluster: Cluster,
    principal: Principal,
    operation: Operations,
    topic: Topic = None,
    group: Group = None,
    transactional_id: Transaction = None,
    on_cluster: OnCluster = False,
    prefixed: Prefixed = False,
    host: Host = "*",
    permission: Annotated[
        Literal["allow", "deny"], typer.Option(help="Allow or deny; a denial takes precedence.")
    ] = "allow",
) -> None:
    """Allow or deny a user operations on a topic, group, transactional id or the cluster.

    Example: penstock acl add User:ada --operation read --topic orders --group reports
    """
    from confluent_kafka.admin import AclBinding, AclPermissionType

    resources = _resources(topic, group, transactional_id, on_cluster)
    verdict = AclPermissionType[permission.upper()]
    wanted = [(*resource, each) for resource in resources for each in map(_operation, operation)]
    acls = [AclBinding(kind, name, _pattern(prefixed), principal, host, each, verdict) for kind, name, each in wanted]
    for done in cluster.admin.create_acls(acls, **cluster.patience).values():
        done.result()
    typer.echo(f"added {count_text(len(acls), 'ACL')} for {principal}")


@app.command("list")
@on_broker
def list_(cluster: Cluster, json: Json = False) -> None:
    """List all ACLs.

    Example: penstock acl list --user admin
    """
    _check_may_describe(cluster)
    found = cluster.admin.describe_acls(_everything(None), **cluster.patience).result()
    rows = sorted(map(_row, found))
    if json:
        show_json([dict(zip(_HEAD, row, strict=True)) for row in rows])
    else:
        show_table(_HEAD, rows)


@app.command("remove")
@on_broker
def remove(cluster: Cluster, principal: Principal) -> None:
    """Remove all ACLs of a user.

    Example: penstock acl remove User:ada
    """
    gone = cluster.settle(cluster.admin.delete_acls([_everything(principal)], **cluster.patience))
    typer.echo(f"removed {count_text(len(gone), 'ACL')} of {principal}")


def _resources(
    topic: str | None, group: str | None, transaction: str | None, on_cluster: bool
) -> list[tuple[Any, str]]:
    from confluent_kafka.admin import ResourceType

    named = {
        ResourceType.TOPIC: topic,
        ResourceType.GROUP: group,
        ResourceType.TRANSACTIONAL_ID: transaction,
        ResourceType.BROKER: _CLUSTER if on_cluster else None,
    }
    resources = [(kind, name) for kind, name in named.items() if name]
    if not resources:
        message = "no resource was named"
        raise UnknownSetting(message, hint="pass --topic, --group, --transactional-id or --cluster")
    return resources


def _operation(name: str) -> Any:
    from confluent_kafka.admin import AclOperation

    known = [each.name for each in AclOperation if each.name not in ("UNKNOWN", "ANY")]
    wanted = name.upper().replace("-", "_")
    if wanted not in known:
        message = f"unknown operation '{name}'"
        raise UnknownSetting(message, hint=choices("operations", [each.lower() for each in known], name.lower()))
    return AclOperation[wanted]


def _pattern(prefixed: bool) -> Any:
    from confluent_kafka.admin import ResourcePatternType

    return ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL


def _check_may_describe(cluster: Cluster) -> None:
    # Without permission librdkafka returns no ACLs, as if there were none.
    from confluent_kafka.admin import AclOperation

    about = cluster.admin.describe_cluster(include_authorized_operations=True, **cluster.patience).result()
    if AclOperation.DESCRIBE not in (about.authorized_operations or []):
        message = f"{cluster.access.user or 'this client'} has no permission to list ACLs at {cluster.access.servers}"
        raise BrokerRefused(message, hint="use a super user, or one that may describe the cluster")


def _everything(principal: str | None) -> Any:
    from confluent_kafka import admin

    anything: Any = None  # the stubs require str where None matches everything
    return admin.AclBindingFilter(
        admin.ResourceType.ANY,
        anything,
        admin.ResourcePatternType.ANY,
        principal or anything,
        anything,
        admin.AclOperation.ANY,
        admin.AclPermissionType.ANY,
    )


def _row(acl: Any) -> list[str]:
    words = (acl.permission_type, acl.operation, acl.restype, acl.resource_pattern_type)
    permission, operation, resource, pattern = (each.name.lower() for each in words)
    return [acl.principal, acl.host, permission, operation, resource.replace("broker", "cluster"), pattern, acl.name]
