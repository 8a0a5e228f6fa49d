"""What the steps of a recipe return, and where they print their lines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from feat2vec.errors import FailedError, UnknownKeyError, UserError, writing
from feat2vec.evaluation.baselines import BASELINES, BaselineRequest, Metrics
from feat2vec.evaluation.tasks import evaluate
from feat2vec.recipes.compared import Measured, compared_runs, compared_schemas
from feat2vec.recipes.comparison import Comparison
from feat2vec.recipes.proposed import PROPOSED_GROUP, lines_of
from feat2vec.recipes.reading import document_for_rows, read_recipe
from feat2vec.recipes.recipe import Evaluation, ExportSpec, Finetuning, Neighbours, Recipe
from feat2vec.recipes.rows import RowParts, make_parts, sources_of
from feat2vec.recipes.tables import ComparisonTables
from feat2vec.run import Run, chosen_functions, load
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.table.table import open_table
from feat2vec.terminal import printable, shortened
from feat2vec.training.train import TrainingRequest, check_finished_run, train_in_work_folder
from feat2vec.writing import (
    FolderPlace,
    check_file_in,
    file_in,
    file_place,
    finish_replacement,
    folder_place,
    mark_folder,
    partial_folder,
    publish_folder,
    read_mark,
    record_all,
    refuse_bad_folder,
    refuse_inputs_inside,
    refuse_links_inside,
    run_place,
    why_unmarked,
    work_folder,
)
from feat2vec.writing.files import JsonObject

Results = JsonObject  # as `--json` prints them
COMPARISON = "comparison.html"  # the page of the compared models
PrintLines = Callable[[str], None]  # called with one or more lines


def print_nothing(text: str) -> None:
    """Print nothing: for `quiet`."""
    del text


class MissedError(FailedError):
    """Something is not as the recipe expects; `results` are those of the whole recipe."""

    def __init__(self, *problems: str, results: Results) -> None:
        super().__init__(*problems)
        self.results = results


def run_recipe(
    path: str | Path,
    out: str | Path | None = None,
    data: Sequence[str] = (),
    *,
    settings: Sequence[str] = (),
    rows: int | None = None,
    resume: bool = False,
    force: bool = False,
    quiet: bool = False,
    print_lines: PrintLines = print,
) -> Results:
    """Run a recipe into a run's folder, and return what its `results.json` says.

    The folder holds, beside the run, `data/` (the parts of the rows), `exports/`, `finetuned/` and `results.json`.

    Args:
        path: The recipe.
        out: The folder; by default runs/NAME.
        data: The tables that the recipe asks for: a source if it asks for one, else NAME=SOURCE.
        settings: Such as "training.epochs=5"; they replace what the schema says.
        rows: For a first try: no part has more rows, and what the recipe expects is not checked.
        resume: Go on with a run that was interrupted.
        force: Replace the run if it is there.
        quiet: Print nothing.
        print_lines: What prints.

    Raises:
        MissedError: Something is not as expected; it says by how much. All files are written before it is raised.
        UserError: The recipe, its tables or its folder cannot be used.

    """
    recipe, schema = read_recipe(path, settings)
    sources = sources_of(recipe, data)
    out = Path("runs", recipe.name) if out is None else Path(out)
    place = _checked_place(recipe, out, sources, resume=resume, force=force)
    began = time.perf_counter()
    if quiet:
        print_lines = print_nothing
    if recipe.about:
        print_lines(" ".join(recipe.about.split()))
    replaces = None if place is None else place.replaces
    with work_folder(out, resume=resume, force=force, replaces=replaces) as partial:
        data_folder = partial / "data"  # until the run is whole
        parts = _write_parts(path, recipe, sources, data_folder, rows)
        document = document_for_rows(path, recipe, settings, parts.tables["train"])
        if PROPOSED_GROUP in schema.groups:
            schema = read_schema(document)
            for line in lines_of(schema):
                print_lines(printable(line))
        compared = {} if recipe.compare is None else compared_schemas(recipe.compare, document)
        request = TrainingRequest(
            schema, parts.tables.get("validation"), resume, force, quiet, on_chosen=chosen_functions()
        )
        if place is None:
            check_finished_run(request, out, parts.tables["train"])
        else:
            train_in_work_folder(request, partial, place, parts.tables["train"])
        steps = _Steps(recipe, load(out), parts, compared, quiet, print_lines, check=rows is None)
        results = steps.results()
        results |= {"seconds": round(time.perf_counter() - began, 1), "missed": steps.missed}
        with file_in(out, "results.json") as file:
            file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        record_all(data_folder)
        publish_folder(data_folder, folder_place(refuse_links_inside(out, "data"), "data", force=True))
    print_lines(f"\n{printable(str(out))}: the run, with data/ and results.json, in {results['seconds']:.0f} s")
    _raise_if_missed(path, steps.missed, results)
    return results


def _raise_if_missed(path: str | Path, missed: Sequence[str], results: Results) -> None:
    if missed:
        count = "one thing" if len(missed) == 1 else f"{len(missed)} things"
        raise MissedError(f"{path}: {count} not as expected:", *missed, results=results)


def _checked_place(
    recipe: Recipe, out: Path, sources: Mapping[str, str], *, resume: bool, force: bool
) -> FolderPlace | None:
    """Where the run will be; None if it was finished, and only what follows training is left."""
    finish_replacement(refuse_bad_folder(out))
    if out.exists() and not resume and not force:
        raise UserError(f"{out}: is there already; --force replaces it, --resume goes on, --out names another folder")
    place = run_place(out, resume=resume, force=force)
    if place is None:
        if read_mark(out) is None:
            raise UserError(f"{out}: {why_unmarked(out)}, so that nothing is added to it; choose another --out")
        _refuse_taken_places(recipe, out)
    files = [file for source in sources.values() for file in open_table(source).files]
    refuse_inputs_inside([out, partial_folder(out)], files)
    return place


def _refuse_taken_places(recipe: Recipe, out: Path) -> None:
    """Raise before any work is done if something of the user's is where a finished run gets what it lacks."""
    check_file_in(out, "results.json")
    folder_place(refuse_links_inside(out, "data"), "data", force=True)
    for name in recipe.named_exports():
        folder_place(refuse_links_inside(out, f"exports/{name}"), "export", force=True)
    for name in recipe.finetune:
        run_place(refuse_links_inside(out, f"finetuned/{name}"), force=True)
    if recipe.compare is not None:
        check_file_in(out, COMPARISON)
        for name in recipe.compare.models:
            run_place(refuse_links_inside(out, f"compared/{name}"), resume=True)
    if recipe.page is not None:
        file_place(refuse_links_inside(out, "map.html"), force=True)


def _write_parts(
    path: str | Path, recipe: Recipe, sources: Mapping[str, str], folder: Path, rows: int | None
) -> RowParts:
    """The parts of the rows, in a folder that is made; messages about the recipe's query begin with its path."""
    mark_folder(folder, "data", ())
    try:
        with writing(folder.parent):
            return make_parts(recipe, sources, folder, rows)
    except UserError as error:
        problems = [f"{path}: {problem}" if problem.startswith("rows: ") else problem for problem in error.problems]
        raise UserError(*problems) from None


@dataclass
class _Steps:
    """The steps that follow training; each prints its lines and returns its results."""

    recipe: Recipe
    run: Run
    parts: RowParts
    compared: Mapping[str, Schema]  # the schema of each compared model
    quiet: bool
    print_lines: PrintLines
    check: bool
    missed: list[str] = field(default_factory=list)

    def results(self) -> Results:
        recipe, run = self.recipe, self.run
        return {
            "name": recipe.name,
            "train": dict(run.metrics),
            "evaluate": [self._measure(run, spec) for spec in recipe.evaluate],
            "similar": [self._neighbours(spec) for spec in recipe.similar],
            "export": [self._export(name, spec) for name, spec in recipe.named_exports().items()],
            "page": self._page(),
            "finetune": {name: self._finetune(name, spec) for name, spec in recipe.finetune.items()},
            "compare": self._compare(),
        }

    def _measure(self, run: Run, evaluation: Evaluation) -> Results:
        """A measurement, as a table with the baselines beside it."""
        metrics = evaluate(
            run,
            self.parts.tables[evaluation.data],
            evaluation.task,
            target=evaluation.target,
            given=evaluation.given,
            similarity=evaluation.similarity,
            level=evaluation.level,
        )
        request = self._baseline_request(run, evaluation)
        baseline_metrics: dict[str, Metrics] = {}
        for name in evaluation.beside:
            baseline_metrics[name] = BASELINES[name].measure(request)
        expected = evaluation.expect if self.check else {}
        comparison = Comparison(evaluation, metrics, baseline_metrics, expected)
        for line in comparison.lines():
            self.print_lines(line)
        self.missed += comparison.misses(evaluation.target or run.schema.target)
        return metrics | {"data": evaluation.data, "beside": baseline_metrics}

    def _baseline_request(self, run: Run, evaluation: Evaluation) -> BaselineRequest:
        tables = self.parts.tables
        request = BaselineRequest(
            run,
            tables["train"],
            tables[evaluation.data],
            target=evaluation.target,
            given=evaluation.given,
            matrix=evaluation.matrix,
        )
        options = self.recipe.corpus
        if options is None:
            return request
        return replace(
            request,
            corpus=self.parts.corpus,
            window=options.window,
            subsample=options.subsample,
            has_fixed_windows=options.reach == "fixed",
            fake_centres=options.fake_centres,
        )

    def _neighbours(self, neighbours: Neighbours) -> Results:
        try:
            hits = self.run.vectors(neighbours.group).search([neighbours.key], topn=neighbours.n, to=neighbours.to)
        except UnknownKeyError as error:
            if self.check:
                raise
            self.print_lines(f"\n{shortened(printable(str(error)))}")  # few rows need not have it
            hits = []
        among = f", among {neighbours.to}" if neighbours.to else ""
        self.print_lines(f"\n{printable(f'nearest to {neighbours.group} {neighbours.key!r}{among}')}")
        for hit in hits:
            self.print_lines(f"{hit.score:8.4f} {hit.count:8,}  {shortened(printable(hit.key))}")
        found_hits = [{"group": hit.group, "key": hit.key, "score": hit.score, "count": hit.count} for hit in hits]
        return {"group": neighbours.group, "key": neighbours.key, "found": found_hits}

    def _export(self, name: str, spec: ExportSpec) -> Results:
        name = f"exports/{name}"
        folder = refuse_links_inside(self.run.folder, name)
        self.run.export(spec.format, folder, spec.groups, level=spec.level, normalise=spec.normalise, force=True)
        self.print_lines(printable(f"{folder}: written"))
        return {"format": spec.format, "folder": name}

    def _page(self) -> str | None:
        """A map to look at."""
        page = self.recipe.page
        if page is None:
            return None
        from feat2vec.pages.explore import Atlas, write_page

        data = None if page.data is None else self.parts.tables[page.data]
        out = refuse_links_inside(self.run.folder, "map.html")
        write_page(Atlas(self.run, page.groups, data, page.colour, page.map), out, force=True)
        self.print_lines(printable(f"{out}: written, a page to look at"))
        return out.name

    def _compare(self) -> Results | None:
        """The compared models, trained and measured, as tables and a page."""
        compare = self.recipe.compare
        if compare is None:
            return None
        runs = compared_runs(compare, self.compared, self.run, self.parts, quiet=self.quiet, say=self._say_name)
        measured = {name: Measured.measure(name, run, self.parts, compare.data) for name, run in runs.items()}
        marks = {}
        for label, mark in (compare.figure.beside if compare.figure is not None else {}).items():
            marks[label] = measured[mark.model]
            if mark.level is not None:
                marks[label] = Measured.measure(label, runs[mark.model], self.parts, compare.data, mark.level)
        tables = ComparisonTables(compare, measured, marks)
        for line in tables.lines():
            self.print_lines(line)
        with file_in(self.run.folder, COMPARISON) as file:
            file.write_text(tables.page(self.recipe.name), encoding="utf-8")
        return {**tables.facts(), "page": COMPARISON}

    def _say_name(self, name: str) -> None:
        self.print_lines(f"\n{printable(name)}")

    def _finetune(self, name: str, finetuning: Finetuning) -> Results:
        """A run that predicts, and its measurements."""
        self.print_lines(f"\n{printable(f'{name}: {finetuning.target}')}, learnt from the run's vectors")
        tables, out = self.parts.tables, refuse_links_inside(self.run.folder, f"finetuned/{name}")
        tuned = self.run.finetune(
            tables["train"],
            finetuning.target,
            out,
            tables.get("validation"),
            head=finetuning.head,
            freeze=finetuning.freeze,
            objective=finetuning.objective,
            groups=finetuning.groups,
            scratch=finetuning.scratch,
            quiet=self.quiet,
            settings=[f"{key}={json.dumps(value)}" for key, value in finetuning.set.items()],
            force=True,
        )
        return {
            "train": dict(tuned.metrics),
            "evaluate": [self._measure(tuned, evaluation) for evaluation in finetuning.evaluate],
        }
