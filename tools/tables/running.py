"""The loop over tables, splits and candidates: a record for each, appended to a file as soon as it is there.

`run_all` makes a `Job` of each table and seed, and works on them one after the other or in processes of their own.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
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
# Libraries read these when they are loaded: of two processes on two cores each has one.
THREADS_OF_LIBRARIES = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")


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
        every_question: Whether fine-tuning and few labels are asked about in all splits, not only in the random split
            of the first seed. Candidates that are named are asked everywhere.

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
    every_question: bool = False


@dataclass(frozen=True)
class Job:
    """A table and a seed: what a process works on at a time."""

    table: str
    seed: int


def candidates_of(task: str, wanted: Wanted, split: str, seed: int) -> list[str]:
    """The names of who is asked about a split."""
    if task == "complete":
        names = [*(COMPLETE_PEERS if wanted.peers else []), *(["ours"] if wanted.ours else [])]
        return [name for name in names if not wanted.candidates or name in wanted.candidates]
    ways = [*(PREDICT_PEERS if wanted.peers else []), *(ours.WAYS if wanted.ours else [])]
    # Of few labels fine-tuning is asked about; a schema of its own is for all of them.
    names = [way + labels for labels in LABELS for way in ways if not labels or way != "init --target"]
    if wanted.candidates:
        return [name for name in names if name in wanted.candidates]
    if wanted.every_question or (split == "random" and seed == wanted.seeds[0]):
        return names
    return [way for way in ways if way not in ours.FROM_UNLABELLED]


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


def run_all(wanted: Wanted, out: Path, processes: int = 1) -> None:
    """Ask everybody about all tables, but for what `out` has an answer to; failed candidates are asked again.

    Args:
        wanted: What is run.
        out: The file that records are appended to.
        processes: How many tables are worked on side by side, each with its share of the cores.

    """
    jobs = [Job(table, seed) for table in wanted.tables for seed in wanted.seeds]
    if processes == 1:
        for job in jobs:
            run_job(job, wanted, out)
        return
    threads = max(1, (os.cpu_count() or 1) // processes)
    os.environ.update(dict.fromkeys(THREADS_OF_LIBRARIES, str(threads)))  # of the processes that begin now
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for asked in [pool.submit(run_job, job, wanted, out) for job in jobs]:
            asked.result()


def run_job(job: Job, wanted: Wanted, out: Path) -> None:
    """Ask everybody about the splits of a table that are a seed's."""
    try:
        table = EVERY_TABLE[job.table].load(wanted.places)
    except UnavailableError as error:
        say(f"{job.table}: left out: {error}")
        return
    if wanted.ours:
        ours.load_libraries()
    table = cut(table, wanted.most_rows)
    size = f"{len(table.frame)} rows, {len(table.frame.columns)} columns"
    say(f"{job.table}: {size}, {len(table.complete)} groups to complete, {len(table.targets)} targets")
    done = {key_of(record) for record in read_records(out) if "results" in record}
    for split_name in splits_of(table, wanted, job.seed):
        for task in wanted.tasks:
            about = {"table": job.table, "split": split_name, "seed": job.seed, "task": task}
            about |= {"most_rows": wanted.most_rows}
            candidates = candidates_of(task, wanted, split_name, job.seed)
            missing = [one for one in candidates if key_of({**about, "candidate": one}) not in done]
            asked = table.complete if task == "complete" else table.targets
            if not missing or not asked:
                continue
            rows = COMPLETED_ROWS if task == "complete" else PREDICTED_ROWS
            split = split_rows(table, split_name, job.seed, rows)
            for record in TASKS[task](table, split, missing):
                append(out, {**about, **record})
                outcome = record.get("error") or f"{record['seconds']:.1f} s"
                say(f"  {job.table} {split_name} {job.seed} {task} {record['candidate']}: {outcome}")


def append(out: Path, record: Record) -> None:
    """Append a record in one write, so that those of processes do not mix."""
    with out.open("ab", buffering=0) as file:
        file.write((json.dumps(record) + "\n").encode())


def cut(table: Table, most_rows: int | None) -> Table:
    """The table, or as many of its rows as are wanted at most, in their order."""
    if most_rows is None or len(table.frame) <= most_rows:
        return table
    frame = table.frame.sample(most_rows, random_state=0).sort_index().reset_index(drop=True)
    return replace(table, frame=frame)


def splits_of(table: Table, wanted: Wanted, seed: int) -> list[str]:
    """A random split for each seed, and for the first one that in time, if there is a date."""
    splits = ["random"]
    if table.time is not None and seed == wanted.seeds[0]:
        splits.append("time")
    return [split for split in splits if split in wanted.splits]


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
