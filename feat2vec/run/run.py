"""`Run`: what a run does beside answering: it is measured, written to files, a part of other models, and tuned.

`load` reads one; what `AnsweringRun` answers is in `answers.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feat2vec.encode.process_memory import release_memory
from feat2vec.errors import naming_arguments
from feat2vec.pages.explore_options import POINTS_PER_MAP
from feat2vec.run.answers import AnsweringRun
from feat2vec.run.fine_tuning import FineTuning
from feat2vec.training.run_folder import TrainedRun, read_facts
from feat2vec.writing import discard_temporary, temporary_folder

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from feat2vec.evaluation.task_names import TaskName
    from feat2vec.export.formats import FormatName
    from feat2vec.pages.explore_options import MapKind
    from feat2vec.space.filling import FilledCounts
    from feat2vec.space.search_options import RankSimilarity


class Run(AnsweringRun):
    """A trained run: search its vectors, embed and predict rows, export, explain, fine-tune.

    `feat2vec.train`, `feat2vec.finetune` and `feat2vec.load` return runs.

    >>> feat2vec.load("runs/films")
    <Run 'films' in runs/films>
    """

    def __repr__(self) -> str:
        return f"<Run {self.schema.name!r} in {self.folder}>"

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
        from feat2vec.training.trained_rows import warn_of_trained_rows

        names = [beside] if isinstance(beside, str) else beside
        with naming_arguments():
            options = TaskOptions(given, similarity, level)
            facts = evaluate_beside(self, data, task, target, names, train, options, matrix)
        if task != "pairs":
            warn_of_trained_rows(self, "data", data)
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

    # --- files --------------------------------------------------------------------------------------------------------

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
        return write_and_load(out, FineTuning(self, data, target, validation, **options).write)


def write_and_load(out: str | Path | None, write: Callable[[Path], None]) -> Run:
    """The run that a function writes into a folder.

    Args:
        out: The folder; a temporary one, which is removed when the run is garbage-collected, if none is given.
        write: Writes a run into a folder that does not exist.

    Returns:
        The run.

    """
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
