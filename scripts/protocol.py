"""Write the machine-readable files of docs/protocol/: JSON Schemas, AsyncAPI and OpenAPI.

`python scripts/protocol.py` writes them from the code. ``--check`` lists those that differ from the
output, and exits with 1 if there are any.

Message names, keys of version 1, the hello and error codes come from the code. This script declares
the contents of ``data``, which the code reads without a model.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from openenv import Action, Environment, Observation, State, create_app
from openenv.errors import ErrorCode
from openenv.protocol.http import SESSION_COOKIE, SESSION_HEADER
from openenv.protocol.messages import Request
from openenv.protocol.v0.messages import REQUESTS
from openenv.protocol.v1.codec import SUBPROTOCOLS
from openenv.protocol.v1.messages import ANSWERS, REQUEST_TYPES, Hello
from openenv.tools.types import JsonRpcRequest

DOCS = Path(__file__).resolve().parent.parent / "docs" / "protocol"

Schema = dict[str, Any]


def exactly(properties: Schema, *required: str) -> Schema:
    """Return the schema of an object with these keys and no others."""
    return {**at_least(properties, *required), "additionalProperties": False}


def at_least(properties: Schema, *required: str) -> Schema:
    """Return the schema of an object with these keys, and others that a later version adds."""
    return {"type": "object", "properties": properties, "required": list(required)}


OBJECT: Schema = {"type": "object"}
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
SECONDS: Schema = {"type": "number", "minimum": 0}
BASE64: Schema = {"type": "string", "contentEncoding": "base64"}
ARRAY = exactly(
    {"dtype": TEXT, "shape": {"type": "array", "items": COUNT}, "data": BASE64},
    *("dtype", "shape", "data"),
)
REWARD: Schema = {"type": ["number", "boolean", "null"]}
JSON_RPC_RESPONSE = {
    "type": "object",
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["string", "integer", "null"]},
        "result": {},
        "error": at_least({"code": {"type": "integer"}, "message": TEXT}, "code", "message"),
    },
    "required": ["jsonrpc", "id"],
    "oneOf": [{"required": ["result"]}, {"required": ["error"]}],
}

# The fields of an error's data besides message and code.
DETAILS: dict[ErrorCode, Schema] = {
    ErrorCode.VALIDATION_ERROR: at_least({"errors": {"type": "array", "items": OBJECT}}),
    ErrorCode.CAPACITY_REACHED: at_least(
        {"active_sessions": COUNT, "max_sessions": COUNT}, "active_sessions", "max_sessions"
    ),
    ErrorCode.FACTORY_ERROR: at_least({"factory_name": TEXT}, "factory_name"),
    ErrorCode.SESSION_ERROR: at_least({"exit_code": {"type": ["integer", "null"]}}),
    ErrorCode.STEP_TIMEOUT: at_least(
        {"timeout_s": SECONDS, "is_running": FLAG}, "timeout_s", "is_running"
    ),
    ErrorCode.SESSION_BUSY: at_least({"running_s": SECONDS}, "running_s"),
    ErrorCode.TOO_LARGE: at_least({"size": COUNT, "limit": COUNT}, "size", "limit"),
    ErrorCode.NOT_SUPPORTED: at_least({"feature": TEXT}, "feature"),
    ErrorCode.RATE_LIMITED: at_least({"retry_after_s": SECONDS}, "retry_after_s"),
    ErrorCode.EXECUTION_ERROR: at_least({"type": TEXT, "incident": TEXT}),
}


def error_data() -> Schema:
    """Return the schema of an error's data; an unknown code is one of a later version."""
    known = [code.value for code in ErrorCode]
    return {
        **at_least({"message": TEXT, "code": {**TEXT, "examples": known}}, "message", "code"),
        "allOf": [
            {"if": at_least({"code": {"const": code.value}}, "code"), "then": details}
            for code, details in DETAILS.items()
        ],
    }


def observation_data(*, extras: bool) -> Schema:
    """Return the schema of an observation's data, with or without what version 0 lacks."""
    kind: Schema = {"type": "string"}  # the observation's model, if another one has the same fields
    properties: Schema = {
        "observation": {},
        "observation_type": kind,
        "reward": REWARD,
        "done": FLAG,
        "metadata": OBJECT,
    }
    if extras:
        properties |= {
            "truncated": FLAG,
            "info": OBJECT,
            "reward_info": OBJECT,
            "ignored_arguments": {"type": "array", "items": TEXT},
        }
    return at_least(properties, "observation", "reward", "done")


# ------------------------------------------------------------------ version 0

V0_ANSWERS: dict[str, Schema] = {
    "observation": observation_data(extras=False),
    "state": OBJECT,
    "mcp": JSON_RPC_RESPONSE,
    "error": error_data(),
}


NON_FINITE: Schema = {
    "type": "object",
    "additionalProperties": {"enum": ["NaN", "Infinity", "-Infinity"]},
    "description": "The numbers for which data has null, by JSON Pointers into it. Sent to clients "
    "that ask for it only.",
}


def v0_messages() -> dict[str, Schema]:
    """Return each message of version 0, by side and type."""
    messages = {f"client-{name}": _as_sent(model) for name, model in REQUESTS.items()}
    messages["client-mcp"]["properties"]["data"] = json_rpc_request()
    for name, data in V0_ANSWERS.items():
        members: Schema = {"type": {"const": name}, "data": data}
        if name in ("observation", "state"):
            members["non_finite"] = NON_FINITE
        answer = at_least(members, "type", "data")
        messages[f"server-{name}"] = answer
    return messages


def _as_sent(model: Any) -> Schema:
    """Return the schema of a frame's model, as the peer must write it."""
    schema: Schema = without_titles(model.model_json_schema())
    schema["required"] = sorted({"type", *schema.get("required", ())})
    schema["properties"]["type"].pop("default", None)
    return schema


def json_rpc_request() -> Schema:
    """Return the schema of a JSON-RPC request, from the code's model."""
    schema: Schema = without_titles(JsonRpcRequest.model_json_schema())
    return schema


def without_titles(schema: Any) -> Any:
    """Return the schema without the titles that Pydantic makes from names."""
    if isinstance(schema, dict):
        kept = {k: v for k, v in schema.items() if k != "title" or not isinstance(v, str)}
        return {key: without_titles(value) for key, value in kept.items()}
    return [without_titles(one) for one in schema] if isinstance(schema, list) else schema


# ------------------------------------------------------------------ version 1

V1_REQUESTS: dict[str, Schema | None] = {
    "open": exactly(
        {
            "queue_timeout_s": SECONDS,
            "max_message_bytes": {"type": "integer", "minimum": 1},
            "record": FLAG,
        }
    ),
    "reset": OBJECT,
    "step": OBJECT,
    "state": None,
    "snapshot": None,
    "restore": exactly({"snapshot": BASE64}, "snapshot"),
    "render": None,
    "view": exactly({"message": {}}),
    "close": None,
    "mcp": json_rpc_request(),
    "ack": None,
    "resume": exactly(
        {"connection": TEXT, "token": TEXT, "received": COUNT}, "connection", "token", "received"
    ),
}
OF_CONNECTION = ("ack", "resume")  # requests that concern no session
WITHOUT_NUMBER = ("open", "close", *OF_CONNECTION)
DATA_NEEDED = ("restore", "mcp", "resume")

V1_ANSWERS: dict[str, Schema] = {
    "opened": at_least({"session_id": TEXT}, "session_id"),
    "queued": at_least(
        {"position": {"type": "integer", "minimum": 1}, "length": COUNT}, "position", "length"
    ),
    "observation": observation_data(extras=True),
    "state": OBJECT,
    "snapshot": at_least({"snapshot": BASE64}, "snapshot"),
    "render": {
        "oneOf": [
            at_least({"text": TEXT}, "text"),
            at_least({"array": ARRAY}, "array"),
            at_least({"media_type": TEXT, "bytes": BASE64}, "media_type", "bytes"),
        ]
    },
    "view": at_least(
        {
            "html": {"type": ["string", "null"]},
            "moves": {
                "type": "array",
                "items": at_least({"label": TEXT, "action": OBJECT}, "label", "action"),
            },
            "action": {"type": ["object", "null"]},
        },
        *("html", "moves", "action"),
    ),
    "mcp": JSON_RPC_RESPONSE,
    "closed": {"type": "null"},
    "error": error_data(),
    "ack": at_least({"received": COUNT}, "received"),
    "resumed": at_least({"received": COUNT}, "received"),
    "gone": at_least({"reason": TEXT}, "reason"),
}
# Answers that concern the connection, and answers that the client did not ask for.
WITHOUT_SESSION = ("hello", "ack", "resumed", "gone")
UNASKED = (*WITHOUT_SESSION, "queued")


def struct_schema(struct: type[msgspec.Struct]) -> Schema:
    """Return the schema of a struct, without its docstring."""
    schema: Schema = msgspec.json.schema(struct)["$defs"][struct.__name__]
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


def v1_messages() -> dict[str, Schema]:
    """Return each message of version 1, by side and type."""
    hello = {**struct_schema(Hello), "required": ["version", "connection", "resume_token"]}
    hello["properties"]["version"] = {"const": 1}
    answers = {"hello": hello, **V1_ANSWERS}
    messages = {f"client-{name}": request(name) for name in REQUEST_TYPES}
    return messages | {f"server-{name}": answer(name, answers[name]) for name in ANSWERS}


def request(name: str) -> Schema:
    """Return the schema of a request of version 1, with the keys that apply to it."""
    properties: Schema = struct_schema(Request)["properties"]
    data = V1_REQUESTS[name]
    properties |= {"type": {"const": name}, "session": COUNT, "ack": COUNT, "id": COUNT}
    properties["data"] = {**(exactly({}) if data is None else data)}
    required = ["type", "data"] if name in DATA_NEEDED else ["type"]
    if name not in WITHOUT_NUMBER:
        properties["id"] = {"type": "integer", "minimum": 1}
        required.append("id")
    if name != "step":
        del properties["arguments"]
    if name in OF_CONNECTION:
        del properties["session"], properties["id"], properties["trace"]
    if name == "ack":
        required.append("ack")
    return exactly(properties, *required)


def answer(name: str, data: Schema) -> Schema:
    """Return the schema of an answer of version 1."""
    number: Schema = {"type": ["integer", "null"], "minimum": 0}
    session = {"type": "null"} if name in WITHOUT_SESSION else COUNT
    properties = {
        "type": {"const": name},
        "session": number if name == "error" else session,
        "id": {"type": "null"} if name in UNASKED else number if name == "error" else COUNT,
        "data": data,
    }
    return at_least(properties, *properties)


# ------------------------------------------------------------------ documents


def one_of(messages: dict[str, Schema], whose: str) -> Schema:
    """Return the schema of any message of the client or of the server."""
    names = [name for name in messages if name.startswith(whose)]
    return {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in names]}


def schema_of(version: int, messages: dict[str, Schema]) -> Schema:
    """Return the JSON Schema of a version's frames; `client` and `server` are the two sides."""
    frames: dict[str, Schema] = {}
    for whose in ("client", "server"):
        message = one_of(messages, f"{whose}-")
        many = {"type": "array", "minItems": 1, "items": message}
        frames[whose] = {"anyOf": [message, many]} if version else message
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"OpenEnv, version {version} of the protocol: a frame of /ws in JSON",
        "anyOf": [{"$ref": "#/$defs/client"}, {"$ref": "#/$defs/server"}],
        "$defs": {**frames, **messages},
    }


ANSWER_TO = {
    "open": ["opened", "queued"],
    "reset": ["observation"],
    "step": ["observation"],
    "restore": ["state"],
    "close": ["closed"],
    "resume": ["resumed"],
    "ack": [],
}


def asyncapi() -> Schema:
    """Describe `/ws` in AsyncAPI: one channel for each version, from the server's side."""
    channels: Schema = {}
    operations: Schema = {}
    schemas: Schema = {}
    messages: Schema = {}
    for version, found in enumerate((v0_messages(), v1_messages())):
        channel = f"v{version}"
        for name, schema in found.items():
            schemas[f"{channel}-{name}"] = schema
            messages[f"{channel}-{name}"] = {
                "name": name.partition("-")[2],
                "title": f"{name.replace('-', ': ')} (version {version})",
                "contentType": "application/json",
                "payload": {"$ref": f"#/components/schemas/{channel}-{name}"},
            }
        channels[channel] = _channel(version, list(found))
        operations |= _operations(channel, list(found))
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "OpenEnv",
            "version": "1.0.0",
            "description": "Environments for agents, over a WebSocket. In version 1 a frame may "
            "also be an array of messages. The rules are in version-0.md and version-1.md.",
            "license": {"name": "BSD-3-Clause"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "local": {"host": "localhost:8000", "protocol": "ws"},
        },
        "channels": channels,
        "operations": operations,
        "components": {"schemas": schemas, "messages": messages},
    }


def _channel(version: int, names: list[str]) -> Schema:
    channel = f"v{version}"
    offered = {"type": "string", "enum": list(SUBPROTOCOLS)}
    headers = exactly({"Sec-WebSocket-Protocol": offered}, "Sec-WebSocket-Protocol")
    query = exactly({"session_id": {"type": "string", "description": "A session to join."}})
    return {
        "address": "/ws",
        "title": f"Version {version}",
        "messages": {name: {"$ref": f"#/components/messages/{channel}-{name}"} for name in names},
        "bindings": {
            "ws": {"method": "GET", **({"headers": headers} if version else {"query": query})}
        },
    }


def _operations(channel: str, names: list[str]) -> Schema:
    def messages_of(whose: str, kinds: list[str]) -> list[Schema]:
        known = [f"{whose}-{kind}" for kind in kinds]
        refs = [name for name in known if name in names]
        return [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in refs]

    own = {"$ref": f"#/channels/{channel}"}
    operations: Schema = {}
    for name in names:
        whose, _, kind = name.partition("-")
        if whose == "client":
            operation: Schema = {"action": "receive", "channel": own}
            operation["messages"] = messages_of("client", [kind])
            answers = ANSWER_TO.get(kind, [kind])
            if answers and (replies := messages_of("server", [*answers, "error"])):
                operation["reply"] = {"channel": own, "messages": replies}
            operations[f"{channel}-{kind}"] = operation
    if unasked := messages_of("server", ["hello", "ack", "gone"]):
        operations[f"{channel}-tell"] = {"action": "send", "channel": own, "messages": unasked}
    return operations


class _Any(Environment[Action, Observation, State]):
    """Any environment, with the models that all environments have."""

    state = State()

    def reset(self) -> Observation:  # type: ignore[override]
        return Observation()

    def step(self, action: Action) -> Observation:  # type: ignore[override]
        return Observation()


NAMES_SESSION = ("/reset", "/step", "/state", "/render", "/session")


def openapi() -> Schema:
    """Return the HTTP routes of any environment, with middleware: sessions, keys, errors."""
    app = create_app(_Any, Action, Observation, state_cls=State, env_name="environment")
    document: Schema = app.openapi()
    document["info"] |= {
        "title": "OpenEnv",
        "description": "The routes of a server, for any environment. What they mean is in http.md.",
    }
    components = document["components"]
    components["schemas"]["Error"] = at_least({"detail": {}, "code": TEXT}, "detail")
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    document["security"] = [{}, {"bearer": []}, {"key": []}]  # {} stands for a server without keys
    for path, methods in document["paths"].items():
        for operation in methods.values():
            if path in NAMES_SESSION:
                operation.setdefault("parameters", []).extend(_session_parameters())
            operation["responses"].setdefault("default", _error_response())
    return document


def _session_parameters() -> list[Schema]:
    return [
        {"name": SESSION_HEADER, "in": "header", "required": False, "schema": TEXT},
        {"name": SESSION_COOKIE, "in": "cookie", "required": False, "schema": TEXT},
    ]


def _error_response() -> Schema:
    schema = {"$ref": "#/components/schemas/Error"}
    return {
        "description": "An error; see errors.md.",
        "content": {"application/json": {"schema": schema}},
    }


def documents() -> dict[Path, str]:
    """Return every file that this script writes, with its content."""
    made = {
        "v0.schema.json": schema_of(0, v0_messages()),
        "v1.schema.json": schema_of(1, v1_messages()),
        "asyncapi.json": asyncapi(),
        "openapi.json": openapi(),
    }
    return {DOCS / name: f"{json.dumps(document, indent=1)}\n" for name, document in made.items()}


def main() -> int:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if one differs")
    check = parser.parse_args().check
    stale = {
        path: text
        for path, text in documents().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        print(
            f"docs/protocol/{path.name}: {'stale; run scripts/protocol.py' if check else 'written'}"
        )
        if not check:
            path.write_text(text, encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
