"""Tables to numbers and back: against the reference, whatever the sizes of batches and stages."""

from __future__ import annotations

import os
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feat2vec.encode import workspace
from feat2vec.encode.encoder import Encoded, Encoder, fit
from feat2vec.encode.workspace import PieceSizes
from feat2vec.errors import UserError
from feat2vec.schema.extractor_options import ItemsSpec, NumbersSpec, VectorSpec
from feat2vec.schema.options import Schema
from feat2vec.schema.reading import read_schema
from feat2vec.table.database import connect
from feat2vec.table.table import stages
from tests import reference
from tests.encode.tables import (
    BIG,
    FULL,
    SAME,
    SAME_SCHEMA,
    TableInBatches,
    arrow,
    assume_values,
    big_rows,
    decoded_rows,
    differences,
    lookup,
    numeric,
    refuse,
    row_lists,
    schema_of,
    schemas,
    value_ids,
    vocabulary_of,
)


def assert_as_reference(encoded: Encoded, name: str, expected: reference.EncodedGroup, rows: int) -> None:
    """The group's vocabulary, values and counts, and the last `rows` rows' entries."""
    spec = encoded.encoder.schema.groups[name].extractor
    found = encoded.values[name]
    ids, wanted = value_ids(encoded, name), expected.entries[-rows:]
    assert [i < 0 for i in ids] == [entry is None for entry in wanted]
    assert encoded.tallies[name].missing == sum(entry is None for entry in wanted)
    if isinstance(spec, (NumbersSpec, VectorSpec)):
        shown = [found.entries[i] for i in ids if i >= 0]
        present = [entry for entry in wanted if entry is not None]
        assert np.array(shown).shape == np.array(present).shape
        np.testing.assert_allclose(np.array(shown), np.array(present), rtol=2e-6, atol=2e-6)
        # rows have the same value exactly if they have the same entry
        assert len(set(zip(ids, wanted, strict=True))) == len(set(wanted)) == len(set(ids))
        return
    assert vocabulary_of(encoded, name) == expected.keys
    assert list(vocabulary_of(encoded, name)) == list(expected.keys)
    vocabulary = encoded.encoder.codecs[name].vocabulary
    assert vocabulary is not None
    assert vocabulary.unseen == expected.unseen
    assert [entry and tuple(entry) for entry in decoded_rows(encoded, name)] == wanted


QUICK = settings(max_examples=6, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


LONG = settings(QUICK, max_examples=300)


SEARCH = pytest.mark.parametrize("search", [QUICK, pytest.param(LONG, marks=pytest.mark.slow)], ids=["quick", "long"])


@SEARCH
def test_as_the_reference(search: settings) -> None:
    search(given(schemas(), row_lists(), row_lists(5))(assert_all_as_reference))()


def assert_all_as_reference(schema: Schema, rows: list[dict[str, Any]], new: list[dict[str, Any]]) -> None:
    rows, new = [FULL, *rows], [*new, FULL]
    assume_values(schema, rows)
    encoded = fit(schema, arrow(rows))
    again = encoded.encoder.encode(arrow(rows))
    encoded_new = encoded.encoder.encode(arrow(new))
    for name, group in schema.groups.items():
        expected = reference.encode_group(group, rows)
        assert_as_reference(encoded, name, expected, len(rows))
        counts = encoded.values[name].counts
        assert len(counts) == len(encoded.values[name].entries) == len(expected.values)
        assert Counter(i for i in value_ids(encoded, name) if i >= 0) == dict(enumerate(counts.tolist()))
        assert int(counts.sum()) + expected.missing == len(rows)
        both = reference.encode_group(group, rows, new)
        assert_as_reference(encoded_new, name, both, len(new))
        known = encoded_new.known[name]
        assert known == len(counts)
        wide, narrow = encoded_new.values[name].entries[:known], encoded.values[name].entries
        assert np.ascontiguousarray(wide[:, : narrow.shape[1]]).tobytes() == narrow.tobytes()
        assert not wide[:, narrow.shape[1] :].any()
        assert encoded_new.values[name].counts.tolist() == [*counts.tolist(), *[0] * (len(both.values) - known)]
        assert_decodes_to_what_was_encoded(encoded.encoder, name)
    assert again.rows.tobytes() == encoded.rows.tobytes()
    assert again.rows.dtype == encoded.rows.dtype == np.int32
    assert [again.known[name] for name in again.values] == [len(found.entries) for found in again.values.values()]


def assert_decodes_to_what_was_encoded(encoder: Encoder, name: str) -> None:
    """Decoded entries, as a table, are encoded to the same entries."""
    spec, (column, *_) = encoder.schema.groups[name].extractor, encoder.schema.groups[name].columns
    entries = encoder.values[name].entries
    decoded = encoder.decode(name, entries)
    assert len(decoded) == len(entries)
    if isinstance(spec, NumbersSpec):
        names = encoder.schema.groups[name].columns
        back = pa.table({c: pa.array([row[i] for row in decoded]) for i, c in enumerate(names)})
    elif isinstance(spec, VectorSpec):
        back = pa.table({column: pa.array(decoded, pa.list_(pa.float32()))})
    elif isinstance(spec, ItemsSpec) and (spec.bins or spec.parts):
        return
    elif isinstance(spec, ItemsSpec) and spec.weights is not None:
        keys = [["unseen key" if key is None else key for key, _ in bag] for bag in decoded]
        back = pa.table({column: keys, spec.weights: [[weight for _, weight in bag] for bag in decoded]})
    else:
        texts = [["unseenkey" if key is None else key for key in bag] for bag in decoded]
        bag = isinstance(spec, ItemsSpec) and spec.multi
        join = "|" if isinstance(spec, ItemsSpec) and spec.split == "|" else " "
        back = pa.table({column: texts if bag else [join.join(text) for text in texts]})
    single = schema_of({name: (list(encoder.schema.groups[name].columns), spec.model_dump(mode="json"))})
    alone = Encoder(single, dict.fromkeys(single.groups, encoder.codecs[name]), {}, None)
    found = np.concatenate([batch[name].rows for batch in alone.entries(back)])
    if isinstance(spec, NumbersSpec):
        np.testing.assert_allclose(found, entries, rtol=1e-4, atol=1e-4)
    else:
        assert found.tobytes() == np.asarray(entries).tobytes()


def small_sizes(stage_bytes: int, rows: int, held_key_bytes: int) -> PieceSizes:
    return PieceSizes(stage_bytes, rows_per_piece=rows, rows_per_block=rows, held_key_bytes=held_key_bytes)


# stages of one batch, of a few, and of all; keys that DuckDB takes at once, on the way, and never
STAGE_BYTES, HELD_KEY_BYTES = st.sampled_from([-1, 300, 10**6]), st.sampled_from([0, 16, 40, 10**6])
SMALL_SIZES = st.builds(small_sizes, STAGE_BYTES, st.integers(1, 5), HELD_KEY_BYTES)


@SEARCH
def test_sizes_change_nothing(search: settings) -> None:
    search(given(schemas(), row_lists(16), st.integers(1, 3), SMALL_SIZES)(assert_sizes_change_nothing))()


def assert_sizes_change_nothing(schema: Schema, rows: list[dict[str, Any]], batch: int, sizes: PieceSizes) -> None:
    rows = [*rows, FULL]
    assume_values(schema, rows)
    whole = fit(schema, arrow(rows))
    batches = TableInBatches(arrow(rows), batch)
    if sizes.stage_bytes < 0:
        assert len(list(stages(batches, ["key"], sizes.stage_bytes))) == -(-len(rows) // batch)
    pieced = fit(schema, batches, sizes=sizes)
    again = whole.encoder.encode(batches, sizes=sizes)
    exact = {name for name, group in schema.groups.items() if not isinstance(group.extractor, NumbersSpec)}
    different = differences(whole, pieced)
    assert not {name for name in different if name.split(" tally")[0].split(" keys")[0] in exact}
    for name in set(schema.groups) - exact:  # the mean of means differs in its last bits
        of_rows = [encoded.values[name].entries[value_ids(encoded, name)] for encoded in (whole, pieced)]
        np.testing.assert_allclose(of_rows[0], of_rows[1], rtol=1e-5, atol=1e-6)
    assert again.rows.tobytes() == whole.rows.tobytes()


def test_the_same_bytes_every_time(tmp_path: Path) -> None:
    """Also on one thread and in small batches: what threads do when changes nothing."""
    rows, schema = big_rows(), schema_of(BIG)
    first = fit(schema, rows, tmp_path / "first")
    second = fit(schema, rows, tmp_path / "second")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: 1)
        third = fit(schema, rows, tmp_path / "third")
    sizes = PieceSizes(stage_bytes=450_000, held_key_bytes=24_000)
    batches = TableInBatches(rows, 1000)
    assert len(list(stages(batches, rows.column_names, sizes.stage_bytes))) > 4
    fourth = fit(schema, batches, tmp_path / "fourth", sizes=sizes)
    for other in (second, third, fourth):
        assert differences(first, other) == {}
        files = sorted(path.relative_to(first.folder) for path in first.folder.rglob("*") if path.is_file())
        assert files == sorted(path.relative_to(other.folder) for path in other.folder.rglob("*") if path.is_file())
        assert all((first.folder / path).read_bytes() == (other.folder / path).read_bytes() for path in files)
    assert isinstance(first.rows, np.memmap)
    assert first.rows.shape == (len(rows), len(BIG))
    assert first.encoder.encode(rows).rows.tobytes() == first.rows.tobytes()


def test_values_of_one_key_ascend() -> None:
    encoded = fit(schema_of(BIG), big_rows())
    ids = encoded.values["key"].entries[:, 0]
    assert (np.diff(ids) > 0).all()
    assert ids[0] == 2
    assert encoded.values["key"].counts.tolist() == list(vocabulary_of(encoded, "key").values())


def test_many_columns_of_few_keys_leave_little_in_duckdb_and_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"c{i}" for i in range(60)]
    kinds = [["true", "False", "TRUE"], ["1", "NA", "2.5"], ["a", "b", "NA"]]
    written = tmp_path / "wide.csv"
    rows = [",".join(kinds[i % 3][row] for i in range(60)) for row in range(3)]
    written.write_text("\n".join([",".join(names), *rows]) + "\n")
    statements: list[str] = []

    class Watched:
        """A connection whose statements are noted."""

        def __init__(self, connection: Any) -> None:
            self.connection = connection

        def __enter__(self) -> Any:
            self.connection.__enter__()
            return self

        def __exit__(self, *error: object) -> None:
            self.connection.__exit__(*error)

        def __getattr__(self, name: str) -> Any:
            statements.append(name)
            return getattr(self.connection, name)

    monkeypatch.setattr(workspace, "connect", lambda *args, **options: Watched(connect(*args, **options)))
    encoded = fit(schema_of({name: name for name in names}), written)
    # A table of DuckDB's takes memory, and a statement time, for each column: only the limit is set, and set back.
    assert statements == ["execute"] * 2
    spelled = [encoded.encoder.codecs[name].vocabulary for name in names[:3]]
    assert [v.keys.to_pylist() for v in spelled if v is not None] == [["true", "false"], ["1", "2.5"], ["NA", "a", "b"]]
    for name in names:
        assert not isinstance(encoded.values[name].entries, np.memmap)
        assert not isinstance(encoded.values[name].counts, np.memmap)


def test_a_problem_of_a_column_that_two_groups_read_is_told_once(tmp_path: Path) -> None:
    written = tmp_path / "x.csv"
    written.write_text("x,y\n1,a\n2,b\nthree,c\n")
    groups = {"one": ("x", "numeric"), "two": ("x", {"type": "numeric", "scale": "none"}), "y": "y"}
    assert len(refuse("x.csv:.*: column 'x': received 'three'", lambda: fit(schema_of(groups), written))) == 1


def test_text_is_spelled_as_the_training_rows_were(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,x,ok,code,day\n5,5.0,True,007,2024-02-20\n6,2.50,False,7,2024-02-21\n")
    typed = pa.table(
        {
            **{"n": [5.0, 6.0], "x": [5.0, 2.5], "ok": [True, False], "code": ["007", "7"]},
            "day": [date(2024, 2, 20), None],
        }
    )
    schema = schema_of({name: name for name in typed.column_names})
    from_text, from_types = fit(schema, tmp_path / "a.csv"), fit(schema, typed)
    assert list(vocabulary_of(from_text, "x")) == ["2.50", "5.0"]  # as they stand there
    assert list(vocabulary_of(from_types, "x")) == ["2.5", "5"]
    assert list(vocabulary_of(from_text, "ok")) == ["false", "true"]
    assert list(vocabulary_of(from_text, "code")) == ["007", "7"]
    (tmp_path / "new.csv").write_text("n,x,ok,code,day\n5.0,5,TRUE,7.0,2024-02-20\n,2.5-3,1e,,\n")
    for encoded, five, unseen in ((from_text, None, 1), (from_types, "5", 0)):
        new = encoded.encoder.encode(tmp_path / "new.csv")
        first = {name: decoded_rows(new, name)[0] for name in new.values}
        assert first == {"n": [five], "x": [five], "ok": ["true"], "code": [None], "day": ["2024-02-20"]}
        assert decoded_rows(new, "x")[1] == [None]
        assert [new.tallies[name].unseen for name in ("n", "x", "ok", "code")] == [unseen, unseen + 1, 1, 1]


def test_na_among_the_numbers_of_a_text_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,name\n1,NA\nNA,1\n1,x\n")
    encoded = fit(schema_of({"n": "n", "name": "name"}), tmp_path / "a.csv")
    assert decoded_rows(encoded, "n") == [["1"], None, ["1"]]
    assert decoded_rows(encoded, "name") == [["NA"], ["1"], ["x"]]
    (tmp_path / "new.csv").write_text("n,name\nNA,NA\n")
    new = encoded.encoder.encode(tmp_path / "new.csv")
    assert (decoded_rows(new, "n"), decoded_rows(new, "name")) == ([None], [["NA"]])


def test_a_schema_may_be_a_path_or_a_mapping(tmp_path: Path, same: Encoded) -> None:
    (tmp_path / "a.yaml").write_text(SAME_SCHEMA.resolved())
    for schema in (tmp_path / "a.yaml", str(tmp_path / "a.yaml"), yaml.safe_load(SAME_SCHEMA.resolved())):
        assert differences(fit(schema, SAME), same) == {}


def test_new_rows() -> None:
    rows = pa.table(
        {
            "a": ["x", "y", "x", None],
            "b": [["p", "q"], ["p"], None, []],
            "n": [1.0, None, 3.0, 3.0],
            "m": [None, 2.0, 4.0, None],
        }
    )
    schema = schema_of({"a": "a", "b": ("b", lookup(multi=True)), "n": (["n", "m"], "numeric")})
    encoded = fit(schema, rows)
    assert encoded.rows.tolist()[3] == [-1, -1, value_ids(encoded, "n")[3]]
    bags = [["q", "p", "q"], ["r"], ["p", "q"]]
    new = encoded.encoder.encode(
        pa.table({"a": ["z", "y", "w"], "b": bags, "n": [None, 3.0, 1.0], "m": [None, 4.0, None]})
    )
    assert value_ids(new, "a") == [2, 1, 2]
    assert new.values["a"].counts.tolist() == [2, 1, 0]
    assert decoded_rows(new, "a") == [[None], ["y"], [None]]
    assert decoded_rows(new, "b") == [["p", "q", "q"], [None], ["p", "q"]]  # wider than any training row
    assert (new.tallies["a"].unseen, new.tallies["b"].unseen, new.tallies["b"].truncated) == (2, 1, 0)
    assert value_ids(new, "n") == [-1, value_ids(encoded, "n")[2], value_ids(encoded, "n")[0]]
    assert (new.tallies["n"].missing, new.tallies["n"].filled) == (1, 1)
    assert "a: 3 values, 2 keys, 2 unseen" in new.summary()


def test_new_bags_are_as_wide_as_the_schema_allows() -> None:
    rows = pa.table({"a": ["x", "y"], "b": [["p"], ["q"]]})
    encoded = fit(schema_of({"a": "a", "b": ("b", lookup(multi=True, max_items=3))}), rows)
    assert encoded.values["b"].entries.tolist() == [[2], [3]]
    assert encoded.encoder.codecs["b"].width == 3
    bags = [["q"], ["p", "q"], ["q", "p", "r", "p"]]
    new = encoded.encoder.encode(TableInBatches(pa.table({"b": bags}), 1), sizes=small_sizes(-1, 1, 8))
    assert new.values["b"].entries[value_ids(new, "b")].tolist() == [[3, 0, 0], [2, 3, 0], [1, 2, 3]]
    assert (value_ids(new, "b")[0], new.known["b"], new.tallies["b"].truncated) == (1, 2, 1)


def test_keys_that_are_too_frequent_count_as_none(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "a": ["x", "x", "x", "y", None],
            "b": [["p", "q", "r", "s"], ["q", "p"], ["p"], ["p", "s", "r", "t"], None],
            "w": [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0], [7.0], [8.0, 9.0, 10.0, 11.0], None],
            "n": ["1.0", "1", "1.00", "2", "3"],
        }
    )
    bag = lookup(multi=True, max_items=2, max_share=0.6)
    groups = {
        "a": ("a", lookup(max_share=0.5)),
        "b": ("b", bag),
        "w": ("b", {**bag, "weights": "w"}),
        "n": ("n", lookup(max_share=0.5)),
        "all": ("b", {**bag, "max_share": 0.8}),  # p is in 4 of 5 rows, not in more than 0.8 of them
    }
    csv = tmp_path / "rows.csv"
    pyarrow.csv.write_csv(rows.select(["a", "n"]), csv)
    encoded = fit(schema_of(groups), rows)
    assert vocabulary_of(encoded, "a") == {"y": 1}
    assert decoded_rows(encoded, "a") == [None, None, None, ["y"], None]
    assert vocabulary_of(encoded, "b") == {"q": 2, "r": 2, "s": 2, "t": 1}
    assert decoded_rows(encoded, "b") == [["q", "r"], ["q"], None, ["r", "s"], None]
    assert decoded_rows(encoded, "w") == [
        [("q", 2.0), ("r", 3.0)], [("q", 5.0)], None, [("r", 10.0), ("s", 9.0)], None,
    ]  # fmt: skip
    assert "p" in vocabulary_of(encoded, "all")
    tallies = {name: (tally.missing, tally.truncated, tally.unseen) for name, tally in encoded.tallies.items()}
    assert tallies == {"a": (4, 0, 0), "b": (2, 2, 0), "w": (2, 2, 0), "n": (0, 0, 0), "all": (1, 2, 0)}
    assert vocabulary_of(encoded, "n") == {"1": 1, "1.0": 1, "1.00": 1, "2": 1, "3": 1}  # as a typed column: text
    text = fit(schema_of({"a": "a", "n": groups["n"]}), csv)
    assert vocabulary_of(text, "n") == vocabulary_of(encoded, "n")
    encoded.encoder.save(tmp_path / "encoder")
    loaded = Encoder.load(tmp_path / "encoder")
    new = pa.table(
        {"b": [["p"], ["p", "new", "q", "s"], ["p", "p", "t"]], "w": [[1.0], [1.0, 2.0, 3.0, 4.0], [1.0] * 3]}
    )
    for encoder in (encoded.encoder, loaded):
        again = encoder.encode(new)
        assert decoded_rows(again, "b") == [None, [None, "q"], ["t"]]
        assert decoded_rows(again, "w") == [None, [(None, 2.0), ("q", 3.0)], [("t", 1.0)]]
        tally = again.tallies["b"]
        assert (tally.missing, tally.truncated, tally.unseen) == (1, 1, 1)
        vocabulary = encoder.codecs["b"].vocabulary
        assert vocabulary is not None
        assert vocabulary.too_frequent == ["p"]


def test_groups_none_of_which_can_be_fitted_are_all_named() -> None:
    rows = pa.table({"x": pa.array([None, None], pa.float64()), "y": pa.array([None, None], pa.float64())})
    schema = schema_of({"x": ("x", "numeric"), "y": ("y", "numeric")})
    with pytest.raises(UserError) as caught:
        fit(schema, rows)
    assert [problem.count("has no number in any row") for problem in caught.value.problems] == [1, 1]


def test_a_share_is_exact() -> None:
    """0.29 * 100 is 28.999999999999996."""
    rows = pa.table({"a": ["x"] * 29 + ["y"] * 30 + [f"z{i}" for i in range(41)]})
    encoded = fit(schema_of({"a": ("a", lookup(max_share=0.29))}), rows)
    assert "x" in vocabulary_of(encoded, "a")
    assert "y" not in vocabulary_of(encoded, "a")


KINDS: dict[str, list[Any]] = {
    "date": [date(2024, 1, 1), date(2024, 1, 2)],
    "number": [1.0, 2.0],
    "text": ["one", "two"],
}


SWAPS = {
    ("date", "number"): "row 1: column 'a' holds double; the training rows had dates",
    ("number", "date"): r"row 1: column 'a' holds date32\[day\]; the training rows had numbers",
    ("number", "text"): "row 1: column 'a': received 'one'; a number is needed, and the column holds text; cast it",
    ("date", "text"): "row 1: column 'a': received 'one'; a date such as 2024-01-31 is needed",
}


@pytest.mark.parametrize("extractor", ["numeric", lookup(bins=2)], ids=["numeric", "bins"])
@pytest.mark.parametrize(("before", "after"), SWAPS)
def test_a_column_keeps_its_kind(before: str, after: str, extractor: Any) -> None:
    encoder = fit(schema_of({"a": ("a", extractor)}), pa.table({"a": KINDS[before]})).encoder
    refuse(SWAPS[before, after], lambda: encoder.encode(pa.table({"a": KINDS[after]})))


def test_the_encoder_outlives_the_encoded_rows() -> None:
    encoded = fit(SAME_SCHEMA, SAME)
    folder, encoder, expected = encoded.folder, encoded.encoder, encoded.rows.tobytes()
    assert folder.exists()
    del encoded
    assert not folder.exists()
    assert encoder.encode(SAME).rows.tobytes() == expected


def test_all_problems_at_once(tmp_path: Path) -> None:
    (tmp_path / "films.csv").write_text("a,b,c,d,z\n1,2,3,2024-01-01,z\nx,2,inf,2024-01-01,z\n1,,4,soon,z\n")
    schema = schema_of({"a": ("a", "numeric"), "c": ("c", "numeric"), "d": ("d", "numeric"), "z": "z", "b": "b"})
    problems = refuse(None, lambda: fit(schema, tmp_path / "films.csv", tmp_path / "out"))
    where = re.escape(str(tmp_path / "films.csv"))
    assert len(problems) == 3
    assert re.fullmatch(f"{where}: row 2: column 'a': received 'x'; a number is needed; text is for .*", problems[0])
    assert re.fullmatch(f"{where}: row 2: column 'c': received inf; numbers must be finite", problems[1])
    assert re.fullmatch(f"{where}: row 3: column 'd': received 'soon'; a date such as .* is needed", problems[2])
    assert os.listdir(tmp_path) == ["films.csv"]
    good = fit(schema, pa.table({"a": [1], "b": ["2"], "c": [3], "d": [date(2024, 1, 1)], "z": ["z"]}))
    assert refuse(None, lambda: good.encoder.encode(tmp_path / "films.csv", tmp_path / "out")) == problems
    assert os.listdir(tmp_path) == ["films.csv"]


def test_all_empty_groups_at_once() -> None:
    empty = pa.nulls(2, pa.float64())
    texts = {"d": [[], None], "e": ["", None], "f": ["…", ""]}
    rows = pa.table({"z": ["z", "z"], "a": empty, "b": empty, "c": pa.nulls(2), **texts})
    schema = schema_of(
        {
            **{"z": "z", "a": ("a", "numeric"), "b": (["b"], numeric(scale="quantile")), "c": "c"},
            **{"d": ("d", lookup(multi=True)), "e": "e", "f": ("f", "text_cnn"), "bins": ("a", lookup(bins=3))},
            **{"v": ("c", "vector"), "parts": ("c", lookup(parts=["year"]))},
        }
    )
    problems = refuse(None, lambda: fit(schema, rows))
    assert [re.findall(r"(?:column|group) '(\w+)'", problem)[0] for problem in problems] == list(schema.groups)[1:]
    assert all(
        (problem.startswith("the table: ") and problem.endswith(("remove it", "its group"))) or "(column" in problem
        for problem in problems
    )


@pytest.mark.parametrize("texts", [["ab cd", "eve"], ["ab eve", None, "zz ab"], ["zz"]])
def test_items_that_are_cut_after_frequent_ones_left_are_no_values(texts: list[str | None]) -> None:
    """With room for one item the others count as keys, and stand in no entry."""
    spec = {"type": "lookup", "split": "words", "max_items": 1, "max_share": 0.1}
    groups = {"k": {"column": "k"}, "w": {"column": "t", "extractor": spec}}
    rows = pa.table({"k": [str(i) for i in range(20)], "t": [*texts, *[None] * (20 - len(texts))]})
    encoded = fit(read_schema({"version": 1, "groups": groups}), rows)
    found = [key for (key,) in encoded.encoder.decode("w", encoded.values["w"].entries)]
    first = [text.split()[0] for text in texts if text]
    assert sorted(found) == sorted(set(first))
    assert np.asarray(encoded.values["w"].counts).tolist() == [first.count(key) for key in found]
    for again in (encoded, encoded.encoder.encode(rows)):
        ids = np.asarray(again.rows)[:, 1]
        assert [None if i < 0 else found[i] for i in ids[: len(texts)]] == [text and text.split()[0] for text in texts]
