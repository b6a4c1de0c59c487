"""Lists by pages: the items, and a cursor to the next ones."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import Field, StringConstraints

from penstock.control.api.fields import Query, Response

T = TypeVar("T")

Cursor = Annotated[str, StringConstraints(max_length=500, pattern=r"^[\x21-\x7e]*$")]
MOST_ITEMS = 500


class Page(Response, Generic[T]):
    """Some items of a list, and the cursor of the next page; null after the last one."""

    items: list[T]
    next: str | None = None


class Paging(Query):
    """Which page of a list: the newest items without a cursor."""

    cursor: Cursor | None = Field(default=None, description="`next` of the page before")
    limit: int = Field(default=50, ge=1, le=MOST_ITEMS, description="most items on a page")
