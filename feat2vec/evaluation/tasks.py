"""`evaluate`: how well a row's groups find its value of another one, and how true what a run says is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from feat2vec.encode.codecs import Entries, ItemsCodec, NumbersCodec, parse_items
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.entry_tables import Array
from feat2vec.encode.targets import target_of
from feat2vec.encode.vocabulary import FIRST, PADDING, UNSEEN
from feat2vec.errors import UserError, listed, suggest
from feat2vec.evaluation.metrics import auc, log_loss, spearman, summary_of_ranks
from feat2vec.model.keras_model import Feat2Vec
from feat2vec.schema.extractor_options import Lookup
from feat2vec.schema.options import Glove, Logistic, Softmax
from feat2vec.space.geometry import ROWS_PER_BATCH as ROWS
from feat2vec.space.geometry import (
    Candidates,
    Queries,
    blocks,
    candidates,
    dense,
    extract,
    is_keyed,
    known,
    similarities,
)
from feat2vec.space.geometry import VectorSimilarity as Similarity
from feat2vec.space.predict import Predictor, softmax
from feat2vec.space.run_vectors import vectors_of_group
from feat2vec.table.keys import MANY, items_of
from feat2vec.table.numbers import numbers_of
from feat2vec.table.stages import Stage, stages
from feat2vec.table.table import Table, open_table
from feat2vec.training.run_folder import TrainedRun

Ints = npt.NDArray[np.signedinteger[Any]]

Scores = Callable[[Ints], Array]  # some rows' numbers to their scores [rows, candidates]

Task = Literal["rank", "nearest", "pairs", "predict"]

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "rank": ("target", "given", "similarity"),
    "nearest": ("target", "given", "similarity"),
    "pairs": ("target", "similarity"),
    "predict": ("level",),
}
SCORES = 1 << 23  # that are in memory at a time


def evaluate(
    run: TrainedRun,
    data: object,
    task: Task,
    *,
    target: str | None = None,
    given: Sequence[str] | None = None,
    similarity: Similarity | None = None,
    level: int | None = None,
) -> dict[str, Any]:
    """One of the tasks, by its name; an option that it does not have is refused."""
    options = {"target": target, "given": given, "similarity": similarity, "level": level}
    for name, value in options.items():
        if value is not None and name not in OPTIONS[task]:
            raise UserError(f"--{name}: is not for --task {task}; remove it")
    if "target" in OPTIONS[task] and target is None:
        raise UserError(f"--task {task} needs --target, the group that it is about")
    tasks: Mapping[str, Callable[..., dict[str, Any]]]
    tasks = {"rank": rank, "nearest": nearest, "pairs": pairs, "predict": predict}
    return tasks[task](run, data, **{name: value for name, value in options.items() if value is not None})


def rank(
    run: TrainedRun, data: object, target: str, given: Sequence[str] | None = None, similarity: Similarity = "cosine"
) -> dict[str, Any]:
    """Rank each row's true values of `target` among all that training has seen, by their similarity with `given`.

    A query is a row and one distinct true value, also one beyond `max_items`; the row's other true values are left out
    of its ranking. `given` are all other groups if it is None.
    """
    model, given = run.model, _groups(run.fitted, target, given)
    found = candidates(model, run.fitted, target)

    def scores_of(rows: Mapping[str, Array]) -> Scores:
        queries = extract(model, rows)
        return lambda some: similarities(queries.take(some), found, similarity)

    facts = ranked(run, data, target, given, found.sizes()[0], scores_of)
    return {"task": "rank", "target": target, "given": facts.pop("given"), "similarity": similarity, **facts}


def ranked(
    run: TrainedRun,
    data: object,
    target: str,
    given: Sequence[str] | None,
    total: int,
    scores_of: Callable[[Mapping[str, Array]], Scores],
) -> dict[str, Any]:
    """What `rank` says, by any scores: `scores_of(rows)(some)` are those of some rows, [some, candidates]."""
    encoder = run.fitted
    given = _groups(encoder, target, given)
    data = _with_columns(encoder, target, given, data)
    ranks: list[npt.NDArray[np.float64]] = [np.zeros(0)]
    unseen = empty = 0
    for rows, row, value, missed in _queries(run, data, target, given):
        unseen += missed
        some = np.logical_or.reduce([known(encoder, name, rows[name]) for name in given])
        empty += int((~some[row]).sum())
        row, value = row[some[row]], value[some[row]]
        ranks += [rank_scores(scores_of({name: rows[name] for name in given}), total, row, value)]
    every = np.concatenate(ranks)
    counts = {"n": len(every), "skipped_unseen": unseen, "skipped_empty": empty, "candidates": total}
    return {"given": list(given), **counts, **summary_of_ranks(every, total)}


def nearest(
    run: TrainedRun, data: object, target: str, given: Sequence[str] | None = None, similarity: Similarity = "cosine"
) -> dict[str, Any]:
    """Read a number off the value of `target` that is nearest to `given`, and compare it with the row's own number."""
    encoder, model = run.fitted, run.model
    given = _groups(encoder, target, given)
    data = _with_columns(encoder, target, given, data)
    entries, numbers = _numbers(encoder, target)
    found = candidates(model, encoder, target)
    said: list[Array] = []
    true: list[Array] = []
    missing = empty = 0
    for rows in _rows(run, data, [*given, target]):
        own = numbers(rows[target])
        there = ~np.isnan(own).any(axis=1)
        some = np.logical_or.reduce([known(encoder, name, rows[name]) for name in given])
        missing, empty = missing + int((~there).sum()), empty + int((there & ~some).sum())
        asked = np.flatnonzero(there & some)
        queries = extract(model, {name: rows[name] for name in given})
        for block in blocks(len(asked), max(SCORES // max(len(entries), 1), 1)):
            best = similarities(queries.take(asked[block]), found, similarity).argmax(axis=1)
            said.append(entries[best])
        true.append(own[asked])
    errors = np.square(np.concatenate(said) - np.concatenate(true)) if said else np.zeros((0, entries.shape[1]))
    error = [float(x) for x in errors.mean(axis=0)] if len(errors) else [None] * entries.shape[1]
    columns = encoder.schema.groups[target].columns
    return {
        "task": "nearest",
        "target": target,
        "given": list(given),
        "similarity": similarity,
        "n": len(errors),
        "skipped_missing": missing,
        "skipped_empty": empty,
        "candidates": len(entries),
        "mse": error[0] if len(error) == 1 else dict(zip(columns, error, strict=True)),
    }


def predict(run: TrainedRun, data: object, level: int | None = None) -> dict[str, Any]:
    """How far what is said of rows is from their target.

    logistic: log loss and AUC. regression: RMSE and MAE, for glove of log N. softmax: accuracy and log loss, over the
    rows whose class training has seen.
    """
    schema, table = run.schema, open_table(data)
    if schema.target is None:
        remedy = "`--task rank` and `--task nearest` measure it"
        raise UserError(f"--task predict: the objective {schema.objective.type} has no target to predict; {remedy}")
    if schema.target not in table.columns:
        near = suggest(schema.target, table.columns) or f"; the columns are {listed(table.columns)}"
        raise UserError(f"{table.name}: has no column {schema.target!r}, the target{near}")
    said: list[Array] = []
    true: list[Array] = []
    for part in Predictor(run.fitted, run.model, level).batches(table, (schema.target,)):
        said.append(part.scores)
        if part.rows.start == 0:  # a stage begins
            true.append(target_of(schema, part.stage, run.fitted.classes))
    scores, truth = np.concatenate(said).astype(np.float64), np.concatenate(true)
    facts: dict[str, Any] = {"task": "predict", "n": len(truth)}
    match schema.objective:
        case Logistic():
            return facts | {"log_loss": log_loss(scores, truth), "auc": auc(scores, truth)}
        case Softmax():
            seen = truth >= 0
            scores, truth = scores[seen], truth[seen]
            own = np.take_along_axis(np.log(softmax(scores)), truth[:, None], axis=1)
            right = float((scores.argmax(axis=1) == truth).mean()) if len(truth) else None
            loss = float(-own.mean()) if len(truth) else None
            return facts | {"n": len(truth), "skipped_unseen": int((~seen).sum()), "accuracy": right, "log_loss": loss}
    errors = scores - (np.log(truth) if isinstance(schema.objective, Glove) else truth)
    return facts | {"rmse": float(np.sqrt(np.square(errors).mean())), "mae": float(np.abs(errors).mean())}


def pairs(run: TrainedRun, data: object, target: str, similarity: Similarity = "cosine") -> dict[str, Any]:
    """Spearman's rank correlation of the similarities of keys with what people say of them.

    The first three columns of `data` are a key, another one, and a number, such as a list of words that people have
    judged. A key that is not there as it is written is looked up in lower case; pairs with one that training has not
    seen are counted.
    """
    facts = pair_similarities(data, vectors_of_group(run, target), similarity)
    return {"task": "pairs", "target": target, "similarity": similarity, **facts}


def pair_similarities(data: object, vectors: Any, similarity: Similarity = "cosine") -> dict[str, Any]:
    """What `pairs` says of any vectors by key, feat2vec's or gensim's."""
    table = open_table(data)
    columns = list(table.columns)[:3]
    if len(columns) < 3:
        received = ", ".join(map(repr, columns))
        raise UserError(f"{table.name}: --task pairs needs three columns (key, key, number); received {received}")
    options = {} if similarity == "cosine" else {"similarity": similarity}
    said: list[float] = []
    true: list[float] = []
    total = 0
    for stage in stages(table, columns):
        one, other = ([_find(vectors, key) for key in _keys(stage, name)] for name in columns[:2])
        for i, (a, b, number) in enumerate(zip(one, other, numbers_of(stage, columns[2])[0], strict=True)):
            total += 1
            if np.isnan(number):
                stage.refuse(i, columns[2], None, "a pair needs a number; leave the row out")
            if a is not None and b is not None:
                said.append(float(vectors.similarity(a, b, **options)))
                true.append(float(number))
    found = spearman(np.array(said), np.array(true))
    return {"n": len(said), "skipped_unseen": total - len(said), "spearman": found}


def _keys(stage: Stage, column: str) -> list[str | None]:
    """The key of each row, as a lookup group spells it."""
    items = items_of(stage, column, Lookup())
    keys = iter(items.keys.take(pa.array(items.codes)).to_pylist())
    return [next(keys) if length else None for length in items.lengths]


def _find(vectors: Any, key: str | None) -> str | None:
    """The key as the group spells it, None if it has none."""
    return next((each for each in (key, (key or "").casefold()) if key is not None and each in vectors), None)


def _groups(encoder: Encoder, target: str, given: Sequence[str] | None) -> list[str]:
    names = list(encoder.codecs)
    problems = [
        f"{what}: there is no group {name!r}{suggest(name, names) or '; the groups are ' + listed(names)}"
        for what, some in (("--target", [target]), ("--given", given or []))
        for name in some
        if name not in names
    ]
    if given is not None and target in given:
        problems.append(f"--given: {target!r} is the target, which it would give away; remove it")
    if problems:
        raise UserError(*problems)
    rest = [name for name in names if name != target] if given is None else list(dict.fromkeys(given))
    if not rest:
        raise UserError(f"--given: no group is left beside the target {target!r}")
    return rest


def _with_columns(encoder: Encoder, target: str, given: Sequence[str], data: object) -> Table:
    """The table, which has the target's columns, and one at least to find it by."""
    table = open_table(data)
    columns = encoder.schema.groups[target].columns
    missing = [column for column in columns if column not in table.columns]
    if missing:
        near = suggest(missing[0], table.columns) or f"; the columns are {listed(table.columns)}"
        raise UserError(f"{table.name}: has no column {missing[0]!r}, which the target {target!r} needs{near}")
    wanted = [column for name in given for column in encoder.schema.groups[name].columns]
    if not set(wanted) & set(table.columns):
        there = listed(table.columns)
        raise UserError(
            f"{table.name}: has none of the columns {listed(wanted)}, to find {target!r} by; it has {there}"
        )
    return table


def _rows(run: TrainedRun, data: object, names: Sequence[str]) -> Iterator[Mapping[str, Array]]:
    """The rows' entries of some groups, in batches that an extractor can take."""
    for batch in run.fitted.entries(data):
        whole = {name: dense(batch[name]) for name in names}
        for block in blocks(len(whole[names[0]]), ROWS):
            yield {name: entries[block] for name, entries in whole.items()}


def _queries(
    run: TrainedRun, data: object, target: str, given: Sequence[str]
) -> Iterator[tuple[Mapping[str, Array], Ints, Ints, int]]:
    """(Entries of `given` in some rows, row and candidate of each query, how many true values training has not seen).

    Queries are in the order of their rows.
    """
    for stage, entries in run.fitted.staged(data):
        whole = {name: dense(entries[name]) for name in given}
        row, value, unseen = _truth(run.model, run.fitted, target, stage, entries[target])
        for block in blocks(stage.rows, ROWS):
            some = slice(*np.searchsorted(row, [block.start, block.stop]))
            yield {name: rows[block] for name, rows in whole.items()}, row[some] - block.start, value[some], unseen
            unseen = 0  # it is told with the first block


def _truth(model: Feat2Vec, encoder: Encoder, target: str, stage: Stage, encoded: Entries) -> tuple[Ints, Ints, int]:
    """(Row and candidate of each query, how many true values training has not seen).

    A value that a row holds twice is one query. True values of a bag are all that a row holds: `max_items` bounds what
    a model sees of them.
    """
    codec, group = encoder.codecs[target], encoder.schema.groups[target]
    if isinstance(codec, ItemsCodec) and is_keyed(model, target):
        whole = group.model_copy(update={"extractor": group.extractor.model_copy(update={"max_items": MANY})})
        items = parse_items(stage, whole, codec.edges, codec.kind)
        ids = codec.vocabulary.ids(items.keys)[items.codes]  # [items]
        row = np.repeat(np.arange(stage.rows), items.lengths)
        queries = np.unique(np.stack([row, ids - FIRST], axis=1)[ids >= FIRST], axis=0)
        return queries[:, 0], queries[:, 1], int(np.count_nonzero(ids == UNSEEN))
    entries = dense(encoded)
    values = encoder.values[target].entries
    index = {values[i].tobytes(): i for i in range(len(values))}
    there = ~np.isnan(entries[:, 0]) if entries.dtype == np.float32 else (entries > PADDING).any(axis=1)
    found = np.array([index.get(entry.tobytes(), -1) for entry in entries])
    row = np.flatnonzero(there & (found >= 0))
    return row, found[row], int((there & (found < 0)).sum())


def rank_queries(
    queries: Queries, found: Candidates, row: Ints, value: Ints, similarity: Similarity
) -> npt.NDArray[np.float64]:
    """`rank_scores` by the similarities of rows' vectors with candidates."""
    return rank_scores(lambda some: similarities(queries.take(some), found, similarity), found.sizes()[0], row, value)


def rank_scores(scores_of: Scores, total: int, row: Ints, value: Ints) -> npt.NDArray[np.float64]:
    """Of each query the candidates that score strictly higher than its value, plus half of the ties: [queries].

    The row's other true values are left out: they are neither higher nor ties.

    Args:
        scores_of: gives the scores [some, total] of some rows.
        total: the number of candidates.
        row: of each query, in ascending order.
        value: of each query, a candidate; a row's values are distinct.

    """
    ranks = np.zeros(len(row))
    asked, place = np.unique(row, return_inverse=True)
    # A row's queries stand together: they begin at first[place] and end before last[place].
    first, last = np.searchsorted(place, np.arange(len(asked))), np.searchsorted(place, np.arange(len(asked)), "right")
    for block in blocks(len(asked), max(SCORES // max(total, 1), 1)):
        scores = scores_of(asked[block])
        for at in blocks(last[block.stop - 1] - first[block.start], block.stop - block.start):
            some = np.arange(at.start, at.stop) + first[block.start]
            rivals = scores[place[some] - block.start]  # [some, total], a copy
            own = rivals[np.arange(len(some)), value[some]]
            lengths = last[place[some]] - first[place[some]]  # of each query, its row's true values
            starts = np.repeat(first[place[some]] - np.cumsum(lengths) + lengths, lengths)
            true = value[starts + np.arange(len(starts))]
            rivals[np.repeat(np.arange(len(some)), lengths), true] = np.nan  # neither above nor a tie
            above = np.count_nonzero(rivals > own[:, None], axis=1)
            ranks[some] = above + np.count_nonzero(rivals == own[:, None], axis=1) / 2
    return ranks


class _Numbers(NamedTuple):
    """The candidates' numbers [candidates, columns], and entries to numbers."""

    candidates: Array
    of: Any


def _numbers(encoder: Encoder, target: str) -> _Numbers:
    codec = encoder.codecs[target]
    vocabulary = codec.vocabulary if isinstance(codec, ItemsCodec) else None
    if vocabulary is not None and vocabulary.kind in ("number", "float", "numeral") and codec.width == 1:
        keys = np.array([float(key) for key in vocabulary.keys.to_pylist()])[:, None]

        def of_keys(entries: Array) -> Array:
            padded = np.concatenate([[[np.nan]], [[np.nan]], keys])
            return padded[entries[:, 0]]

        return _Numbers(keys, of_keys)
    if not isinstance(codec, NumbersCodec):
        type_ = encoder.schema.groups[target].extractor.type
        raise UserError(f"--target: the group {target!r} holds no numbers ({type_}); use `extractor: numeric`")
    return _Numbers(codec.numbers(encoder.values[target].entries), codec.numbers)
