"""Groups that share a vocabulary: what is fitted is what would be fitted to one column below the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import feat2vec
from feat2vec.encode.codecs import ItemsCodec, NumbersCodec
from feat2vec.encode.encoded_rows import Encoded
from feat2vec.encode.encoder import Encoder
from feat2vec.encode.workspace import DEFAULT_SIZES, PieceSizes
from feat2vec.errors import UserError

ROWS = 60
RNG = np.random.default_rng(0)


def mixed(*choices: object) -> list[Any]:
    """A column of these values, the first of them more often."""
    return [choices[min(int(number) - 1, len(choices) - 1)] for number in RNG.zipf(1.5, ROWS)]


TEAMS = ["b", "a", "d", None, "c"]
LISTS: list[Any] = [["x"], ["y", "x"], [], None, ["z", "w", "x"], ["v"]]
COLUMNS: dict[str, tuple[list[Any], list[Any]]] = {  # two columns of each kind
    "key": (mixed(*TEAMS), mixed("e", "d", None, "a")),
    "long": (
        [f"key {i % 40} of a long name" for i in range(ROWS)],
        [f"key {i % 50} of a long name" for i in range(ROWS)],
    ),
    "tags": (mixed(*LISTS), mixed(["q"], ["x"], ["w", "v", "u"], [])),
    "text": (mixed("one two", "two", None), mixed("three, four one two", "", "one")),
    "whole": (mixed(1, 5, 2, None), mixed(7, 2, 9)),
    "part": (mixed(0.5, 2.0, None), mixed(7.0, 0.5, 9.25)),
    "image": ([[float(i), 1.0] for i in range(ROWS)], [[float(i % 3), 2.0] for i in range(ROWS)]),
}
SPECS: dict[str, tuple[str, Any]] = {  # the kind of columns, and the extractor
    "keys": ("key", {}),
    "long keys": ("long", {}),
    "frequent keys": ("key", {"min_count": 6}),
    "few keys": ("key", {"max_size": 2}),
    "bags": ("tags", {"multi": True}),
    "short bags": ("tags", {"multi": True, "max_items": 2, "max_share": 0.3}),
    "words": ("text", {"split": "words"}),
    "tokens": ("text", {"type": "text_cnn", "widths": [1], "min_count": 2}),
    "bins": ("part", {"bins": 4}),
    "numbers": ("whole", {"type": "numeric"}),
    "quantiles": ("part", {"type": "numeric", "scale": "quantile"}),
    "vectors": ("image", {"type": "vector"}),
}
SMALL = PieceSizes(stage_bytes=600, rows_per_piece=7, rows_per_block=5, held_key_bytes=40)


def shared(name: str, **options: Any) -> Encoded:
    """Two columns whose groups share what they are encoded by; the owner comes last."""
    kind, extractor = SPECS[name]
    groups = {"to": {"column": "to", "share": "from"}, "from": {"column": "from", "extractor": extractor}}
    data = pa.table(dict(zip(("from", "to"), COLUMNS[kind], strict=True)))
    return feat2vec.fit({"version": 1, "groups": groups}, data, **options)


def stacked(name: str) -> Encoded:
    """The two columns below each other, as one group."""
    kind, extractor = SPECS[name]
    groups = {"both": {"column": "both", "extractor": extractor}, "rest": {"column": "rest"}}
    first, second = COLUMNS[kind]
    data = pa.table({"both": first + second, "rest": ["r", "s"] * ROWS})
    return feat2vec.fit({"version": 1, "groups": groups}, data)


def entries_of(rows: Encoded, group: str) -> list[Any]:
    """The entry of each row; None where it has none."""
    value_ids = rows.rows[:, list(rows.values).index(group)]
    entries = np.asarray(rows.values[group].entries)
    return [None if value < 0 else entries[value].tolist() for value in value_ids]


IN_PIECES = ("long keys", "short bags", "tokens", "quantiles")


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        *((name, None) for name in SPECS),
        *(pytest.param(name, SMALL, marks=() if name in IN_PIECES else pytest.mark.slow) for name in SPECS),
    ],
)
def test_two_columns_are_encoded_as_one_below_the_other(name: str, sizes: PieceSizes | None) -> None:
    ours, expected = shared(name, **({} if sizes is None else {"sizes": sizes})), stacked(name)
    codec, expected_codec = ours.encoder.codecs["from"], expected.encoder.codecs["both"]
    if isinstance(codec, NumbersCodec):  # means and deviations are added up piece by piece
        assert isinstance(expected_codec, NumbersCodec)
        (scale,), (expected_scale,) = codec.columns, expected_codec.columns
        assert (scale.column, scale.kind, scale.indicator) == ("from", expected_scale.kind, expected_scale.indicator)
        np.testing.assert_allclose([*scale.knots, scale.fill], [*expected_scale.knots, expected_scale.fill], rtol=1e-12)
    else:
        assert codec.of_columns(["both"]).facts() == expected_codec.facts()
    if isinstance(codec, ItemsCodec):
        assert isinstance(expected_codec, ItemsCodec)
        assert ours.encoder.codecs["to"] is codec
        assert codec.vocabulary.keys.equals(expected_codec.vocabulary.keys)
        np.testing.assert_array_equal(codec.vocabulary.counts, expected_codec.vocabulary.counts)
    width = codec.training_width
    expected_entries = [entry and pytest.approx(entry[:width]) for entry in entries_of(expected, "both")]
    assert entries_of(ours, "from") + entries_of(ours, "to") == expected_entries


@pytest.mark.parametrize("name", SPECS)
def test_each_group_counts_the_values_of_its_own_column(name: str) -> None:
    rows = shared(name)
    for g, group in enumerate(rows.values):
        value_ids = rows.rows[:, g]
        counts = np.bincount(value_ids[value_ids >= 0], minlength=len(rows.values[group].entries))
        np.testing.assert_array_equal(rows.values[group].counts, counts)
        assert rows.tallies[group].missing == np.count_nonzero(value_ids < 0)


@pytest.mark.parametrize("name", ["keys", "few keys", "bags", "bins"])
def test_keys_are_counted_in_the_column_of_a_group(name: str) -> None:
    rows = shared(name)
    totals = np.zeros(len(rows.encoder.codecs["from"].vocabulary.keys), np.int64)  # type: ignore[union-attr]
    for group in ("from", "to"):
        items = [key for entry in entries_of(rows, group) if entry for key in entry if key > 1]
        counts = rows.encoder.key_counts(group)
        np.testing.assert_array_equal(counts, np.bincount(items, minlength=len(totals) + 2)[2:])
        totals += counts
    np.testing.assert_array_equal(totals, rows.encoder.codecs["from"].vocabulary.counts)  # type: ignore[union-attr]


def test_a_saved_encoder_holds_a_shared_vocabulary_once(tmp_path: Path) -> None:
    for name in ("few keys", "tokens", "numbers", "vectors"):
        rows = shared(name)
        folder = tmp_path / name
        rows.encoder.save(folder)
        files = sorted(path.name for path in folder.glob("vocabulary/*"))
        assert files == ([] if name in ("numbers", "vectors") else ["from.parquet"])
        loaded = Encoder.load(folder)
        codec = loaded.codecs["from"]
        assert loaded.codecs["to"] == codec.of_columns(["to"])
        assert (loaded.codecs["to"] is codec) == (name != "numbers")
        kind, _ = SPECS[name]
        again = loaded.encode(pa.table(dict(zip(("from", "to"), COLUMNS[kind], strict=True))))
        np.testing.assert_array_equal(again.rows, rows.rows)


def test_an_encoder_of_two_codecs_for_one_vocabulary_is_refused(tmp_path: Path) -> None:
    shared("numbers").encoder.save(tmp_path / "saved")
    facts = tmp_path / "saved" / "encoder.json"
    facts.write_text(facts.read_text().replace('"fill": ', '"fill": 1', 1))
    with pytest.raises(UserError, match="the groups 'to' and 'from' share a codec, and two are written"):
        Encoder.load(tmp_path / "saved")


def test_a_key_of_the_other_column_is_known() -> None:
    rows = shared("keys")
    new = rows.encoder.encode(pa.table({"from": ["e", "?"], "to": ["b", "a"]}))
    decoded = [rows.encoder.decode(group, np.array(entries_of(new, group))) for group in ("from", "to")]
    assert decoded == [[["e"], [None]], [["b"], ["a"]]]


def test_a_part_of_the_groups_keeps_the_vocabulary() -> None:
    encoder = shared("keys").encoder
    assert encoder.only(["to"]).schema.groups["to"].share is None
    assert encoder.only(["to"]).codecs["to"] is encoder.codecs["from"]


@pytest.mark.parametrize(
    ("texts", "keys", "kind"),
    [
        (["7.0", "NA", "8.0"], ["7.0", "9.0", "9.0"], ["7", "9", "8"]),
        (["true", "FALSE", "True"], ["NA", "False", "true"], ["true", "false"]),
        (["7.0", "8.0", "8.0"], ["x", "y", "y"], ["8.0", "y", "7.0", "x"]),
        (["7", "8", "8"], ["7.0", "NA", "8.0"], ["8", "7"]),  # integers, and those that pandas wrote beside a gap
        (["7", "NA", "8"], ["0.5", "7.0", "-0.0"], ["7", "0", "0.5", "8"]),
        (["7", "8", "8"], ["7.0", "8", "8"], ["8", "7", "7.0"]),  # a text column of both
        (["1", "2", "2"], ["1.10", "1.0", "1.10"], ["1.10", "2", "1", "1.0"]),  # versions
    ],
)
@pytest.mark.parametrize("sizes", [DEFAULT_SIZES, PieceSizes(held_key_bytes=0)], ids=["memory", "database"])
def test_text_without_types_is_spelled_by_both_columns(
    texts: list[str], keys: list[str], kind: list[str], sizes: PieceSizes, tmp_path: Path
) -> None:
    encoder = fitted_to_texts(texts, keys, tmp_path, sizes).encoder
    vocabulary = encoder.codecs["to"].vocabulary
    assert vocabulary is not None
    assert vocabulary.keys.to_pylist() == kind


def fitted_to_texts(texts: list[str], keys: list[str], folder: Path, sizes: PieceSizes = DEFAULT_SIZES) -> Encoded:
    """Two columns of a CSV that share a vocabulary."""
    lines = ["from,to", *(",".join(row) for row in zip(texts, keys, strict=True))]
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    groups = {"from": {"column": "from"}, "to": {"column": "to", "share": "from"}}
    return feat2vec.fit({"version": 1, "groups": groups}, folder / "rows.csv", sizes=sizes)


def test_a_summary_tells_that_columns_have_no_key_in_common(tmp_path: Path) -> None:
    apart = fitted_to_texts(["1", "2", "2"], ["1.10", "2.00", "2.00"], tmp_path).summary().splitlines()
    expected = "note: 'to' has no key of 'from', whose vectors it shares: '2.00' is in the one, '2' in the other"
    assert apart[-1] == expected
    assert "note" not in fitted_to_texts(["1", "2", "2"], ["1.0", "2.0", "2.0"], tmp_path).summary()


@pytest.mark.parametrize(
    ("extractor", "columns", "expected"),
    [
        ("lookup", ([1, 2], ["a", "b"]), "hold keys of one kind; received numbers in 'from' and texts in 'to'"),
        ("numeric", ([1, 2], [np.datetime64("2020-01-01", "s")] * 2), "received numbers in 'from' and dates in 'to'"),
        ("vector", ([[1.0]] * 2, [[1.0, 2.0]] * 2), "vectors that are shared have one size; received 1 in 'from'"),
    ],
)
def test_columns_that_cannot_share_vectors_are_refused(extractor: str, columns: tuple[Any, Any], expected: str) -> None:
    groups = {"from": {"column": "from", "extractor": extractor}, "to": {"column": "to", "share": "from"}}
    data = pa.table({"from": pa.array(columns[0]), "to": pa.array(columns[1])})
    with pytest.raises(UserError) as caught:
        feat2vec.fit({"version": 1, "groups": groups}, data)
    (problem,) = caught.value.problems
    assert expected in problem
    assert problem.endswith("remove `share`")


def test_numbers_of_several_types_share_keys() -> None:
    groups = {"from": {"column": "from"}, "to": {"column": "to", "share": "from"}}
    data = pa.table({"from": [1, 2, 2], "to": [2.0, None, 0.5]})
    rows = feat2vec.fit({"version": 1, "groups": groups}, data)
    vocabulary = rows.encoder.codecs["to"].vocabulary
    assert vocabulary is not None
    assert (vocabulary.kind, vocabulary.keys.to_pylist()) == ("float", ["2", "0.5", "1"])


def test_a_column_without_a_value_is_a_problem_although_the_other_one_has_some() -> None:
    groups = {"from": {"column": "from"}, "to": {"column": "to", "share": "from"}}
    data = pa.table({"from": ["a", "b"], "to": pa.array([None, None], pa.string())})
    with pytest.raises(UserError, match="the group 'to' has no value in any row"):
        feat2vec.fit({"version": 1, "groups": groups}, data)
