"""The extractors' options: each class says how a group is encoded; its Keras layer is registered in extractors.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal, TypeVar, get_args

from pydantic import Field

from feat2vec.schema.document import KeyPath
from feat2vec.schema.validation import Spec

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Dim = Annotated[int, Field(ge=1, le=65_536)]
Share = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]
Text = Annotated[str, Field(min_length=1)]
Many = Field(strict=False)  # YAML lists become tuples


class ExtractorSpec(Spec):
    """The base of every extractor's options. `encoding` names how encode.py turns the group's columns into entries.

    The group's vectors are multiplied by `gain`: what many items add up to can be kept from drowning the other groups.
    """

    encoding: ClassVar[Literal["items", "tokens", "numbers", "vector"]]
    type: str
    gain: Annotated[float, Field(gt=0)] = 1.0

    def conflicts(self, columns: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
        """What is wrong although each key is right: (path below the extractor, message)."""
        if self.encoding != "numbers" and len(columns) > 1:
            yield (), f"{self.type} takes one column, received {len(columns)}; make a group for each"


class ItemsSpec(ExtractorSpec):
    """A group that is one key, or a bag of keys.

    Keys that come more than `max_share` times as often as there are rows are left out, as if no row had them.
    """

    encoding = "items"
    multi: bool = False
    split: Text | None = None
    max_items: Count = 16
    min_count: Count = 1
    max_size: Count | None = None
    max_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    weights: Text | None = None
    bins: Annotated[int, Field(ge=2, le=10_000)] | None = None
    parts: Annotated[tuple[Literal["year", "quarter", "month", "day", "weekday", "hour"], ...], Many] = ()

    @property
    def bag(self) -> bool:
        """Whether a row may hold several keys."""
        return self.multi or self.split is not None or bool(self.parts)

    def conflicts(self, columns: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
        yield from super().conflicts(columns)
        several = [key for key in ("split", "bins", "parts", "weights") if getattr(self, key)]
        if len(several) > 1:
            yield (several[1],), f"cannot be combined with `{several[0]}`; keep one of them"
        if self.bins and self.multi:
            yield ("bins",), "bins are for a column of single numbers; remove `multi`"
        if len(set(self.parts)) < len(self.parts):
            yield ("parts",), "names a part twice; keep one"
        if self.weights is not None and not self.multi:
            yield ("weights",), "weights are for a bag, one number an item; set `multi: true`"


class TokensSpec(ExtractorSpec):
    """A group that is a text, as a sequence of tokens."""

    encoding = "tokens"
    max_tokens: Count = 32
    min_count: Count = 1
    max_size: Count | None = None


class NumbersSpec(ExtractorSpec):
    """A group that is one or more numbers."""

    encoding = "numbers"
    scale: Literal["standard", "minmax", "log1p", "quantile", "none"] = "standard"
    nan: Literal["error", "missing"] = "error"


class VectorSpec(ExtractorSpec):
    """A group that is a vector of one size."""

    encoding = "vector"


SpecClass = TypeVar("SpecClass", bound=ExtractorSpec)
EXTRACTORS: dict[str, type[ExtractorSpec]] = {}
HOLDERS: list[type[Spec]] = []  # models that hold any registered extractor, the inner ones first


def extractor(name: str) -> Callable[[type[SpecClass]], type[SpecClass]]:
    """Register an extractor's options under the name that schemas give as `type`.

    >>> from feat2vec.specs import ItemsSpec
    >>> @feat2vec.extractor("postcode")
    ... class Postcode(ItemsSpec):
    ...     type: Literal["postcode"] = "postcode"
    >>> feat2vec.read_schema({"version": 1, "groups": {
    ...     "place": {"column": "postcode", "extractor": "postcode"}, "price": {"column": "price"},
    ... }}).groups["place"].extractor.type
    'postcode'
    """

    def register(spec: type[SpecClass]) -> type[SpecClass]:
        before = EXTRACTORS.get(name, spec)
        if (before.__module__, before.__qualname__) != (spec.__module__, spec.__qualname__):  # a reload is no conflict
            raise ValueError(f"the extractor {name!r} is registered already, by {before}. Received: {spec}")
        if not name.isidentifier():
            raise ValueError(f"an extractor's name is letters, digits and underscores. Received: {name!r}")
        if not hasattr(spec, "encoding"):
            raise ValueError(f"{spec.__name__} must derive from ItemsSpec, TokensSpec, NumbersSpec or VectorSpec")
        spec.model_rebuild()
        if spec.model_fields["type"].default != name or get_args(spec.model_fields["type"].annotation) != (name,):
            raise ValueError(f'{spec.__name__} needs the field `type: Literal["{name}"] = "{name}"`')
        EXTRACTORS[name] = spec
        for model in HOLDERS:
            model.model_rebuild(force=True)
        return spec

    return register


@extractor("lookup")
class Lookup(ItemsSpec):
    """A vector for each key; a bag's vectors are combined, in training without a random `item_dropout` of the items."""

    type: Literal["lookup"] = "lookup"
    combiner: Literal["sum", "mean", "sqrtn"] = "sum"
    item_dropout: Share = 0.0


@extractor("text_cnn")
class TextCnn(TokensSpec):
    """Convolutions over token vectors, max over time, a projection."""

    type: Literal["text_cnn"] = "text_cnn"
    token_dim: Dim = 64
    filters: Dim = 64
    widths: Annotated[tuple[Count, ...], Many, Field(min_length=1)] = (2, 3, 4)
    dropout: Share = 0.0

    def conflicts(self, columns: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
        yield from super().conflicts(columns)
        if max(self.widths) > self.max_tokens:
            yield ("widths",), f"{max(self.widths)} is wider than max_tokens, {self.max_tokens}; make it narrower"


@extractor("numeric")
class Numeric(NumbersSpec):
    """An MLP over the group's scaled numbers; no hidden layer is a linear map."""

    type: Literal["numeric"] = "numeric"
    hidden: Annotated[tuple[Dim, ...], Many] = ()


@extractor("vector")
class Vector(VectorSpec):
    """A projection of a pretrained vector."""

    type: Literal["vector"] = "vector"
