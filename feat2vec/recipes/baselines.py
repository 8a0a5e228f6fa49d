"""Baselines: what a user would try instead of feat2vec, learnt from and measured on the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from feat2vec.errors import UserError
from feat2vec.evaluation.key_pairs import pair_similarities
from feat2vec.evaluation.metrics import auc, log_loss
from feat2vec.evaluation.ranking import ranked
from feat2vec.recipes.corpus import Corpus
from feat2vec.recipes.recipe import CorpusSpec
from feat2vec.schema.extractor_options import TokensSpec
from feat2vec.schema.options import Schema
from feat2vec.space.geometry import is_keyed
from feat2vec.table.kinds import is_list, is_text
from feat2vec.table.stages import stages
from feat2vec.table.table import Table
from feat2vec.training.run_folder import TrainedRun

CATEGORIES = 254  # that scikit-learn's trees can tell apart, with one for the others
SEED = 0


def popularity(run: TrainedRun, data: object, target: str, given: Sequence[str] | None) -> dict[str, Any]:
    """Rank the target's values by how often training has seen them, whatever is given."""
    vocabulary = run.fitted.codecs[target].vocabulary if is_keyed(run.model, target) else None
    counts = np.asarray(run.fitted.values[target].counts if vocabulary is None else vocabulary.counts, np.float64)

    def scores_of(rows: Any) -> Any:
        del rows
        return lambda batch_rows: np.broadcast_to(counts, (len(batch_rows), len(counts)))

    return ranked(run, data, target, given, len(counts), scores_of)


def gradient_boosting(schema: Schema, train: Table, test: Table) -> dict[str, Any]:
    """scikit-learn's histogram gradient boosting on the schema's columns.

    Texts and lists are left out; of a column of keys the 254 most frequent are told apart. A tenth of the training rows
    stops it.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    except ImportError:
        raise UserError("beside gradient_boosting: needs scikit-learn: pip install 'feat2vec[recipes]'") from None
    texts = {
        column
        for group in schema.groups.values()
        if isinstance(group.extractor, TokensSpec) or getattr(group.extractor, "split", None)
        for column in group.columns
    }
    schema_columns = list(dict.fromkeys(column for group in schema.groups.values() for column in group.columns))
    columns = [column for column in schema_columns if column not in texts and not is_list(train.columns[column])]
    target = str(schema.target)
    objective = schema.objective
    regression = not objective.has_classes and not objective.is_binary
    train_rows, test_rows = (_read(table, [*columns, target]) for table in (train, test))
    features, categorical = _features(train_rows, test_rows, columns)
    method = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    model = method(
        max_iter=1000, early_stopping=True, validation_fraction=0.1, categorical_features=categorical, random_state=SEED
    )
    targets = [_target_values(table[target], numbers=not objective.has_classes) for table in (train_rows, test_rows)]
    if regression:
        targets = [objective.link(numbers) for numbers in targets]  # on which errors are measured
    model.fit(features[0], targets[0])
    facts: dict[str, Any] = {"n": len(targets[1]), "columns": columns, "trees": int(model.n_iter_)}
    if regression:
        errors = model.predict(features[1]) - targets[1]
        return facts | {"rmse": float(np.sqrt(np.square(errors).mean())), "mae": float(np.abs(errors).mean())}
    if objective.is_binary:
        probability = np.clip(model.predict_proba(features[1])[:, 1], 1e-15, 1 - 1e-15)
        scores = np.log(probability) - np.log1p(-probability)
        return facts | {"log_loss": log_loss(scores, targets[1]), "auc": auc(scores, targets[1])}
    known = np.isin(targets[1], model.classes_)
    true_classes = np.searchsorted(model.classes_, targets[1][known])
    probabilities = model.predict_proba(features[1])[known]
    loss = -np.log(np.maximum(probabilities[np.arange(len(true_classes)), true_classes], 1e-15)).mean()
    return facts | {
        "n": int(known.sum()),
        "accuracy": float((probabilities.argmax(axis=1) == true_classes).mean()),
        "log_loss": float(loss),
    }


def word2vec(spec: CorpusSpec, schema: Schema, corpus: Corpus, data: object) -> dict[str, Any]:
    """Skip-gram of gensim, of the same sentences, window, subsampling, dimensions and epochs."""
    try:
        from gensim.models import Word2Vec
    except ImportError:
        raise UserError("beside word2vec: needs gensim: pip install 'feat2vec[recipes]'") from None
    model = Word2Vec(
        list(corpus.sentences()),
        vector_size=schema.model.dim,
        window=spec.window,
        min_count=1,
        sg=1,
        negative=schema.noise.negatives if schema.noise.sharing == "record" else 5,
        sample=spec.subsample,
        epochs=schema.training.epochs,
        seed=schema.training.seed,
        workers=2,
    )
    return pair_similarities(data, model.wv)


def _read(table: Table, columns: Sequence[str]) -> pa.Table:
    parts = [
        pa.Table.from_arrays([stage.column(name) for name in columns], list(columns))
        for stage in stages(table, columns)
    ]
    return pa.concat_tables(parts, promote_options="permissive")


def _target_values(values: pa.ChunkedArray, numbers: bool) -> npt.NDArray[Any]:
    if not numbers:
        return np.asarray(values.cast(pa.string()).to_pylist())
    return np.asarray(values.cast(pa.float64()).to_numpy())


def _features(
    train_rows: pa.Table, test_rows: pa.Table, columns: Sequence[str]
) -> tuple[list[npt.NDArray[Any]], list[bool]]:
    """Numbers as they are, keys as the place among the most frequent; NaN for what is missing."""
    parts: tuple[list[Any], list[Any]] = ([], [])
    categorical = []
    for column in columns:
        keyed = is_text(train_rows[column].type) or pa.types.is_boolean(train_rows[column].type)
        categorical.append(keyed)
        if keyed:
            keys = train_rows[column].cast(pa.string()).combine_chunks()
            counted = pc.value_counts(keys.drop_null()).to_pylist()
            most = sorted(counted, key=lambda key_count: (-key_count["counts"], key_count["values"]))[:CATEGORIES]
            known = pa.array([key_count["values"] for key_count in most], pa.string())
        for part, table in zip(parts, (train_rows, test_rows), strict=True):
            values = table[column].combine_chunks()
            if keyed:
                texts = values.cast(pa.string())
                key_place = pc.fill_null(pc.index_in(texts, known), CATEGORIES)
                values = pc.if_else(pc.is_valid(texts), key_place, None)
            elif pa.types.is_temporal(values.type):
                values = values.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
            part.append(pc.fill_null(values.cast(pa.float64(), safe=False), float("nan")).to_numpy())
    return [np.stack(part, axis=1) for part in parts], categorical
