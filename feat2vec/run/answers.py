"""`AnsweringRun`: what a run answers of keys and rows, each answer by a function of the room `space` or `pages`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

from feat2vec.arrays import Float32s
from feat2vec.errors import naming_arguments
from feat2vec.run.kept_parts import KeptParts
from feat2vec.training.run_folder import TrainedRun

if TYPE_CHECKING:
    from feat2vec.pages.explanation_views import Explanation
    from feat2vec.space.completer import Completer
    from feat2vec.space.completion import Completed
    from feat2vec.space.embed import Embedder, NewVectors
    from feat2vec.space.predict import Predictor
    from feat2vec.space.vectors import Vectors


class AnsweringRun(TrainedRun):
    """A run that answers: vectors to search, and of rows their vectors, predictions, completions and explanations.

    `feat2vec.run.Run` is one, and also measures, writes and fine-tunes.
    """

    @cached_property
    def _kept(self) -> KeptParts:
        return KeptParts()

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
                folded = fold_in_groups(self, rows, names, self._kept.known_candidates)
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
            return vectors_of_new_values(self, rows, group, self._kept.known_candidates)

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
        return self._kept.embedder(self, groups, level, new_vectors)

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
        from feat2vec.training.trained_rows import warn_of_trained_rows

        predictions = self.predictor(level).predict(rows)
        warn_of_trained_rows(self, "rows", rows)
        return predictions

    def predictor(self, level: int | None = None) -> Predictor:
        """What `predict` uses, compiled once. `predictor().write(table, "scores.parquet")` streams to a file.

        Args:
            level: As for `predict`.

        Returns:
            The predictor, the same one for the same level.

        Raises:
            UserError: There is no such level.

        """
        return self._kept.predictor(self, level)

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
        return self._kept.completer(self, group, given)

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
