"""The measure of the untuned defaults: real tables, what is missing in their rows, and labels, beside peers.

python tools/bench_tables.py --out hour.jsonl [--films FILMS.parquet] [--frappe FRAPPE.parquet] > tables.json
python tools/bench_tables.py --out whole.jsonl --rows all --processes 1 --small --peers-only --seeds 0
python tools/bench_tables.py --out apart.jsonl --apart
python tools/bench_tables.py --out hour.jsonl --only storms --candidates tfidf ours
python tools/bench_tables.py --out hour.jsonl --report-only --markdown README.md --commit HASH
python tools/bench_tables.py --out whole.jsonl --rows all --report-only --bounds tests/tools/bench_tables_bounds.json

Everybody learns the same 80 % of a table and answers about the same rows of the rest, split at random for each seed
and, where there is a date, once in time. Complete: each key and list group is hidden in turn and all values that
training has seen are ranked by all other groups, the row's other true values left out; MRR, MPR, top 1, top 10.
Predict: labels that are made of columns which nobody predicts from; RMSE, or log loss with AUC or accuracy. Ours is
the schema that `feat2vec init` writes, trained as written.

As it comes, this takes about an hour on two cores: tables larger than 4,000 rows are cut to as many, two processes
work side by side, and fine-tuning and few labels are asked about in the first random split alone. `--rows all` takes
whole tables, whose peers take hours; for comparing seconds, `--processes 1`.

A line of JSON is appended to --out for each (table, split, seed, task, candidate) as soon as it is known; what is
there already is not run again, so an interrupted run goes on. The tables are on standard error, one JSON object on
standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read with scikit-learn; others may use the same cores

from tables.apart import APART, EVERY_TABLE
from tables.bounds import bounds_of
from tables.markdown import markdown_of_splits, write_between
from tables.report import as_json, readable
from tables.running import Wanted, read_records, run_all, say
from tables.sources import SMALL, SOURCES
from tables.spec import Places

WORDNET = "/usr/share/wordnet"
PACKAGES = "/var/lib/apt/lists"


def main() -> int:
    """Run what is missing and print what is known; 1 if a candidate failed."""
    options = parse()
    tables = options.only or list(APART if options.apart else SMALL if options.small else SOURCES)
    places = Places(options.films, options.frappe, options.wordnet, options.packages or package_list())
    out = Path(options.out)
    if not options.report_only:
        run_all(
            Wanted(
                tables, options.seeds, places,
                peers=not options.ours_only, ours=not options.peers_only,
                candidates=options.candidates, tasks=options.tasks, splits=options.splits, most_rows=options.rows,
                every_question=options.every_question,
            ),
            out,
            options.processes,
        )  # fmt: skip
    order = {name: i for i, name in enumerate(EVERY_TABLE)}
    records = [
        record for record in read_records(out) if record["table"] in tables and record.get("most_rows") == options.rows
    ]
    records.sort(key=lambda record: (record["task"], order[record["table"]], record["split"]))
    say(readable(records))
    if options.markdown:
        of_seeds = [record for record in records if record["seed"] in options.seeds]
        write_between(Path(options.markdown), markdown_of_splits(of_seeds, options.splits, options.commit))
    if options.bounds:
        Path(options.bounds).write_text(json.dumps(bounds_of(records), indent=1) + "\n", encoding="utf-8")
    print(json.dumps(as_json(records), indent=1))
    return int(any("error" in record for record in records))


def package_list() -> str | None:
    """The largest list of Debian packages on this machine, if there is one."""
    places = sorted(Path(PACKAGES).glob("*_Packages*"), key=lambda path: -path.stat().st_size)
    return next((str(place) for place in places if place.suffix in ("", ".lz4")), None)


def most_rows(text: str) -> int | None:
    """A number of rows, or None for `all`."""
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of rows, or all; received {text!r}")
    return int(text)


def parse() -> argparse.Namespace:
    """The words of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="where a line of JSON is kept for each result")
    parser.add_argument("--only", nargs="+", choices=list(EVERY_TABLE), metavar="TABLE", help=", ".join(EVERY_TABLE))
    parser.add_argument("--small", action="store_true", help="the smaller half of the tables")
    parser.add_argument("--apart", action="store_true", help="the tables that no default was chosen on")
    parser.add_argument(
        "--rows", type=most_rows, default=4000, metavar="N|all", help="cut larger tables (default: %(default)s)"
    )
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="side by side (default: %(default)s)")
    parser.add_argument("--every-question", action="store_true", help="fine-tuning and few labels in all splits")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--tasks", nargs="+", choices=["complete", "predict"], default=["complete", "predict"])
    parser.add_argument("--splits", nargs="+", choices=["random", "time"], default=["random", "time"])
    parser.add_argument("--candidates", nargs="+", default=[], help="only these, such as tfidf, boosting@200, ours")
    side = parser.add_mutually_exclusive_group()
    side.add_argument("--peers-only", action="store_true")
    side.add_argument("--ours-only", action="store_true")
    parser.add_argument("--report-only", action="store_true", help="run nothing: print what --out has")
    parser.add_argument("--markdown", metavar="README.md", help="write ours beside the best peers between its marks")
    parser.add_argument("--commit", help="that has been measured, for --markdown")
    parser.add_argument("--bounds", metavar="FILE", help="write what tests/tools/test_bench_tables_guard.py asks for")
    parser.add_argument("--films", help="Parquet with title, year, cast, genres, directors, plot")
    parser.add_argument("--frappe", help="Parquet with the columns of Frappe's contexts and `used`")
    parser.add_argument("--wordnet", default=WORDNET, help="the folder of WordNet's files (default: %(default)s)")
    parser.add_argument("--packages", help=f"a list of Debian packages (default: the largest of {PACKAGES})")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
