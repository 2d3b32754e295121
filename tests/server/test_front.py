"""The address that `openenv serve` prints opens in a browser."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.testclient import TestClient
from support.environments import Counter

from openenv import create_app

ACCEPTS = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_the_printed_address_leads_to_the_documentation_of_the_routes() -> None:
    with TestClient(create_app(Counter, web=False)) as browser:
        shown = browser.get("/", headers=ACCEPTS)
        assert shown.status_code == 200 and shown.url.path == "/docs"
        assert "text/html" in shown.headers["content-type"]
        assert browser.head("/", headers=ACCEPTS).status_code == 200
        assert browser.post("/", headers=ACCEPTS).status_code == 404
        assert browser.get("/nothing", headers=ACCEPTS).status_code == 404
        assert browser.get("/").status_code == 404  # of a program, as ever


def test_below_a_path_it_leads_there_too() -> None:
    outer = FastAPI()
    outer.mount("/envs/counter", create_app(Counter, web=False))
    with TestClient(outer) as browser:
        assert browser.get("/envs/counter/", headers=ACCEPTS).url.path == "/envs/counter/docs"
        assert browser.get("/", headers=ACCEPTS).status_code == 404


def test_a_page_of_the_application_comes_first() -> None:
    app = create_app(Counter, web=False)
    app.add_api_route("/", lambda: {"mine": True})
    with TestClient(app) as browser:
        assert browser.get("/", headers=ACCEPTS).json() == {"mine": True}
    with TestClient(create_app(Counter, web=True)) as browser:
        assert browser.get("/", headers=ACCEPTS).url.path == "/web/"


def test_without_documentation_there_is_nothing_to_open() -> None:
    app = create_app(Counter, web=False)
    app.docs_url = None
    with TestClient(app) as browser:
        assert browser.get("/", headers=ACCEPTS).status_code == 404
