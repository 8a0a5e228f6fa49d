"""`evaluate`: how well a row's groups find its value of another one, and how true what a run says of rows is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from feat2vec.beside import target_of
from feat2vec.codecs import ItemsCodec
from feat2vec.encode import Encoder
from feat2vec.errors import UserError, suggest
from feat2vec.model import Feat2Vec
from feat2vec.predict import softmax
from feat2vec.run import Run
from feat2vec.schema import Glove, Logistic, Softmax
from feat2vec.space import (
    ROWS,
    Candidates,
    Queries,
    Similarity,
    blocks,
    candidates,
    dense,
    extract,
    is_keyed,
    known,
    similarities,
)
from feat2vec.table import Table, open_table
from feat2vec.values import Array
from feat2vec.vocabulary import FIRST, PADDING

Ints = npt.NDArray[np.signedinteger[Any]]

SCORES = 1 << 23  # that are in memory at a time


def rank(
    run: Run, data: object, target: str, given: Sequence[str] | None = None, similarity: Similarity = "cosine"
) -> dict[str, Any]:
    """Rank each row's true values of `target` among all that training has seen, by their similarity with `given`.

    A query is a row and one true value; the row's other true values are left out. `given` are all other groups if it
    is None.
    """
    encoder, model = run.fitted, run.model
    given = _groups(encoder, target, given)
    data = _with_columns(encoder, target, given, data)
    found = candidates(model, encoder, target)
    total = found.sizes()[0]
    ranks: list[npt.NDArray[np.float64]] = [np.zeros(0)]
    unseen = empty = 0
    for rows in _rows(run, data, [*given, target]):
        row, value, missed = _truth(model, encoder, target, rows)
        unseen += missed
        some = np.logical_or.reduce([known(encoder, name, rows[name]) for name in given])
        empty += int((~some[row]).sum())
        row, value = row[some[row]], value[some[row]]
        queries = extract(model, {name: rows[name] for name in given})
        ranks += [rank_queries(queries, found, row, value, similarity)]
    every = np.concatenate(ranks)
    return {
        "task": "rank", "target": target, "given": list(given), "similarity": similarity, "n": len(every),
        "skipped_unseen": unseen, "skipped_empty": empty, "candidates": total, **_summary(every, total),
    }  # fmt: skip


def nearest(
    run: Run, data: object, target: str, given: Sequence[str] | None = None, similarity: Similarity = "cosine"
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
        "task": "nearest", "target": target, "given": list(given), "similarity": similarity, "n": len(errors),
        "skipped_missing": missing, "skipped_empty": empty, "candidates": len(entries),
        "mse": error[0] if len(error) == 1 else dict(zip(columns, error, strict=True)),
    }  # fmt: skip


def predict(run: Run, data: object, level: int | None = None) -> dict[str, Any]:
    """How far what is said of rows is from their target.

    logistic: log loss and AUC. regression: RMSE and MAE, for glove of log N. softmax: accuracy and log loss, over the
    rows whose class training has seen.
    """
    schema, table = run.schema, open_table(data)
    if schema.target is None:
        remedy = "`--task rank` and `--task nearest` measure it"
        raise UserError(f"--task predict: the objective {schema.objective.type} has no target to predict; {remedy}")
    if schema.target not in table.columns:
        near = suggest(schema.target, table.columns) or f"; the columns are {', '.join(table.columns)}"
        raise UserError(f"{table.name}: has no column {schema.target!r}, the target{near}")
    said: list[Array] = []
    true: list[Array] = []
    for part in run.predictor(level).parts(table, (schema.target,)):
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


def _groups(encoder: Encoder, target: str, given: Sequence[str] | None) -> list[str]:
    names = list(encoder.codecs)
    problems = [
        f"{what}: there is no group {name!r}{suggest(name, names) or '; the groups are ' + ', '.join(names)}"
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
        near = suggest(missing[0], table.columns) or f"; the columns are {', '.join(table.columns)}"
        raise UserError(f"{table.name}: has no column {missing[0]!r}, which the target {target!r} needs{near}")
    wanted = [column for name in given for column in encoder.schema.groups[name].columns]
    if not set(wanted) & set(table.columns):
        there = ", ".join(table.columns)
        raise UserError(
            f"{table.name}: has none of the columns {', '.join(wanted)}, to find {target!r} by; it has {there}"
        )
    return table


def _rows(run: Run, data: object, names: Sequence[str]) -> Iterator[Mapping[str, Array]]:
    """The rows' entries of some groups, in batches that an extractor can take."""
    for batch in run.fitted.entries(data):
        whole = {name: dense(batch[name]) for name in names}
        for block in blocks(len(whole[names[0]]), ROWS):
            yield {name: entries[block] for name, entries in whole.items()}


def _truth(model: Feat2Vec, encoder: Encoder, target: str, rows: Mapping[str, Array]) -> tuple[Ints, Ints, int]:
    """(Row and candidate of each query, how many true values training has not seen)."""
    codec, entries = encoder.codecs[target], rows[target]
    if isinstance(codec, ItemsCodec) and is_keyed(model, target):
        ids = entries[:, : entries.shape[1] // 2] if codec.weighted else entries
        row, place = np.nonzero(ids >= FIRST)
        return row, ids[row, place] - FIRST, int(((ids > PADDING) & (ids < FIRST)).sum())
    values = encoder.values[target].entries
    index = {values[i].tobytes(): i for i in range(len(values))}
    there = ~np.isnan(entries[:, 0]) if entries.dtype == np.float32 else (entries > PADDING).any(axis=1)
    found = np.array([index.get(entry.tobytes(), -1) for entry in entries])
    row = np.flatnonzero(there & (found >= 0))
    return row, found[row], int((there & (found < 0)).sum())


def rank_queries(
    queries: Queries, found: Candidates, row: Ints, value: Ints, similarity: Similarity
) -> npt.NDArray[np.float64]:
    """For each query the candidates above its value, plus half of the ties; a row's other true values are left out."""
    ranks = np.zeros(len(row))
    asked, at = np.unique(row, return_inverse=True)
    for block in blocks(len(asked), max(SCORES // found.sizes()[0], 1)):
        scores = similarities(queries.take(asked[block]), found, similarity)
        mine = slice(*np.searchsorted(at, [block.start, block.stop]))
        own = scores[at[mine] - block.start, value[mine]]
        above, ties = (np.zeros(len(own)) for _ in range(2))
        for some in blocks(len(own), block.stop - block.start):
            rivals = scores[at[mine][some] - block.start]
            above[some] = np.count_nonzero(rivals > own[some, None], axis=1)
            ties[some] = np.count_nonzero(rivals == own[some, None], axis=1) - 1
        for shift in range(1, len(own)):  # the row's other true values
            pairs = np.flatnonzero(at[mine][shift:] == at[mine][:-shift])
            if not len(pairs):
                break
            for one, other in ((pairs, pairs + shift), (pairs + shift, pairs)):
                above[one] -= own[other] > own[one]
                ties[one] -= own[other] == own[one]
        ranks[mine] = above + ties / 2
    return ranks


def _summary(ranks: npt.NDArray[np.float64], total: int) -> dict[str, float | None]:
    if not len(ranks):
        return dict.fromkeys(("mpr", "mrr", "top1", "recall_at_10", "median_rank"))
    return {
        "mpr": float(ranks.mean() / total),
        "mrr": float((1 / (ranks + 1)).mean()),
        "top1": float((ranks == 0).mean()),
        "recall_at_10": float((ranks < 10).mean()),
        "median_rank": float(np.median(ranks)),
    }


def log_loss(scores: npt.NDArray[Any], truth: npt.NDArray[Any]) -> float:
    """The mean of log(1 + exp(-s)) for a 1 and log(1 + exp(s)) for a 0."""
    return float(np.logaddexp(0, np.where(truth > 0, -scores, scores)).mean())


def auc(scores: npt.NDArray[Any], truth: npt.NDArray[Any]) -> float | None:
    """The share of pairs of a 1 and a 0 in which the 1 scores higher, ties counting half; None without a pair."""
    ones = truth > 0
    pairs = int(ones.sum()) * int((~ones).sum())
    if not pairs:
        return None
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]  # from 1, ties in the middle
    above = ranks[ones].sum() - ones.sum() * (ones.sum() + 1) / 2
    return float(above / pairs)


class _Numbers(NamedTuple):
    """The candidates' numbers [candidates, columns], and entries to numbers."""

    candidates: Array
    of: Any


def _numbers(encoder: Encoder, target: str) -> _Numbers:
    codec = encoder.codecs[target]
    vocabulary = codec.vocabulary if isinstance(codec, ItemsCodec) else None
    if vocabulary is not None and vocabulary.kind == "number" and codec.width == 1:
        keys = np.array([float(key) for key in vocabulary.keys.to_pylist()])[:, None]

        def of_keys(entries: Array) -> Array:
            padded = np.concatenate([[[np.nan]], [[np.nan]], keys])
            return padded[entries[:, 0]]

        return _Numbers(keys, of_keys)
    spec = encoder.schema.groups[target].extractor
    if spec.encoding != "numbers":
        raise UserError(f"--target: the group {target!r} holds no numbers ({spec.type}); use `extractor: numeric`")

    def of_entries(entries: Array) -> Array:
        return np.array([[np.nan if x is None else _number(x) for x in row] for row in codec.decode(entries)])

    return _Numbers(of_entries(encoder.values[target].entries), of_entries)


def _number(value: Any) -> float:
    """A date counts its days."""
    return value.timestamp() / 86400 if hasattr(value, "timestamp") else float(value)
