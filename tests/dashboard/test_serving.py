"""The pages of the dashboard beside the API: who gets them, and with which headers."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.control.rest.app import create_app
from penstock.dashboard import create_dashboard
from tests.control.rest.memory_manager import MemoryManager
from tests.control.rest.serving import serving

PAGE = "<!doctype html><title>Penstock</title>"
SCRIPT = "console.log('river');" * 50


class TokenRequired:
    def required(self) -> bool:
        return True

    def authenticate(self, token: str, /) -> None:
        return None


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(PAGE)
    (folder / "assets" / "index-abc.js").write_text(SCRIPT)
    (folder.parent / "secret.txt").write_text("not a page")
    return folder


@pytest.fixture(scope="module")
def client(static: Path) -> Iterator[httpx.Client]:
    app = create_app(MemoryManager(), TokenRequired(), dashboard=create_dashboard(static))
    with serving(app) as url, httpx.Client(base_url=url, trust_env=False) as found:
        yield found


def test_pages_need_no_token_and_the_api_does(client: httpx.Client) -> None:
    assert client.get("/").text == PAGE
    assert client.get("/assets/index-abc.js").status_code == 200
    assert client.get("/api/v1/jobs").status_code == 401
    assert client.post("/").status_code == 401
    assert client.get("/anything-else").status_code == 401


def test_a_page_runs_no_script_of_elsewhere_and_is_in_no_frame(client: httpx.Client) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy
    assert client.get("/").headers["x-content-type-options"] == "nosniff"


def test_the_page_is_asked_for_again_and_its_assets_are_not(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.headers["cache-control"] == "no-cache"
    assert client.get("/", headers={"if-none-match": page.headers["etag"]}).status_code == 304
    assert "immutable" in client.get("/assets/index-abc.js").headers["cache-control"]


def test_assets_are_sent_compressed(client: httpx.Client) -> None:
    with client.stream("GET", "/assets/index-abc.js", headers={"accept-encoding": "gzip"}) as response:
        sent = b"".join(response.iter_raw())
    assert response.headers["content-encoding"] == "gzip"
    assert len(sent) < len(SCRIPT)
    assert gzip.decompress(sent).decode() == SCRIPT
    assert client.get("/assets/index-abc.js", headers={"accept-encoding": "identity"}).text == SCRIPT


@pytest.mark.parametrize("path", ["/assets/../../secret.txt", "/assets/%2e%2e/%2e%2e/secret.txt", "/assets/missing.js"])
def test_no_file_outside_of_the_pages_is_sent(client: httpx.Client, path: str) -> None:
    response = client.get(path)
    assert response.status_code in (401, 404)
    assert "not a page" not in response.text


def test_a_checkout_without_pages_says_how_to_build_them(tmp_path: Path) -> None:
    app = create_app(MemoryManager(), dashboard=create_dashboard(tmp_path))
    with serving(app) as url, httpx.Client(base_url=url, trust_env=False) as client:
        response = client.get("/")
        assert response.status_code == 503
        assert "make dashboard" in response.text
        assert client.get("/health").json()["status"] == "ok"


def test_a_changed_page_is_sent_at_once(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("before")
    app = create_app(MemoryManager(), dashboard=create_dashboard(tmp_path))
    with serving(app) as url, httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/").text == "before"
        (tmp_path / "index.html").write_text("after it")
        assert client.get("/").text == "after it"
