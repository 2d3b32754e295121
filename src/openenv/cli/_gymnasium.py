"""Inspection of a Gymnasium environment, to generate a package that serves it."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

import gymnasium
import numpy as np
from gymnasium import error as errors
from gymnasium import spaces

from openenv.cli._console import CommandError, MisuseError, did_you_mean
from openenv.cli._sources import (
    BracketedCode,
    Code,
    SourceField,
    format_code,
    format_step_call,
    quote_text,
    to_code,
    to_one_line,
)
from openenv.cli._template import OPENENV, EnvironmentNames, TemplateInputs, probe_plan
from openenv.spaces import to_plain
from openenv.types import Action, Observation

RANDOM_EPISODES = 10
LONGEST_EPISODE = 2000
PROBED = 8  # actions in the episode that `openenv validate` plays
MOST_BOUNDS = 64  # numbers, in an array with a bound per element
RENDERED = ("ansi", "rgb_array")
SPREAD_ACTION = "{name: getattr(action, name) for name in self._env.action_space.spaces}"
EXTRAS = {"box2d": "box2d", "mujoco": "mujoco", "toy_text": "toy-text", "classic_control": ""}
PIP_COMMAND = r"pip install [^`']*(?:'[^']*'|\"[^\"]*\"|[\w\[\]-]+)"
NUMBERED = re.compile(r"^\s*(?:[-*]|\|)\s*`?(\d+)`?\s*(?::|\|)\s*([^|\n]*?)\s*(?:\|.*)?$", re.M)


@dataclass
class _ModelSource:
    """The source of an action or observation model under construction."""

    name: str  # "action" or "observation"
    prefix: str  # of class names
    # The keys of a `Dict` if `is_spread`, otherwise a single field `name`.
    fields: list[SourceField] = field(default_factory=list)
    is_spread: bool = False
    classes: list[str] = field(default_factory=list)  # source of the classes that the fields need
    has_arrays: bool = False
    has_annotated: bool = False


# ------------------------------------------------------------------ creating the environment


def inspect_environment(env_id: str, names: EnvironmentNames) -> TemplateInputs:
    """Create an environment by id, and generate the package's parts."""
    with _make_env(env_id, lambda: gymnasium.make(env_id)) as env:
        offered = env.metadata.get("render_modes") or ()
        mode = next((mode for mode in RENDERED if mode in offered), None)
        made = f"gymnasium.make({quote_text(env_id)}, render_mode=RENDER_MODE)"
        return _inspect(env, env_id.rpartition(":")[2], made, mode, _dependencies(env), names)


def inspect_class(cls: Any, module: str, requires: str, names: EnvironmentNames) -> TemplateInputs:
    """Inspect a subclass of `gymnasium.Env` that needs no constructor arguments."""
    with _make_env(cls.__name__, cls) as env:
        made = f"importlib.import_module({quote_text(module)}).{cls.__qualname__}()"
        dependencies = [*_dependencies(env), requires] if requires else _dependencies(env)
        return _inspect(env, cls.__name__, made, None, dependencies, names)


@contextlib.contextmanager
def _make_env(name: str, make: Callable[[], Any]) -> Iterator[Any]:
    try:
        env = make()
    except errors.DependencyNotInstalled as error:
        command = re.search(PIP_COMMAND, str(error))
        hint = command[0] if command else "install it, and try again"
        why = f"{name} needs something that is not installed: {error}"
        raise CommandError(why, hint=hint) from error
    except errors.UnregisteredEnv as error:
        raise MisuseError(f"Gymnasium has no {name}: {error}", hint=_closest(name)) from error
    except (ImportError, errors.Error, TypeError, ValueError) as error:
        raise CommandError(f"{name} cannot be made: {error}") from error
    try:
        yield env
    finally:
        env.close()


def _closest(env_id: str) -> str:
    known = sorted(gymnasium.registry)
    return did_you_mean(env_id.rpartition(":")[2], known) or (
        "name the module that registers it as well: --from-gymnasium MODULE:ID; "
        f"here there are {', '.join(known[:5])} and {len(known) - 5} more"
    )


def _inspect(
    env: Any,
    title: str,
    made: str,
    mode: str | None,
    dependencies: list[str],
    names: EnvironmentNames,
) -> TemplateInputs:
    doc = inspect.cleandoc(type(env.unwrapped).__doc__ or "")
    does = _ModelSource("action", names.class_prefix)
    sees = _ModelSource("observation", names.class_prefix)
    _fill(does, env.action_space, doc, Action)
    _fill(sees, env.observation_space, doc, Observation)
    steps = env.spec.max_episode_steps if env.spec else None
    played, low, high = _play_randomly(env, does, env.action_space)
    fills = {
        "SUMMARY": f"{_plain(title)} of Gymnasium",
        "GYM_TITLE": _plain(title),
        "STEP": _step(env.action_space, does),
        "DEPENDENCIES": ", ".join(json.dumps(one) for one in dependencies),
        "REWARD": _reward(low, high),
        "MADE": made,
        "IMPORTS": "import importlib\nimport uuid" if "importlib." in made else "import uuid",
        "RENDER_MODE": repr(mode) if mode is None else quote_text(mode),
        "ACTION_VALUE": SPREAD_ACTION if does.is_spread else "action.action",
        "OBSERVATION_ARGUMENTS": "**plain" if sees.is_spread else "observation=plain",
        "TABLE": _table(does) + "\n" + _table(sees),
        "ABOUT": _about(doc),
        "LIMITS": f"truncated after {steps} steps" if steps else "as the environment says",
        "MODEL_IMPORTS": _model_imports(does, sees),
        "MODEL_CLASSES": "".join(f"{one}\n\n" for one in (*does.classes, *sees.classes)),
        "ACTION_FIELDS": "".join(one.source() for one in does.fields),
        "OBSERVATION_FIELDS": "".join(one.source() for one in sees.fields).rstrip("\n"),
    }
    return TemplateInputs(("common", "gymnasium"), fills, probe_plan(played))


def _dependencies(env: Any) -> list[str]:
    module = type(env.unwrapped).__module__
    gym = f"gymnasium>={metadata.version('gymnasium')}"
    if module.startswith("gymnasium.envs."):
        extra = EXTRAS.get(module.split(".")[2], "")
        return [OPENENV, gym.replace(">=", f"[{extra}]>=") if extra else gym, "numpy>=1.26"]
    found = metadata.packages_distributions().get(module.partition(".")[0], ())
    others = [f"{name}>={metadata.version(name)}" for name in found if name != "gymnasium"]
    return [OPENENV, gym, *dict.fromkeys(others), "numpy>=1.26"]


def _play_randomly(env: Any, does: _ModelSource, space: Any) -> tuple[list[Any], float, float]:
    """Return sample actions as JSON, and the range of rewards of random play.

    The range covers steps and episodes, and the threshold at which Gymnasium considers the
    environment solved.
    """
    actions: list[Any] = []
    worths: list[float] = []
    space.seed(42)
    for episode in range(RANDOM_EPISODES):
        env.reset(seed=42 + episode)
        worth = 0.0
        for _ in range(LONGEST_EPISODE):
            action = space.sample()
            if episode == 0 and len(actions) < PROBED:
                actions.append(_as_json(space, action, does))
            _, reward, terminated, truncated, _ = env.step(action)
            worth += float(reward)
            worths.append(float(reward))
            if terminated or truncated:
                break
        worths.append(worth)
    if env.spec and env.spec.reward_threshold is not None:
        worths.append(float(env.spec.reward_threshold))
    return actions, min(worths), max(worths)


def _as_json(space: Any, element: Any, model: _ModelSource) -> Any:
    """Return an element of a space as a model's fields, in plain JSON."""
    text = json.dumps(to_plain(space, element), default=lambda array: array.tolist())
    plain = json.loads(text)
    return plain if model.is_spread else {model.name: plain}


def _reward(low: float, high: float) -> str:
    first, last = math.floor(low), math.ceil(high)
    if first == last:
        last += 1
    margin = round((last - first) / 2, 6)
    return (
        f"{{range: [{float(first)}, {float(last)}], oracle_tolerance: 0.0, floor_margin: {margin}}}"
    )


def _about(doc: str) -> str:
    paragraphs = (one.strip() for one in doc.split("\n\n"))
    found = next((one for one in paragraphs if one and not one.startswith("#")), "")
    return " ".join(found.split()) or "An environment of Gymnasium."


def _plain(words: str) -> str:
    return re.sub(r"[^\w ./()+-]", " ", words).strip()


# ------------------------------------------------------------------ spaces as fields


def _fill(model: _ModelSource, space: Any, doc: str, base: Any) -> None:
    """Generate the fields of a model that derives from `base`."""
    model.is_spread = isinstance(space, spaces.Dict) and _can_be_fields(space, base)
    if model.is_spread:
        for key, inner in space.spaces.items():
            model.fields.append(_field(key, inner, f"{model.name}.{key}", [], model))
    else:
        told = _find_element_names(doc, model.name)
        model.fields.append(_field(model.name, space, model.name, told, model))


def _can_be_fields(space: spaces.Dict, base: Any) -> bool:
    taken = {*dir(base), *base.model_fields}
    return all(
        isinstance(key, str) and key.isidentifier() and key not in taken and key[0] != "_"
        for key in space.spaces
    )


def _field(name: str, space: Any, path: str, told: list[str], model: _ModelSource) -> SourceField:
    annotation, arguments = _annotate(space, path, model)
    is_counted = len(told) > 1 and told and len(told) == _count(space)
    if is_counted and isinstance(space, spaces.Discrete):
        arguments = {**arguments, "json_schema_extra": {"names": told}}
    described = _description(space, told if is_counted else [])
    source = {key: to_code(value) for key, value in arguments.items()}
    return SourceField(name, annotation, source, _space_words(space), described)


def _count(space: Any) -> int:
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    shape: tuple[int, ...] = space.shape or ()
    return int(shape[0]) if len(shape) == 1 else 0


def _description(space: Any, told: list[str]) -> str:
    if not told:
        return f"An element of {_space_words(space)}."
    start = int(space.start) if isinstance(space, spaces.Discrete) else 0
    return "; ".join(f"{number} {words}" for number, words in enumerate(told, start)) + "."


def _space_words(space: Any) -> str:
    if isinstance(space, spaces.Box):
        return f"Box of shape {space.shape}, {space.dtype}"
    words = re.sub(r"\s+", " ", str(space))
    return words if len(words) <= 60 else f"{words[:50]}...)"


def _annotate(space: Any, path: str, model: _ModelSource) -> tuple[Code, dict[str, Any]]:
    """Return a field's annotation for an element of a space, and the arguments of `Field`."""
    for kind, typed in KINDS.items():
        if isinstance(space, kind):
            return typed(space, path, model)
    known = ", ".join(kind.__name__ for kind in KINDS)
    raise CommandError(
        f"{path} is a {type(space).__name__}, which init writes no model of; it does of {known}",
        hint="`openenv serve gymnasium:ID` serves every space of Gymnasium, without a package",
    )


def _discrete(space: Any, path: str, model: _ModelSource) -> tuple[Code, dict[str, Any]]:
    first = int(space.start)
    told: dict[str, Any] = {"ge": first, "le": first + int(space.n) - 1}
    if space.dtype != np.int64:
        told["json_schema_extra"] = {"dtype": space.dtype.name}
    return "int", told


def _box(space: Any, path: str, model: _ModelSource) -> tuple[Code, dict[str, Any]]:
    low = _bounds(space.low, space.bounded_below, min)
    high = _bounds(space.high, space.bounded_above, max)
    bounds = {"low": low, "high": high}
    return _array(space, model), {"json_schema_extra": bounds}


def _bounds(limits: Any, is_bounded: Any, widest: Callable[[Any], Any]) -> Any:
    listed = limits.astype(object)
    listed[~np.asarray(is_bounded)] = None
    every = {*listed.flat}
    if len(every) == 1:
        return every.pop()
    if listed.size <= MOST_BOUNDS:
        return listed.tolist()
    return None if None in every else widest(every)


def _multi_discrete(space: Any, path: str, model: _ModelSource) -> tuple[Code, dict[str, Any]]:
    start = space.start.astype(object)
    high = (start + space.nvec.astype(object) - 1).tolist()
    told = {"low": start.tolist(), "high": high, "space": "MultiDiscrete"}
    return _array(space, model), {"json_schema_extra": told}


def _multi_binary(space: Any, path: str, model: _ModelSource) -> tuple[Code, dict[str, Any]]:
    n = list(space.n) if isinstance(space.n, tuple | list) else int(space.n)
    told = {"low": 0, "high": 1, "space": "MultiBinary", "n": n}
    return _array(space, model), {"json_schema_extra": told}


def _array(space: Any, model: _ModelSource) -> Code:
    model.has_arrays = model.has_annotated = True
    scalar = {"bool": "bool_"}.get(space.dtype.name, space.dtype.name)
    shape = to_one_line(to_code(tuple(int(one) for one in space.shape)))
    array = f"Array({quote_text(space.dtype.name)}, {shape})"
    return _subscript("Annotated", f"NDArray[np.{scalar}]", array)


def _text(space: Any, path: str, model: _ModelSource) -> tuple[Code, dict[str, Any]]:
    charset = "".join(sorted(space.character_list))
    told = {"min_length": int(space.min_length), "max_length": int(space.max_length)}
    return "str", {**told, "json_schema_extra": {"charset": charset}}


def _dict(space: Any, path: str, model: _ModelSource) -> tuple[Code, dict[str, Any]]:
    fields = []
    for key, inner in space.spaces.items():
        if not (isinstance(key, str) and key.isidentifier()):
            raise CommandError(
                f"{path} has the key {key!r}, which is not a valid field name",
                hint="`openenv serve gymnasium:ID` serves it, without a package",
            )
        annotation = _inner(inner, f"{path}.{key}", model)
        fields.append(f"    {key}: {format_code(annotation, '    ', len(key) + 2)}\n")
    stem = "".join(word.title() for word in re.findall("[A-Za-z0-9]+", path))
    name = f"{model.prefix}{stem}Dict"
    model.classes.append(
        f'class {name}(TypedDict):\n    """{path} of the environment."""\n\n{"".join(fields)}'
    )
    return name, {}


def _tuple(space: Any, path: str, model: _ModelSource) -> tuple[Code, dict[str, Any]]:
    inner = [_inner(one, f"{path}[{i}]", model) for i, one in enumerate(space.spaces)]
    return _subscript("tuple", *inner), {}


def _sequence(space: Any, path: str, model: _ModelSource) -> tuple[Code, dict[str, Any]]:
    if space.stack:
        raise CommandError(
            f"{path} is a Sequence that is stacked, which init writes no model of",
            hint="`openenv serve gymnasium:ID` serves it, without a package",
        )
    return _subscript("list", _inner(space.feature_space, f"{path}[]", model)), {}


def _inner(space: Any, path: str, model: _ModelSource) -> Code:
    """Return the annotation of a nested element."""
    annotation, arguments = _annotate(space, path, model)
    if not arguments:
        return annotation
    model.has_annotated = True
    told = [(f"{name}=", to_code(one)) for name, one in arguments.items()]
    parts = [annotation]
    if isinstance(annotation, BracketedCode) and annotation.opening == "Annotated[":
        parts = [one for _, one in annotation.items]
    return _subscript("Annotated", *parts, BracketedCode("Field(", told, ")"))


def _subscript(name: str, *parts: Code) -> BracketedCode:
    return BracketedCode(f"{name}[", [("", part) for part in parts], "]")


KINDS: Mapping[Any, Callable[[Any, str, _ModelSource], tuple[Code, dict[str, Any]]]] = {
    spaces.Discrete: _discrete,
    spaces.Box: _box,
    spaces.MultiDiscrete: _multi_discrete,
    spaces.MultiBinary: _multi_binary,
    spaces.Text: _text,
    spaces.Dict: _dict,
    spaces.Tuple: _tuple,
    spaces.Sequence: _sequence,
}


def _find_element_names(doc: str, side: str) -> list[str]:
    """Return the elements' names from a numbered list in the docstring's section."""
    section = re.search(rf"#+ {side} Space\n(.*?)(?:\n#|\Z)", doc, re.S | re.I)
    found = NUMBERED.findall(section[1]) if section else []
    numbers = [int(number) for number, _ in found]
    words = [" ".join(re.sub(r"[`*$\\]", "", one).split()) for _, one in found]
    is_listed = numbers == list(range(len(numbers))) and all(words)
    return words if is_listed and sum(map(len, words)) < 400 else []


# ------------------------------------------------------------------ the source


def _model_imports(does: _ModelSource, sees: _ModelSource) -> str:
    has_arrays = does.has_arrays or sees.has_arrays
    lines = ["from typing import Annotated\n"] if does.has_annotated or sees.has_annotated else []
    if has_arrays:
        lines += ["import numpy as np", "from numpy.typing import NDArray"]
        lines += ["from openenv.arrays import Array"]
    lines += ["from openenv.types import Action, Observation", "from pydantic import Field"]
    if does.classes or sees.classes:
        lines += ["from typing_extensions import TypedDict"]
    return "\n".join(lines)


def _step(space: Any, does: _ModelSource) -> str:
    space.seed(0)
    return format_step_call(f"{does.prefix}Action", _as_json(space, space.sample(), does))


def _table(model: _ModelSource) -> str:
    rows = []
    for one in model.fields:
        cells = (model.name, f"`{one.name}`", one.describes, _bounds_words(one), one.description)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _bounds_words(one: SourceField) -> str:
    if {"ge", "le"} <= set(one.arguments):
        return f"{one.arguments['ge']} to {one.arguments['le']}"
    extra = one.arguments.get("json_schema_extra", "")
    known = dict(extra.items) if isinstance(extra, BracketedCode) else {}
    if '"low": ' not in known:
        return ""
    low, high = to_one_line(known['"low": ']), to_one_line(known['"high": '])
    return f"{low} to {high}".replace("None", "∞")
