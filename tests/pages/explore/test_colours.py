"""Colours: the mean or the most frequent category of the rows that hold a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import feat2vec
from feat2vec.pages.explore import Atlas
from tests.pages.explore.answers import colour_answer, unpacked
from tests.pages.explore.tables import ROWS, table


def test_colours_are_the_mean_or_the_most_frequent_of_the_rows(atlas: Atlas) -> None:
    data = table().to_pylist()
    keys: dict[str, Callable[[dict[str, Any]], list[Any]]] = {
        "row": lambda row: [row["id"]],
        "who": lambda row: [row["who"]],
        "a <group>": lambda row: row["tags"].split("|"),
    }
    for name, keys_of in keys.items():
        points = atlas.points(name).keys
        rows = {key: [row for row in data if key in keys_of(row)] for key in points}
        years = {key: [row["year"] for row in key_rows if row["year"] is not None] for key, key_rows in rows.items()}
        wanted = [np.mean(years[key]) if years[key] else np.nan for key in points]
        np.testing.assert_allclose(unpacked(colour_answer(atlas, name, "year")["values"], "<f4"), wanted, rtol=1e-6)
        for column, items_of in (("good", lambda row: [str(row["good"]).lower()]), ("kinds", lambda row: row["kinds"])):
            overall = Counter(item for row in data for item in set(items_of(row)))
            colours = colour_answer(atlas, name, column)
            for key, code in zip(points, unpacked(colours["codes"], "<i1").tolist(), strict=True):
                seen = Counter(item for row in rows[key] for item in set(items_of(row)))
                best = max(((n, overall[item]) for item, n in seen.items()), default=None)
                among = {item for item, n in seen.items() if (n, overall[item]) == best}
                if code < 0:
                    assert not seen
                elif colours["rest"] and code == len(colours["names"]) - 1:
                    assert not among <= set(colours["names"])
                else:
                    assert colours["names"][code] in among


def test_colours_of_other_columns(atlas: Atlas, folder: Path, tmp_path: Path) -> None:
    assert atlas.columns == ["id", "who", "tags", "title", "year", "day", "good", "kinds"]
    day = colour_answer(atlas, "row", "day")
    ends = np.quantile([i for i in range(ROWS) if i % 7], [0.02, 0.98])
    assert day["labels"] == tuple(
        f"{sign} {np.datetime64(int(end), 'D')}" for sign, end in zip("≤≥", ends, strict=True)
    )
    kinds = colour_answer(atlas, "row", "kinds")
    assert (len(kinds["names"]), kinds["names"][-1]) == (7, "6 others")
    tags = colour_answer(atlas, "row", "tags")
    assert all("|" not in name for name in tags["names"])  # as the schema splits them
    (tmp_path / "rows.csv").write_text("id,who,n,mixed,empty\na,w0,1.5,2,\nb,w1,NA,x,\n")
    text = Atlas(feat2vec.load(folder / "run"), data=str(tmp_path / "rows.csv"), colour="n")
    assert text.facts()["colour"] == 2
    assert unpacked(colour_answer(text, "row", "n")["values"], "<f4")[0] == 1.5
    assert colour_answer(text, "row", "mixed")["names"] == ["2", "x"]
    assert colour_answer(text, "row", "empty")["names"] == []
