import assert from "node:assert/strict";
import { test } from "node:test";
import { ConnectError } from "../src/errors.ts";
import { routeUrl } from "../src/transports/websocket.ts";

const PASTED = [
  "localhost:8000",
  "http://localhost:8000/",
  " ws://localhost:8000/ws ",
  "ws://localhost:8000/ws/",
  "http://localhost:8000/web",
  "http://localhost:8000/web/?theme=dark#form",
  "http://localhost:8000/docs#/default/reset",
  "http://localhost:8000/mcp",
];

test("an address that people paste is that of its server", () => {
  for (const url of PASTED) {
    assert.equal(routeUrl(url, "ws"), "ws://localhost:8000/ws", url);
    assert.equal(routeUrl(url, "http", "health"), "http://localhost:8000/health", url);
  }
});

test("a path before the page stays, and so does TLS", () => {
  assert.equal(routeUrl("https://host/envs/chess/web/", "ws"), "wss://host/envs/chess/ws");
  assert.equal(routeUrl("wss://host/webs", "http"), "https://host/webs/ws");
});

test("what is no address is told", () => {
  for (const url of ["", "http://", "ftp://host", "a b"]) {
    assert.throws(() => routeUrl(url, "ws"), ConnectError, url);
  }
});
