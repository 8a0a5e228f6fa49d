"""feat2vec untuned, as a new user has it: the schema that `init` writes, trained as written on the table's file.

This is all that the benchmark knows of feat2vec; when `init --target` is there, change it here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tables.encoding import Floats, Ints, key_text
from tables.questions import CompleteQuestion, PredictQuestion, ScoresOfRows, Split
from tables.spec import Frame, Table


def load_libraries() -> None:
    """Import what is imported once in a process, before the first clock runs."""
    import feat2vec.keras  # noqa: F401


def write_rows(frame: Frame, folder: Path, name: str, file_format: str) -> str:
    """The path of a new file with the rows, as a user would have it."""
    path = folder / f"{name}.{file_format}"
    if file_format == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)
    return str(path)


def train_untuned(frame: Frame, folder: Path, name: str, file_format: str, seed: int) -> Any:
    """A run of the schema that `init` writes for these rows, without their labels."""
    import feat2vec
    from feat2vec.table.propose import propose

    data = write_rows(frame, folder, name, file_format)
    schema = folder / f"{name}.yaml"
    schema.write_text(propose(data), encoding="utf-8")
    settings = [f"training.seed={seed}"]
    return feat2vec.train(schema, data, folder / f"{name}-run", settings=settings, force=True, quiet=True)


class Complete:
    """The untuned run, which ranks values by their probability as `feat2vec complete` gives it.

    Args:
        table: The table.
        split: Its rows.
        folder: Where files and runs go.

    """

    def __init__(self, table: Table, split: Split, folder: Path) -> None:
        self.table, self.split, self.folder = table, split, folder
        self.notes: list[str] = []
        self.run = train_untuned(split.train, folder, "complete", table.file_format, split.seed)

    def scores_of(self, question: CompleteQuestion) -> ScoresOfRows:
        """Log probabilities of the values in rows without the hidden columns; a value that it lacks comes last."""
        group_of_column = {group.columns[0]: name for name, group in self.run.schema.groups.items()}
        # `init` makes one group of columns that say the same: it may have that of another hidden column.
        columns = [column for column in question.hidden if column in group_of_column]
        if not columns:
            self.notes.append(f"{question.column}: init proposes no group of it")
            return lambda rows: np.zeros((len(rows), len(question.values)), np.float32)
        completer = self.run.completer(group_of_column[columns[0]])
        rows_of_values = self._write(self._as_rows(question, columns[0]))
        parts = _candidates_of_values(completer, rows_of_values)
        absent = np.array([not len(part) for part in parts])
        if absent.any():
            self.notes.append(
                f"{question.column}: the run has nothing of {np.count_nonzero(absent)} of {len(absent)} values"
            )
        given = self.split.test.drop(columns=list(question.hidden))
        queries = completer.queries_of_table(self._write(given))
        shares = _shares_of_candidates(parts, question.counts)  # [values]
        flat = np.array([place for part in parts for place in (part or [0])])
        starts = np.cumsum([0] + [max(len(part), 1) for part in parts[:-1]])

        def scores(rows: Ints) -> Floats:
            log_probabilities = completer.log_probabilities(queries.take(rows))[:, flat]
            if len(flat) > len(parts):
                lengths = np.diff(np.append(starts, len(flat)))
                log_probabilities = np.add.reduceat(log_probabilities, starts, axis=1) / lengths
            log_probabilities = log_probabilities + shares
            log_probabilities[:, absent] = -np.inf
            return np.asarray(log_probabilities)

        return scores

    def _write(self, rows: Frame) -> str:
        """A file such as the run was trained on."""
        return write_rows(rows, self.folder, "rows", self.table.file_format)

    def _as_rows(self, question: CompleteQuestion, column: str) -> Frame:
        """A row for each candidate that holds nothing else, whatever `init` made of the column.

        For another column than the asked one, it holds that column's value beside the candidate in training.
        """
        import pandas

        group = next(group for group in self.table.groups if group.column == question.column)
        if column != question.column or group.kind != "list":
            keys = self.split.train[question.column].map(key_text)
            beside = self.split.train[column].groupby(keys).first()
            return pandas.DataFrame({column: beside.reindex(question.values).to_numpy()})
        as_lists = group.separator is None
        return pandas.DataFrame({question.column: [[value] if as_lists else value for value in question.values]})


def _candidates_of_values(completer: Any, rows_of_values: str) -> list[list[int]]:
    """The candidates that each value is for the run: one, or the words of a text; none if it has nothing of it."""
    from feat2vec.space.geometry import dense

    hidden, name = completer.hidden, completer.group
    encoder = completer.encoder.only([name])
    entries = np.concatenate([dense(batch[name]) for batch in encoder.entries(rows_of_values)])
    if hidden.entries is None:
        return [[int(id_) - 2 for id_ in row if id_ >= 2] for row in entries.tolist()]
    if entries.dtype == np.float32:
        distances = [np.abs(np.asarray(hidden.entries) - entry).sum(axis=1) for entry in entries]
        return [[] if np.isnan(distance[0]) else [int(distance.argmin())] for distance in distances]
    place_of_entry = {tuple(row[row > 0].tolist()): i for i, row in enumerate(np.asarray(hidden.entries))}
    places = [place_of_entry.get(tuple(row[row > 0].tolist())) for row in entries]
    return [[] if place is None else [place] for place in places]


def _shares_of_candidates(parts: Sequence[list[int]], counts: Floats) -> Floats:
    """Log of a value's share of its candidate, where several values are one candidate, such as a bin: [values]."""
    totals: dict[tuple[int, ...], float] = {}
    for part, count in zip(parts, counts, strict=True):
        totals[tuple(part)] = totals.get(tuple(part), 0.0) + float(count)
    shares = [float(count) / totals[tuple(part)] for part, count in zip(parts, counts, strict=True)]
    return np.log(np.maximum(shares, 1e-12))


class Predict:
    """Answers for labels: `finetune` of an untuned run without labels, or the same head from scratch.

    Nobody predicts from the table's hidden columns, and the run has not seen them either.

    Args:
        table: The table.
        split: Its rows.
        folder: Where files and runs go.

    """

    def __init__(self, table: Table, split: Split, folder: Path) -> None:
        self.split, self.folder, self.file_format = split, folder, table.file_format
        self.hidden = list(table.hidden)
        self.seconds = 0.0  # that the unlabelled run has taken

    @cached_property
    def run(self) -> Any:
        """The unlabelled run."""
        begin = time.perf_counter()
        train = self.split.train.drop(columns=self.hidden)
        run = train_untuned(train, self.folder, "unlabelled", self.file_format, self.split.seed)
        self.seconds = time.perf_counter() - begin
        return run

    def answers(self, way: str, question: PredictQuestion) -> Floats:
        """What a way says about the test rows: "finetune", "scratch" or "init --target"."""
        import feat2vec
        from feat2vec.training.fine_tuning import schema_of

        label = question.target.name
        train = self.split.train.drop(columns=self.hidden).iloc[question.train_rows]
        train = train.assign(**{label: _label_column(question)})
        test = self.split.test.drop(columns=self.hidden).iloc[question.test_rows]
        data = write_rows(train, self.folder, "labelled", self.file_format)
        asked = write_rows(test, self.folder, "asked", self.file_format)
        settings = [f"training.seed={self.split.seed}"]
        out = self.folder / f"{way}-run"
        if way == "init --target":
            run = feat2vec.train(None, data, out, target=label, settings=settings, force=True, quiet=True)
        elif way == "finetune":
            run = self.run.finetune(data, label, out, settings=settings, force=True, quiet=True)
        else:
            schema = schema_of(self.run.schema, feat2vec.open_table(data), label, settings=settings)
            run = feat2vec.train(schema, data, out, force=True, quiet=True)
        return _answers_of(run, asked, question)


def _label_column(question: PredictQuestion) -> Any:
    if question.kind == "category":
        return [question.classes[int(label)] for label in question.train_labels]
    return question.train_labels.astype(int) if question.kind == "yes/no" else question.train_labels


def _answers_of(run: Any, data: str, question: PredictQuestion) -> Floats:
    """A run's predictions as numbers, probabilities of a 1, or of each class [rows, classes]."""
    columns = run.predict(data)
    if question.kind == "number":
        return np.asarray(columns["prediction"], np.float64)
    if question.kind == "yes/no":
        return np.asarray(columns["probability"], np.float64)
    answers = np.zeros((len(question.test_rows), len(question.classes)))
    names = run.fitted.classes.keys.to_pylist()
    answers[:, [question.classes.index(str(name)) for name in names]] = columns["probabilities"]
    return answers


FROM_UNLABELLED = ("finetune", "scratch")
WAYS = (*FROM_UNLABELLED, "init --target")
