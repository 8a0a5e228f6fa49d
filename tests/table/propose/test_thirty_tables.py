"""More than thirty small tables such as people have, with the choice that a person would make for each column.

Of a column is expected: `key`, `list`, `number`, `text`, `date`, `time` (of day), `vector`, `copy` (of another column)
or `-` (left out); `id` behind it says that the column names the rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from feat2vec.schema.extractor_options import ItemsSpec
from feat2vec.schema.options import Schema
from feat2vec.table.propose.targets import TIME
from tests.table.propose.columns import proposed
from tests.table.propose.making import CODES, COUNTRIES, FIRST, LAST, ROWS, STATES, TOWNS, WORDS, Maker, same

Columns = dict[str, tuple[list[Any], str]]
GENRES = ["Drama", "Comedy", "Action", "War", "Romance", "Horror"]
NAMES = [f"{first} {last}" for first in FIRST[:12] for last in LAST[:5]]
SHOPS = [f"{name} & Sons" for name in LAST]
LIKERT = ["Strongly agree", "Agree", "Neutral", "Disagree", "Strongly disagree"]


def orders(make: Maker) -> Columns:
    return {
        "order_id": (list(range(1001, 1001 + ROWS)), "- id"),
        "customer_id": (make.integers(1, 90), "key"),
        "product": (make.pick([f"{word} lamp" for word in WORDS]), "key"),
        "category": (make.pick(["home", "garden", "toys"]), "key"),
        "price": (make.amounts(20, 0.8, 2), "number"),
        "quantity": (make.pick([1, 2, 3, 4, 5]), "key"),
        "country": (make.pick(COUNTRIES), "key"),
        "ordered_at": (make.dates("%Y-%m-%d %H:%M:%S"), "date"),
        "gift": (make.pick(["yes", "no"]), "key"),
    }


def people(make: Maker) -> Columns:
    return {
        "Unnamed: 0": (list(range(ROWS)), "-"),
        "name": (make.people(), "text"),
        "age": (make.integers(18, 90), "number"),
        "sex": (make.pick(["F", "M"]), "key"),
        "city": (make.pick(TOWNS), "key"),
        "income": (make.amounts(40_000, 0.7), "number"),
        "married": (make.pick([True, False]), "key"),
        "email": (same(make.hex(), lambda word: f"{word}@mail.org"), "- id"),
        "children": (make.pick([0, 1, 2, 3, 4]), "key"),
    }


def films(make: Maker) -> Columns:
    return {
        "Unnamed: 0": (list(range(ROWS)), "-"),
        "title": ([f"{text} {i}" for i, text in enumerate(make.text(1, 4))], "text id"),
        "director": (make.pick(NAMES), "key"),
        "actors": (make.lists(NAMES, "|"), "list"),
        "genres": (make.lists(GENRES, "|"), "list"),
        "year": (make.integers(1970, 2016), "key"),
        "budget": (make.amounts(20_000_000, 1.2), "number"),
        "gross": (make.gaps(make.amounts(30_000_000, 1.6), 0.1), "number"),
        "votes": (make.amounts(30_000, 1.4), "number"),
        "score": (make.numbers(6.4, 1.1, 1), "number"),
        "language": (make.pick(["English", "French", "Hindi"], 3), "key"),
    }


def flights(make: Maker) -> Columns:
    carrier = make.pick(["UA", "AA", "DL", "WN"])
    names = {"UA": "United Air Lines", "AA": "American Airlines", "DL": "Delta Air Lines", "WN": "Southwest Airlines"}
    return {
        "FlightDate": (make.dates("%Y-%m-%d", 365), "date"),
        "carrier": (carrier, "copy"),
        "carrier_name": (same(carrier, names.get), "key"),
        "origin": (make.pick(["JFK", "LGA", "EWR"]), "key"),
        "dest": (make.pick(["ATL", "ORD", "LAX", "SFO", "MIA", "BOS"]), "key"),
        "tail_number": (make.pick([f"N{i}UA" for i in range(101, 160)]), "key"),
        "delay": (make.gaps(make.integers(-20, 190), 0.03), "number"),
        "distance": (make.integers(180, 4900), "number"),
        "cancelled": (make.pick([0, 1], 3), "key"),
        "scheduled": (make.dates("%H:%M"), "time"),
    }


def sensors(make: Maker) -> Columns:
    return {
        "timestamp": (make.epochs(), "date"),
        "sensor_id": (make.integers(1, 12), "key"),
        "temperature": (make.numbers(21, 4), "number"),
        "humidity": (make.numbers(0.5, 0.1, 3), "number"),
        "battery": (make.gaps(make.numbers(3.7, 0.2, 3), 0.3), "number"),
        "status": (make.pick(["OK", "WARN", "FAIL"], 2), "key"),
        "firmware": (["1.0.3"] * ROWS, "-"),
    }


def songs(make: Maker) -> Columns:
    return {
        "track_id": (make.hex(), "- id"),
        "artist": (make.pick(NAMES), "key"),
        "title": (make.text(2, 5), "text"),
        "album": (make.pick([f"{word} {other}" for word in WORDS[:9] for other in WORDS[9:15]]), "key"),
        "duration_ms": (make.amounts(210_000, 0.3), "number"),
        "tempo": (make.numbers(120, 25, 3), "number"),
        "key": (make.integers(0, 11), "key"),
        "mode": (make.pick([1, 0]), "key"),
        "explicit": (make.pick(["FALSE", "TRUE"]), "key"),
        "popularity": (make.integers(0, 100), "number"),
        "release_date": (make.dates("%Y-%m-%d"), "date"),
    }


def houses(make: Maker) -> Columns:
    streets = make.pick([f"{word.title()} {kind}" for word in WORDS for kind in ("Street", "Road", "Avenue")], 0)
    return {
        "address": ([f"{i} {street}" for i, street in enumerate(streets, 11)], "text id"),
        "zip": (make.pick([78_701, 78_702, 78_703, 10_001, 10_002]), "key"),
        "price": (make.amounts(350_000, 0.5), "number"),
        "sqft": (make.integers(500, 4000), "number"),
        "bedrooms": (make.pick([3, 2, 4, 1, 5]), "key"),
        "bathrooms": (make.pick([1, 1.5, 2, 2.5, 3]), "number"),
        "year_built": (make.integers(1920, 2010), "key"),
        "sold": (make.dates("%m/%d/%Y"), "date"),
        "type": (make.pick(["house", "condo", "townhouse"]), "key"),
        "pool": (make.gaps(["Y"] * ROWS, 0.8), "key"),
        "remarks": (make.text(8, 20), "text"),
    }


def requests(make: Maker) -> Columns:
    return {
        "time": (make.dates("%d/%b/%Y:%H:%M:%S +0000", 20), "date"),
        "ip": (make.pick([f"10.0.{i}.{7 * i % 256}" for i in range(60)]), "key"),
        "method": (make.pick(["GET", "POST", "PUT"]), "key"),
        "path": (make.pick(["/", "/login", "/cart", "/help", "/about"]), "key"),
        "status": (make.pick([200, 404, 500, 301]), "key"),
        "bytes": (make.amounts(5000, 1.5), "number"),
        "duration": (make.numbers(0.3, 0.05, 4), "number"),
    }


def tweets(make: Maker) -> Columns:
    return {
        "id": ([900_000_000_000_000_000 + 7_919_191_919 * i for i in range(ROWS)], "- id"),
        "created_at": (make.dates("%a %b %d %H:%M:%S +0000 %Y"), "date"),
        "text": (make.text(6, 20), "text"),
        "user": (make.pick([f"@{name.lower()}" for name in FIRST]), "key"),
        "retweets": (make.amounts(30, 1.8), "number"),
        "favorites": (make.amounts(90, 1.8), "number"),
        "hashtags": (make.gaps(make.lists(WORDS, ","), 0.4), "list"),
        "lang": (make.pick(["en", "es", "ja"]), "key"),
        "is_retweet": ([False] * ROWS, "-"),
    }


def products(make: Maker) -> Columns:
    return {
        "sku": (make.codes("SKU-"), "- id"),
        "name": (make.text(2, 4), "text"),
        "brand": (make.pick(SHOPS), "key"),
        "category": (make.pick(["Home > Kitchen", "Home > Bath", "Sports > Golf"]), "key"),
        "price": (make.amounts(25, 0.9, 2), "number"),
        "weight_kg": (make.gaps(make.amounts(2, 0.5, 3), 0.2), "number"),
        "in_stock": (make.pick(["Y", "N"]), "key"),
        "tags": (make.lists(WORDS[:12], "; "), "list"),
        "rating": (make.gaps(make.numbers(4, 0.5, 1), 0.1), "number"),
        "description": (make.text(10, 25), "text"),
    }


def storms(make: Maker) -> Columns:
    return {
        "name": (make.pick(FIRST), "key"),
        "year": (make.integers(1975, 2020), "key"),
        "month": (make.pick([8, 9, 10, 7, 6]), "key"),
        "lat": (make.numbers(27, 9, 1), "number"),
        "status": (make.pick(["hurricane", "tropical storm"]), "key"),
        "category": (make.gaps(make.pick([1, 2, 3, 4, 5]), 0.75), "key"),
        "wind": ([5 * x for x in make.integers(2, 33)], "number"),
        "pressure": (make.integers(900, 1020), "number"),
    }


def ratings(make: Maker) -> Columns:
    movie = make.integers(1, 40)
    return {
        "movieId": (same(movie, lambda number: 31 * number), "copy"),
        "title": (same(movie, lambda number: f"The {WORDS[number % 26]} {FIRST[number % 20]}"), "key"),
        "genres": (same(movie, lambda number: "|".join(GENRES[number % 5 : number % 5 + 1 + number % 3])), "list"),
        "userId": (make.integers(1, 60), "key"),
        "rating": (same(make.integers(1, 10), lambda half: half / 2), "number"),
        "timestamp": (make.epochs(), "date"),
    }


def patients(make: Maker) -> Columns:
    return {
        "patient_id": (make.integers(1, 9)[:0] + list(range(5000, 5000 + ROWS)), "- id"),
        "age": (make.integers(1, 95), "number"),
        "sex": (make.pick(["female", "male"]), "key"),
        "icd_code": (make.pick([f"{letter}{i:02}.{i % 10}" for letter in "ABC" for i in range(15)]), "key"),
        "systolic": (make.integers(90, 190), "number"),
        "smoker": (make.gaps(make.pick(["No", "Yes"]), 0.2), "key"),
        "admitted": (make.dates("%d-%b-%Y"), "date"),
        "deceased": (make.gaps([1] * ROWS, 0.9), "key"),
        "notes": (make.gaps(make.text(8, 30), 0.3), "text"),
    }


def marks(make: Maker) -> Columns:
    return {
        "student": (make.pick([f"s{i}" for i in range(80)], 0), "key"),
        "lecturer": (make.integers(1, 30), "key"),
        "studage": (make.pick([2, 4, 6, 8]), "key"),
        "service": (make.pick([0, 1]), "key"),
        "y": (make.integers(1, 5), "key"),
    }


def cities(make: Maker) -> Columns:
    country = make.pick(COUNTRIES)
    names = [f"{('San', 'New', 'Bad', 'Port', 'Saint')[i % 5]} {word}" for i, word in enumerate(make.hex())]
    return {
        "geonameid": (same(make.codes(""), int), "- id"),
        "name": (names[:-8] + names[:8], "text"),
        "countrycode": (same(country, CODES.get), "copy"),
        "country": (country, "key"),
        "population": (make.amounts(40_000, 1.3), "number"),
        "latitude": (make.numbers(30, 25, 5), "number"),
        "timezone": (make.pick(["Europe/Paris", "Asia/Tokyo", "America/Lima"]), "key"),
    }


def payments(make: Maker) -> Columns:
    return {
        "transaction": (make.hex(), "- id"),
        "account": (make.pick([f"DE{i}00" for i in range(10, 60)]), "key"),
        "amount": (make.numbers(-20, 300), "number"),
        "currency": (make.pick(["EUR", "USD"]), "key"),
        "merchant": (make.pick(SHOPS), "key"),
        "date": (make.dates("%d.%m.%Y"), "date"),
        "time": (make.dates("%H:%M:%S"), "time"),
        "fraud": (make.pick([0, 1], 4), "key"),
    }


def jobs(make: Maker) -> Columns:
    titles = [f"{level} {role}" for level in ("Junior", "Senior") for role in ("Engineer", "Analyst", "Nurse")]
    return {
        "title": (make.pick(titles), "key"),
        "company": (make.pick(SHOPS), "key"),
        "salary_min": (make.amounts(40_000, 0.3), "number"),
        "salary_max": (make.gaps(make.amounts(60_000, 0.3), 0.2), "number"),
        "skills": (make.lists(["Python", "SQL", "Excel", "Java", "C++", "R"], ";"), "list"),
        "posted": (make.dates("%b %d, %Y"), "date"),
        "remote": (make.gaps(make.pick(["TRUE", "FALSE"]), 0.2), "key"),
        "description": (make.text(15, 30), "text"),
    }


def cars(make: Maker) -> Columns:
    make_of = make.pick(["Ford", "Toyota", "Fiat"])
    return {
        "VIN": (make.codes("1FTFW1ET"), "- id"),
        "make": (make_of, "key"),
        "model": ([f"{brand[0]}{i}" for brand, i in zip(make_of, make.integers(1, 5), strict=True)], "key"),
        "year": (make.integers(1998, 2020), "key"),
        "mileage": (make.amounts(70_000, 0.8), "number"),
        "cylinders": (make.pick([4, 6, 8]), "key"),
        "fuel": (make.pick(["gas", "diesel", "electric"]), "key"),
        "price": (make.amounts(12_000, 0.7), "number"),
    }


def reviews(make: Maker) -> Columns:
    return {
        "index": (list(range(ROWS)), "- id"),
        "hotel": (make.pick([f"Hotel {name}" for name in LAST]), "key"),
        "stars": (make.pick([5, 4, 3, 2, 1]), "key"),
        "review": (make.text(10, 40), "text"),
        "helpful": (make.amounts(3, 1.5), "number"),
        "verified": (make.pick(["yes", "no"]), "key"),
        "stayed": (make.dates("%Y/%m/%d"), "date"),
    }


def shares(make: Maker) -> Columns:
    ticker = make.pick(["AAPL", "MSFT", "IBM", "ORCL"])
    return {
        "Date": (make.dates("%Y-%m-%d"), "date"),
        "Ticker": (ticker, "key"),
        "Open": (make.amounts(100, 0.5, 2), "number"),
        "Close": (make.amounts(100, 0.5, 2), "number"),
        "Volume": (make.amounts(5_000_000, 1), "number"),
        "Sector": (["Technology"] * ROWS, "-"),
    }


def elections(make: Maker) -> Columns:
    candidate = make.pick(["Anna Kim", "Ben Rossi", "Eva Novak"])
    party = {"Anna Kim": "Reds", "Ben Rossi": "Blues", "Eva Novak": "Greens"}
    return {
        "year": (make.pick([2008, 2012, 2016, 2020], 0), "key"),
        "state": (make.pick(STATES), "key"),
        "county_fips": (make.pick([f"0{i}" for i in range(1001, 1060, 2)], 0), "key"),
        "candidate": (candidate, "key"),
        "party": (same(candidate, party.get), "copy"),
        "votes": (make.amounts(9000, 1.3), "number"),
    }


def books(make: Maker) -> Columns:
    return {
        "isbn13": (same(make.codes(""), lambda code: 9_780_000_000_000 + 7 * int(code)), "- id"),
        "title": (make.text(2, 6), "text"),
        "authors": (make.lists(NAMES, "; "), "list"),
        "publisher": (make.pick(SHOPS), "key"),
        "pages": (make.amounts(280, 0.4), "number"),
        "average_rating": (make.numbers(3.9, 0.3), "number"),
        "publication_date": (make.dates("%m/%d/%Y"), "date"),
        "language_code": (make.pick(["eng", "spa", "fre"], 2), "key"),
    }


def chess(make: Maker) -> Columns:
    return {
        "game": (make.hex(), "- id"),
        "white": (make.pick(FIRST), "key"),
        "black": (make.pick(LAST), "key"),
        "result": (make.pick(["1-0", "0-1", "1/2-1/2"]), "key"),
        "white_elo": (make.integers(1100, 2600), "number"),
        "eco": (make.pick([f"{letter}{i:02}" for letter in "ABCDE" for i in range(9)]), "key"),
        "rated": (make.pick([True, False]), "key"),
        "utc_date": (make.dates("%Y.%m.%d"), "date"),
        "utc_time": (make.dates("%H:%M:%S"), "time"),
    }


def rides(make: Maker) -> Columns:
    station = make.integers(1, 25)
    return {
        "start_time": (make.dates("%Y-%m-%dT%H:%M:%S"), "date"),
        "station_id": (same(station, lambda number: 100 + number), "copy"),
        "station_name": (same(station, lambda number: f"{WORDS[number]} corner"), "key"),
        "seconds": (make.amounts(600, 0.8), "number"),
        "user_type": (make.pick(["member", "casual"]), "key"),
        "birth_year": (make.gaps(make.integers(1950, 2000), 0.1), "key"),
        "gender": (make.pick([1, 2, 0]), "key"),
    }


def observations(make: Maker) -> Columns:
    genus = make.pick(["Turdus", "Corvus", "Parus", "Falco"])
    return {
        "species": ([f"{name} {WORDS[i]}us" for name, i in zip(genus, make.integers(0, 4), strict=True)], "key"),
        "genus": (genus, "key"),
        "lat": (make.numbers(47, 3, 4), "number"),
        "lon": (make.numbers(9, 4, 4), "number"),
        "count": (make.amounts(40, 1.5), "number"),
        "observer": (make.pick(NAMES), "key"),
        "observed": (make.dates("%d/%m/%Y"), "date"),
    }


def tickets(make: Maker) -> Columns:
    return {
        "ticket": (make.codes("TCK-"), "- id"),
        "subject": (make.text(3, 7), "text"),
        "priority": (make.pick(["low", "normal", "high"]), "key"),
        "opened": (make.dates("%Y-%m-%d %H:%M"), "date"),
        "closed": (make.gaps(make.dates("%Y-%m-%d %H:%M"), 0.3), "date"),
        "agent": (make.pick(NAMES[:15]), "key"),
        "resolved": (make.pick(["Resolved", "Open"]), "key"),
        "satisfaction": (make.gaps(make.pick([5, 4, 3, 2, 1]), 0.6), "key"),
        "minutes": (make.amounts(50, 1.2), "number"),
    }


def matches(make: Maker) -> Columns:
    home = make.pick(TOWNS)
    return {
        "Date": (make.dates("%d/%m/%Y"), "date"),
        "Season": (make.pick(["2018/19", "2019/20", "2020/21"]), "key"),
        "HomeTeam": (home, "copy"),
        "Stadium": (same(home, lambda town: f"{town} Park"), "key"),
        "AwayTeam": (make.pick(TOWNS), "key"),
        "HomeGoals": (make.pick([1, 0, 2, 3, 4]), "key"),
        "Attendance": (make.integers(8000, 60_000), "number"),
        "Referee": (make.gaps(make.pick(NAMES[:12]), 0.05), "key"),
    }


def images(make: Maker) -> Columns:
    vectors = make.rng.normal(size=(ROWS, 3)).round(3).tolist()
    return {
        "file": (same(make.hex(), lambda code: f"{code}.jpg"), "- id"),
        "label": (make.pick(["cat", "dog", "bird"]), "key"),
        "embedding": (same(vectors, str), "vector"),
        "width": ([640] * ROWS, "-"),
        "taken": (make.epochs(1000), "date"),
        "brightness": (make.numbers(0.5, 0.15, 3), "number"),
    }


def survey(make: Maker) -> Columns:
    return {
        "respondent": (list(range(1, ROWS + 1)), "- id"),
        "q1": (make.pick(LIKERT), "key"),
        "q2": (make.pick(LIKERT), "key"),
        "q3": (make.gaps(make.pick(LIKERT), 0.1), "key"),
        "age_group": (make.pick(["18-24", "25-34", "35-44", "45+"]), "key"),
        "comments": (make.gaps(make.text(5, 15), 0.5), "text"),
        "submitted": (make.dates("%Y-%m-%dT%H:%M:%SZ"), "date"),
        "empty": ([None] * ROWS, "-"),
    }


def visits(make: Maker) -> Columns:
    return {
        "session": (make.codes("v"), "- id"),
        "url": (same(make.hex(), lambda code: f"https://shop.example/item/{code}"), "-"),
        "browser": (make.pick(["Chrome", "Firefox", "Safari"]), "key"),
        "country": (make.gaps(make.pick(COUNTRIES), 0.02), "key"),
        "pages": (make.amounts(9, 1.2), "number"),
        "purchase": (make.pick(["n", "y"], 2), "key"),
        "hour": (make.integers(0, 23), "key"),
        "visited": (make.dates("%Y-%m-%d %H:%M:%S+00:00"), "date"),
    }


def sales(make: Maker) -> Columns:
    days = make.days()
    return {
        "sold": (same(days, lambda day: f"{day:%Y-%m-%d}"), "date"),
        "us_date": (same(days, lambda day: f"{day:%m/%d/%Y}"), "copy"),
        "day_text": (same(days, lambda day: f"{day:%B %d, %Y}"), "copy"),
        "ymd": (same(days, lambda day: int(f"{day:%Y%m%d}")), "copy"),
        "epoch": (same(days, lambda day: int((day - datetime(1970, 1, 1)).total_seconds())), "copy"),
        "date_key": (same(make.days(), lambda day: int(f"{day:%Y%m%d}")), "date"),
        "shop": (make.pick(SHOPS), "key"),
        "amount": (make.amounts(30, 0.9, 2), "number"),
    }


def imports(make: Maker) -> Columns:
    """As a program of another country writes them."""
    return {
        "product": (make.pick([f"{word} lamp" for word in WORDS]), "key"),
        "price": (same(make.amounts(900, 0.9, 2), lambda price: f"${price:,.2f}"), "number"),
        "preis": (same(make.amounts(90, 0.9, 2), lambda price: f"{price:.2f}".replace(".", ",")), "number"),
        "discount": (same(make.numbers(20, 5, 1), lambda share: f"{share}%"), "number"),
        "runtime": (same(make.integers(61, 190), lambda minutes: f"{minutes} min"), "number"),
        "warranty": (make.pick(["1 year", "2 years", "5 years"]), "key"),
        "size_code": (same(make.integers(10, 60), lambda number: f"{number}B"), "key"),
        "bought": (make.pick(["yes", "no"]), "key"),
    }


TABLES: list[Callable[[Maker], Columns]] = [
    orders, people, films, flights, sensors, songs, houses, requests, tweets, products, storms, ratings, patients,
    marks, cities, payments, jobs, cars, reviews, shares, elections, books, chess, rides, observations, tickets,
    matches, images, survey, visits, sales, imports,
]  # fmt: skip


def test_there_are_thirty_or_more() -> None:
    assert len(set(TABLES)) == len(TABLES) >= 30


@pytest.mark.thinned(2)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_choice_is_that_of_a_person(table: Callable[[Maker], Columns], seed: int, tmp_path: Path) -> None:
    """Of two samples, the same choice."""
    columns = table(Maker(seed))
    path = tmp_path / f"{table.__name__}.csv"
    pd.DataFrame({name: values for name, (values, _) in columns.items()}).to_csv(path, index=False)
    text, schema = proposed(str(path))
    choices = {name: _choice(name, text, schema) for name in columns}
    assert choices == {name: expected for name, (_, expected) in columns.items()}
    (line,) = [line for line in text.splitlines() if "--target" in line]
    assert TIME.search(line.split()[-1]) is None


def _choice(column: str, text: str, schema: Schema) -> str:
    names_rows = " id" if schema.id == column else ""
    group = next((group for group in schema.groups.values() if group.columns == (column,)), None)
    if group is None:
        is_copy = re.search(rf"^  # {column}:", text, re.MULTILINE) is not None
        return ("copy" if is_copy else "-") + names_rows
    extractor = group.extractor
    kinds = {"text_cnn": "text", "numeric": "number", "vector": "vector"}
    kind = kinds.get(extractor.type, "key")
    if isinstance(extractor, ItemsSpec):
        if extractor.parts:
            kind = "time" if extractor.dates in ("%H:%M", "%H:%M:%S") else "date"
        elif extractor.bins:
            kind = "number"
        elif extractor.bag:
            kind = "text" if extractor.split == "words" else "list"
    return kind + names_rows
