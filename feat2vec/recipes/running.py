"""`run`: a recipe's steps, one after the other: rows, training, measurements, neighbours, exports, fine-tuning."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from feat2vec.errors import FailedError, UnknownKeyError, UserError, listed, writing
from feat2vec.evaluation.options import METRICS
from feat2vec.evaluation.tasks import evaluate
from feat2vec.recipes import baselines
from feat2vec.recipes.recipe import Bound, Evaluation, ExportSpec, Finetuning, Neighbours, Recipe, read_recipe
from feat2vec.recipes.rows import Parts, make_parts, sources_of
from feat2vec.run import Run, load
from feat2vec.table.table import open_table
from feat2vec.terminal import printable, shortened
from feat2vec.training.train import TrainingRequest, check_finished_run, train_in_work_folder
from feat2vec.writing import (
    FolderPlace,
    file_in,
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

Tell = Callable[[str], None]
Facts = dict[str, Any]


class MissedError(FailedError):
    """Something is not as the recipe expects; `facts` are its results all the same."""

    def __init__(self, *problems: str, facts: Facts) -> None:
        super().__init__(*problems)
        self.facts = facts


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
    tell: Tell = print,
) -> Facts:
    """Run a recipe into a run's folder, by default runs/NAME, and return what its `results.json` says.

    `data` are the tables that the recipe asks for: a source if it asks for one, else NAME=SOURCE. `rows` is for a first
    try: no part has more rows, and what the recipe expects is not checked. The folder holds, beside the run, `data/`
    (the parts of the rows), `exports/`, `finetuned/` and `results.json`. Where something is not as expected, all of it
    is written, and then a MissedError says by how much.
    """
    recipe, schema = read_recipe(path, settings)
    sources = sources_of(recipe, data)
    out = Path("runs", recipe.name) if out is None else Path(out)
    place = _checked_place(out, sources, resume=resume, force=force)
    began = time.perf_counter()
    if quiet:
        tell = _silent
    if recipe.about:
        tell(" ".join(recipe.about.split()))
    replaces = None if place is None else place.replaces
    with work_folder(out, resume=resume, force=force, replaces=replaces) as partial:
        folder = partial / "data"  # until the run is whole
        mark_folder(folder, "data", ())
        try:
            with writing(partial):
                parts = make_parts(recipe, sources, folder, rows)
        except UserError as error:
            ours = (f"{path}: {problem}" if problem.startswith("rows: ") else problem for problem in error.problems)
            raise UserError(*ours) from None
        tables = parts.tables
        request = TrainingRequest(schema, tables.get("validation"), resume, force, quiet)
        if place is None:
            check_finished_run(request, out, tables["train"])
        else:
            train_in_work_folder(request, partial, place, tables["train"])
        steps = _Steps(recipe, load(out), parts, quiet, tell, check=rows is None)
        facts = steps.all_facts()
        facts |= {"seconds": round(time.perf_counter() - began, 1), "missed": steps.missed}
        with file_in(out, "results.json") as file:
            file.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
        record_all(folder)
        publish_folder(folder, folder_place(refuse_links_inside(out, "data"), "data", force=True))
    tell(f"\n{printable(str(out))}: the run, with data/ and results.json, in {facts['seconds']:.0f} s")
    if steps.missed:
        few = "one thing" if len(steps.missed) == 1 else f"{len(steps.missed)} things"
        raise MissedError(f"{path}: {few} not as expected:", *steps.missed, facts=facts)
    return facts


def _checked_place(out: Path, sources: Mapping[str, str], *, resume: bool, force: bool) -> FolderPlace | None:
    """Where the run will be; None if it was finished, and only what follows training is left."""
    if refuse_bad_folder(out).exists() and not resume and not force:
        raise UserError(f"{out}: is there already; --force replaces it, --resume goes on, --out names another folder")
    place = run_place(out, resume=resume, force=force)
    if place is None and read_mark(out) is None:
        raise UserError(f"{out}: {why_unmarked(out)}, so that nothing is added to it; choose another --out")
    files = [file for source in sources.values() for file in open_table(source).files]
    refuse_inputs_inside([out, partial_folder(out)], files)
    return place


def _silent(text: str) -> None:
    del text


@dataclass
class _Steps:
    """What follows training."""

    recipe: Recipe
    run: Run
    parts: Parts
    quiet: bool
    tell: Tell
    check: bool
    missed: list[str] = field(default_factory=list)

    def all_facts(self) -> Facts:
        recipe, run = self.recipe, self.run
        return {
            "name": recipe.name,
            "train": dict(run.metrics),
            "evaluate": [self._measure(run, spec) for spec in recipe.evaluate],
            "similar": [self._neighbours(spec) for spec in recipe.similar],
            "export": [self._export(name, spec) for name, spec in recipe.named_exports().items()],
            "page": self._page(),
            "finetune": {name: self._finetune(name, spec) for name, spec in recipe.finetune.items()},
        }

    def _measure(self, run: Run, evaluation: Evaluation) -> Facts:
        """A measurement, as a table with the peers beside it."""
        data = self.parts.tables[evaluation.data]
        facts = evaluate(
            run,
            data,
            evaluation.task,
            target=evaluation.target,
            given=evaluation.given,
            similarity=evaluation.similarity,
            level=evaluation.level,
        )
        baseline_facts: dict[str, Facts] = {
            baseline: self._baseline_facts(baseline, run, evaluation) for baseline in evaluation.beside
        }
        expected = evaluation.expect if self.check else {}
        for line in _table(evaluation, facts, baseline_facts, expected):
            self.tell(line)
        what = " ".join(filter(None, [evaluation.task, evaluation.target or run.schema.target]))
        self.missed += _misses(what, facts, baseline_facts, expected)
        return facts | {"data": evaluation.data, "beside": baseline_facts}

    def _baseline_facts(self, baseline: str, run: Run, evaluation: Evaluation) -> Facts:
        data, spec, corpus = self.parts.tables[evaluation.data], self.recipe.corpus, self.parts.corpus
        if baseline == "popularity":
            return baselines.popularity(run, data, str(evaluation.target), evaluation.given)
        if spec is not None and corpus is not None:
            return baselines.word2vec(spec, run.schema, corpus, data)
        return baselines.gradient_boosting(run.schema, self.parts.tables["train"], data)

    def _neighbours(self, neighbours: Neighbours) -> Facts:
        try:
            hits = self.run.vectors(neighbours.group).search([neighbours.key], topn=neighbours.n, to=neighbours.to)
        except UnknownKeyError as error:
            if self.check:
                raise
            self.tell(f"\n{shortened(printable(str(error)))}")  # few rows need not have it
            hits = []
        among = f", among {neighbours.to}" if neighbours.to else ""
        self.tell(f"\n{printable(f'nearest to {neighbours.group} {neighbours.key!r}{among}')}")
        for hit in hits:
            self.tell(f"{hit.score:8.4f} {hit.count:8,}  {shortened(printable(hit.key))}")
        found_hits = [{"group": hit.group, "key": hit.key, "score": hit.score, "count": hit.count} for hit in hits]
        return {"group": neighbours.group, "key": neighbours.key, "found": found_hits}

    def _export(self, name: str, spec: ExportSpec) -> Facts:
        name = f"exports/{name}"
        folder = refuse_links_inside(self.run.folder, name)
        self.run.export(spec.format, folder, spec.groups, level=spec.level, normalise=spec.normalise, force=True)
        self.tell(printable(f"{folder}: written"))
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
        self.tell(printable(f"{out}: written, a page to look at"))
        return out.name

    def _finetune(self, name: str, finetuning: Finetuning) -> Facts:
        """A run that predicts, and its measurements."""
        self.tell(f"\n{printable(f'{name}: {finetuning.target}')}, learnt from the run's vectors")
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
            quiet=self.quiet,
            settings=[f"{key}={json.dumps(value)}" for key, value in finetuning.set.items()],
            force=True,
        )
        return {
            "train": dict(tuned.metrics),
            "evaluate": [self._measure(tuned, evaluation) for evaluation in finetuning.evaluate],
        }


def _bounds(bound: Bound, baseline_facts: Mapping[str, Mapping[str, Any]], metric: str) -> Iterator[tuple[str, float]]:
    """(">=" or "<=", the limit)."""
    unit = 1.0 if bound.of is None else float(baseline_facts[bound.of][metric])
    if bound.min is not None:
        yield ">=", bound.min * unit
    if bound.max is not None:
        yield "<=", bound.max * unit


def _misses(
    what: str, facts: Mapping[str, Any], baseline_facts: Mapping[str, Mapping[str, Any]], expect: Mapping[str, Bound]
) -> Iterator[str]:
    for metric, bound in expect.items():
        value = facts.get(metric)
        for sign, limit in _bounds(bound, baseline_facts, metric):
            right = value is not None and (value >= limit if sign == ">=" else value <= limit)
            if not right:
                by = "" if value is None else f", by {abs(value - limit):.4g}"
                yield f"{what}: {metric} is {_shown(value)}, expected {sign} {_shown(limit)}{by}"


def _table(
    evaluation: Evaluation,
    facts: Mapping[str, Any],
    baseline_facts: Mapping[str, Mapping[str, Any]],
    expect: Mapping[str, Bound],
) -> Iterator[str]:
    """A line for each number: feat2vec's, those of the peers, what is expected."""
    title = " ".join(filter(None, [evaluation.task, evaluation.target]))
    given = f" by {listed(facts['given'])}" if "given" in facts else ""
    yield "\n" + printable(f"{title}{given}: {facts['n']:,} of {evaluation.data}")
    yield f"{'':14}{'feat2vec':>12}" + "".join(f"{baseline:>20}" for baseline in baseline_facts)
    for metric, value in facts.items():
        if metric in METRICS[evaluation.task]:
            line = f"{metric:14}{_shown(value):>12}"
            line += "".join(
                f"{_shown(facts_of_baseline.get(metric)):>20}" for facts_of_baseline in baseline_facts.values()
            )
            if metric in expect:
                limits = " and ".join(
                    f"{sign} {_shown(limit)}" for sign, limit in _bounds(expect[metric], baseline_facts, metric)
                )
                line += f"   expected {limits}"
            yield line


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, (int, float)) else json.dumps(value)
