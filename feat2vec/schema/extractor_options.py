"""The options of extractors, and the registry that schemas choose from by `type`.

Each class also says how the columns of its groups are encoded. The Keras layer of an extractor is registered under the
same name in the room `model`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, ClassVar, Literal, TypeVar, get_args

from pydantic import Field

from feat2vec.schema.document import KeyPath
from feat2vec.schema.validation import Spec

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Dim = Annotated[int, Field(ge=1, le=65_536)]
Share = Annotated[float, Field(ge=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]
EPOCHS = {"seconds": 1_000_000, "milliseconds": 1_000}  # microseconds of each
IS_DATE_FORM = "is `seconds`, `milliseconds`, or a pattern of %Y %m %d %H %M %S and the like"
PLAIN_NUMBER = "1.5"  # the option `written` of numbers without marks
DATE_PATTERN = re.compile(r"(?:[^%]|%[YymdHIMSpBbAaz%])*%[YymdHIMSpBbAaz](?:[^%]|%[YymdHIMSpBbAaz%])*")
NUMBER_FORM = re.compile(r"(\D*?)1(?:([,.' ])000)?((?!\2)[.,])5(\D.*)?")  # prefix, thousands, decimals, suffix
Text = Annotated[str, Field(min_length=1)]
Start = Literal["random", "pca"]  # of a linear map
Many = Field(strict=False)  # for tuples: YAML has lists, which are taken too


def is_date_form(form: str) -> bool:
    """Whether a text says how dates are written.

    >>> [is_date_form(form) for form in ("seconds", "%d.%m.%Y", "d.m.Y", "%Q")]
    [True, True, False, False]

    """
    return form in EPOCHS or DATE_PATTERN.fullmatch(form) is not None


def is_number_form(form: str) -> bool:
    """Whether a text says by an example how numbers are written.

    >>> [is_number_form(form) for form in ("1,5", "$1,000.5", "1.5 min", "1,000,5", "97 min")]
    [True, True, True, False, False]

    """
    return NUMBER_FORM.fullmatch(form) is not None


class ExtractorSpec(Spec):
    """The base of the options of every extractor.

    Args:
        type: The name of the extractor.
        gain: The factor of the group's vectors. A sum of many items is long, and outweighs other groups unless it is
            reduced.

    Example:
        >>> year = feat2vec.read_schema(schema).groups["year"].extractor
        >>> isinstance(year, feat2vec.specs.ExtractorSpec), year.type, year.gain
        (True, 'numeric', 1.0)

    """

    encoding: ClassVar[Literal["items", "tokens", "numbers", "vector"]]  # how the columns become entries
    type: str
    gain: Annotated[float, Field(gt=0)] = 1.0

    def conflicts(self, columns: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
        """Yield what is wrong with the options, although each key is right by itself.

        Args:
            columns: The columns of the group.

        Yields:
            The path of a key below the extractor, and a message.

        """
        if self.encoding != "numbers" and len(columns) > 1:
            yield (), f"{self.type} takes one column, received {len(columns)}; make a group for each"


class ItemsSpec(ExtractorSpec):
    """A group that is one key, or a bag of keys.

    Args:
        multi: Whether the column holds lists.
        split: The separator of keys in a text; `words` for its words.
        max_items: The most items of a row; further ones are left out.
        min_count: Rarer keys are unseen.
        max_size: The most keys of the vocabulary.
        max_share: More frequent keys are left out; 1 is once a row.
        weights: The column with a weight for each item.
        bins: The number of bins of a column of numbers, which become keys.
        parts: The parts of a column of dates, each a key.
        dates: How these dates are written: `seconds` or `milliseconds` since 1970, or a pattern such as `%d.%m.%Y`; by
            default as 2024-01-31, which an exported SavedModel takes in any case.

    Example:
        >>> class Postcode(feat2vec.specs.ItemsSpec):
        ...     type: Literal["postcode"] = "postcode"
        >>> Postcode(split=" ").bag, list(Postcode(bins=5, split=" ").conflicts(["place"]))
        (True, [(('bins',), 'cannot be combined with `split`; keep one of them')])

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
    dates: Text | None = None

    @property
    def bag(self) -> bool:
        """Whether a row may hold several keys."""
        return self.multi or self.split is not None or bool(self.parts)

    def conflicts(self, columns: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
        yield from super().conflicts(columns)
        exclusive_keys = [key for key in ("split", "bins", "parts", "weights") if getattr(self, key)]
        if len(exclusive_keys) > 1:
            yield (exclusive_keys[1],), f"cannot be combined with `{exclusive_keys[0]}`; keep one of them"
        if self.bins and self.multi:
            yield ("bins",), "bins are for a column of single numbers; remove `multi`"
        if len(set(self.parts)) < len(self.parts):
            yield ("parts",), "names a part twice; keep one"
        if self.dates is not None and not self.parts:
            yield ("dates",), "says how dates are written, for `parts` of them; add `parts`, or remove it"
        if self.dates is not None and not is_date_form(self.dates):
            yield ("dates",), IS_DATE_FORM
        if self.weights is not None and not self.multi:
            yield ("weights",), "weights are for a bag, one number an item; set `multi: true`"


class TokensSpec(ExtractorSpec):
    """A group that is a text, as a sequence of tokens.

    Args:
        max_tokens: The most tokens of a text; further ones are left out.
        min_count: Rarer tokens are unseen.
        max_size: The most tokens of the vocabulary.

    Example:
        >>> class Title(feat2vec.specs.TokensSpec):
        ...     type: Literal["title"] = "title"
        >>> Title().max_tokens
        32

    """

    encoding = "tokens"
    max_tokens: Count = 32
    min_count: Count = 1
    max_size: Count | None = None


class NumbersSpec(ExtractorSpec):
    """A group that is one or more numbers.

    Args:
        scale: How numbers are scaled.
        nan: Whether NaN is an error or a missing value; `lenient` for text that is no number as a missing value, too.
        written: How numbers are written in text: an example such as `1.5 min`, `1,5` or `$1,000.5`; by default as 1.5.
            The unit may be missing.
        dates: How dates are written, which become days since 1970: `seconds` or `milliseconds` since 1970, or a pattern
            such as `%d.%m.%Y`; by default as 2024-01-31.

    Example:
        >>> class Price(feat2vec.specs.NumbersSpec):
        ...     type: Literal["price"] = "price"
        >>> Price(scale="log1p").scale
        'log1p'

    """

    encoding = "numbers"
    scale: Literal["standard", "minmax", "log1p", "quantile", "none"] = "standard"
    nan: Literal["error", "missing", "lenient"] = "error"
    written: Text | None = None
    dates: Text | None = None

    def conflicts(self, columns: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
        yield from super().conflicts(columns)
        if self.written is not None and not is_number_form(self.written):
            yield ("written",), "is an example of how 1.5 or 1000.5 is written, such as `1,5`, `$1,000.5` or `1.5 min`"
        if self.dates is not None and not is_date_form(self.dates):
            yield ("dates",), IS_DATE_FORM
        if self.dates is not None and self.written is not None:
            yield ("dates",), "cannot be combined with `written`; keep one of them"
        if self.dates is not None and self.nan == "lenient":
            yield ("nan",), "`lenient` is for numbers, and `dates` are given; keep one of them"


class VectorSpec(ExtractorSpec):
    """A group that is a vector of one size.

    Example:
        >>> class Image(feat2vec.specs.VectorSpec):
        ...     type: Literal["image"] = "image"
        >>> list(Image().conflicts(["left", "right"]))
        [((), 'image takes one column, received 2; make a group for each')]

    """

    encoding = "vector"


SpecClass = TypeVar("SpecClass", bound=ExtractorSpec)
EXTRACTORS: dict[str, type[ExtractorSpec]] = {}
HOLDERS: list[type[Spec]] = []  # the classes with a field for any registered extractor, the inner ones first


def extractor(name: str) -> Callable[[type[SpecClass]], type[SpecClass]]:
    """Register the options of an extractor.

    Args:
        name: What schemas give as `type`.

    Returns:
        A decorator of the class, which derives from `ItemsSpec`, `TokensSpec`, `NumbersSpec` or `VectorSpec`.

    Raises:
        ValueError: The name is taken or no name, or the class does not have it as its `type`.

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
        registered = EXTRACTORS.get(name, spec)
        is_reload = (registered.__module__, registered.__qualname__) == (spec.__module__, spec.__qualname__)
        if not is_reload:
            raise ValueError(f"the extractor {name!r} is registered already, by {registered}. Received: {spec}")
        if not name.isidentifier():
            raise ValueError(f"an extractor's name is letters, digits and underscores. Received: {name!r}")
        if not hasattr(spec, "encoding"):
            raise ValueError(f"{spec.__name__} must derive from ItemsSpec, TokensSpec, NumbersSpec or VectorSpec")
        spec.model_rebuild()
        if spec.model_fields["type"].default != name or get_args(spec.model_fields["type"].annotation) != (name,):
            raise ValueError(f'{spec.__name__} needs the field `type: Literal["{name}"] = "{name}"`')
        EXTRACTORS[name] = spec
        for holder in HOLDERS:  # their fields may now hold this class too
            holder.model_rebuild(force=True)
        return spec

    return register


@extractor("lookup")
class Lookup(ItemsSpec):
    """A vector for each key; the vectors of a bag are combined.

    Args:
        combiner: How the vectors of a bag are combined.
        item_dropout: The share of items that training leaves out at random.

    Example:
        >>> feat2vec.specs.Lookup(multi=True, combiner="mean").bag
        True

    """

    type: Literal["lookup"] = "lookup"
    combiner: Literal["sum", "mean", "sqrtn"] = "sum"
    item_dropout: Share = 0.0


@extractor("text_cnn")
class TextCnn(TokensSpec):
    """Convolutions over token vectors, the maximum over time, and a projection (Kim, 2014).

    Args:
        token_dim: The dimensions of a token's vector.
        filters: The number of filters of each width.
        widths: The widths of the windows, in tokens.
        dropout: The share of features that training drops.

    Example:
        >>> feat2vec.specs.TextCnn(widths=[2, 3]).widths
        (2, 3)

    """

    type: Literal["text_cnn"] = "text_cnn"
    token_dim: Dim = 64
    filters: Dim = 64
    widths: Annotated[tuple[Count, ...], Many, Field(min_length=1)] = (2, 3, 4)
    dropout: Share = 0.0

    def conflicts(self, columns: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
        yield from super().conflicts(columns)
        if max(self.widths) > self.max_tokens:
            yield ("widths",), f"{max(self.widths)} is wider than max_tokens, {self.max_tokens}; make it narrower"


@extractor("text_attention")
class TextAttention(TokensSpec):
    """Self-attention over token vectors, their mean over the text, and a projection (Vaswani et al., 2017).

    Args:
        max_tokens: The most tokens of a text; further ones are left out. Each token sees all others.
        token_dim: The dimensions of a token's vector, as many for each head.
        heads: The number of heads of each block.
        blocks: The number of blocks, each of self-attention and two dense layers.
        units: The units of the first of a block's dense layers.
        positions: How the position of a token is encoded: by sinusoids, or by vectors that begin as these and are
            learned.
        dropout: The share of features that training drops.

    Example:
        >>> feat2vec.specs.TextAttention(heads=2).blocks
        1

    """

    type: Literal["text_attention"] = "text_attention"
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 32
    token_dim: Dim = 64
    heads: Annotated[int, Field(ge=1, le=1024)] = 4
    blocks: Annotated[int, Field(ge=1, le=64)] = 1
    units: Dim = 128
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    dropout: Share = 0.0

    def conflicts(self, columns: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
        yield from super().conflicts(columns)
        if self.token_dim % self.heads:
            nearest = max(self.token_dim // self.heads, 1) * self.heads
            yield ("heads",), f"token_dim, {self.token_dim}, has no {self.heads} equal parts; make it {nearest}"


@extractor("numeric")
class Numeric(NumbersSpec):
    """An MLP over the group's scaled numbers; no hidden layer is a linear map.

    Args:
        hidden: The units of each hidden layer.
        pieces: The number of pieces of the piecewise linear encoding of each number (Gorishniy et al., 2022), between
            quantiles of the training rows; for `scale: quantile`.
        start: What the linear map is at the start: `random`, or `pca`, the principal components of the training rows'
            scaled numbers, by one factor so long that the vectors have the standard deviation `model.scale`. Where
            there are fewer components than dimensions, the rest begins as 0.

    Example:
        >>> feat2vec.specs.Numeric(hidden=[16]).hidden
        (16,)

    """

    type: Literal["numeric"] = "numeric"
    hidden: Annotated[tuple[Dim, ...], Many] = ()
    pieces: Annotated[int, Field(ge=2, le=1000)] | None = None
    start: Start = "random"

    def conflicts(self, columns: Sequence[str]) -> Iterator[tuple[KeyPath, str]]:
        yield from super().conflicts(columns)
        if self.pieces is not None and self.scale != "quantile":
            yield ("pieces",), f"pieces lie between quantiles; set `scale: quantile`, received {self.scale}"
        for key in ("hidden", "pieces"):
            if self.start == "pca" and getattr(self, key):
                yield ("start",), f"pca is for a linear map of the numbers themselves; remove it, or `{key}`"


@extractor("vector")
class Vector(VectorSpec):
    """A projection of a pretrained vector.

    Args:
        start: What the projection is at the start: `random`, or `pca`, as for `numeric`.

    Example:
        >>> feat2vec.specs.Vector().gain
        1.0

    """

    type: Literal["vector"] = "vector"
    start: Start = "random"
