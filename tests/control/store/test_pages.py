from __future__ import annotations

import base64
import json
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.control.store.repositories.jobs import Job
from penstock.control.store.repositories.pages import decode_cursor, encode_cursor
from penstock.control.store.store import Store
from penstock.errors import BadCursor

_names = count()


def new_job(store: Store, prefix: str, created_at: float) -> str:
    number = next(_names)
    store.jobs.create(Job(id=f"{prefix}{number:09}", name=f"{prefix}-{number}", created_at=created_at))
    return f"{prefix}{number:09}"


# Times that are often equal, so that pages end between jobs of the same time.
times = st.sampled_from([1.0, 1.1, 2.5, 1_800_000_000.123456])


@given(data=st.data(), existing=st.lists(times, max_size=12), limit=st.integers(1, 5))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pages_have_every_job_once_although_jobs_are_added_and_deleted_between_them(
    store: Store, data: st.DataObject, existing: list[float], limit: int
) -> None:
    prefix = f"x{next(_names)}y"
    stable = [new_job(store, prefix, at) for at in existing]
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(100):
        page = store.jobs.page(name=prefix, cursor=cursor, limit=limit)
        seen += [job.id for job in page.items]
        cursor = page.next
        if cursor is None:
            break
        added = new_job(store, prefix, data.draw(times))
        if data.draw(st.booleans()):
            store.jobs.delete(added)
    assert cursor is None
    assert len(seen) == len(set(seen))
    assert set(stable) <= set(seen)
    listed = [store.jobs.get(job) for job in seen if job in stable]
    assert [(job.created_at, job.id) for job in listed] == sorted(
        ((job.created_at, job.id) for job in listed), reverse=True
    )


def test_the_last_page_has_no_next_one_even_if_it_is_full(store: Store) -> None:
    for number in range(4):
        store.jobs.create(Job(id=f"p{number}", name=f"p{number}", created_at=float(number + 1)))
    first = store.jobs.page(limit=2)
    assert first.next is not None
    second = store.jobs.page(limit=2, cursor=first.next)
    assert [job.id for job in second.items] == ["p1", "p0"]
    assert second.next is None


keys = st.tuples(
    st.floats(allow_nan=False, allow_infinity=False, max_value=1e18, min_value=-1e18), st.text(max_size=50)
)


@given(keys)
def test_a_cursor_returns_the_keys_that_it_was_made_of(values: tuple[float, str]) -> None:
    assert decode_cursor(encode_cursor(values), [float, str]) == list(values)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_a_text_that_is_no_cursor_is_refused(text: str) -> None:
    try:
        found = decode_cursor(text, [int])
    except BadCursor:
        return
    assert type(found[0]) is int


@pytest.mark.parametrize(
    "value", [[1], {}, None, "a", [1.5, 2], ["a", "b"], [None, "a"], [True, "a"], [10**400, "a"], [1e999, "a"]]
)
def test_a_cursor_of_another_list_is_refused(store: Store, value: object) -> None:
    cursor = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
    with pytest.raises(BadCursor, match="not a cursor"):
        store.jobs.page(cursor=cursor)


def test_a_nested_cursor_is_refused(store: Store) -> None:
    with pytest.raises(BadCursor):
        store.jobs.page(cursor=base64.urlsafe_b64encode(b"[" * 100_000).decode())
