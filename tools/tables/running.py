"""The loop over tables, splits and candidates: a record for each, appended to a file as soon as it is there."""

from __future__ import annotations

import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from tables import ours
from tables.apart import EVERY_TABLE
from tables.completing import COMPLETE_PEERS, CompletePeer
from tables.encoding import encode, rows_of
from tables.predicting import PREDICT_PEERS
from tables.questions import (
    COMPLETED_ROWS,
    LABELS,
    PREDICTED_ROWS,
    Split,
    complete_metrics,
    complete_questions,
    predict_metrics,
    predict_question,
    ranks_of_queries,
    split_rows,
)
from tables.spec import Places, Table, UnavailableError

Record: TypeAlias = dict[str, Any]
KEY = ("table", "split", "seed", "task", "candidate", "most_rows")


@dataclass(frozen=True)
class Wanted:
    """What is to be run.

    Attributes:
        tables: The tables' names.
        seeds: The seeds of random splits; a split in time has only the first one.
        places: Where tables are that no package brings.
        peers: Whether peers are asked.
        ours: Whether feat2vec is asked.
        candidates: Only these, if any are named.
        tasks: "complete", "predict" or both.
        splits: "random", "time" or both.
        most_rows: A larger table is cut to as many rows, drawn at random; None takes all.

    """

    tables: Sequence[str]
    seeds: Sequence[int]
    places: Places
    peers: bool = True
    ours: bool = True
    candidates: Sequence[str] = ()
    tasks: Sequence[str] = ("complete", "predict")
    splits: Sequence[str] = ("random", "time")
    most_rows: int | None = None


def candidates_of(task: str, wanted: Wanted) -> list[str]:
    """The names of who is asked."""
    if task == "complete":
        names = [*(COMPLETE_PEERS if wanted.peers else []), *(["ours"] if wanted.ours else [])]
    else:
        ways = [*(PREDICT_PEERS if wanted.peers else []), *(ours.WAYS if wanted.ours else [])]
        names = [way + labels for labels in LABELS for way in ways]
    return [name for name in names if not wanted.candidates or name in wanted.candidates]


def read_records(path: Path) -> list[Record]:
    """The records of a file; the last one of each candidate counts."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines if line.strip()]
    return list({key_of(record): record for record in records}.values())


def key_of(record: Record) -> tuple[Any, ...]:
    """What makes a record the same one."""
    return tuple(record.get(name) for name in KEY)


def run_all(wanted: Wanted, out: Path) -> None:
    """Ask everybody about all tables, but for what `out` has an answer to; failed candidates are asked again."""
    done = {key_of(record) for record in read_records(out) if "results" in record}
    for name in wanted.tables:
        try:
            table = EVERY_TABLE[name].load(wanted.places)
        except UnavailableError as error:
            say(f"{name}: left out: {error}")
            continue
        table = cut(table, wanted.most_rows)
        size = f"{len(table.frame)} rows, {len(table.frame.columns)} columns"
        say(f"{name}: {size}, {len(table.complete)} groups to complete, {len(table.targets)} targets")
        for split_name, seed in splits_of(table, wanted):
            for task in wanted.tasks:
                about = {"table": name, "split": split_name, "seed": seed, "task": task, "most_rows": wanted.most_rows}
                candidates = candidates_of(task, wanted)
                missing = [one for one in candidates if key_of({**about, "candidate": one}) not in done]
                asked = table.complete if task == "complete" else table.targets
                if not missing or not asked:
                    continue
                rows = COMPLETED_ROWS if task == "complete" else PREDICTED_ROWS
                split = split_rows(table, split_name, seed, rows)
                for record in TASKS[task](table, split, missing):
                    record = {**about, **record}
                    with out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(record) + "\n")
                    outcome = record.get("error") or f"{record['seconds']:.1f} s"
                    say(f"  {split_name} {seed} {task} {record['candidate']}: {outcome}")


def cut(table: Table, most_rows: int | None) -> Table:
    """The table, or as many of its rows as are wanted at most, in their order."""
    if most_rows is None or len(table.frame) <= most_rows:
        return table
    frame = table.frame.sample(most_rows, random_state=0).sort_index().reset_index(drop=True)
    return replace(table, frame=frame)


def splits_of(table: Table, wanted: Wanted) -> list[tuple[str, int]]:
    """A random split for each seed, and one in time if there is a date."""
    splits = [("random", seed) for seed in wanted.seeds]
    if table.time is not None:
        splits.append(("time", wanted.seeds[0]))
    return [split for split in splits if split[0] in wanted.splits]


def complete(table: Table, split: Split, candidates: Sequence[str]) -> Iterator[Record]:
    """A record for each candidate that completes the test rows."""
    encoded = encode(table.groups, split.train, split.test)
    questions = complete_questions(table, split, encoded)

    def ask(peer: CompletePeer) -> Record:
        results = []
        for question in questions:
            begin = time.perf_counter()
            ranks = ranks_of_queries(question, peer.scores_of(question))
            results.append({**complete_metrics(question, ranks), "seconds": _tenths(time.perf_counter() - begin)})
        return {"notes": peer.notes, "results": results}

    for candidate in candidates:
        with tempfile.TemporaryDirectory() as folder:

            def answer(candidate: str = candidate, folder: str = folder) -> Record:
                if candidate == "ours":
                    return ask(ours.Complete(table, split, Path(folder)))
                return ask(COMPLETE_PEERS[candidate](encoded, split.seed))

            yield from asked(candidate, answer)


def predict(table: Table, split: Split, candidates: Sequence[str]) -> Iterator[Record]:
    """A record for each candidate that predicts labels of the test rows."""
    encoded = encode(table.groups_without(table.hidden), split.train, split.test)
    untuned: ours.Predict | None = None
    with tempfile.TemporaryDirectory() as folder:
        for candidate in candidates:

            def answer(candidate: str = candidate) -> Record:
                nonlocal untuned
                way, _, labels = candidate.partition("@")
                if way in ours.WAYS and untuned is None:
                    untuned = ours.Predict(table, split, Path(folder))
                if untuned is not None and way in ours.FROM_UNLABELLED:
                    _ = untuned.run  # trained before the clock runs
                notes: list[str] = []
                results = []
                for target in table.targets:
                    question = predict_question(target, split, LABELS["@" + labels if labels else ""])
                    begin = time.perf_counter()
                    if way not in ours.WAYS:
                        rows = rows_of(encoded, question.train_rows, question.test_rows)
                        answers = PREDICT_PEERS[way](rows, question, split.seed, notes)
                    else:
                        assert untuned is not None
                        answers = untuned.answers(way, question)
                    seconds = _tenths(time.perf_counter() - begin)
                    results.append({**predict_metrics(question, answers), "seconds": seconds})
                pretraining = {"pretraining_seconds": _tenths(untuned.seconds)} if untuned and way == "finetune" else {}
                return {"notes": notes, **pretraining, "results": results}

            yield from asked(candidate, answer)


TASKS: dict[str, Callable[[Table, Split, Sequence[str]], Iterator[Record]]] = {
    "complete": complete,
    "predict": predict,
}


def asked(candidate: str, answer: Callable[[], Record]) -> Iterator[Record]:
    """The record of a candidate: its results, or that it failed; nothing if it cannot be had here."""
    begin = time.perf_counter()
    try:
        record = answer()
    except UnavailableError as error:
        say(f"  {candidate}: left out: {error}")
        return
    except Exception as error:  # one that fails must not end an hour's run: it is recorded, told and asked again
        traceback.print_exc()
        record = {"error": f"{type(error).__name__}: {error}"}
    yield {"candidate": candidate, "seconds": _tenths(time.perf_counter() - begin), **record}


def _tenths(seconds: float) -> float:
    return round(seconds, 1)


def say(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr, flush=True)
