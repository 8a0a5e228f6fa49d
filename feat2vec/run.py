"""The public face of training: `train`, `finetune` and `load` give a `Run`, and a `Run` does the rest."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from feat2vec.arrays import Float32s
from feat2vec.encode.workspace import MEMORY, check_memory
from feat2vec.errors import UserError, naming_arguments
from feat2vec.pages.explore_options import POINTS_PER_MAP
from feat2vec.schema.options import Schema
from feat2vec.training.memory_estimate import release_memory
from feat2vec.training.run_folder import TrainedRun, read_facts
from feat2vec.writing import discard_temporary, temporary_folder

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from feat2vec.cluster.addresses import Addresses
    from feat2vec.evaluation.task_names import TaskName
    from feat2vec.export.formats import FormatName
    from feat2vec.pages.explanation_views import Explanation
    from feat2vec.pages.explore_options import MapKind
    from feat2vec.space.completer import Completer
    from feat2vec.space.completion import Completed
    from feat2vec.space.embed import Embedder, NewVectors
    from feat2vec.space.filling import FilledCounts
    from feat2vec.space.noise_fold_in import KnownCandidates
    from feat2vec.space.predict import Predictor
    from feat2vec.space.search_options import RankSimilarity
    from feat2vec.space.vectors import Vectors
    from feat2vec.training.chosen_model import Additions, ChosenModel, OnChosen
    from feat2vec.training.fine_tuning_options import HeadType, ObjectiveType

MOST_COMPLETERS = 16  # that a run keeps, each with the vectors of its group


PROPOSED = "proposed.yaml"  # the file of a run whose schema was proposed


class Run(TrainedRun):
    """A trained run: search its vectors, embed and predict rows, export, explain, fine-tune.

    `feat2vec.train`, `feat2vec.finetune` and `feat2vec.load` return runs.

    >>> feat2vec.load("runs/films")
    <Run 'films' in runs/films>
    """

    def __repr__(self) -> str:
        return f"<Run {self.schema.name!r} in {self.folder}>"

    # --- vectors ----------------------------------------------------------------------------------------------------

    def vectors(self, group: str, level: int | None = None) -> Vectors:
        """The vectors of a group by key, to compare and search.

        Args:
            group: A group of the schema.
            level: In a model with `ranks`, a space that all keys share; by default keys are compared at the lower of
                their levels.

        Returns:
            The vectors. They can be indexed by key.

        Raises:
            UserError: There is no such group or level.

        >>> directors = run.vectors("director")
        >>> directors
        <Vectors of 'director': 3 of 4 dimensions>
        >>> "Ozu" in directors, directors["Ozu"].shape
        (True, (4,))

        """
        from feat2vec.space.run_vectors import vectors_of_group

        return vectors_of_group(self, group, level)

    def row_vectors(self, data: object, level: int | None = None) -> Vectors:
        """The vectors of rows, by the names in the schema's `id` column.

        A row's vector is the sum of the vectors of its groups. A run keeps no rows, so they are given.

        Args:
            data: A table: a file, a frame, ...
            level: In a model with `ranks`, the space of the vectors.

        Returns:
            The vectors. They can be indexed by name.

        Raises:
            UserError: The schema has no `id`, or something is wrong with the table.

        """
        from feat2vec.space.run_vectors import vectors_of_rows

        return vectors_of_rows(self, data, level)

    @overload
    def embed(
        self,
        rows: object,
        groups: Sequence[str] | None = None,
        level: int | None = None,
        *,
        by_group: Literal[False] = False,
        fold_in: str | Sequence[str] | None = None,
    ) -> Float32s: ...

    @overload
    def embed(
        self,
        rows: object,
        groups: Sequence[str] | None = None,
        level: int | None = None,
        *,
        by_group: Literal[True],
        fold_in: str | Sequence[str] | None = None,
    ) -> dict[str, Float32s]: ...

    def embed(
        self,
        rows: object,
        groups: Sequence[str] | None = None,
        level: int | None = None,
        *,
        by_group: bool = False,
        fold_in: str | Sequence[str] | None = None,
    ) -> Float32s | dict[str, Float32s]:
        """Vectors of any rows: for each row the sum of the vectors of its groups.

        Unseen values, missing groups and absent columns are fine; their vectors are zero or those of unseen values.

        Args:
            rows: A table: a file, a frame, a mapping of columns, ...
            groups: The groups to add up, all if it is None.
            level: In a model with `ranks`, the space of the vectors; by default 1, in which every value has a vector.
            by_group: Return the vectors of each group instead of their sum.
            fold_in: A lookup group whose unseen values get the vectors that solve these rows, or several; see
                `Run.fold_in`.

        Returns:
            An array [rows, dim], or {group: array} with `by_group`.

        Raises:
            UserError: There is no such group or level, or something is wrong with the table.

        >>> run.embed(films).shape, float(run.embed(films[["year"]], by_group=True)["director"].max())
        ((60, 4), 0.0)

        """
        if fold_in is None:
            embedder = self.embedder(groups, level)
        else:
            from feat2vec.space.fold_in import fold_in_groups
            from feat2vec.table.table import open_table

            rows, names = open_table(rows), [fold_in] if isinstance(fold_in, str) else fold_in
            with naming_arguments():
                folded = fold_in_groups(self, rows, names, self._known_candidates)
                embedder = self.embedder(groups, level, folded)
        vectors: Float32s | dict[str, Float32s] = embedder.embed(rows, by_group=by_group)
        return vectors

    def fold_in(self, rows: object, group: str) -> Vectors:
        """Vectors of values that training has not seen, from a few rows of each and without training.

        With all else held, a new user or film has the vector, and the linear term, that solves its own rows by the
        run's own objective and l2: one least-squares solve a value, in milliseconds. Values have the first level of a
        model with `ranks`.

        Args:
            rows: Rows that hold new values: a file, a frame, ... If the run has a target, they need it too.
            group: A lookup group.

        Returns:
            The vectors of the new values. They can be indexed by key, compared, and searched from: `to` names a group
            of the run. The run itself stays as it is.

        Raises:
            UserError: There is no such group, its values cannot be folded in, or the table has no new value.

        >>> new = run.fold_in(films.head(3).assign(director="Kurosawa"), "director")
        >>> new["Kurosawa"].shape, len(new.most_similar("Kurosawa", topn=2, to="director"))
        ((4,), 2)

        """
        from feat2vec.space.fold_in import vectors_of_new_values

        with naming_arguments():
            return vectors_of_new_values(self, rows, group, self._known_candidates)

    @cached_property
    def _known_candidates(self) -> dict[str, KnownCandidates]:
        return {}

    def embedder(
        self, groups: Sequence[str] | None = None, level: int | None = None, new_vectors: Sequence[NewVectors] = ()
    ) -> Embedder:
        """What `embed` uses, compiled once. `embedder().write(table, "vectors.parquet")` streams vectors to a file.

        Args:
            groups: As for `embed`.
            level: As for `embed`.
            new_vectors: Vectors of new values, as `feat2vec.space.fold_in.fold_in_groups` gives them.

        Returns:
            The embedder, without `new_vectors` the same one for the same arguments.

        Raises:
            UserError: There is no such group or level.

        """
        from feat2vec.space.embed import Embedder

        if new_vectors:
            return Embedder(self.fitted, self.model_for_rows(groups), groups, level, new_vectors)
        key = (None if groups is None else tuple(groups), level)
        if key not in self._embedders:
            self._embedders[key] = Embedder(self.fitted, self.model_for_rows(groups), groups, level)
        return self._embedders[key]

    @cached_property
    def _embedders(self) -> dict[tuple[tuple[str, ...] | None, int | None], Embedder]:
        return {}

    # --- scores -----------------------------------------------------------------------------------------------------

    def predict(self, rows: object, level: int | None = None) -> dict[str, Any]:
        """Predictions for any rows, as `feat2vec predict` writes them.

        Args:
            rows: A table: a file, a frame, a mapping of columns, ...
            level: In a model with `ranks`, p predicts by the submodel B_{1,p}; the whole model by default.

        Returns:
            {column: array [rows]}: `score`, and by objective `probability`, `prediction`, ... A UserWarning says if the
            run was trained on the rows.

        Raises:
            UserError: There is no such level, or something is wrong with the table.

        >>> run.predict(films)["score"].shape
        (60,)

        """
        predictions = self.predictor(level).predict(rows)
        self._warn_of_trained_rows("rows", rows)
        return predictions

    def _warn_of_trained_rows(self, argument: str, data: object) -> None:
        """Warn whoever measures the run on rows that it was trained on; rows that can be read only once are left."""
        from feat2vec.training.trained_rows import warning_of_trained_rows

        try:
            warning = warning_of_trained_rows(self, data)
        except UserError:
            return
        if warning is not None:
            warnings.warn(f"{argument}: {warning}", UserWarning, stacklevel=3)

    def predictor(self, level: int | None = None) -> Predictor:
        """What `predict` uses, compiled once. `predictor().write(table, "scores.parquet")` streams to a file.

        Args:
            level: As for `predict`.

        Returns:
            The predictor, the same one for the same level.

        Raises:
            UserError: There is no such level.

        """
        from feat2vec.space.mixture import predictor_of

        if level not in self._predictors:
            self._predictors[level] = predictor_of(self, level)
        return self._predictors[level]

    @cached_property
    def _predictors(self) -> dict[int | None, Predictor]:
        return {}

    # --- what a row lacks -------------------------------------------------------------------------------------------

    def complete(self, rows: object, group: str, n: int = 5) -> list[Completed]:
        """The most probable values of a group in rows, whatever they hold of it.

        Args:
            rows: A row as a mapping of columns to values or a Series of pandas, a list of mappings, or a table: a file,
                a frame, ...
            group: The group, which is found by the groups that share no column with it.
            n: How many values are named of each row.

        Returns:
            For each row its most probable values with their probabilities, of a list the probabilities that it holds
            them; for a group of numbers also the mean and quantiles. `facts()` gives plain data.

        Raises:
            UserError: There is no such group, nothing is known of the row, or something is wrong with the table.

        >>> (completed,) = run.complete({"year": 1953, "genre": "drama"}, "director", n=2)
        >>> len(completed.values), completed.numbers
        (2, {})

        """
        from feat2vec.space.completion import complete
        from feat2vec.space.given_row import plain_rows
        from feat2vec.space.run_completion import given_of_row

        rows = plain_rows(rows)
        rows = self.without_unused_columns(rows) if isinstance(rows, Mapping) else rows
        given = given_of_row(self, rows, group) if isinstance(rows, Mapping) else None
        return complete(self.completer(group, given), rows, n)

    def fill(
        self,
        data: object,
        out: str | Path,
        groups: Sequence[str] | None = None,
        *,
        at_least: float = 0.5,
        force: bool = False,
    ) -> FilledCounts:
        """Write a table with its missing values filled in to a Parquet file.

        Args:
            data: The table.
            out: The file. It has the table's columns; beside each filled one, such as `director`, stands
                `director_probability`, null where nothing was filled in.
            groups: The groups to fill; by default all whose values can be written back.
            at_least: The least probability of a value that is filled in.
            force: Whether an earlier file is replaced.

        Returns:
            How many values of each column were missing and how many were filled in.

        Raises:
            UserError: Something is wrong with an argument, the table or the place.

        >>> counts = run.fill(films.assign(genre=None), "filled.parquet", ["genre"], at_least=0.4)
        >>> counts.missing
        {'genre': 60}

        """
        from feat2vec.space.filling import fill

        with naming_arguments():
            return fill(self, data, out, groups, at_least=at_least, force=force)

    def completer(self, group: str, given: Sequence[str] | None = None) -> Completer:
        """What `complete` uses: the probabilities of all candidates of a group, in blocks of rows.

        Args:
            group: The group that is hidden.
            given: The groups that it is found by; by default all that share no column with it.

        Returns:
            The completer, the same one for the same arguments. Its `batches(table)` yields `log_probabilities`
            [rows, candidates], and `hidden.names` says what the candidates are.

        Raises:
            UserError: There is no such group, or the run predicts a target.

        >>> batch = next(run.completer("director").batches(films))
        >>> batch.log_probabilities.shape
        (60, 3)

        """
        from feat2vec.space.run_completion import completer_of_run

        key = (group, None if given is None else tuple(given))
        if key not in self._completers:
            if len(self._completers) >= MOST_COMPLETERS:
                self._completers.pop(next(iter(self._completers)))
            self._completers[key] = completer_of_run(self, group, given)
        return self._completers[key]

    @cached_property
    def _completers(self) -> dict[tuple[str, tuple[str, ...] | None], Completer]:
        return {}

    def explain(self, rows: object, **options: Any) -> Explanation:
        """A row's score, or the similarity of two rows, as the sum of its parts.

        Args:
            rows: A row as a mapping of columns to values, or a table.
            options: The arguments of `feat2vec.explain.explain`: `index`, `to`, `to_index`, `class_name`, `level`.

        Returns:
            The parts, whose `facts()` are plain data and whose `page()` is HTML.

        Raises:
            UserError: Something is wrong with an argument or the row.

        >>> explanation = run.explain({"director": "Ozu", "year": 1953})
        >>> [part["groups"] for part in explanation.facts()["parts"]]
        [['director', 'year']]

        """
        from feat2vec.pages.explain import explain

        rows = self.without_unused_columns(rows) if isinstance(rows, Mapping) else rows
        if isinstance(options.get("to"), Mapping):
            options["to"] = self.without_unused_columns(options["to"])
        return explain(self.model, self.fitted, rows, **options)

    # --- what it is worth -------------------------------------------------------------------------------------------

    def evaluate(
        self,
        data: object,
        task: TaskName | None = None,
        target: str | None = None,
        *,
        given: Sequence[str] | None = None,
        similarity: RankSimilarity | None = None,
        level: int | None = None,
        beside: str | Sequence[str] = (),
        train: object = None,
        matrix: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Measure the run on rows that it has not seen, as `feat2vec evaluate` does.

        Args:
            data: The rows: a file, a frame, ...
            task: "rank", "nearest", "pairs" or "predict"; by default "predict" if the run has a target, else "rank".
            target: The group that the task is about; for "rank" None stands for each lookup group.
            given: For "rank" and "nearest" the groups to find the target by, all others if it is None.
            similarity: "cosine" or "dot", not for "predict"; for "rank" also "probability", which is its default.
            level: For "predict", the submodel of a model with `ranks`.
            beside: Baselines on the same rows: "popularity", "tfidf" and "pca" for "rank", "constant", "linear",
                "pca_linear", "boosting", "svd", "als" and "soft_impute" for "predict", or one name. Those of the other
                task are left out.
            train: The rows that the run was trained on, which all baselines but "popularity" learn from.
            matrix: The two groups that are the rows and columns of the matrix that "svd", "als" and "soft_impute"
                complete; by default the first two lookup groups of one key a row.

        Returns:
            The metrics by name, with the options; `beside`, the metrics of each baseline, and `better`, a sentence for
            each that is better than the run. Of each lookup group, `groups` with this for each. A UserWarning says if
            the run was trained on the rows.

        Raises:
            UserError: Something is wrong with an argument or a table.

        >>> facts = run.evaluate(films, target="director", beside=["popularity"])
        >>> facts["n"], facts["candidates"], list(facts["beside"])
        (60, 3, ['popularity'])

        """
        from feat2vec.evaluation.beside import TaskOptions, evaluate_beside

        names = [beside] if isinstance(beside, str) else beside
        with naming_arguments():
            options = TaskOptions(given, similarity, level)
            facts = evaluate_beside(self, data, task, target, names, train, options, matrix)
        if task != "pairs":
            self._warn_of_trained_rows("data", data)
        return facts

    def report(
        self,
        out: str | Path,
        data: object = None,
        *,
        beside: str | Sequence[str] = (),
        train: object = None,
        label: str | None = None,
        other_run: TrainedRun | None = None,
        force: bool = False,
    ) -> dict[str, Any]:
        """Write a page of HTML about the run: losses, metrics, norms, isotropy, neighbours.

        Args:
            out: The file.
            data: Rows to measure the run on, and for `label`.
            beside: Baselines that are measured on `data` too, as in `evaluate`.
            train: The rows that the run was trained on, for `beside`.
            label: A column of `data`: what the vectors say of its classes.
            other_run: A run of the same schema with another seed: how many nearest neighbours stay.
            force: Replace the file if it is there.

        Returns:
            What the page says.

        Raises:
            UserError: Something is wrong with an argument, a table or the place.

        >>> facts = run.report("films.html", films, beside=["popularity"], force=True)
        >>> list(facts["groups"]), facts["beside"]["task"]
        (['director', 'genre', 'year'], 'rank')

        """
        from feat2vec.pages.report import report

        names = [beside] if isinstance(beside, str) else beside
        with naming_arguments():
            return report(self, out, data, label, other_run, beside=names, train=train, force=force)

    def explore(
        self,
        out: str | Path,
        data: object = None,
        groups: Sequence[str] = (),
        *,
        colour: str | None = None,
        map: MapKind = "pca",  # noqa: A002
        limit: int = POINTS_PER_MAP,
        force: bool = False,
    ) -> Path:
        """Write a page to look at the space and search it, as one file with nothing from elsewhere.

        Args:
            out: The file.
            data: Rows to look at as well, and whose columns can be colours.
            groups: The groups to look at, all if there is none; `row` is that of the rows.
            colour: What points are coloured by at first: "count", "level" or a column of `data`.
            map: The map at first; the file has this one and "pca".
            limit: Points of a map: the most frequent values, or rows drawn by chance.
            force: Replace the file if it is there.

        Returns:
            The file.

        Raises:
            UserError: Something is wrong with an argument, a table or the place.

        >>> run.explore("map.html", groups=["director"], force=True).name
        'map.html'

        """
        from feat2vec.pages.explore import Atlas, write_page

        with naming_arguments():
            write_page(Atlas(self, groups, data, colour, map, limit), out, force=force)
        return Path(out)

    # --- parts of other models --------------------------------------------------------------------------------------

    def encoder(
        self, *, trainable: bool = False, groups: Sequence[str] | None = None, level: int | None = None
    ) -> keras.Model:
        """A plain Keras model from a batch of `dataset` to vectors, as a part of other models.

        It is a copy: to train it leaves the run as it is.

        Args:
            trainable: Let its weights learn, and drop in training what the schema drops. By default they are frozen
                and nothing is dropped.
            groups: The groups of its inputs, all if it is None.
            level: In a model with `ranks`, the space of the vectors.

        Returns:
            A model whose outputs are {group: vectors [batch, dim]} and their sum, `row`.

        Raises:
            UserError: There is no such group or level.

        >>> vectors = run.encoder()(next(iter(run.dataset(films))))
        >>> {name: tuple(tensor.shape) for name, tensor in vectors.items()}
        {'director': (60, 4), 'genre': (60, 4), 'year': (60, 4), 'row': (60, 4)}

        """
        from feat2vec.space.keras_models import keras_encoder

        return keras_encoder(self.model, trainable=trainable, groups=groups, level=level)

    def dataset(
        self,
        rows: object,
        target: str | None = None,
        *,
        classes: bool | Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        batch_size: int = 256,
        shuffle: bool = True,
        seed: int = 0,
    ) -> tf.data.Dataset:
        """Batches for a model that `encoder` is a part of.

        A target of numbers is a label as it is (float32; a boolean is 0 or 1, a date counts days), one of text becomes
        classes: int32, label i standing for `dataset.class_names[i]`, the most frequent first.

        Args:
            rows: A table: a file, a frame, ...
            target: The column of the labels, if any.
            classes: The class names of another dataset, so that labels are the same; True makes classes of numbers.
            groups: The groups of the inputs, all if it is None.
            batch_size: Rows of a batch.
            shuffle: Shuffle the rows anew in each epoch.
            seed: Of the shuffling.

        Returns:
            A dataset of ({group: entries}, label); without a target, of the inputs alone.

        Raises:
            UserError: Something is wrong with an argument or the table.

        >>> inputs, hit = next(iter(run.dataset(films, target="hit", batch_size=20)))
        >>> sorted(inputs), hit.shape[0]
        (['director', 'genre', 'year'], 20)

        """
        from feat2vec.space.keras_dataset import dataset

        return dataset(
            self.fitted, rows, target, classes=classes, groups=groups, batch_size=batch_size, shuffle=shuffle, seed=seed
        )

    def finetune(
        self, data: object, target: str, out: str | Path | None = None, validation: object = None, **options: Any
    ) -> Run:
        """Learn a column of labelled rows from this run's vectors.

        Args:
            data: Labelled rows.
            target: The column to predict.
            out: The new run's folder; a temporary one if none is given.
            validation: Rows that the loss is measured on after each epoch.
            options: The other arguments of `feat2vec.finetune`.

        Returns:
            The new run.

        Raises:
            UserError: Something is wrong with an argument or the table.
            FailedError: The loss became infinite, or a file could not be written.

        >>> run.finetune(films, "hit", settings=["training.epochs=1"], quiet=True).schema.target
        'hit'

        """
        return finetune(self, data, target, out, validation, **options)

    def export(
        self,
        format: FormatName,  # noqa: A002
        out: str | Path,
        groups: Sequence[str] | None = None,
        *,
        level: int | None = None,
        normalise: bool = False,
        force: bool = False,
    ) -> dict[str, Any]:
        """Write vectors as files of other tools. The folder appears when all files are complete.

        Args:
            format: The name of a format, such as "parquet" or "saved_model"; `feat2vec export --help` and
                `feat2vec.export.formats.FORMATS` list them.
            out: The folder.
            groups: The groups to export, all if it is None.
            level: In a model with `ranks`, the space of the vectors: by default 1, in which every value has a vector,
                or the whole space with `level_sharing: truncate`.
            normalise: Make vectors of length 1.
            force: Replace an earlier export.

        Returns:
            What the export's manifest.json says.

        Raises:
            UserError: Something is wrong with an argument or the place.
            OSError: A file could not be written.

        >>> facts = run.export("npz", "vectors", ["director"])
        >>> facts["groups"]["director"]["rows"], np.load("vectors/director.npz")["vectors"].shape
        (3, (3, 4))

        """
        from feat2vec.export.export import export
        from feat2vec.export.formats import format_named

        with naming_arguments():
            return export(self, format_named(format), out, groups, level=level, normalise=normalise, force=force)


def init(data: object, target: str | None = None, *, name: str | None = None) -> str:
    """Profile a table over all of its rows, and write a schema for it, as `feat2vec init` does.

    Args:
        data: The table: a file, a folder, a frame, `dataset:NAME`, ...
        target: A column to predict from the others. Without one, columns are learnt from each other.
        name: The name of the schema; by default it follows from the name of the table.

    Returns:
        The text of a schema with comments. `feat2vec.train` and `read_schema` take it.

    Raises:
        UserError: The table cannot be read, or nothing can be learnt from it.

    >>> text = feat2vec.init(films, target="hit")
    >>> feat2vec.read_schema(text).objective.type
    'logistic'

    """
    from feat2vec.table.propose import propose

    return propose(data, name, target=target)


def train(
    schema: Schema | str | Path | Mapping[str, object] | None,
    data: object,
    out: str | Path | None = None,
    validation: object = None,
    *,
    target: str | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    memory: str = MEMORY,
    cluster: Addresses | None = None,
    sync: bool = False,
) -> Run:
    """Train a schema on a table and write a run.

    While it trains, its checkpoints are in `out.partial`.

    Args:
        schema: A schema, its file, its text, or the same as nested mappings. If it is None, the schema is the one that
            `feat2vec.init` writes for the table; the run keeps it, with its comments, as `proposed.yaml`.
        data: The table: a file, a folder, a frame, `dataset:NAME`, ..., or a folder that `encode_table` wrote, whose
            schema is taken if none is given.
        out: The run's folder; a temporary one, which lives as long as the run, if none is given.
        validation: Rows that the loss is measured on after each epoch. Without them, `training.validation` of the rows
            are held out for that, and learnt again with the others if `training.refit` is true.
        target: Without a schema, the column to predict; a schema has a target of its own.
        settings: Values that replace the schema's, such as "training.epochs=5".
        resume: Go on from the checkpoints of a training that was stopped.
        force: Replace the run that is at `out`.
        quiet: Print nothing.
        callbacks: Keras' own callbacks, of both trainings where rows are held out.
        memory: What encoding may hold, such as "2GB".
        cluster: The processes of a cluster, whose chief this one is; see `feat2vec.cluster.addresses.read_addresses`.
        sync: Whether workers of a cluster compute one step after the other.

    Returns:
        The run.

    Raises:
        UserError: Something is wrong with an argument, the schema or the table.
        FailedError: The loss became infinite, or a file could not be written.

    >>> run = feat2vec.train(schema, films, "runs/again", settings=["model.dim=8"], quiet=True)
    >>> run.metrics["rows"], run.embed(films).shape
    (60, (60, 8))

    """
    from feat2vec.schema.reading import read_schema
    from feat2vec.shards.encoded_folder import EncodedTable
    from feat2vec.training.encoding import source_of_rows
    from feat2vec.training.train import TrainingRequest, train_into

    if schema is not None and target is not None:
        raise UserError("target: is for a training without a schema; remove it, or give the schema a target")
    with naming_arguments():
        rows = source_of_rows(data)
    if isinstance(rows, EncodedTable) and target is not None:
        raise UserError(f"target: {rows.name} is encoded by a schema, which says what is learnt; remove it")

    def write(folder: Path) -> None:
        files: dict[str, bytes] = {}
        if schema is None and isinstance(rows, EncodedTable):
            source: Any = rows.schema_text()
        elif schema is None:
            source = _proposed(data, target, folder, quiet=quiet)
            files[PROPOSED] = source.encode()
        else:
            source = schema.resolved() if isinstance(schema, Schema) else schema
        request = TrainingRequest(
            read_schema(source, settings=settings),
            validation,
            resume=resume,
            force=force,
            quiet=quiet,
            callbacks=tuple(callbacks),
            memory=memory,
            files=files,
            on_chosen=chosen_functions(),
        )
        if cluster is None:
            train_into(folder, request, rows)
            return
        from feat2vec.cluster.training import train_on_cluster

        train_on_cluster(folder, request, rows, cluster.jobs, sync=sync)

    return _run_in(out, write)


def _proposed(data: object, target: str | None, folder: Path, *, quiet: bool) -> str:
    """The text of a schema for a table; what was chosen is printed."""
    from feat2vec.table.propose import propose_schema
    from feat2vec.table.table import open_table
    from feat2vec.training.reporting import Reporter

    proposal = propose_schema(data, target=target, path=folder / PROPOSED)
    reporter = Reporter(1, 1, quiet=quiet)
    reporter.say(f"{open_table(data).name}: no schema is given; these choices are kept as {PROPOSED} in the run:")
    for line in proposal.choices:
        reporter.say(f"  {line}")
    if proposal.warning is not None:
        reporter.say(f"weak: {proposal.warning}")
    return proposal.text


def encode_table(
    schema: Schema | str | Path | Mapping[str, object],
    data: object,
    out: str | Path,
    *,
    engine: Literal["duckdb", "spark"] = "duckdb",
    settings: Sequence[str] = (),
    resume: bool = False,
    force: bool = False,
    memory: str = MEMORY,
) -> Path:
    """Encode a table into a folder, which trainings start from: shards of rows, vocabularies and value tables.

    While it works, what is finished is in `out.partial`.

    Args:
        schema: A schema, its file, its text, or the same as nested mappings.
        data: The table: a file, a folder, a frame, `dataset:NAME`, ...; for Spark files that all its workers see.
        out: The folder.
        engine: What counts: "duckdb" in this process, or "spark", which needs `pip install 'feat2vec[spark]'` and Java
            17. The session's options are those of Spark: `SPARK_MASTER`, `spark-defaults.conf`. Both write the same
            bytes.
        settings: Values that replace the schema's, such as "groups.title.extractor.min_count=5".
        resume: Go on with what a killed process has left.
        force: Replace the folder of encoded rows that is there.
        memory: What encoding may hold, such as "2GB".

    Returns:
        The folder.

    Raises:
        UserError: Something is wrong with an argument, the schema or the table.
        OSError: A file could not be written.

    >>> folder = feat2vec.encode_table(schema, films, "encoded")
    >>> sorted(path.name for path in folder.iterdir() if path.name != ".feat2vec")
    ['_encoder', '_sample', '_shards', 'manifest.json']

    """
    from feat2vec.evaluation.weakness import ROWS_OF_CONSTANT
    from feat2vec.schema.reading import read_schema
    from feat2vec.training.encoding import EncodingRequest, encode_into, engine_named

    with naming_arguments():
        source: Any = schema.resolved() if isinstance(schema, Schema) else schema
        read = read_schema(source, settings=settings)
        rows = 0 if read.target is None else ROWS_OF_CONSTANT
        with engine_named(engine) as counting:
            request = EncodingRequest(read, counting, resume=resume, force=force, memory=memory, training_rows=rows)
            encode_into(Path(out), request, data)
    return Path(out)


def finetune(
    run: TrainedRun,
    data: object,
    target: str,
    out: str | Path | None = None,
    validation: object = None,
    *,
    head: HeadType = "mlp",
    freeze: bool = False,
    objective: ObjectiveType | None = None,
    groups: Sequence[str] | None = None,
    scratch: bool = True,
    settings: Sequence[str] = (),
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    memory: str = MEMORY,
) -> Run:
    """Learn a column of labelled rows from a run's vectors and write a new run, for `predict` and `evaluate`.

    The new run encodes rows as the first one does. Its vectors begin as that one's and stay so with `freeze`; without
    it they stay so for a tenth of the epochs, in which the head learns alone, and then learn at half of the
    rate. The held-out rows choose the epoch. Linear terms, the head and the vectors of classes are new, and
    `item_dropout` is 0.

    What the schema of `feat2vec.init` for this target learns from scratch is kept beside it, in the folder `scratch` of
    the new run, and `predict` and `evaluate` give the mean of both: it is seldom worse than the better one. The more
    rows are held out, the more they decide what each counts. If the run was trained on the same rows with the target
    among its groups, its vectors give labels away, and the model from scratch predicts alone. Vectors, explanations
    and Keras models are of the model that began with the run's vectors. Frozen vectors, and the head "fm", predict
    alone.

    Args:
        run: The run to begin with, which stays as it is.
        data: Labelled rows.
        target: The column to predict.
        out: The new run's folder; a temporary one if none is given.
        validation: Rows that the loss is measured on after each epoch; without them some are held out, as in `train`.
        head: What turns vectors into a prediction: "mlp", the network that `feat2vec.init` proposes for a target, or
            "fm", the pairs of vectors.
        freeze: Leave the vectors as they are.
        objective: By default logistic for a target of 0, 1 or booleans, softmax for text, regression for numbers.
        groups: Those to learn from, all if it is None; those that hold the target are left out.
        scratch: Learn from scratch too; it takes about as long again.
        settings: Values that replace the new schema's: "training.epochs=5", "head.hidden=[64]".
        resume: Go on from the checkpoints of a training that was stopped.
        force: Replace the run that is at `out`.
        quiet: Print nothing.
        memory: What encoding may hold, such as "2GB".

    Returns:
        The new run.

    Raises:
        UserError: Something is wrong with an argument or the table.
        FailedError: The loss became infinite, or a file could not be written.

    >>> tuned = feat2vec.finetune(run, films, "hit", freeze=True, settings=["training.epochs=1"], quiet=True)
    >>> tuned.schema.objective.type, tuned.predict(films)["probability"].shape
    ('logistic', (60,))

    """
    from feat2vec.space.mixture import HELD_OUT_SCORES, held_out_scores, known_target, scratch_alone, weigh
    from feat2vec.table.table import open_table
    from feat2vec.training.chosen_model import Additions
    from feat2vec.training.fine_tuning import schema_of, scratch_schema
    from feat2vec.training.learning import FromScratch
    from feat2vec.training.train import TrainingRequest, train_into
    from feat2vec.training.trained_rows import has_learnt_column
    from feat2vec.training.warm_start import WarmStart

    def write(folder: Path) -> None:
        check_memory(memory)
        table = open_table(data)
        schema = schema_of(run.schema, table, target, head=head, objective=objective, groups=groups, settings=settings)
        request = TrainingRequest(
            schema, validation, resume=resume, force=force, quiet=quiet, memory=memory, on_chosen=chosen_functions()
        )
        wants_scratch = scratch and not freeze and schema.head.type == "mlp"
        fresh_schema = scratch_schema(schema, table, target, settings) if wants_scratch else None
        knows_target = has_learnt_column(run, table, target)
        if knows_target and fresh_schema is None:
            line = f"{known_target(target)}: losses on held-out rows are too low"
            request = replace(request, on_chosen=(*request.on_chosen, lambda _: Additions(lines=[line])))
        if fresh_schema is not None:
            from_scratch = replace(request, schema=fresh_schema, force=False, on_chosen=(held_out_scores,))
            decide = partial(scratch_alone, target) if knows_target else partial(weigh, schema.objective)
            weighed = FromScratch(from_scratch, decide, HELD_OUT_SCORES)
            request = replace(request, on_chosen=(*request.on_chosen, held_out_scores), from_scratch=weighed)
        train_into(folder, replace(request, start=WarmStart(run, freeze)), table)

    return _run_in(out, write)


def chosen_functions() -> tuple[OnChosen, ...]:
    """What measures the model of each training on rows that it was not trained on, before its run gets its name.

    The calibration of completions and the comparison with peers, whose sentence is the metric `weak`, belong here. See
    `training.chosen_model`.

    Returns:
        The functions, in the order in which they are called.

    """
    return (_measure_chosen,)


def _measure_chosen(chosen: ChosenModel) -> Additions:
    """Calibrate what completes rows, and compare the chosen model with popularity or a constant, on held-out rows."""
    from feat2vec.evaluation.weakness import measured_weakness
    from feat2vec.space.completion_calibration import files_of_completion, fit_completion, rows_to_keep, with_vectors
    from feat2vec.space.neighbours import NEIGHBOURS_FILE, KeptRows, kept_rows_bytes
    from feat2vec.training.chosen_model import Additions

    schema, learnt, kept_rows, files = chosen.run.schema, chosen.learnt, None, {}
    if schema.objective.completes_rows and schema.training.neighbours:
        fitted_to, kept = rows_to_keep(learnt, schema.training.neighbours)
        kept_rows = with_vectors(KeptRows(learnt.encoder, learnt.rows[fitted_to]), chosen.run.model_for_rows())
        files[NEIGHBOURS_FILE] = kept_rows_bytes(learnt.rows[kept])
    completion = fit_completion(chosen.run, chosen.held_out, chosen.counts, kept_rows)
    facts = measured_weakness(chosen.run, chosen.held_out, chosen.training_rows, chosen.counts, completion, kept_rows)
    return Additions(facts.metrics, {**files_of_completion(completion), **files, **facts.files}, facts.lines)


def _run_in(out: str | Path | None, write: Callable[[Path], None]) -> Run:
    """The run that `write` writes into a folder. A temporary one is removed when the run is garbage-collected."""
    if out is not None:
        with naming_arguments():
            write(Path(out))
        return load(out)
    temporary = temporary_folder()
    try:
        with naming_arguments():
            write(temporary / "run")
        run = load(temporary / "run")
    except BaseException:
        discard_temporary(temporary)
        raise
    weakref.finalize(run, discard_temporary, temporary)
    return run


def load(folder: str | Path) -> Run:
    """Read a run; a schema with plugins is refused until they are imported, as that would run their code.

    Args:
        folder: The run's folder.

    Returns:
        The run, whose parts are read when they are first needed.

    Raises:
        UserError: The folder is no run, or one of its files is not as training wrote it.

    >>> feat2vec.load("runs/films").schema.name
    'films'

    """
    folder = Path(folder)
    manifest, metrics = read_facts(folder)
    run = Run(folder, manifest, metrics)
    _ = run.fitted  # reading it checks it
    release_memory()
    return run
