"""What a schema without a target is trained with: every number that `init` writes for one is decided here.

`unlabelled_defaults` gives the sections of the schema, `extractor_for` the last word on the extractor of a group. Both
see facts alone, so that a benchmark can call them for any size of a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

GroupKind = Literal["keys", "list", "numbers", "dates", "text", "vector"]
ExtractorOptions = dict[str, object]


@dataclass(frozen=True)
class GroupFacts:
    """What is known of a group before training.

    Attributes:
        kind: What its columns hold.
        present: The rows with a value.
        distinct: The distinct values, or items of lists; of texts that are split, as many as a sample of them has.
        rows_per_value: In how many rows a value, or an item, is on average.
        items_per_row: The mean number of items in a row with any; 1 but for lists, and for texts their words.
        columns: The number of columns.
        has_nan: Whether a typed column holds NaN, which numbers can take for missing, and bins cannot.
        extractor: The extractor that fits what the columns hold.

    """

    kind: GroupKind
    present: int
    distinct: int
    rows_per_value: float
    items_per_row: float
    columns: int
    has_nan: bool
    extractor: ExtractorOptions


@dataclass(frozen=True)
class TableFacts:
    """What is known of a table before training.

    Attributes:
        rows: Its rows.
        groups: Its groups by name.
        time: The group that tells when a row came; None if there is none.

    """

    rows: int
    groups: Mapping[str, GroupFacts]
    time: str | None = None


class Section(NamedTuple):
    """A section of a schema: its options, and the reason for them, which stands beside it as a comment."""

    options: dict[str, object]
    reason: str


# Chosen by `tools/bench_tables.py` (random parts, seed 0): no table's best, but within noise of it on each.
DIM, DIM_OF_FEW_ROWS = 128, 64
TEMPERATURE = 0.1
NEGATIVES = 256
PIECES, ROWS_PER_PIECE = 16, 10
WIDE, BINS = 32, 20  # groups from which a step reads all of them at once, if all are keys: numbers are bins then
SHARE_OF_NUMBERS = 0.3  # how often a number or text is replaced by noise, where a key has 1
MOST_WORDS = 64  # of a text
MOST_ROWS_OF_RARE_WORDS = 50_000  # with more rows, words that come once have no vector
EXAMPLES = 2_000_000  # rows times epochs that are enough for small tables
FEWEST_EPOCHS, MOST_EPOCHS = 10, 80
FEW_ROWS = 2_000
GROUP_DROPOUT = 0.1  # for rows in which the groups that tell most are missing
SMALL_TABLE, SMALL_BATCH, LARGE_BATCH = 50_000, 512, 2048


def unlabelled_defaults(facts: TableFacts) -> dict[str, Section]:
    """Return the sections `model`, `noise`, `objective` and `training` of a schema without a target.

    Args:
        facts: What is known of the table.

    Returns:
        Each section with the reason for it, in the order in which they are written.

    Example:
        >>> sections = unlabelled_defaults(TableFacts(4000, {}))
        >>> sections["training"].options["epochs"], sections["objective"].options["type"]
        (80, 'contrastive')

    """
    return {
        "model": Section(
            {"dim": DIM_OF_FEW_ROWS if facts.rows < FEW_ROWS else DIM}, "dimensions of every vector; more for more rows"
        ),
        "noise": _noise(facts),
        "objective": Section(
            {"type": "contrastive", "unit": True, "temperature": TEMPERATURE, "correction": True},
            "candidates are compared by cosine, so they are learnt so",
        ),
        "training": _training(facts.rows, facts.time),
    }


def _noise(facts: TableFacts) -> Section:
    options: dict[str, object] = {"sharing": "batch", "negatives": NEGATIVES}
    reason = "values that the row's own are told from, shared by a batch"
    are_keys = {name: group.kind not in ("numbers", "text") for name, group in facts.groups.items()}
    if any(are_keys.values()) and not all(are_keys.values()):
        options["targets"] = {name: 1 if is_key else SHARE_OF_NUMBERS for name, is_key in are_keys.items()}
        reason += "; numbers and texts are replaced less often than keys"
    if any(group.kind in ("list", "text") for group in facts.groups.values()):
        options["lists"] = "items"
        reason += "; of a list or a text one item at a time"
    return Section(options, reason)


def _training(rows: int, time: str | None) -> Section:
    epochs = max(FEWEST_EPOCHS, min(MOST_EPOCHS, EXAMPLES // max(rows, 1)))
    batch_size = SMALL_BATCH if rows <= SMALL_TABLE else LARGE_BATCH
    options: dict[str, object] = {
        "epochs": epochs,
        "batch_size": batch_size,
        "optimizer": {"type": "adagrad", "learning_rate": 0.1},
        "group_dropout": GROUP_DROPOUT,
    }
    # What is fitted to the held-out rows is told of the model that has learnt from the others: it is to stay like it.
    options["refit"] = "continue"
    reason = f"{rows:,} rows: fewer rows need more epochs, in smaller batches"
    if time is not None:
        options["time"] = time
        reason += "; the last rows in time say how later ones are completed"
    options["seed"] = 0
    return Section(options, reason)


def extractor_for(group: GroupFacts, facts: TableFacts) -> ExtractorOptions:
    """Return the extractor of a group in a schema without a target.

    Numbers are encoded by the share of each piece between two quantiles that lies below them (Gorishniy et al., 2022):
    near numbers have near vectors, and no outlier has a long one. A text is its words, which are learnt several times
    as fast as convolutions over them; of a large table a word that comes once is left out.

    Args:
        group: What is known of the group, with the extractor that fits what its columns hold.
        facts: What is known of the whole table.

    Returns:
        The extractor's options, as the schema has them.

    Example:
        >>> options = {"type": "numeric", "scale": "standard"}
        >>> year = GroupFacts("numbers", 70, 60, 1.2, 1.0, 1, has_nan=False, extractor=options)
        >>> extractor_for(year, TableFacts(90, {"year": year}))
        {'type': 'numeric', 'scale': 'quantile', 'pieces': 7}

    """
    if group.kind == "text":
        least_count: ExtractorOptions = {} if facts.rows <= MOST_ROWS_OF_RARE_WORDS else {"min_count": 2}
        words: ExtractorOptions = {"type": "lookup", "split": "words", "max_items": MOST_WORDS}
        return words | least_count | {"combiner": "sqrtn", "item_dropout": 0.3}
    if group.kind == "list":
        return group.extractor
    if group.kind != "numbers":
        return group.extractor
    if is_read_at_once(facts):
        return {"type": "lookup", "bins": max(2, min(BINS, group.present // ROWS_PER_PIECE))}
    pieces = max(2, min(PIECES, group.present // ROWS_PER_PIECE))
    options: ExtractorOptions = {"type": "numeric", "scale": "quantile", "pieces": pieces}
    return options | {"nan": "missing"} if group.has_nan else options


def is_read_at_once(facts: TableFacts) -> bool:
    """Return whether a step can read all groups of a wide table at once, if its numbers are bins.

    Args:
        facts: What is known of the table.

    Returns:
        True for many groups of keys and numbers, none of which is a list, a text or a date.

    """
    are_single = (group.kind in ("keys", "numbers") and group.columns == 1 for group in facts.groups.values())
    can_be_bins = all(not group.has_nan and "written" not in group.extractor for group in facts.groups.values())
    return len(facts.groups) >= WIDE and can_be_bins and all(are_single)
