"""Spaces for model fields that Gymnasium lacks: named values, any text, and plain unions.

They are separate from `openenv.spaces`, which can be imported without Gymnasium, because their base
classes need Gymnasium.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

SAMPLED_CHARACTERS = 64
PRINTABLE = "".join(map(chr, range(32, 127)))


class Choice(spaces.Discrete[Any]):
    """A choice among values; the element ``start + i`` stands for value ``i``.

    Args:
        values: The values of the model's field: texts, numbers, booleans or None.
        names: A name for each value. Default: the values as text.
        start: The first element.
        dtype: The dtype of the elements.
        seed: Seed for `sample`.

    Raises:
        ValueError: There are more or fewer names than values.
    """

    def __init__(
        self,
        values: Sequence[Any],
        names: Sequence[str] | None = None,
        *,
        start: int = 0,
        dtype: Any = np.int64,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        self.values = tuple(values)
        self.names = tuple(map(str, self.values if names is None else names))
        if len(self.names) != len(self.values):
            raise ValueError(f"{len(self.names)} names for {len(self.values)} values")
        self._places = {_key(value): i for i, value in enumerate(self.values)}
        super().__init__(len(self.values), seed=seed, start=start, dtype=dtype)

    @property
    def is_of_its_elements(self) -> bool:
        """Return whether each element stands for itself, so that the space only adds names."""
        first = int(self.start)
        elements = range(first, first + len(self.values))
        return all(type(v) is int and v == e for v, e in zip(self.values, elements, strict=True))

    def value_of(self, element: int) -> Any:
        """Return the value that an element stands for; IndexError if there is none."""
        place = int(element) - int(self.start)
        if not 0 <= place < len(self.values):
            raise IndexError(place)
        return self.values[place]

    def element_of(self, value: Any) -> Any:
        """Return the element that stands for a value; KeyError if there is none."""
        return self.dtype.type(int(self.start) + self._places[_key(value)])

    def __repr__(self) -> str:
        return f"Choice({list(self.names)})"

    def __eq__(self, other: Any) -> bool:
        if not super().__eq__(other):
            return False
        if isinstance(other, Choice):
            return list(map(_key, self.values)) == list(map(_key, other.values))
        return self.is_of_its_elements


def _key(value: Any) -> tuple[bool, Any]:
    return isinstance(value, bool), value  # since True == 1


class AnyText(spaces.Text):
    """Text of any characters; `gymnasium.spaces.Text` has a fixed set of characters.

    Args:
        max_length: Maximum number of characters. Default: no limit.
        min_length: Minimum number of characters.
        seed: Seed for `sample`, which adds up to 64 printable ASCII characters to the minimum.
    """

    def __init__(
        self,
        max_length: int | None = None,
        *,
        min_length: int = 0,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        longest = sys.maxsize if max_length is None else max_length
        super().__init__(longest, min_length=min_length, charset=PRINTABLE, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a random text; see `gymnasium.spaces.Text.sample`."""
        if mask is not None or probability is not None:
            return super().sample(mask, probability)
        most = min(self.max_length, self.min_length + SAMPLED_CHARACTERS)
        length = int(self.np_random.integers(self.min_length, most + 1))
        return "".join(self.np_random.choice(self.character_list, size=length))

    def contains(self, x: Any) -> bool:
        """Return whether a value is text whose length is within the limits."""
        return isinstance(x, str) and self.min_length <= len(x) <= self.max_length

    def __repr__(self) -> str:
        most = "" if self.max_length == sys.maxsize else f"{self.max_length}, "
        return f"AnyText({most}min_length={self.min_length})"

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, AnyText) and super().__eq__(other)


class AnyOf(spaces.OneOf):  # type: ignore[type-arg]  # before Gymnasium 1.3 it takes none
    """A union whose values do not name the space that each value belongs to.

    A value belongs to the first space that it fits. The union for an optional field has a `Choice`
    of None only.
    """

    def __repr__(self) -> str:
        return f"AnyOf({', '.join(map(str, self.spaces))})"

    def __eq__(self, other: object, /) -> bool:
        return isinstance(other, AnyOf) and super().__eq__(other)
