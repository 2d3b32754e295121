"""Conversion between elements of spaces and values of model fields."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic

from openenv._internal.lazy import lazy_module
from openenv._internal.packages import needs
from openenv.errors import InvalidReturnError, NotSupported, Refused
from openenv.spaces import annotation_of, from_plain, to_plain
from openenv.wrappers.classes import ActT, AdapterError, ObsT, WrapperEnvironment

with needs("a space"):
    from gymnasium import spaces
    from gymnasium.error import DependencyNotInstalled

from pydantic import Field, TypeAdapter

if TYPE_CHECKING:
    import numpy as np
    from gymnasium import Space
else:
    np = lazy_module("numpy")

RENDERED = ("rgb_array", "ansi")


class Elements:
    """A space with conversions of elements to and from values on the wire.

    Args:
        space: The space.
        what: Name of the field, for messages: ``observation``.
        names: Names of the elements of a `Discrete` space.
        title: Title of the objects in the JSON schema.

    Attributes:
        annotation: The type of a field that holds an element.
        reader: Validates JSON values for such a field.
        read: Converts a field's value to an element. Raises `Refused` with the expected form.
        write: Converts an element to a field's value that shares no memory with the element. Raises
            `InvalidReturnError` if the value is not in the space.

    Raises:
        AdapterError: Elements of the space cannot be sent.
    """

    def __init__(
        self,
        space: Space[Any],
        what: str,
        *,
        names: Sequence[str] | None = None,
        title: str = "Element",
    ) -> None:
        self.space = space
        self.what = what
        self._names = names
        try:
            self.annotation = annotation_of(space, names=names, title=title)
        except (TypeError, ValueError) as error:
            raise AdapterError(f"the {what} cannot be sent: {error}") from error
        self.reader: TypeAdapter[Any] = TypeAdapter(self.annotation)
        self.read: Callable[[Any], Any] = self._read
        self.write: Callable[[Any], Any] = self._write
        kind = type(space)
        if kind is spaces.Discrete:
            self.write = self._write_integer
            self.read = self._read_integer
            self._first = int(space.start)  # type: ignore[attr-defined]
            self._last = self._first + int(space.n) - 1  # type: ignore[attr-defined]
        elif kind is spaces.Box:
            self.write = self._write_array

    @property
    def field(self) -> tuple[Any, Any]:
        """The field of a model that holds an element, as `pydantic.create_model` takes it."""
        text = f"An element of {self.space}"
        if self._names is not None:
            numbered = enumerate(self._names, self._first)
            text += f": {', '.join(f'{number} {name}' for number, name in numbered)}"
        return self.annotation, Field(description=f"{text}.")

    def _read(self, value: Any) -> Any:
        try:
            return from_plain(self.space, value, path=self.what)
        except ValueError as error:
            raise Refused(str(error)) from None

    def _write(self, element: Any) -> Any:
        try:
            return _copy_arrays(to_plain(self.space, element, path=self.what))
        except ValueError as error:
            raise InvalidReturnError(f"the environment broke its own space: {error}") from None

    # Fast paths, called with every step of most environments.

    def _read_integer(self, value: Any) -> Any:
        if type(value) is int and self._first <= value <= self._last:
            return value  # a Python int is an element too
        return self._read(value)

    def _write_integer(self, element: Any) -> Any:
        return element if type(element) is int else self._write(element)

    def _write_array(self, element: Any) -> Any:
        space = self.space
        if (
            type(element) is np.ndarray
            and element.dtype == space.dtype
            and element.shape == space.shape
        ):
            return element.copy()
        return self._write(element)


def _copy_arrays(plain: Any) -> Any:
    """Copy the arrays within a value, since environments reuse theirs."""
    if isinstance(plain, np.ndarray):
        return plain.copy()
    if isinstance(plain, dict):
        return {name: _copy_arrays(value) for name, value in plain.items()}
    if isinstance(plain, list | tuple):
        return type(plain)(_copy_arrays(value) for value in plain)
    return plain


class SpacesEnvironment(WrapperEnvironment[ActT, ObsT], Generic[ActT, ObsT]):
    """The base class of wrappers of Gymnasium and PettingZoo."""

    RESET_REST = "options"

    def reset(  # type: ignore[override]  # no **kwargs: a misspelled argument is an error
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> ObsT:
        """Begin an episode.

        Args:
            seed: Seed, 0 or greater.
            episode_id: Value of `state.episode_id`; by default a new id.
            options: Options of the environment's own `reset`. They may also be passed as keyword
                arguments: ``reset(low=0.1)``.

        Raises:
            Refused: The seed is negative.
        """
        if seed is not None and seed < 0:
            raise Refused(f"seed is {seed}; expected 0 or greater")
        begun = self._env.reset(seed=seed, options=options)
        self._begin(episode_id)
        return self._observe_reset(begun)

    @abstractmethod
    def _observe_reset(self, begun: Any) -> ObsT: ...

    def render(self) -> Any:
        """Render the episode: an array of shape (height, width, 3), or text.

        Raises:
            NotSupported: There is no render mode, or it returns nothing, as ``human`` does.
            Refused: No episode has begun.
        """
        return render_frame(self._env, self._episode_id is not None)


def render_frame(env: Any, has_begun: bool) -> Any:
    """Render an environment of Gymnasium or PettingZoo.

    Raises:
        NotSupported: The render mode returns nothing that can be sent, or a package is missing.
        Refused: No episode has begun.
    """
    mode = getattr(env, "render_mode", None)
    if mode not in RENDERED:
        known = [one for one in env.metadata.get("render_modes") or () if one in RENDERED]
        cure = f"make it with render_mode={known[0]}" if known else "no render mode of it does"
        raise NotSupported(
            f"render_mode {mode} returns nothing that can be sent; {cure}", feature="render"
        )
    if not has_begun:
        raise Refused("render() was called before reset(): there is nothing to show")
    try:
        drawn = env.render()
    except DependencyNotInstalled as error:
        raise NotSupported(str(error), feature="render") from error
    return drawn.copy() if isinstance(drawn, np.ndarray) else drawn


_LEFT_OUT = object()


def to_json_part(value: Any) -> Any:
    """Convert a value to JSON values: arrays become lists; objects and functions are left out."""
    found = _to_json_part(value)
    return None if found is _LEFT_OUT else found


def _to_json_part(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, dict):
        items = ((str(key), _to_json_part(item)) for key, item in value.items())
        return {key: item for key, item in items if item is not _LEFT_OUT}
    if isinstance(value, list | tuple | set | frozenset):
        return [item for item in map(_to_json_part, value) if item is not _LEFT_OUT]
    if isinstance(value, np.ndarray):
        return _to_json_part(value.tolist())
    if isinstance(value, np.generic):
        item = value.item()
        return _LEFT_OUT if isinstance(item, np.generic) else _to_json_part(item)
    for plain in (bool, int, float, str):  # their subclasses, such as enumerations
        if isinstance(value, plain):
            return plain(value)
    return _LEFT_OUT
