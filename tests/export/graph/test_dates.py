"""Dates in a graph against Arrow's."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import tensorflow as tf

from feat2vec.export.graph.dates import date_parts, instants, timestamps
from feat2vec.table import spelling


def test_dates_are_read_and_taken_apart() -> None:
    rng = random.Random(0)
    days = [datetime(1, 1, 1) + timedelta(microseconds=rng.randrange(9998 * 365 * 86_400 * 10**6)) for _ in range(500)]
    days += [datetime(year, 2, 28) + timedelta(days=1) for year in (1600, 1700, 1900, 2000, 2023, 2024)]
    texts = [day.isoformat(rng.choice("T "), rng.choice(["auto", "minutes", "seconds"])) for day in days]
    texts += ["2024-01-31", " 2024-01-31T23 ", "2024-02-29 10:30Z", "1969-12-31 23:59:59.999999"]
    east = timezone(timedelta(hours=5, minutes=45))
    texts += [datetime(2024, 1, 1, 3, tzinfo=east).isoformat(), "2024-01-01T03:00:00-0230", "2024-01-01 03:00:00+02"]
    parts = ["year", "quarter", "month", "day", "weekday", "hour"]
    micros, there = timestamps(tf.constant([*texts, ""]), "when")
    stamps = [pa.array([text.strip()]).cast(pa.timestamp("us", "UTC" if _zoned(text) else None)) for text in texts]
    assert micros.numpy()[:-1].tolist() == [stamp.cast(pa.int64())[0].as_py() for stamp in stamps]
    assert there.numpy().tolist() == [True] * len(texts) + [False]
    keys, present = date_parts(micros, there, parts)
    assert not present.numpy()[-1].any()
    week = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    for stamp, row in zip(stamps, keys.numpy().tolist(), strict=False):
        numbers = [
            (pc.day_of_week(stamp) if part == "weekday" else getattr(pc, part)(stamp))[0].as_py() for part in parts
        ]
        expected = [f"{p}={week[n] if p == 'weekday' else n}" for p, n in zip(parts, numbers, strict=True)]
        assert [key.decode() for key in row] == expected


def _zoned(text: str) -> bool:
    return text.strip().endswith("Z") or "+" in text or "-" in text.strip()[16:]


@pytest.mark.parametrize("text", ["2024-02-30", "2023-02-29", "31.01.2024", "2024-13-01", "today", "2024-1-1"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="when: dates such as 2024-01-31"):
        tf.function(lambda texts: timestamps(texts, "when"), autograph=False)(tf.constant(["2024-01-01", text]))


def test_instants_are_those_of_the_vocabulary() -> None:
    rng = random.Random(0)

    def text() -> str:
        year = rng.choice(["0000", "0001", "1900", "2000", "2023", f"{rng.randrange(10**4):04}"])
        day = f"{year}-{rng.randrange(14):02}-{rng.randrange(33):02}"
        time = f"{rng.choice('T ')}{rng.randrange(25):02}:{rng.randrange(61):02}"
        second = f":{rng.randrange(61):02}" + rng.choice(["", ".0", ".500", ".000000010", ".0000000001"])
        zone = rng.choice(["", "", "Z", "z", "+02", "-0230", "+05:45", "+23:59", "+24:00", "-0060", "+1"])
        return day + rng.choice(["", time, time + second, time + second]) + zone

    texts = ["", "x", "2024-01-31 ", " 2024-01-31", "2024-01-31T10", *(text() for _ in range(2000))]
    expected = [instant or "" for instant in spelling.instants(pa.array(texts)).to_pylist()]
    assert [instant.decode() for instant in instants(tf.constant(texts)).numpy()] == expected
    assert 500 < sum(instant != "" for instant in expected) < 1500
