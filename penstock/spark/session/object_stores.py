"""What Spark needs to keep its part of a checkpoint in a store: jars, addresses and keys, and how files are written."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.settings import Settings
from penstock.spark.session.spark_session import with_jars
from penstock.storage.folders import Folder
from penstock.storage.object_folders import ATTEMPTS, ObjectFolder

_MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing"
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
# Each look for new rows asks a store too, and is paid for.
_POLLING = {"spark.sql.streaming.pollingDelay": "250"}


def with_store(settings: Settings, root: Folder) -> Settings:
    """Return the settings for a session that can write to a checkpoint's store."""
    return with_jars(settings, "s3") if root.hadoop.startswith("s3a:") else settings


def configure_store(spark: SparkSession, root: Folder) -> None:
    """Configure Spark's access to a store: in memory, because others can see its command line and its settings."""
    if isinstance(root, ObjectFolder) and root.hadoop.startswith("s3a:"):
        hadoop = spark._jsc.hadoopConfiguration()
        for key, value in _s3a(root).items():
            hadoop.set(f"fs.s3a.{key}", value)


def store_settings(root: Folder, settings: Settings) -> dict[str, str]:
    """Return what is set for one query when it starts, by where its checkpoint is."""
    # On a disk a rename through FileSystem is the quickest; elsewhere FileContext's may replace a file that is there,
    # which a replayed epoch does with its state (docs/decisions/008-stores.md).
    name = "FileSystemBased" if root.local else "FileContextBased"
    chosen = {_MANAGER: f"{_MANAGERS}.{name}CheckpointFileManager", **({} if root.local else _POLLING)}
    return {key: settings.spark.get(key, value) for key, value in chosen.items()}


def _s3a(root: ObjectFolder) -> dict[str, str]:
    config = dict(root.config)
    endpoint = config.get("aws_endpoint_url", "")
    named = {
        "endpoint": endpoint,
        "endpoint.region": config.get("aws_region") or config.get("aws_default_region", ""),
        "access.key": config.get("aws_access_key_id", ""),
        "secret.key": config.get("aws_secret_access_key", ""),
        "session.token": config.get("aws_session_token", ""),
        # Stores that are not Amazon's seldom have a name for each bucket.
        "path.style.access": "true" if endpoint else "",
        "connection.ssl.enabled": "false" if endpoint.startswith("http://") else "",
        "aws.credentials.provider": _provider(config),
        "attempts.maximum": config.get("aws_max_attempts", str(ATTEMPTS)),
    }
    return {key: value for key, value in named.items() if value} | _ALWAYS


# Checkpoint files are small and written once: buffered in memory, and abandoned when the store hangs.
_ALWAYS = {
    # Hadoop's own tries, each of several of the library's: its pauses double without end.
    "retry.limit": "1",
    "fast.upload.buffer": "bytebuffer",
    "connection.request.timeout": "60s",
    "connection.timeout": "20s",
    "connection.establish.timeout": "5s",
}


def _provider(config: dict[str, str]) -> str:
    if "aws_access_key_id" not in config:
        return ""
    kind = "Temporary" if "aws_session_token" in config else "Simple"
    return f"org.apache.hadoop.fs.s3a.{kind}AWSCredentialsProvider"
