"""Queries of the SQL console."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from penstock.control.api.fields import JobName, Request, Text
from penstock.control.api.topics import TopicName

Sql = Annotated[str, StringConstraints(min_length=1, max_length=20_000, pattern=r"^[^\x00]+$")]


class QuerySource(Request):
    """What a table of a query is: records of a topic, or rows of a node of a job.

    Without a schema, the types are those of the JSON documents that are read.
    """

    topic: TopicName | None = Field(default=None, description="default: the topic with the name of the table")
    columns: Sql | None = Field(default=None, alias="schema", description='such as "symbol string, price double"')
    start: str = Field(default="end", alias="from", pattern="^(beginning|end)$", description="oldest or newest records")
    limit: int = Field(default=10_000, ge=1, le=100_000, description="most records that are read")
    job: JobName | None = None
    node: Text | None = Field(default=None, description="of the job: its state, or the newest rows of a source or sink")

    @model_validator(mode="after")
    def _one_kind(self) -> QuerySource:
        if self.job is not None and (self.topic is not None or self.columns is not None):
            message = "give job and node, or topic and schema, not both"
            raise ValueError(message)
        if self.node is not None and self.job is None:
            message = "node needs a job"
            raise ValueError(message)
        return self


class QueryRequest(Request):
    """A SELECT in Spark SQL over bounded rows. A table without a source is the topic of its name."""

    sql: Sql
    sources: dict[Text, QuerySource] = Field(default={}, max_length=20)
    limit: int = Field(default=200, ge=1, le=10_000, description="most rows of the result")
    timeout: float = Field(default=10, ge=1, le=60, description="seconds")
