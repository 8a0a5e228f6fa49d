"""The results as README shows them: a line for each table, ours beside the best peer of each question."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from tables.apart import EVERY_TABLE
from tables.report import NOISE, loss_of, medians_of
from tables.running import Record

BEGIN = "<!-- tools/bench_tables.py --markdown writes from here -->"
END = "<!-- to here -->"
OURS = {"complete": "ours", "predict": "init --target"}
OF_OURS = ("ours", "init --target", "finetune", "scratch")  # all that are no peers
NAMES = {"tfidf": "TF-IDF", "skipgram": "skip-gram", "cbow": "CBOW", "lightfm": "LightFM", "mlp": "MLP"}
WIDTH = 130  # of README's lines

Scores: TypeAlias = dict[str, float]  # of a question, by candidate
Questions: TypeAlias = dict[tuple[str, str, str], Scores]  # of table, task, question: ours and one peer at least


def markdown_of_splits(records: Sequence[Record], splits: Sequence[str], commit: str | None) -> str:
    """What `markdown` says of each split in which ours and a peer have answered."""
    answered = [split for split in splits if _questions([record for record in records if record["split"] == split])]
    return "\n\n".join(markdown(records, split, commit) for split in answered)


def markdown(records: Sequence[Record], split: str, commit: str | None) -> str:
    """A sentence on what was measured and how often ours is as good, and the table."""
    of_split = [record for record in records if record["split"] == split and "@" not in record["candidate"]]
    questions = _questions(of_split)
    tables = [name for name in EVERY_TABLE if any(table == name for table, _, _ in questions)]
    lines = [
        _caption(questions, of_split, split, commit), "",
        "| table, rows | a hidden value, by the rest of its row: MRR | a label: RMSE or log loss |", "|---|---|---|",
    ]  # fmt: skip
    for table in tables:
        cells = [_cell(questions, table, task) for task in OURS]
        lines.append(f"| {table}, {_size(table, of_split)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write_between(path: Path, text: str) -> None:
    """Replace what is between the marks of a file.

    Raises:
        ValueError: The file has not both marks, once each and in their order.

    """
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in after or END in after:
        raise ValueError(f"{path}: expected one line {BEGIN!r} and one {END!r} after it")
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def _questions(records: Sequence[Record]) -> Questions:
    """The scores of the questions that ours and a peer have answered."""
    questions: Questions = {}
    for (table, _, task, question), candidates in medians_of(records).items():
        scores = {
            name: metrics["mrr"] if task == "complete" else loss_of(metrics)
            for name, metrics in candidates.items()
            if name == OURS[task] or name not in OF_OURS
        }
        if OURS[task] in scores and len(scores) > 1:
            questions[table, task, question] = scores
    return questions


def _best_peer(task: str, scores: Mapping[str, float]) -> str:
    peers = [name for name in scores if name != OURS[task]]
    return max(peers, key=scores.__getitem__) if task == "complete" else min(peers, key=scores.__getitem__)


def _worth(task: str, scores: Mapping[str, float], peer: str) -> float:
    """Ours over a peer, so that 1 is as good and more is better."""
    ours, beside = scores[OURS[task]], scores[peer]
    return ours / beside if task == "complete" else beside / max(ours, 1e-12)


def _cell(questions: Questions, table: str, task: str) -> str:
    """Ours / the best peer and its name, for each of a table's questions."""
    parts = []
    for (name, of_task, question), scores in questions.items():
        if (name, of_task) == (table, task):
            peer = _best_peer(task, scores)
            ours = _number(scores[OURS[task]])
            ours = f"**{ours}**" if _worth(task, scores, peer) >= 1 else ours
            label = question.removesuffix("_label").replace("_", " ")
            parts.append(f"{label} {ours} / {_number(scores[peer])} {NAMES.get(peer, peer)}")
    return "; ".join(parts)


def _size(table: str, records: Sequence[Record]) -> str:
    """A table's rows, or how many of them were taken."""
    rows = EVERY_TABLE[table].rows
    taken = next(record.get("most_rows") for record in records if record["table"] == table)
    return f"{rows:,}" if taken is None or taken >= rows else f"{taken:,} of {rows:,}"


def _number(score: float) -> str:
    """Three digits; of less than a thousandth one."""
    if score < 0.001:
        return f"{score:.0e}"
    return (
        f"{score:.3f}"
        if score < 1
        else f"{score:.2f}"
        if score < 10
        else f"{score:.1f}"
        if score < 100
        else f"{score:,.0f}"
    )


def _caption(questions: Questions, records: Sequence[Record], split: str, commit: str | None) -> str:
    seeds = sorted({record["seed"] for record in records})
    most_rows = {record.get("most_rows") for record in records} - {None}
    cut = [f"Larger tables are cut to {rows:,} rows." for rows in most_rows]
    how = "80 / 20 at random" if split == "random" else "the last 20 % in time"
    of_seeds = f"seed {seeds[0]}" if len(seeds) == 1 else f"medians of seeds {', '.join(map(str, seeds))}"
    sentences = [
        f"Ours / the best peer; **bold**: ours is at least as good. Split {how}, {of_seeds}"
        f"{f', commit {commit}' if commit else ''}.",
        *cut,
    ]
    for task, what in (("complete", "hidden groups"), ("predict", "labels")):
        of_task = [scores for (_, asked, _), scores in questions.items() if asked == task]
        if of_task:
            sentences.append(_counted(task, what, of_task))
            sentences.append(f"Peers: {_peers(questions, task)}.")
    return textwrap.fill(" ".join(sentences), WIDTH, break_on_hyphens=False)


def _counted(task: str, what: str, of_task: Sequence[Scores]) -> str:
    worths = [_worth(task, scores, _best_peer(task, scores)) for scores in of_task]
    least, name = ("popularity", "popularity") if task == "complete" else ("constant", "a constant")
    near = 0.97 if task == "complete" else 1 / 1.03
    below = sum(_worth(task, scores, least) * NOISE < 1 for scores in of_task if least in scores)
    text = (
        f"Of {len(of_task)} {what} ours is at least as good as the best peer on {sum(worth >= 1 for worth in worths)}, "
        f"within 3 % on {sum(worth >= near for worth in worths)}, by more than noise worse than {name} on {below}"
    )
    beside = [_worth(task, scores, "boosting") for scores in of_task if "boosting" in scores]
    if beside:
        text += f", at least as good as boosting on {sum(worth >= 1 for worth in beside)} of {len(beside)}"
    return f"{text}."


def _peers(questions: Questions, task: str) -> str:
    """The peers' names, with the number of tables if they have not been asked about all of them."""
    tables: dict[str, set[str]] = {}
    for (table, asked, _), scores in questions.items():
        for name in scores if asked == task else ():
            tables.setdefault(name, set()).add(table)
    asked_about = len(tables.pop(OURS[task]))
    parts = [
        NAMES.get(name, name) + (f" ({len(of_peer)} of {asked_about} tables)" if len(of_peer) < asked_about else "")
        for name, of_peer in tables.items()
    ]
    return ", ".join(parts)
