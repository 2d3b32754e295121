"""Features of Pydantic's documentation: each as an action, an observation and a state.

https://docs.pydantic.dev/latest/concepts/
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import pathlib
import re
import uuid
from collections.abc import Callable
from types import new_class
from typing import Annotated, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import (
    AliasChoices,
    AliasPath,
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    HttpUrl,
    Json,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    SerializeAsAny,
    computed_field,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.alias_generators import to_camel, to_pascal
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypedDict

from openenv import Action, Array, Blob, NDArray, Observation, State

__all__ = ["FEATURES", "Feature", "of_type"]

T = TypeVar("T")


@dataclasses.dataclass
class Feature:
    """One feature: the models that have it, and how an instance is made.

    Attributes:
        name: What Pydantic calls it.
        mixin: What the models have beside an action's, an observation's or a state's own.
        fields: The fields of an instance.
        is_described: The JSON schema of an action says what its serializer writes; otherwise what
            its validator takes, which is something else.
    """

    name: str
    mixin: type[BaseModel]
    fields: dict[str, Any]
    is_described: bool = True
    action: Any = None
    observation: Any = None
    state: Any = None

    def __post_init__(self) -> None:
        made = [
            new_class(
                f"{self.mixin.__name__}{base.__name__}",
                (base, self.mixin),
                exec_body=lambda space: space.update(__module__=__name__),
            )
            for base in (Action, Observation, State)
        ]
        self.action, self.observation, self.state = made

    def __str__(self) -> str:
        return self.name


FEATURES: list[Feature] = []


def having(name: str, **fields: Any) -> Callable[[type[BaseModel]], type[BaseModel]]:
    """Add a feature that a mixin has."""

    def add(mixin: type[BaseModel]) -> type[BaseModel]:
        FEATURES.append(Feature(name, mixin, fields))
        return mixin

    return add


def typed(
    name: str,
    annotation: Any,
    value: Any,
    *,
    default: Any = ...,
    is_described: bool = True,
    **config: Any,
) -> None:
    """Add a feature that the type of a field `value` has."""
    FEATURES.append(of_type(name, annotation, value, default, is_described, **config))


def of_type(
    name: str,
    annotation: Any,
    value: Any,
    default: Any = ...,
    is_described: bool = True,
    **config: Any,
) -> Feature:
    """Make a feature that the type of a field `value` has."""
    space: dict[str, Any] = {
        "__annotations__": {"value": annotation},
        "__module__": __name__,
        "model_config": config,
    }
    if default is not ...:
        space["value"] = default
    made: Any = new_class("Typed", (BaseModel,), exec_body=lambda body: body.update(space))
    fields = {} if value is ... else {"value": value}
    return Feature(name, made, fields, is_described)


# ------------------------------------------------------------------ fields


@having("computed field", price=2, amount=3)
class Computed(BaseModel):
    price: int
    amount: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        return self.price * self.amount


@having("computed field with an alias", price=2)
class ComputedAlias(BaseModel):
    price: int

    @computed_field(alias="twice")  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.price


class Offer(BaseModel):
    model_config = ConfigDict(extra="forbid")

    price: int
    from_: str = Field(default="", alias="from")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.price


class Bid(BaseModel):
    model_config = ConfigDict(extra="forbid")

    bid: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def half(self) -> float:
        return self.bid / 2


OFFER = Offer.model_validate({"price": 1, "from": "me"})

typed("nested computed and aliased", Offer, OFFER)
typed("computed fields in a list", list[Offer], [OFFER, Offer(price=2)])
typed("computed fields in a tuple", tuple[int, Offer], (1, OFFER))
typed("computed fields in a long tuple", tuple[Offer, ...], (OFFER, OFFER))
typed("computed fields in a dict", dict[str, Offer], {"a": OFFER})
typed("computed fields in a union", list[Offer | Bid | None], [Bid(bid=3), OFFER, None])
typed("computed fields, optional", Offer | None, OFFER)


@having("alias", **{"from": "me", "class": 3})
class Alias(BaseModel):
    from_: str = Field(alias="from")
    class_: int = Field(alias="class")


@having("alias, by name", from_="me")
class AliasByName(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    from_: str = Field(alias="from")


@having("validation alias", **{"in": 3})
class ValidationAlias(BaseModel):
    value: int = Field(validation_alias="in")


@having("serialization alias", value=3)
class SerializationAlias(BaseModel):
    value: int = Field(serialization_alias="out")


@having("serialized by alias", **{"in": 3})
class ByAlias(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)

    value: int = Field(validation_alias="in", serialization_alias="out")


@having("alias choices", second=3)
class Choices(BaseModel):
    value: int = Field(validation_alias=AliasChoices("first", "second"))


@having("alias path", values=[1, 2])
class Path(BaseModel):
    value: int = Field(validation_alias=AliasPath("values", 1))


@having("alias generator", unitName="tank", hitPoints=3)
class Camel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel)

    unit_name: str
    hit_points: int


@having("alias generator, of every field", UnitName="tank")
class Pascal(BaseModel):
    model_config = ConfigDict(alias_generator=to_pascal)

    unit_name: str


typed("None by default", str, ..., default=None)
typed("array, None by default", NDArray, ..., default=None)
typed("optional", int | None, None, default=3)
typed("default factory", list[int], ..., default=Field(default_factory=lambda: [1, 2]))
typed("constraints", Annotated[int, Field(gt=0, multiple_of=2)], 4)
typed("validator of a type", Annotated[int, BeforeValidator(lambda one: int(one))], 4)


# ------------------------------------------------------------------ configuration


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


@having(
    "strict",
    side=Side.BUY,
    cell=(1, 2),
    day=datetime.date(2026, 1, 2),
    names={"a"},
    offer=OFFER,
    blob=b"\xff\x00",
)
class Strict(BaseModel):
    model_config = ConfigDict(strict=True)

    side: Side
    cell: tuple[int, int]
    day: datetime.date
    names: set[str]
    offer: Offer
    blob: Annotated[bytes, Blob()]


@having("strict, with an array", side=Side.SELL, frame=np.arange(4, dtype="uint8"))
class StrictArray(BaseModel):
    model_config = ConfigDict(strict=True)

    side: Side
    frame: NDArray[np.uint8]  # type: ignore[type-arg]  # for checkers an alias


typed("strict field", Annotated[tuple[int, int], Field(strict=True)], (1, 2))


@having("frozen", value=1)
class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)

    value: int


@having("extra allowed", value=1, more=2)
class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")

    value: int


@having("extra ignored, and computed", value=1)
class Ignored(BaseModel):
    model_config = ConfigDict(extra="ignore")

    value: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.value * 2


typed("enum by value", Side, "buy", use_enum_values=True)
typed("bytes as base64", bytes, b"\xff\xfe\x00", ser_json_bytes="base64", val_json_bytes="base64")
typed("bytes as hex", bytes, b"\xff\xfe\x00", ser_json_bytes="hex", val_json_bytes="hex")
typed(
    "timedelta as seconds",
    datetime.timedelta,
    datetime.timedelta(1),
    is_described=False,
    ser_json_timedelta="float",
)


# ------------------------------------------------------------------ types


class Level(enum.IntEnum):
    LOW = 1


class Flags(enum.IntFlag):
    A = 1
    B = 2


class Place(NamedTuple):
    x: int
    y: float = 0.5


class Typing(TypedDict):
    name: str
    number: int


@dataclasses.dataclass
class Price:
    amount: decimal.Decimal
    currency: str = "EUR"


@pydantic_dataclass
class Weight:
    grams: float
    of_: str = Field(default="", alias="of")


class Tree(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    children: list[Tree] = []

    @computed_field  # type: ignore[prop-decorator]
    @property
    def size(self) -> int:
        return 1 + sum(child.size for child in self.children)


class Box(BaseModel, Generic[T]):
    inside: T


class Numbers(RootModel[list[int]]):
    pass


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    lives: int = 1


class Base(BaseModel):
    name: str


class Derived(Base):
    number: int = 3


typed("enum", Side, Side.BUY)
typed("enum of numbers", Level, Level.LOW)
typed("flags", Flags, Flags.A | Flags.B, is_described=False)
typed("literal", Literal["a", 1, True], 1)
typed("literal of an enum", Literal[Side.BUY], Side.BUY)
typed("date", datetime.date, datetime.date(2026, 1, 2))
typed(
    "datetime", datetime.datetime, datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.timezone.utc)
)
typed("time", datetime.time, datetime.time(1, 2, 3))
typed("timedelta", datetime.timedelta, datetime.timedelta(days=1, seconds=2, microseconds=3))
typed("decimal", decimal.Decimal, decimal.Decimal("1.10"))
typed("uuid", uuid.UUID, uuid.UUID(int=3))
typed("path", pathlib.Path, pathlib.Path("a/b"))
typed("address", ipaddress.IPv4Address, ipaddress.IPv4Address("127.0.0.1"))
typed("url", HttpUrl, HttpUrl("https://example.org/a"))
typed("pattern", re.Pattern[str], re.compile("a+"))
typed("complex", complex, 1 + 2j)
typed("size in bytes", ByteSize, ByteSize(10))
typed("large integer", int, 2**80)
typed("bytes of text", bytes, b"text")
typed("Base64Bytes", Base64Bytes, b"AAEC\n")
typed("blob", Annotated[bytes, Blob()], b"\x89\xff\x00")
typed("blob that is text too", Annotated[bytes, Blob()], b"abcd")
typed("blobs in a list", list[Annotated[bytes, Blob()]], [b"\xff", b"abcd"])
typed("tuple", tuple[int, str], (1, "a"))
typed("set", set[int], {1, 2})
typed("frozenset", frozenset[str], frozenset({"a"}))
typed("deque", collections.deque[int], collections.deque([1, 2]))
typed("keys that are numbers", dict[int, str], {1: "a"})
typed("keys that are enums", dict[Side, int], {Side.BUY: 1})
typed("named tuple", Place, Place(1, 2.5))
typed("typed dictionary", Typing, {"name": "a", "number": 1})
typed("dataclass", Price, Price(decimal.Decimal("1.5")))
typed("Pydantic's dataclass", Weight, Weight(1.5, **{"of": "tea"}))
typed("recursive model", Tree, Tree(name="a", children=[Tree(name="b", children=[Tree(name="c")])]))
typed("generic model", Box[Offer], Box[Offer](inside=OFFER))
typed("root model", Numbers, Numbers([1, 2]))
typed("union", list[int | str | Place], [1, "1", Place(1, 2)])
typed(
    "discriminated union",
    list[Annotated[Cat | Dog, Field(discriminator="kind")]],
    [Dog(lives=2), Cat()],
)
typed("union of constants", Cat | Dog, Dog(lives=2))
typed("array", Annotated[np.ndarray, Array("float32", (2, 2))], np.ones((2, 2), "float32"))
typed("any array", NDArray, np.arange(3.0))
typed("SerializeAsAny", SerializeAsAny[Derived], Derived(name="a"))
typed("JSON text", Json[list[int]], "[1, 2]", is_described=False)
typed("any", Any, {"a": [1, 2.5, None, "b"], "c": True})
typed("class variable", ClassVar[int], ..., default=3)


# ------------------------------------------------------------------ validators and serializers


@having("field serializer", value={3, 1})
class FieldSerializer(BaseModel):
    value: set[int]

    @field_serializer("value")
    def _sorted(self, value: set[int]) -> list[int]:
        return sorted(value)


@having("field validator", value="  a ")
class FieldValidator(BaseModel):
    value: str

    @field_validator("value")
    @classmethod
    def _stripped(cls, value: str) -> str:
        return value.strip()


@having("model validator", low=1, high=2)
class ModelValidator(BaseModel):
    low: int
    high: int

    @model_validator(mode="before")
    @classmethod
    def _ordered(cls, data: Any) -> Any:
        return data

    @model_validator(mode="after")
    def _checked(self) -> ModelValidator:
        assert self.low <= self.high
        return self


class Inner(BaseModel):
    low: int
    high: int

    @model_serializer
    def _written(self) -> list[int]:
        return [self.low, self.high]

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: Any) -> Any:
        return {"low": data[0], "high": data[1]} if isinstance(data, list) else data


typed("model serializer", Inner, Inner(low=1, high=2), is_described=False)
typed(
    "serializer of a type",
    Annotated[int, PlainSerializer(lambda one: f"{one}", return_type=str)],
    4,
    is_described=False,
)


@having("private attribute", value=1)
class PrivateAttribute(BaseModel):
    value: int
    _secret: int = PrivateAttr(3)


@having("excluded field", value=1)
class Excluded(BaseModel):
    value: int
    hidden: int = Field(0, exclude=True)
