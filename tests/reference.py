"""Slow, obvious code that the fast code is compared with: loops in float64, one section for each paper or page."""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from feat2vec.schema.extractor_options import ItemsSpec, NumbersSpec, TokensSpec
from feat2vec.schema.options import Group, Schema

# --- Encoding (DESIGN, section 3): rows are dicts, entries are tuples -----------------------------------------------

Row = Mapping[str, Any]
Entry = tuple[Any, ...]
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True)
class EncodedGroup:
    """What a group becomes: keys with their counts in the order of their ids, and an entry or None for each row."""

    keys: dict[str, int]
    unseen: int
    entries: list[Entry | None]

    @property
    def values(self) -> dict[Entry, int]:
        """The distinct entries, and how many rows have each."""
        return dict(Counter(entry for entry in self.entries if entry is not None))

    @property
    def missing(self) -> int:
        return self.entries.count(None)


def encode_table(schema: Schema, rows: Sequence[Row], new: Sequence[Row] = ()) -> dict[str, EncodedGroup]:
    """Encode typed rows; those in `new` come after the training rows and are only looked up."""
    return {name: encode_group(group, rows, new) for name, group in schema.groups.items()}


def encode_group(group: Group, rows: Sequence[Row], new: Sequence[Row] = ()) -> EncodedGroup:
    spec = group.extractor
    if isinstance(spec, NumbersSpec):
        return encode_numbers(group, rows, new)
    if isinstance(spec, (ItemsSpec, TokensSpec)):
        return encode_items(group, rows, new)
    vectors = [vector_entry(row.get(group.columns[0])) for row in [*rows, *new]]
    return EncodedGroup({}, 0, vectors)


def encode_items(group: Group, rows: Sequence[Row], new: Sequence[Row]) -> EncodedGroup:
    spec = group.extractor
    assert isinstance(spec, (ItemsSpec, TokensSpec))
    bins = spec.bins if isinstance(spec, ItemsSpec) else None
    edges = [] if bins is None else bin_edges([row.get(group.columns[0]) for row in rows], bins)
    bags, new_bags = ([row_items(row, group, edges) for row in some] for some in (rows, new))
    widest = max(1, *(len(bag) for bag in bags))
    if isinstance(spec, ItemsSpec):
        times = Counter(key for bag in bags for key, _ in bag)
        share = Fraction(repr(spec.max_share)) if spec.max_share < 1 else math.inf
        frequent = {key for key in times if times[key] > share * len(rows)}
        bags, new_bags = (
            [[item for item in bag if item[0] not in frequent] for bag in some] for some in (bags, new_bags)
        )
        if spec.bag and not spec.parts:
            widest = spec.max_items if spec.weights is None else min(widest, spec.max_items)
    keys, unseen = vocabulary([key for bag in bags for key, _ in bag], spec.min_count, spec.max_size)
    bags = [bag[:widest] for bag in [*bags, *new_bags]]
    return EncodedGroup(keys, unseen, [items_entry(bag, keys, group) for bag in bags])


def row_items(row: Row, group: Group, edges: Sequence[float] = ()) -> list[tuple[str, float]]:
    """A row's (key, weight), at most `max_items` of them; null and empty items are dropped before they are counted.

    With a `max_share` it is all of them: those that are left out make room.
    """
    spec, value = group.extractor, row.get(group.columns[0])
    if isinstance(spec, TokensSpec):
        return [(word, 0.0) for word in words(value or "")[: spec.max_tokens]]
    assert isinstance(spec, ItemsSpec)
    if value is None:
        return []
    if spec.parts:
        return [(f"{part}={date_part(value, part)}", 0.0) for part in spec.parts]
    if spec.bins is not None:
        return [(bin_of(to_number(value), edges), 0.0)]
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    if spec.split is not None:
        parts = [words(item) if spec.split == "words" else item.split(spec.split) for item in items if item is not None]
        items = [item.strip() for some in parts for item in some]
    weights = [0.0] * len(items) if spec.weights is None else row[spec.weights]
    kept = [(spell(item), weight) for item, weight in zip(items, weights, strict=True) if item not in (None, "")]
    if spec.bag and spec.max_share < 1:
        return kept
    return kept[: spec.max_items if spec.bag else 1]


def items_entry(bag: Sequence[tuple[str, float]], keys: Mapping[str, int], group: Group) -> Entry | None:
    """Keys in the order of their ids (None is an unseen one and comes first); a text keeps its order."""
    order = {key: i for i, key in enumerate(keys)}
    items = [(order.get(key, -1), float(np.float32(weight))) for key, weight in bag]
    if not isinstance(group.extractor, TokensSpec):
        items.sort()
    known = list(keys)
    weighted = isinstance(group.extractor, ItemsSpec) and group.extractor.weights is not None
    named = [(None if i < 0 else known[i], weight) for i, weight in items]
    return None if not bag else tuple(named) if weighted else tuple(key for key, _ in named)


def vocabulary(keys: Sequence[str], min_count: int = 1, max_size: int | None = None) -> tuple[dict[str, int], int]:
    """Keys by descending count, then bytes; and the occurrences of those that are left out."""
    counts = Counter(keys)
    order = sorted(counts, key=lambda key: (-counts[key], key.encode()))
    kept = [key for key in order if counts[key] >= min_count][:max_size]
    return {key: counts[key] for key in kept}, len(keys) - sum(counts[key] for key in kept)


def spell(value: object) -> str:
    """A typed value as a key."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, datetime):
        return value.isoformat(" ").removesuffix(" 00:00:00")
    return value.isoformat() if isinstance(value, date) else str(value)


def spell_text(items: Sequence[str]) -> list[str]:
    """A column of text, from CSV: truth values have one spelling, and integers as pandas' floats no .0."""
    if items and all(item.lower() in ("true", "false") for item in items):
        return [item.lower() for item in items]
    if items and all(re.fullmatch(r"-?(0|[1-9]\d*)\.0", item) for item in items):
        return [str(int(float(item))) for item in items]
    return list(items)


def words(text: str) -> list[str]:
    """Runs of letters, marks, numbers and `_`, casefolded, in NFC."""
    found = [""]
    for letter in unicodedata.normalize("NFC", text):
        if letter == "_" or unicodedata.category(letter)[0] in "LMN":
            found[-1] += letter
        else:
            found.append("")
    return [unicodedata.normalize("NFC", word.casefold()) for word in found if word]


def date_part(value: date, part: str) -> object:
    match part:
        case "weekday":
            return WEEKDAYS[value.weekday()]
        case "quarter":
            return (value.month + 2) // 3
        case "hour":
            return value.hour if isinstance(value, datetime) else 0
    return getattr(value, part)


def to_number(value: object) -> float:
    """A number, or the days since 1970."""
    if isinstance(value, datetime):
        zone = value.tzinfo or timezone.utc
        return (value.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() / 86_400
    if isinstance(value, date):
        return float((value - date(1970, 1, 1)).days)
    assert isinstance(value, (bool, int, float))
    return float(value)


def quantile(numbers: Sequence[float], share: Fraction) -> float:
    """Between the two numbers around the rank `share * (n - 1)`."""
    ordered, rank = sorted(numbers), share * (len(numbers) - 1)
    low = math.floor(rank)
    return ordered[low] + (ordered[math.ceil(rank)] - ordered[low]) * float(rank - low)


def bin_edges(values: Sequence[object], bins: int) -> list[float]:
    numbers = [to_number(value) for value in values if value is not None]
    return sorted({quantile(numbers, Fraction(i, bins)) + 0.0 for i in range(1, bins)})


def bin_of(number: float, edges: Sequence[float]) -> str:
    """`[low, high)` of the bin that holds a number."""
    short = [f"{edge:g}" if float(f"{edge:g}") == edge else repr(edge) for edge in edges]
    ends = ["-inf", *short, "inf"]
    i = sum(edge <= number for edge in edges)
    return f"[{ends[i]}, {ends[i + 1]})"


def vector_entry(vector: Sequence[float] | None) -> Entry | None:
    return tuple(np.float32(number) + np.float32(0) for number in vector) if vector else None


def encode_numbers(group: Group, rows: Sequence[Row], new: Sequence[Row]) -> EncodedGroup:
    """Scaled numbers, then an indicator for each column with gaps in training rows where the group is present."""
    spec, columns = group.extractor, group.columns
    assert isinstance(spec, NumbersSpec)
    table = [[None if row.get(c) is None else to_number(row[c]) for c in columns] for row in [*rows, *new]]
    present = [numbers for numbers in table[: len(rows)] if any(number is not None for number in numbers)]
    known = [[number for number in column if number is not None] for column in zip(*present, strict=True)]
    fill = [sum(numbers) / len(numbers) for numbers in known]
    told = [i for i in range(len(columns)) if any(numbers[i] is None for numbers in present)]
    entries: list[Entry | None] = []
    for numbers in table:
        filled = [fill[i] if number is None else number for i, number in enumerate(numbers)]
        scaled = [scale_number(number, known[i], spec.scale) for i, number in enumerate(filled)]
        entry = (*scaled, *(float(numbers[i] is None) for i in told))
        entries.append(None if all(number is None for number in numbers) else entry)
    return EncodedGroup({}, 0, entries)


def scale_number(number: float, training: Sequence[float], scale: str) -> float:
    low, high = min(training), max(training)
    mean = math.fsum(training) / len(training)
    match scale:
        case "standard":
            deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in training) / len(training))
            return (number - mean) / (deviation if high > low else 1.0)
        case "minmax":
            return (number - low) / ((high - low) or 1.0)
        case "log1p":
            return math.log1p(number)
        case "quantile":
            return quantile_of(number, training)
    return number


def quantile_of(number: float, training: Sequence[float], knots: int = 1001) -> float:
    """The share of the training numbers below a number; the middle of its ties."""
    ends = [quantile(training, Fraction(i, knots - 1)) for i in range(knots)]
    if number < ends[0] or number > ends[-1]:
        return float(number > ends[-1])
    equal = [i / (knots - 1) for i, end in enumerate(ends) if end == number]
    if equal:
        return (equal[0] + equal[-1]) / 2
    i = sum(end < number for end in ends)
    return (i - 1 + (number - ends[i - 1]) / (ends[i] - ends[i - 1])) / (knots - 1)


def piecewise(number: float, edges: Sequence[float]) -> list[float]:
    """The piecewise linear encoding of a number (Gorishniy et al., 2022, equation 1), clipped to the edges."""
    parts = []
    for low, high in pairwise(edges):
        if number <= low:
            parts.append(0.0)
        elif number >= high:
            parts.append(1.0)
        else:
            parts.append((number - low) / (high - low))
    return parts


def ensemble_of_networks(
    x: Sequence[float], layers: Sequence[Mapping[str, npt.NDArray[Any]]], last: Mapping[str, npt.NDArray[Any]]
) -> list[list[float]]:
    """Each member's outputs by TabM (Gorishniy et al., 2024): l(x) = s * (W (r * x)) + b, with its own r, s and b."""
    outputs = []
    for m in range(len(last["bias"])):
        units = [float(number) for number in x]
        for layer in layers:
            r, s, b = (layer[name][m].astype(float) for name in ("input_factors", "output_factors", "biases"))
            kernel = layer["kernel"].astype(float)
            scaled = [number * r[i] for i, number in enumerate(units)]
            units = [
                max(0.0, s[u] * sum(number * kernel[i, u] for i, number in enumerate(scaled)) + b[u])
                for u in range(kernel.shape[1])
            ]
        kernel, bias = last["kernel"][m].astype(float), last["bias"][m].astype(float)
        outputs.append([bias[o] + sum(x * kernel[u, o] for u, x in enumerate(units)) for o in range(kernel.shape[1])])
    return outputs


# --- RaFM (seed 004): pairs of items, equation by equation; a row is a list of groups, which are bags of items ------

Array: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Item:
    level: int  # k_i, from 1
    x: float
    vectors: list[Array]  # v_i^(1) .. v_i^(k_i), equation (3)


BagRow: TypeAlias = list[list[Item]]  # groups of items; an empty list is a missing group


def random_rows(
    rng: np.random.Generator,
    rows: int,
    groups: int,
    ranks: Sequence[int],
    present: float = 0.7,
    inactive: bool = False,  # whether items keep the vectors above their levels, which no score of the model reads
) -> list[BagRow]:
    def item() -> Item:
        level = int(rng.integers(1, len(ranks) + 1))
        x = float(rng.uniform(0.3, 1.5))
        return Item(level, x, [rng.normal(size=rank) for rank in ranks[: len(ranks) if inactive else level]])

    def bag() -> list[Item]:
        return [item() for _ in range(rng.integers(1, 4))] if rng.random() < present else []

    return [[bag() for _ in range(groups)] for _ in range(rows)]


def pairs(row: BagRow) -> Iterator[tuple[Item, Item]]:
    """i < j of different groups."""
    for first, group in enumerate(row):
        for other in row[first + 1 :]:
            for i in group:
                for j in other:
                    yield i, j


def meet(i: Item, j: Item, level: int) -> float:
    return float(np.dot(i.vectors[level - 1], j.vectors[level - 1])) * i.x * j.x


def score(row: BagRow) -> float:
    """(4), (5): pairs at the lower of the two levels."""
    return sum(meet(i, j, min(i.level, j.level)) for i, j in pairs(row))


def a(row: BagRow, level: int, top: int) -> float:
    """A_{l,k} of (7): the pairs of F_k, at level l."""
    return sum(meet(i, j, level) for i, j in pairs(row) if i.level >= top and j.level >= top)


def clipped(i: Item, j: Item, low: int, high: int) -> int:
    return max(low, min(high, min(i.level, j.level)))


def b(row: BagRow, low: int, high: int) -> float:
    """B_{l,k} of (8). For l > 1 items of levels below l need their inactive vectors."""
    return sum(meet(i, j, clipped(i, j, low, high)) for i, j in pairs(row))


def counted_a(row: BagRow, level: int, top: int) -> tuple[float, int]:
    """A_{l,k} by the second form of (7), and how many multiplications that takes."""
    multiplications, squares = 0, 0.0
    total: Array | None = None
    for bag in row:
        bag_sum: Array | None = None
        for item in bag:
            if item.level >= top:
                part = item.vectors[level - 1] * item.x
                multiplications += len(part)
                bag_sum = part if bag_sum is None else bag_sum + part
        if bag_sum is not None:
            squares += float(np.sum(bag_sum**2))
            multiplications += len(bag_sum)
            total = bag_sum if total is None else total + bag_sum
    if total is None:
        return 0.0, 0
    return (float(np.sum(total**2)) - squares) / 2, multiplications + len(total)


def counted_b(row: BagRow, low: int, high: int) -> tuple[float, int]:
    """B_{l,k} by theorem 3, from B_{l,l} = A_{l,1} on, and how many multiplications that takes."""
    score, multiplications = counted_a(row, low, 1)
    for level in range(low, high):
        for sign, part in ((-1, counted_a(row, level, level + 1)), (1, counted_a(row, level + 1, level + 1))):
            score += sign * part[0]
            multiplications += part[1]
    return score, multiplications


def derivative(row: BagRow, high: int, group: int, item: Item, level: int) -> Array:
    """The derivative of B_{1,high} with respect to one item's v^(level)."""
    total = np.zeros_like(item.vectors[level - 1])
    for other, bag in enumerate(row):
        for j in bag if other != group else []:
            if clipped(item, j, 1, high) == level:
                total += j.vectors[level - 1] * item.x * j.x
    return total


def algorithm_1(row: BagRow, group: int, item: Item, level: int, slopes: Sequence[float], dependents: str) -> Array:
    """One factor's gradient; slopes[p - 1] is the derivative of the loss of B_{1,p} by its score, targets constant."""
    top = slopes[-1] * derivative(row, len(slopes), group, item, level)
    if item.level == level:  # a free factor, lines 6 and 8
        return top
    low = slopes[level - 1] * derivative(row, level, group, item, level)  # line 5
    return low if dependents == "strict" else low + top  # the authors' code: the pairs with a free member


def truncated(row: BagRow, ranks: Sequence[int]) -> float:
    """DiFacto: an item's one vector is its highest, a pair uses the common prefix."""
    total = 0.0
    for i, j in pairs(row):
        prefix = ranks[min(i.level, j.level) - 1]
        total += float(np.dot(i.vectors[-1][:prefix], j.vectors[-1][:prefix])) * i.x * j.x
    return total


def linear_score(row: BagRow, bias: float, terms: Mapping[int, float]) -> float:
    """LR: (1) without its pairs; `terms` are w_i by the item's `id`."""
    return bias + sum(terms[id(item)] * item.x for group in row for item in group)


def whole_models(row: BagRow, ranks: Sequence[int]) -> list[float]:
    """MRMA: the pairs of each whole model (2), as many times as there are models, so that their mean is the sum.

    Every item has every level.
    """
    return [len(ranks) * sum(meet(i, j, level) for i, j in pairs(row)) for level in range(1, len(ranks) + 1)]


def levels(rows: Sequence[BagRow], ranks: Sequence[int]) -> list[tuple[Array, Array]]:
    """What extractors make of the items: free and dependent parts of each group's vector, [rows, groups, rank]."""
    shape = (len(rows), len(rows[0]))
    parts = [(np.zeros((*shape, rank)), np.zeros((*shape, rank))) for rank in ranks]
    for r, row in enumerate(rows):
        for g, bag in enumerate(row):
            for item in bag:
                for level, vector in enumerate(item.vectors, start=1):
                    parts[level - 1][int(level < item.level)][r, g] += vector * item.x
    return parts


def blocks(rows: Sequence[BagRow], ranks: Sequence[int]) -> list[Array]:
    """DiFacto's levels: coordinates D_{p-1}..D_p of the items that have them, [rows, groups, D_p - D_{p-1}]."""
    edges = [0, *ranks]
    parts = [np.zeros((len(rows), len(rows[0]), high - low)) for low, high in zip(edges, ranks, strict=False)]
    for r, row in enumerate(rows):
        for g, bag in enumerate(row):
            for item in bag:
                for level in range(item.level):
                    parts[level][r, g] += item.vectors[-1][edges[level] : edges[level + 1]] * item.x
    return parts


# --- What bounds a level's loss (seed 004, supplement) --------------------------------------------------------------


def log_loss(p: float, y: int) -> float:
    return -math.log(p) if y else -math.log1p(-p)


def divergence(p: float, q: float) -> float:
    """KL(p || q) of two binary variables."""
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def quasi_triangle_constant(theta: float, delta: float) -> float:
    """C_{theta,delta} of (S7)."""
    below = (1 - theta) * math.log((1 - theta) / (1 - theta / delta))
    return math.log(delta) / (theta * math.log(delta) + below)


# --- Shared tables: groups that read one table ----------------------------------------------------------------------


class SharedTables(NamedTuple):
    """A factorization machine whose groups may read one table."""

    table_of_group: Sequence[int]
    vectors: Sequence[Array]  # of each table, [keys, dim]
    terms: Sequence[Array]  # of each table, [keys]
    bias: float


def shared_score(row: Sequence[int | None], model: SharedTables) -> float:
    """bias + sum of w + sum of u . v over the pairs of groups; a row has the number of its key in each group's table.

    The groups of one table are two groups: a key that is in both has its term twice, and meets itself.
    """
    total = model.bias
    found = []
    for group, key in enumerate(row):
        if key is not None:
            table = model.table_of_group[group]
            total += float(model.terms[table][key])
            found.append(model.vectors[table][key])
    for first, vector in enumerate(found):
        for other in found[first + 1 :]:
            total += sum(float(x) * float(y) for x, y in zip(vector, other, strict=True))
    return total


def shared_log_loss(
    rows: Sequence[Sequence[int | None]], labels: Sequence[float], model: SharedTables, l2: float
) -> float:
    """The mean log loss, with l2 / 2 times the squared vectors of each occurrence, in whichever group it is."""
    total = 0.0
    for row, label in zip(rows, labels, strict=True):
        s = shared_score(row, model)
        total += -label * log_sigmoid(s) - (1 - label) * log_sigmoid(-s)
        for group, key in enumerate(row):
            if key is not None:
                total += l2 / 2 * sum(float(x) ** 2 for x in model.vectors[model.table_of_group[group]][key])
    return total / len(rows)


def central_differences(loss: Callable[[], float], numbers: npt.NDArray[Any], step: float = 1e-5) -> Array:
    """The derivative of a loss by each of some numbers, which are changed and set back."""
    slopes = np.zeros(numbers.shape)
    for place in np.ndindex(*numbers.shape):
        start = numbers[place]
        losses = []
        for number in (start + step, start - step):
            numbers[place] = number
            losses.append(loss())
        numbers[place] = start
        slopes[place] = (losses[0] - losses[1]) / (2 * step)
    return slopes


# --- Two-step noise (seed 000) --------------------------------------------------------------------------------------

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class NoiseUnit(NamedTuple):
    """Groups that are resampled together: the column of a row's own value, its values' counts, their members' ids."""

    groups: tuple[int, ...]
    column: int
    counts: Sequence[int]
    values: Sequence[Sequence[int]]  # for each value of the unit the value id of each group
    params: int


class NoiseSlice(NamedTuple):
    rows: npt.NDArray[Any]
    present: npt.NDArray[np.bool_]
    drawn: Ints  # of the unit's values: [n, negatives], or [negatives] if shared
    log_q: Floats
    log_q_positive: Floats
    hits: npt.NDArray[np.bool_]


def noise_probabilities(counts: Sequence[int], alpha: float) -> Floats:
    """Q2: count^alpha over the values with a count; and Q1, with the numbers of weights for counts."""
    weights = [float(count) ** alpha if count > 0 else 0.0 for count in counts]
    total = math.fsum(weights)
    return np.array([weight / total for weight in weights])


def noise_sizes(batch: int, q1: Floats, u: float) -> Ints:
    """Systematic rounding: how many rows of a batch each unit gets."""
    sizes, start = [], 0
    for i in range(len(q1)):
        end = batch if i == len(q1) - 1 else math.floor(batch * math.fsum(q1[: i + 1]) + u)
        sizes.append(end - start)
        start = end
    return np.array(sizes)


def noise_log_q(counts: Sequence[int], alpha: float, value: int) -> float:
    """Exact log Q2; a value that was never counted, or is missing, has that of the rarest counted one."""
    q2 = noise_probabilities(counts, alpha)
    if 0 <= value < len(counts) and counts[value] > 0:
        return math.log(q2[value])
    return math.log(q2[q2 > 0].min())


def noise_sample(
    units: Sequence[NoiseUnit],
    rows: npt.NDArray[Any],
    alpha_groups: float,
    alpha_values: float,
    negatives: int,
    sharing: str,
    rng: np.random.Generator,
) -> list[NoiseSlice]:
    """The twin of `feat2vec.sampling.noise.Noise.sample`: the same distribution from another generator."""
    q1 = noise_probabilities([unit.params for unit in units], alpha_groups)
    sizes = noise_sizes(len(rows), q1, rng.random())
    slices, start = [], 0
    for unit, size in zip(units, sizes, strict=True):
        part = rows[start : start + size]
        start += size
        q2 = noise_probabilities(unit.counts, alpha_values)
        shape = (size, negatives) if sharing == "record" else (negatives,)
        index = rng.choice(len(q2), size=shape, p=q2)
        own = part[:, unit.column]
        log_q_positive = [noise_log_q(unit.counts, alpha_values, value) for value in own]
        slices.append(
            NoiseSlice(part, own >= 0, index, np.log(q2[index]), np.array(log_q_positive), own[:, None] == index)
        )
    return slices


def alias_probabilities(keep: Floats, alias: Ints) -> Floats:
    """The probability of each value under an alias table, summed without rounding."""
    parts: list[list[float]] = [[value] for value in keep.tolist()]
    for other, value in zip(alias.tolist(), keep.tolist(), strict=True):
        parts[other].append(1.0 - value)
    return np.array([math.fsum(part) / len(keep) for part in parts])


def alias_unpack(words: Ints) -> tuple[Floats, Ints]:
    """The table back from its packed words."""
    low = (len(words) - 1).bit_length()
    return np.array([int(word) >> low for word in words]) / 2.0 ** (63 - low), words & ((1 << low) - 1)


def joint_tuples(rows: npt.NDArray[Any], groups: Sequence[int]) -> tuple[npt.NDArray[Any], Ints]:
    """Distinct complete tuples and their counts in one piece."""
    block = rows[:, list(groups)]
    values, counts = np.unique(block[(block >= 0).all(axis=1)], axis=0, return_counts=True)
    return values, counts


# --- Objectives (seeds 000, 001, 002): one row at a time ------------------------------------------------------------


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


def binary_loss(logit: float, p: float, q: float) -> float:
    """-p log sigmoid(s) - q log(1 - sigmoid(s)), for q = 1 - p."""
    return -(p * log_sigmoid(logit) if p else 0.0) - (q * log_sigmoid(-logit) if q else 0.0)


def log_shares(scores: Sequence[float]) -> list[float]:
    """log softmax."""
    top = max(scores)
    total = math.log(math.fsum(math.exp(score - top) for score in scores))
    return [score - top - total for score in scores]


def shared_loss(scores: Sequence[float], target: Sequence[float]) -> float:
    """-sum softmax(target) log softmax(scores)."""
    return -math.fsum(math.exp(t) * s for s, t in zip(log_shares(scores), log_shares(target), strict=True))


def row_loss(
    objective: str,
    scores: Sequence[float],  # of the row, then of its negatives
    log_q: Sequence[float],
    hits: Sequence[bool],  # of the negatives
    offset: float = 0.0,
    target: Sequence[float] | None = None,  # scores of the level above
    correction: bool = True,
    temperature: float = 1.0,
) -> float:
    """A row's loss against its negatives; the label of the row is 1 and theirs is 0, or both are the target's."""
    k = len(scores) - 1

    def logits(scores: Sequence[float]) -> list[float]:
        match objective:
            case "nce":
                return [s + offset - math.log(k) - q for s, q in zip(scores, log_q, strict=True)]
            case "contrastive" if correction:
                every = zip(scores, log_q, [False, *hits], strict=True)
                return [s / temperature - q for s, q, hit in every if not hit]
            case "contrastive":
                return [s / temperature for s in scores]
        return list(scores)

    own, above = logits(scores), None if target is None else logits(target)
    if objective == "contrastive":
        return -log_shares(own)[0] if above is None else shared_loss(own, above)
    if above is None:
        return -log_sigmoid(own[0]) - math.fsum(log_sigmoid(-logit) for logit in own[1:])
    return math.fsum(binary_loss(s, sigmoid(t), sigmoid(-t)) for s, t in zip(own, above, strict=True))


# --- Contrastive theory (seed 002): classes of shares rho_c ---------------------------------------------------------


def chance_of_all(shares: Sequence[Fraction], draws: int) -> Fraction:
    """The coupon collector's probability by inclusion and exclusion, exactly."""
    total = Fraction(0)
    for missed in itertools.product([False, True], repeat=len(shares)):
        rest = sum((share for share, is_missed in zip(shares, missed, strict=True) if not is_missed), Fraction(0))
        total += (-1) ** sum(missed) * rest**draws
    return total


def unsupervised_loss(rows_of_class: Sequence[Array], shares: Array, negatives: int) -> float:
    """L_un^N: classes by their shares, then rows of a class; all tuples."""
    classes, total = range(len(shares)), 0.0
    for drawn in itertools.product(classes, repeat=negatives + 1):
        rows = [rows_of_class[drawn[0]], rows_of_class[drawn[0]], *(rows_of_class[c] for c in drawn[1:])]
        chance = math.prod(shares[c] for c in drawn) / math.prod(map(len, rows))
        for x, positive, *others in itertools.product(*rows):
            total += chance * math.log1p(sum(math.exp(float(x @ (other - positive))) for other in others))
    return total


def mean_classifier_loss(rows_of_class: Sequence[Array], shares: Array) -> float:
    """L_sup^mu of all classes."""
    means, total = [np.mean(rows, axis=0) for rows in rows_of_class], 0.0
    for c, rows in enumerate(rows_of_class):
        for x in rows:
            total -= shares[c] / len(rows) * log_shares([float(x @ mean) for mean in means])[c]
    return total


def triple_loss(x: Array, positive: Array, negative: Array) -> float:
    """l(z) of (11): -log softmax(z_1 . z_2, z_1 . z_3)_1."""
    return -log_shares([float(x @ positive), float(x @ negative)])[0]


# --- Words (seeds 001 and 003; Levy and Goldberg, 2014) -------------------------------------------------------------


def window_gradients(w_1: Floats, w_2: Floats, centre: int, window: Sequence[int], label: int) -> tuple[Floats, Floats]:
    """001: the gradients of both tables, of J+ (label 1) or J- (label 0) of one centre against a whole window."""
    of_w_1, of_w_2 = np.zeros_like(w_1), np.zeros_like(w_2)
    for i in window:
        p = sigmoid(float(w_1[centre] @ w_2[i]))
        slope = p - 1 if label == 1 else p
        of_w_1[centre] += slope * w_2[i] / len(window)
        of_w_2[i] += slope * w_1[centre] / len(window)
    return of_w_1, of_w_2


def pmi(counts: Floats, alpha: float = 1.0) -> Floats:
    """log p(w, c) / (p(w) q(c)), [words, contexts], with q(c) in proportion to the count of c to the power alpha."""
    total, noise = float(counts.sum()), [float(column.sum()) ** alpha for column in counts.T]
    result = np.full(counts.shape, -math.inf)
    for w, row in enumerate(counts):
        for c, count in enumerate(row):
            if count > 0:
                p_w, q_c = float(row.sum()) / total, noise[c] / math.fsum(noise)
                result[w, c] = math.log(float(count) / total / (p_w * q_c))
    return result


def shifted_positive_pmi(counts: Floats, negatives: int, alpha: float) -> Floats:
    """max(PMI - log k, 0)."""
    return np.maximum(pmi(counts, alpha) - math.log(negatives), 0)


# --- Ranks ----------------------------------------------------------------------------------------------------------


def ranks_of_true_values(scores: Sequence[float], true_values: Sequence[int]) -> list[float]:
    """The rank of each distinct true value of a row, in ascending order of the values.

    The number of candidates that score strictly higher plus half of the ties; the row's other true values are left out.
    """
    distinct = sorted(set(true_values))
    ranks = []
    for value in distinct:
        above = ties = 0
        for candidate in range(len(scores)):
            if candidate not in distinct:
                above += scores[candidate] > scores[value]
                ties += scores[candidate] == scores[value]
        ranks.append(above + ties / 2)
    return ranks


def tfidf_cosines(train_items: list[list[str]], items: list[str]) -> list[float]:
    """The cosines of a row's TF-IDF vector with those of training rows.

    idf = log((1 + rows) / (1 + rows with the item)) + 1, as scikit-learn has it.
    """
    idf: dict[str, float] = {}
    for item in {item for row in train_items for item in row}:
        with_item = sum(item in row for row in train_items)
        idf[item] = math.log((1 + len(train_items)) / (1 + with_item)) + 1

    def vector(row: list[str]) -> dict[str, float]:
        weights = {item: row.count(item) * idf[item] for item in row if item in idf}
        norm = math.sqrt(sum(weight**2 for weight in weights.values()))
        return {item: weight / norm for item, weight in weights.items()}

    query, cosines = vector(items), []
    for train_row in train_items:
        row = vector(train_row)
        cosines.append(sum(query[item] * row.get(item, 0) for item in query))
    return cosines


def tfidf_scores(
    train_items: list[list[str]],
    train_values: list[list[int]],
    items: list[str],
    candidates: int,
    neighbours: int,
) -> list[float]:
    """The sums of the cosines of TF-IDF vectors over a row's nearest training rows, for each of their values."""
    rows = [i for i, values in enumerate(train_values) if values]
    cosines = tfidf_cosines([train_items[i] for i in rows], items)
    bound = sorted(cosines)[-neighbours] if len(cosines) > neighbours else 0
    scores = [0.0] * candidates
    for i, cosine in zip(rows, cosines, strict=True):
        if cosine >= bound:
            for value in train_values[i]:
                scores[value] += cosine
    return scores


# --- Completing rows: p(value | row) --------------------------------------------------------------------------------


def completion_probabilities(
    products: Sequence[Sequence[float]],
    linear: Sequence[float],
    counts: Sequence[int],
    weights: Sequence[float],
    popularity: float,
    temperature: float = 1.0,
) -> list[float]:
    """The probability of each candidate: `products[v][g]` is <c_g, v>, `weights[g]` is that of the group g."""
    logits = []
    for of_candidate, term, count in zip(products, linear, counts, strict=True):
        total = term / temperature + popularity * math.log(count + 1)
        for product, weight in zip(of_candidate, weights, strict=True):
            total += weight * product / temperature
        logits.append(total)
    top = max(logits)
    exponentials = [math.exp(logit - top) for logit in logits]
    return [exponential / math.fsum(exponentials) for exponential in exponentials]


def number_quantile(numbers: Sequence[tuple[float, float, float]], share: float) -> float:
    """The number below which the share lies, of (low, high, probability): numbers of a bin are equally probable."""
    below = 0.0
    for low, high, probability in sorted(numbers):
        if below + probability >= share:
            return low + (high - low) * (share - below) / probability
        below += probability
    return max(high for _, high, _ in numbers)


def list_probability(share: float, size: float, slope: float) -> float:
    """The probability that a list holds a value of which so large a share of its items is."""
    return 1 - math.exp(-math.exp(size) * share**slope)


def completion_loss(
    observations: Sequence[tuple[int, float, Sequence[Sequence[float]]]],
    prior: Sequence[float],
    log_counts: Sequence[float],
    weights: Sequence[float],
    popularity: float,
) -> float:
    """The sum of -share * log p(true): an observation is (true candidate, share, <c_g, v> of each candidate v)."""
    total = 0.0
    for true, share, products in observations:
        logits = []
        for of_candidate, before, log_count in zip(products, prior, log_counts, strict=True):
            product = math.fsum(weight * part for weight, part in zip(weights, of_candidate, strict=True))
            logits.append(product + before + popularity * log_count)
        top = max(logits)
        total -= share * (logits[true] - top - math.log(math.fsum(math.exp(logit - top) for logit in logits)))
    return total


# --- A factorization machine of normal weights: mean-field variational inference ------------------------------------

# Of each group its items: a key, and what its weights are multiplied by.
NormalRow: TypeAlias = Sequence[Sequence[tuple[int, float]]]


def normal_score(row: NormalRow, means: Array, variances: Array) -> tuple[float, float]:
    """The mean and the variance of a score whose weights are independent, by the expected products of its terms.

    A group's sum is a variable at each coordinate; the last coordinate is that of linear terms.
    """
    dim = means.shape[1] - 1
    mean_of: dict[tuple[int, int], float] = {}
    square_of: dict[tuple[int, int], float] = {}
    for g, items in enumerate(row):
        for d in range(dim + 1):
            mean_of[g, d] = sum(x * means[key, d] for key, x in items)
            square_of[g, d] = mean_of[g, d] ** 2 + sum(x**2 * variances[key, d] for key, x in items)
    terms: list[tuple[tuple[int, int], ...]] = [((g, dim),) for g in range(len(row))]
    terms += [((g, d), (h, d)) for d in range(dim) for h in range(len(row)) for g in range(h)]

    def expected(variables: Sequence[tuple[int, int]]) -> float:
        return math.prod(square_of[v] if count == 2 else mean_of[v] for v, count in Counter(variables).items())

    mean = sum(expected(term) for term in terms)
    return mean, sum(expected((*term, *other)) for term in terms for other in terms) - mean**2


class NormalStep(NamedTuple):
    loss: float
    gradients: Array  # [keys, D + 1], of the keys that are in the batch
    curvatures: Array  # [keys, D + 1], after the step
    bias: float  # its gradient


def normal_step(
    rows: Sequence[NormalRow],
    labels: Sequence[float],
    weights: Sequence[float],
    bias: float,
    means: Array,
    curvatures: Array,
    counts: Array,
    precisions: Array,
    prior_means: Array,
    noise: float,
) -> NormalStep:
    """A step, with derivatives by differences of what is a polynomial: `counts` [keys], the others [keys, D + 1]."""
    variances = noise / (noise * precisions + counts[:, None] * curvatures)

    def halves(means: Array, variances: Array, bias: float) -> float:
        total = 0.0
        for row, label, weight in zip(rows, labels, weights, strict=True):
            mean, variance = normal_score(row, means, variances)
            total += weight * ((label - bias - mean) ** 2 + variance) / 2
        return total

    batch_counts = Counter(key for row in rows for items in row for key, _ in items)
    gradients, new_curvatures = np.zeros_like(means), curvatures.copy()
    for key, count in batch_counts.items():
        share = count / counts[key]
        for d in range(means.shape[1]):
            step = np.zeros_like(means)
            step[key, d] = 1e-3
            difference = halves(means + step, variances, bias) - halves(means - step, variances, bias)
            prior = share * noise * precisions[key, d] * (means[key, d] - prior_means[key, d])
            gradients[key, d] = (difference / 2e-3 + prior) / count
            found = (halves(means, variances + step, bias) - halves(means, variances - step, bias)) / 1e-3 / count
            new_curvatures[key, d] += (1 - 0.5**share) * (found - curvatures[key, d])
    of_bias = (halves(means, variances, bias + 1e-3) - halves(means, variances, bias - 1e-3)) / 2e-3 / len(rows)
    return NormalStep(2 * halves(means, variances, bias) / len(rows), gradients, new_curvatures, of_bias)


# --- Self-attention (Vaswani et al., 2017, sections 3.2 to 3.5): vectors are lists of tokens ------------------------


def sinusoid(position: int, dim: int) -> Array:
    """The encoding of a position, counted from 0."""
    angles = [position / 10_000 ** (2 * (i // 2) / dim) for i in range(dim)]
    return np.array([math.cos(angle) if i % 2 else math.sin(angle) for i, angle in enumerate(angles)])


def self_attention(tokens: Sequence[Array], w: Mapping[str, Any]) -> list[Array]:
    """Each token's mean of the values of all, weighed by softmax(q . k / sqrt(size of k)) in each head, projected."""
    dim, heads, size = w["query/kernel"].shape
    seen = []
    for token in tokens:
        total = np.zeros(dim)
        for h in range(heads):
            query = token @ w["query/kernel"][:, h]  # [size]
            logits = [query @ (other @ w["key/kernel"][:, h]) / math.sqrt(size) for other in tokens]
            exponentials = [math.exp(logit - max(logits)) for logit in logits]
            mean = np.zeros(size)
            for exponential, other in zip(exponentials, tokens, strict=True):
                mean += exponential / sum(exponentials) * (other @ w["value/kernel"][:, h])
            total += mean @ w["attention_output/kernel"][h]
        seen.append(total)
    return seen


def layer_norm(x: Array, gamma: Array, beta: Array, epsilon: float = 1e-3) -> Array:
    """gamma (x - mean) / sqrt(variance + epsilon) + beta."""
    mean = sum(x) / len(x)
    variance = sum((number - mean) ** 2 for number in x) / len(x)
    deviation = math.sqrt(variance + epsilon)
    return np.array([gamma[i] * (x[i] - mean) / deviation + beta[i] for i in range(len(x))])


def attention_block(tokens: Sequence[Array], w: Mapping[str, Any]) -> list[Array]:
    """Attention, then two dense layers with a ReLU between them; each is added to its input, and the sum normalized."""
    of_attention = {name.removeprefix("attention/"): array for name, array in w.items()}
    result = []
    for token, seen in zip(tokens, self_attention(tokens, of_attention), strict=True):
        token = layer_norm(token + seen, w["attention_norm/gamma"], w["attention_norm/beta"])
        hidden = np.maximum(token @ w["hidden/kernel"] + w["hidden/bias"], 0)
        dense = hidden @ w["output/kernel"] + w["output/bias"]
        result.append(layer_norm(token + dense, w["norm/gamma"], w["norm/beta"]))
    return result


# --- Principal components: the linear autoencoder's optimum ---------------------------------------------------------


def covariance(rows: Sequence[Array]) -> tuple[Array, Array]:
    """The mean [width] and the covariance [width, width] of rows."""
    width = len(rows[0])
    mean = np.array([sum(row[i] for row in rows) / len(rows) for i in range(width)])
    products = np.zeros((width, width))
    for row in rows:
        for i in range(width):
            for j in range(width):
                products[i, j] += (row[i] - mean[i]) * (row[j] - mean[j]) / len(rows)
    return mean, products


def reconstruction_error(rows: Sequence[Array], kernel: Array) -> float:
    """The least mean squared error of a linear autoencoder with this encoder [width, k]: its decoder by least squares.

    Both have a bias, so the rows count as they are around their mean.
    """
    mean = sum(rows) / len(rows)
    centred = np.array([row - mean for row in rows])
    decoder = np.linalg.lstsq(centred @ kernel, centred, rcond=None)[0]  # [k, width]
    return float(np.square(centred - centred @ kernel @ decoder).sum() / len(rows))


# --- optimizers -----------------------------------------------------------------------------------------------------


def ftrl_proximal(
    gradients: Sequence[float], alpha: float, beta: float, l1: float, l2: float, start: float = 0.0
) -> list[float]:
    """A coordinate after each gradient: algorithm 1 of McMahan et al. (2013), line by line.

    A start other than zero is the centre of the first proximal term, beta / alpha (w - start)^2 / 2, which the paper
    has at zero.
    """
    z, n, w = -beta / alpha * start, 0.0, start
    path: list[float] = []
    for g in gradients:
        sigma = (math.sqrt(n + g**2) - math.sqrt(n)) / alpha
        z += g - sigma * w
        n += g**2
        w = 0.0 if abs(z) <= l1 else -(z - math.copysign(l1, z)) / ((beta + math.sqrt(n)) / alpha + l2)
        path.append(w)
    return path


def ftrl_by_its_objective(
    gradients: Sequence[float], alphas: Sequence[float], beta: float, l1: float, l2: float, start: float = 0.0
) -> list[float]:
    """The same from what it minimizes: g_1 w + ... + g_t w + sum_s sigma_s (w - w_s)^2 / 2 + l1 |w| + l2 w^2 / 2.

    The strengths sigma_s add up to (beta + sqrt(n_t)) / alpha_t, whatever the learning rates are.
    """
    centres, strengths, n = [start], [beta / alphas[0]], 0.0
    path: list[float] = []
    for t, (g, alpha) in enumerate(zip(gradients, alphas, strict=True)):
        n += g**2
        centres.append(path[-1] if path else start)
        strengths.append((beta + math.sqrt(n)) / alpha - sum(strengths))
        slope = sum(gradients[: t + 1]) - sum(s * c for s, c in zip(strengths, centres, strict=True))
        shrunk = max(abs(slope) - l1, 0.0)
        path.append(-math.copysign(shrunk, slope) / (sum(strengths) + l2))
    return path


def heavy_ball(slope: Callable[[float], float], start: float, rate: float, momentum: float, steps: int) -> list[float]:
    """theta_{k+1} = theta_k - eta l'(theta_k) + beta (theta_k - theta_{k-1})."""
    before, now, path = start, start, []
    for _ in range(steps):
        before, now = now, now - rate * slope(now) + momentum * (now - before)
        path.append(now)
    return path


def nesterov(slope: Callable[[float], float], start: float, rate: float, momentum: float, steps: int) -> list[float]:
    """theta' = theta_k + beta (theta_k - theta_{k-1}); theta_{k+1} = theta' - eta l'(theta'). The path of theta'."""
    before, now, path = start, start, []
    for _ in range(steps):
        ahead = now + momentum * (now - before)
        before, now = now, ahead - rate * slope(ahead)
        path.append(now + momentum * (now - before))
    return path


# --- Matrix completion (seed 003, chapter 2): dense matrices, whose unknown entries nothing reads --------------------


def ridge_solution(features: Array, sides: Array, weights: Array, ridge: Array, pull: Array) -> Array:
    """(sum_i h_i f_i f_i' + diag(r))^-1 (sum_i s_i f_i + pull), item by item."""
    matrix, right = np.diag(np.array(ridge, float)), np.array(pull, float)
    for feature, side, weight in zip(features, sides, weights, strict=True):
        matrix = matrix + weight * np.outer(feature, feature)
        right = right + side * feature
    solution: Array = np.linalg.inv(matrix) @ right
    return solution


def biases_of_entries(entries: Sequence[tuple[int, int, float]], shape: tuple[int, int], damping: float) -> Array:
    """What minimises sum (a - mean - r_i - c_j)^2 + damping (|r|^2 + |c|^2): r and then c, by one dense system."""
    mean = sum(number for _, _, number in entries) / len(entries)
    size = sum(shape)
    matrix: Array = np.eye(size) * damping
    right: Array = np.zeros(size)
    for row, column, number in entries:
        indicator = np.zeros(size)
        indicator[[row, shape[0] + column]] = 1
        matrix = matrix + np.outer(indicator, indicator)
        right = right + (number - mean) * indicator
    biases: Array = np.asarray(np.linalg.solve(matrix, right), np.float64)
    return biases


def best_of_rank(matrix: Array, rank: int) -> Array:
    """Theorem 10 (Eckart and Young): the singular values after the first `rank` are left out."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    best: Array = sum((values[i] * np.outer(left[:, i], right[i]) for i in range(rank)), np.zeros_like(matrix))
    return best


def shrink(matrix: Array, threshold: float) -> Array:
    """Theorem 13: U diag(sigma - threshold)_+ V'."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    shrunk: Array = left @ np.diag([max(value - threshold, 0.0) for value in values]) @ right
    return shrunk


def completion_objective(matrix: Array, known: npt.NDArray[np.bool_], estimate: Array, threshold: float) -> float:
    """1/2 |P(A - X)|^2 + t |X|_*, whose least value `soft_impute` finds."""
    errors = sum((matrix[i, j] - estimate[i, j]) ** 2 for i, j in zip(*np.nonzero(known), strict=True))
    return float(errors / 2 + threshold * np.linalg.svd(estimate, compute_uv=False).sum())


def singular_value_thresholding(
    matrix: Array, known: npt.NDArray[np.bool_], threshold: float, steps: int, rate: float
) -> Array:
    """The seed's A <- A + eta P(A0 - shrink_t(A)) from A = 0, and the estimate that it ends with.

    The seed prints that it converges to the least t |B|_* + 1/(2 t) |B|^2 with P(B) = P(A0). The factor is 1/2: the
    Lagrangian of t |B|_* + 1/2 |B|^2 has its minimum at shrink_t of the multipliers, which is what the step uses.
    """
    multipliers = np.zeros_like(matrix)
    for _ in range(steps):
        multipliers = multipliers + rate * np.where(known, matrix - shrink(multipliers, threshold), 0.0)
    return shrink(multipliers, threshold)
