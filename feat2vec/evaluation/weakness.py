"""Whether a run is worse than what needs no training, on rows that were held out: popularity, or a constant."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from feat2vec.arrays import Array, Bools, Floats
from feat2vec.evaluation import prediction
from feat2vec.evaluation.baselines import BASELINES, BaselineRequest
from feat2vec.evaluation.metrics import ScoresOfRows, rank_scores
from feat2vec.evaluation.queries import query_batches
from feat2vec.schema.extractor_options import ExtractorSpec, ItemsSpec
from feat2vec.space.calibration import GroupCalibration
from feat2vec.space.completer import Completer, RowQueries, groups_beside, has_groups_beside, rows_with_known
from feat2vec.space.completion_calibration import FittedGroup
from feat2vec.space.geometry import (
    Candidates,
    Model,
    Queries,
    candidates,
    extract_groups,
    is_keyed,
    similarities,
    sum_of_groups,
)
from feat2vec.space.group_fit import GroupFit
from feat2vec.space.neighbours import KeptRows, Sparse
from feat2vec.space.search_options import VECTOR_SIMILARITIES, VectorSimilarity
from feat2vec.table.table import open_table
from feat2vec.training.run_folder import TrainedRun
from feat2vec.writing.digests import PARTS, check_parts

MOST_ROWS = 1_000  # held-out rows that are ranked
MOST_CANDIDATES = 100_000  # of a group that is ranked
SCORES_AT_MOST = 30_000_000  # of all groups
FEWEST_QUERIES = 30  # from which a mean says something
NOISE = 2.0  # standard errors by which a baseline has to be better
LOSS_NOISE = 1.01  # times the constant's loss that a loss has to be higher than
ROWS_OF_CONSTANT = 20_000  # training rows whose mean or shares the constant is
DIGITS = 4
WORTHS = "held_out.json"  # of a run's folder


@dataclass(frozen=True)
class Worth:
    """What a run reaches on held-out rows, beside what needs no training.

    Attributes:
        target: The group or the column.
        metric: Its name: mrr for a group.
        n: Of how many true values or rows.
        value: What the run reaches; of a group the best of cosine, dot and probability.
        baseline: The name of what is beside it: popularity or constant.
        baseline_value: What that reaches.
        is_weak: Whether vectors alone are worse than popularity, and fitted probabilities no better, beyond noise;
            of a target whether the run is worse.

    """

    target: str
    metric: str
    n: int
    value: float
    baseline: str
    baseline_value: float
    is_weak: bool

    def text(self) -> str:
        """In words, such as `director 0.345, popularity 0.257`."""
        return f"{self.target} {self.value:.3g}, {self.baseline} {self.baseline_value:.3g}"


def held_out_worths(
    run: TrainedRun,
    held_out: pa.Table,
    train: pa.Table | None = None,
    counts: Mapping[str, Array] | None = None,
    calibrations: Mapping[str, GroupCalibration] | None = None,
    kept_rows: KeptRows | None = None,
    known: Mapping[str, Worth | None] | None = None,
) -> list[Worth]:
    """What a run reaches on rows that it was not trained on, of each lookup group or of its target.

    Args:
        run: The run.
        held_out: The rows, with the columns of the schema.
        train: Rows that the run was trained on, of which the constant is taken; a run without a target needs none.
        counts: Of each group how often training has seen each entry, [values]; by default as the encoder has it.
        calibrations: What the probabilities of groups are fitted to; by default they are as the objective learns them.
        kept_rows: Rows that the run was trained on, the nearest of which are asked as `complete` asks them; by default
            none.
        known: Those of groups that `worth_of_fitted` has measured already, by group.

    Returns:
        One for each group that can be ranked, without those of words or of parts of dates, or for the target.

    """
    if run.schema.target is not None:
        return [] if train is None else _worth_of_target(run, held_out, train)
    worths, groups = [], ranked_groups(run)
    if calibrations and len(groups) > len(calibrations):  # of very many groups those that are completed best
        groups = [name for name in groups if name in calibrations]
    for group in groups:
        if known is not None and group in known:
            worth = known[group]
        else:
            numbers = (calibrations or {}).get(group)
            worth = _worth_of_group(run, held_out, group, counts, SCORES_AT_MOST // len(groups), numbers, kept_rows)
        if worth is not None:
            worths.append(worth)
    return worths


def ranked_groups(run: TrainedRun) -> list[str]:
    """The groups that can be ranked, without those of words or of parts of dates; none of a run with a target."""
    if run.schema.target is not None:
        return []
    schema = run.schema
    targets = list(schema.noise.targets) or list(schema.groups)
    groups = [name for name in targets if is_keyed(run.vector_source, name) and has_groups_beside(schema, name)]
    return [name for name in groups if not _has_parts(schema.groups[name].extractor)]


def worth_of_fitted(
    run: TrainedRun,
    held_out: pa.Table,
    counts: Mapping[str, Array] | None,
    kept_rows: KeptRows | None,
    fitted: FittedGroup,
) -> Worth | None:
    """What `held_out_worths` says of a group, right after its fit, which knows what the nearest rows say.

    Args:
        run: The run.
        held_out: The rows that the group was fitted to.
        counts: Of each group how often training has seen each entry, [values].
        kept_rows: Rows that the run was trained on, if any are kept.
        fitted: The group, one of `ranked_groups`.

    """
    most_scores = SCORES_AT_MOST // len(ranked_groups(run))
    return _worth_of_group(run, held_out, fitted.group, counts, most_scores, fitted.calibration, kept_rows, fitted.fit)


class WeaknessFacts(NamedTuple):
    """What a run's folder and its training's messages get from `measured_weakness`."""

    metrics: Mapping[str, float | str]  # of metrics.json
    files: Mapping[str, bytes]  # of the run's folder, by name
    lines: tuple[str, ...]  # that are printed


def measured_weakness(
    run: TrainedRun,
    held_out: pa.Table,
    training_rows: Callable[[int], pa.Table],
    counts: Mapping[str, Array] | None,
    calibrations: Mapping[str, GroupCalibration] | None = None,
    kept_rows: KeptRows | None = None,
    known: Mapping[str, Worth | None] | None = None,
) -> WeaknessFacts:
    """Measure a model on held-out rows before its run gets its name.

    Args:
        run: The model, as a run without a folder.
        held_out: Rows that it was not trained on.
        training_rows: Gives at most so many rows that it was trained on.
        counts: Of each group how often each entry occurs in the rows that it was trained on, [values].
        calibrations: What the probabilities of groups are fitted to. They may be fitted to the same rows: they have one
            number for each group, which cannot fit two thousand rows by heart.
        kept_rows: Rows that it was trained on, the nearest of which are asked; by default none.
        known: What `worth_of_fitted` has measured already, by group.

    Returns:
        An entry `weak` for metrics.json if the run is worse than popularity or a constant, the same as a line, and the
        file held_out.json with all that was measured.

    """
    train = None if run.schema.target is None else training_rows(ROWS_OF_CONSTANT)
    worths = held_out_worths(run, held_out, train, counts, calibrations, kept_rows, known)
    if not worths:
        return WeaknessFacts({}, {}, ())
    text = weakness_text(run, worths)
    file = (json.dumps([asdict(worth) for worth in worths], indent=1) + "\n").encode()
    return WeaknessFacts(
        {} if text is None else {"weak": text}, {WORTHS: file}, () if text is None else (f"weak: {text}",)
    )


def stored_worths(run: TrainedRun) -> list[Worth]:
    """What was measured when the run was trained; nothing if no rows were held out."""
    path = run.folder / WORTHS
    if WORTHS not in run.manifest.get(PARTS, {}):
        return []
    check_parts(run.folder, run.manifest, [WORTHS])
    return [Worth(**facts) for facts in json.loads(path.read_bytes())]


def weakness_text(run: TrainedRun, worths: list[Worth]) -> str | None:
    """What is weak, in words, and what to try; None if nothing is."""
    weak = [worth for worth in worths if worth.is_weak]
    if not weak:
        return None
    texts = "; ".join(worth.text() for worth in weak)
    return f"{texts} ({weak[0].metric} on held-out rows); try {_remedy(run, weak)}"


def _remedy(run: TrainedRun, weak: list[Worth]) -> str:
    objective = run.schema.objective.type
    if objective in ("nce", "negative_sampling"):
        return "`objective: {type: contrastive}`"
    option = f"--target {weak[0].target}" if run.schema.target is not None else f"--for {weak[0].target}"
    return f"`feat2vec tune SCHEMA --data DATA {option}`"


# --- a group ----------------------------------------------------------------------------------------------------------


def _has_parts(extractor: ExtractorSpec) -> bool:
    """Whether a group's keys are the words of a text or the parts of a date."""
    return isinstance(extractor, ItemsSpec) and (extractor.split == "words" or bool(extractor.parts))


def _worth_of_group(
    run: TrainedRun,
    held_out: pa.Table,
    group: str,
    counts_of_values: Mapping[str, Array] | None,
    most_scores: int,
    calibration: GroupCalibration | None,
    kept_rows: KeptRows | None,
    fit: GroupFit | None = None,
) -> Worth | None:
    """The mean reciprocal rank of the true values of a group by its others; None where too few can be ranked."""
    seen = run.fitted.values[group].counts if counts_of_values is None else counts_of_values[group]
    counts = run.fitted.key_counts(group, seen).astype(np.float64)  # [candidates]
    total = len(counts)
    if not 1 < total <= MOST_CANDIDATES:
        return None
    rows = min(MOST_ROWS, max(most_scores // total, FEWEST_QUERIES), held_out.num_rows)
    chosen = np.random.default_rng(run.schema.training.seed).choice(held_out.num_rows, rows, replace=False)
    chosen.sort()
    sample = held_out.take(pa.array(chosen))
    given = groups_beside(run.schema, group)
    model = run.model_for_rows([*given, group])
    completer = None
    if run.schema.objective.completes_rows:
        completer = Completer(run.fitted, model, group, calibration, given, kept_rows=kept_rows)
    known = KnownOfRows()
    if fit is not None and calibration is not None:
        known = KnownOfRows(fit.vectors_of_whole_rows(chosen), fit.evidence_of_whole_rows(calibration, chosen))
    reciprocals = _reciprocal_ranks(run, model, sample, group, given, counts, completer, known)
    n = len(reciprocals["popularity"])
    if n < FEWEST_QUERIES:
        return None
    best = max(reciprocals.keys() - {"popularity"}, key=lambda name: (reciprocals[name].mean(), name))
    best_vectors = max(VECTOR_SIMILARITIES, key=lambda name: reciprocals[name].mean())
    tells_nothing = not _is_above(reciprocals[best], reciprocals["popularity"])
    is_weak = tells_nothing and _is_above(reciprocals["popularity"], reciprocals[best_vectors])
    value, popularity = (float(reciprocals[name].mean()) for name in (best, "popularity"))
    return Worth(group, "mrr", n, round(value, DIGITS), "popularity", round(popularity, DIGITS), is_weak)


class KnownOfRows(NamedTuple):
    """What a fit has computed of rows already; None where it has not."""

    vectors: Mapping[str, Queries] | None = None  # of the groups that the rows are found by
    evidence: Sequence[Sparse] | None = None  # what the nearest rows say, [rows, candidates]

    def vectors_of(self, rows: slice) -> dict[str, Queries] | None:
        """The vectors of some of the rows."""
        if self.vectors is None:
            return None
        return {name: queries.take(rows) for name, queries in self.vectors.items()}

    def evidence_of(self, rows: slice) -> list[Sparse] | None:
        """What the nearest rows say of some of the rows."""
        return None if self.evidence is None else [matrix[rows] for matrix in self.evidence]


def _is_above(values: Floats, other_values: Floats) -> bool:
    """Whether the mean of values is greater than that of others of the same rows, by more than noise."""
    differences = values - other_values
    return bool(differences.mean() > NOISE * differences.std() / np.sqrt(len(differences)))


def _reciprocal_ranks(
    run: TrainedRun,
    model: Model,
    rows: pa.Table,
    group: str,
    given: list[str],
    counts: Floats,
    completer: Completer | None,
    known: KnownOfRows,
) -> dict[str, Floats]:
    """1 / rank of each true value that training has seen, by each similarity and by popularity: [queries]."""
    is_learnt = counts > 0  # [candidates]
    values = candidates(model, run.fitted, group)
    parts: dict[str, list[Floats]] = {}
    first = 0  # row of the batch
    for batch in query_batches(run, open_table(rows), group, given):
        is_query = rows_with_known(run.fitted, batch.entries, given)[batch.rows] & is_learnt[batch.true_candidates]
        query_rows, true_candidates = batch.rows[is_query], batch.true_candidates[is_query]
        of_batch = slice(first, first + len(batch.entries[given[0]]))
        first = of_batch.stop
        vectors = known.vectors_of(of_batch) or extract_groups(model, batch.entries)
        queries = sum_of_groups(vectors)
        scores: dict[str, ScoresOfRows] = {"popularity": _popularity_scores(counts)}
        for similarity in VECTOR_SIMILARITIES:
            scores[similarity] = _scores_by(similarity, queries, values, is_learnt)
        if completer is not None:
            row_queries = completer.queries(batch.entries, vectors, known.evidence_of(of_batch))
            scores["probability"] = _probability_scores(completer, row_queries, is_learnt)
        for name, scores_of in scores.items():
            ranks = rank_scores(scores_of, len(counts), query_rows, true_candidates)
            parts.setdefault(name, [np.zeros(0)]).append(1 / (ranks + 1))
    return {name: np.concatenate(of_name) for name, of_name in parts.items()}


def _popularity_scores(counts: Floats) -> ScoresOfRows:
    return lambda rows: np.broadcast_to(counts, (len(rows), len(counts)))


def _scores_by(similarity: VectorSimilarity, queries: Queries, values: Candidates, is_learnt: Bools) -> ScoresOfRows:
    """Similarities, the lowest for values that the model has not learnt."""
    return lambda rows: np.where(is_learnt, similarities(queries.take(rows), values, similarity), -np.inf)


def _probability_scores(completer: Completer, queries: RowQueries, is_learnt: Bools) -> ScoresOfRows:
    """What ranks values by their probability, the lowest for values that the model has not learnt."""
    return lambda rows: np.where(is_learnt, completer.scores(queries.take(rows)), -np.inf)


# --- a target ---------------------------------------------------------------------------------------------------------


def _worth_of_target(run: TrainedRun, held_out: pa.Table, train: pa.Table) -> list[Worth]:
    """The loss of a run that predicts, beside that of a constant."""
    facts = prediction.predict(run, held_out)
    request = BaselineRequest(run, open_table(train.slice(0, ROWS_OF_CONSTANT)), open_table(held_out))
    constant = BASELINES["constant"].measure(request)
    metric = "rmse" if "rmse" in facts else "log_loss"
    value, constant_value = facts.get(metric), constant.get(metric)
    if value is None or constant_value is None or facts["n"] < FEWEST_QUERIES:
        return []
    is_weak = not value <= LOSS_NOISE * constant_value
    target = str(run.schema.target)
    return [Worth(target, metric, facts["n"], round(value, DIGITS), "constant", round(constant_value, DIGITS), is_weak)]
