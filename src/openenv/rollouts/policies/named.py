"""Policies by name, as on the command line."""

from __future__ import annotations

from typing import Any

from openenv._internal.imports import NameNotFound, import_attribute
from openenv._internal.quoting import closest
from openenv.rollouts.policies.base import Policy, PolicyError
from openenv.settings import MODEL_KEY_VARIABLES, model_key

FORMS = {
    "random": "random",
    "human": "human",
    "openai": "openai:MODEL",
    "anthropic": "anthropic:MODEL",
    "transformers": "transformers:FOLDER",
    "scripted": "scripted:FILE",
}
MAX_REPLY_TOKENS = 4096


def policy_named(
    name: str, *, base_url: str | None = None, api_key: str | None = None, **options: Any
) -> Any:
    """Create a policy from a name.

    Args:
        name: ``random``; ``human``; ``openai:MODEL`` or ``anthropic:MODEL``, for a server with one
            of these APIs; ``transformers:FOLDER``; ``scripted:FILE``; or ``module:name``, which is
            imported, and may be anything that `openenv.rollouts.policies.base` describes.
        base_url: The address of the model's server. Default: that of the API's maker.
        api_key: The server's key. Default: OPENAI_API_KEY or ANTHROPIC_API_KEY.
        **options: Options of `LLMPolicy` or `TransformersPolicy`, such as ``system_prompt``,
            ``act_by``, ``temperature`` (default: 0 for an API, 1 for ``transformers:``) and
            ``max_tokens`` of one reply (default: 4096 for an API, 256 for ``transformers:``).

    Raises:
        PolicyError: There is no policy with this name, or it does not take these options.
        MissingPackage: A package that the policy needs is not installed.
    """
    kind, _, rest = name.partition(":")
    if kind in MODEL_KEY_VARIABLES and rest:
        return _of_model(kind, rest, name, base_url, api_key, options)
    if base_url is not None or api_key is not None:
        raise PolicyError(f"{name!r} asks no server, so a base_url or a key means nothing to it")
    if kind == "transformers" and rest:
        from openenv.rollouts.policies.local import TransformersPolicy

        return TransformersPolicy(rest, name=name, **options)
    if options:
        raise PolicyError(f"{name!r} takes no {', '.join(sorted(options))}")
    if name == "random":
        from openenv.rollouts.policies.chances import RandomPolicy

        return RandomPolicy()
    if name == "human":
        from openenv.rollouts.policies.people import HumanPolicy

        return HumanPolicy()
    if kind == "scripted" and rest:
        from openenv.rollouts.policies.scripts import ScriptedPolicy

        return ScriptedPolicy.of_file(rest)
    if kind in FORMS:
        raise PolicyError(f"{name!r} is not whole; expected {FORMS[kind]}")
    if rest:
        return _imported(name)
    close = closest(name, FORMS)
    hint = f"; did you mean {FORMS[close]!r}?" if close else ""
    known = ", ".join([*FORMS.values(), "module:name"])
    raise PolicyError(f"there is no policy {name!r}, but {known}{hint}")


def _of_model(
    kind: str,
    model: str,
    name: str,
    base_url: str | None,
    api_key: str | None,
    options: dict[str, Any],
) -> Policy:
    from openenv.rewards.llm.anthropic import AnthropicClient
    from openenv.rewards.llm.hosted import create_llm_client
    from openenv.rewards.llm.openai import OpenAIClient
    from openenv.rollouts.policies.models import LLMPolicy

    key = api_key or model_key(kind)
    options = {"max_tokens": MAX_REPLY_TOKENS, **options}
    if base_url is not None:
        made = OpenAIClient if kind == "openai" else AnthropicClient
        return LLMPolicy(made(base_url, None, model, key), name=name, **options)
    if not key:
        why = f"set {MODEL_KEY_VARIABLES[kind]}, or say where another server is"
        raise PolicyError(f"{name!r} needs a key: {why}")
    return LLMPolicy(create_llm_client(kind, model, key), name=name, **options)


def _imported(name: str) -> Any:
    place, _, attribute = name.partition(":")
    try:
        return import_attribute(name)
    except NameNotFound as error:
        close = closest(place, (kind for kind in FORMS if ":" in FORMS[kind]))
        hint = f"; did you mean {close}:{attribute}?" if close else error.hint
        raise PolicyError(f"{error} for the policy {name!r}{hint}") from error
