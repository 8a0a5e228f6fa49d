"""What records say: a readable table, and one object with the medians and who is best."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from tables.questions import LABELS
from tables.running import Record

Medians = dict[tuple[str, str, str, str], dict[str, dict[str, float]]]  # of table, split, task, question: of candidates
METRICS = ("mrr", "mpr", "top1", "top10", "rmse", "log_loss", "auc", "accuracy")
OURS_COMPLETE = "ours"
LEAST_LOSS = 1e-9  # of a rival that is always right
NOISE = 1.02  # of an MRR below popularity's


def medians_of(records: Sequence[Record]) -> Medians:
    """The median over seeds of each metric."""
    numbers: dict[Any, list[float]] = defaultdict(list)
    for record in records:
        for result in record.get("results", ()):
            for metric in METRICS:
                if result.get(metric) is not None:
                    where = (record["table"], record["split"], record["task"], result["question"])
                    numbers[where, record["candidate"], metric].append(result[metric])
    medians: Medians = {}
    for (where, candidate, metric), of_seeds in numbers.items():
        of_candidates = medians.setdefault(where, {}).setdefault(candidate, {})
        of_candidates[metric] = float(f"{statistics.median(of_seeds):.5g}")
    return medians


def loss_of(metrics: Mapping[str, float]) -> float:
    """What a prediction is compared by: the RMSE of numbers, the log loss of classes."""
    return metrics["rmse"] if "rmse" in metrics else metrics["log_loss"]


def summary_of(medians: Medians) -> dict[str, Any]:
    """How often ours is as good as issue 16 asks; None where there is nothing to compare."""
    ratios: list[float] = []
    beside_popularity: list[bool] = []
    beside_boosting: list[float] = []
    beside_constant: list[float] = []
    few_labels: list[float] = []
    beside_scratch: list[float] = []
    for (_, _, task, _), candidates in medians.items():
        if task == "complete":
            peers = [metrics["mrr"] for name, metrics in candidates.items() if name != OURS_COMPLETE]
            if OURS_COMPLETE in candidates and peers:
                ratios.append(candidates[OURS_COMPLETE]["mrr"] / max(peers))
                if "popularity" in candidates:
                    beside_popularity.append(
                        candidates[OURS_COMPLETE]["mrr"] * NOISE >= candidates["popularity"]["mrr"]
                    )
            continue
        losses = {name: loss_of(metrics) for name, metrics in candidates.items()}
        for name, rival, found in (
            ("init --target", "boosting", beside_boosting), ("finetune", "constant", beside_constant),
            ("finetune@200", "scratch@200", few_labels),
            *((f"finetune{labels}", f"scratch{labels}", beside_scratch) for labels in LABELS),
        ):  # fmt: skip
            if name in losses and rival in losses:
                found.append(losses[name] / max(losses[rival], LEAST_LOSS))
    return {
        "complete_pairs": len(ratios),
        "complete_at_least_best_peer": share([ratio >= 1 for ratio in ratios]),
        "complete_at_least_0.97_of_it": share([ratio >= 0.97 for ratio in ratios]),
        "complete_not_below_popularity": share(beside_popularity),
        "init_target_at_most_boosting": share([ratio <= 1 for ratio in beside_boosting]),
        "init_target_within_3_percent": share([ratio <= 1.03 for ratio in beside_boosting]),
        "finetune_no_worse_than_constant": share([ratio <= 1 for ratio in beside_constant]),
        "finetune_200_better_than_scratch": share([ratio < 1 for ratio in few_labels]),
        "finetune_no_worse_than_scratch": share([ratio <= 1 for ratio in beside_scratch]),
    }


def share(conditions: Sequence[bool]) -> float | None:
    """The share that holds; None of nothing."""
    return round(sum(conditions) / len(conditions), 3) if conditions else None


def readable(records: Sequence[Record]) -> str:
    """Tables of medians, the best of a row with a star: MRR of what is completed, RMSE or log loss of predictions."""
    medians = medians_of(records)
    lines = []
    for task in ("complete", "predict"):
        of_task = {where: candidates for where, candidates in medians.items() if where[2] == task}
        names = list(dict.fromkeys(name for candidates in of_task.values() for name in candidates))
        for labels in ("", "@10%", "@200"):
            shown = [name for name in names if ("@" + name.partition("@")[2] if "@" in name else "") == labels]
            if shown:
                title = "MRR" if task == "complete" else f"RMSE or log loss{labels and ', labels ' + labels[1:]}"
                lines += ["", *_table(f"{task}: {title}", shown, of_task, lowest=task == "predict")]
    failed = [record for record in records if "error" in record]
    lines += [f"failed: {record['table']} {record['candidate']}: {record['error']}" for record in failed]
    return "\n".join(lines)


def _table(title: str, names: Sequence[str], medians: Medians, *, lowest: bool) -> list[str]:
    lines = [f"{title:48}" + "".join(f"{name:>14}" for name in names)]
    for (table, split, _, question), candidates in medians.items():
        numbers = {
            name: loss_of(candidates[name]) if lowest else candidates[name]["mrr"]
            for name in names
            if name in candidates
        }
        if not numbers:
            continue
        best = min(numbers.values()) if lowest else max(numbers.values())
        cells = [f"{numbers[n]:.4g}{'*' if numbers[n] == best else ' '}" if n in numbers else "- " for n in names]
        lines.append(f"{f'{table} {split}, {question}':48.48}" + "".join(f"{cell:>14}" for cell in cells))
    return lines


def as_json(records: Sequence[Record]) -> dict[str, Any]:
    """One object: the summary, the medians of every question, seconds, notes and failures."""
    medians = medians_of(records)
    seconds: dict[str, float] = defaultdict(float)
    for record in records:
        seconds[record["candidate"]] += record["seconds"]
    return {
        "summary": summary_of(medians),
        "questions": [
            dict(zip(("table", "split", "task", "question"), where, strict=True)) | {"candidates": candidates}
            for where, candidates in medians.items()
        ],
        "seconds": {name: round(total, 1) for name, total in seconds.items()},
        "notes": sorted({
            f"{record['table']} {record['candidate']}: {note}" for record in records for note in record.get("notes", ())
        }),
        "failed": [record for record in records if "error" in record],
    }  # fmt: skip
