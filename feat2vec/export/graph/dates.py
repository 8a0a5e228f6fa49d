"""Dates inside a TensorFlow graph: text to microseconds, and to the parts of a date."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from feat2vec.model.pair_scores import Tensor
from feat2vec.table.keys import WEEKDAYS
from feat2vec.table.spelling import DATE as DATE_OF_KEY

# year-month-day, hour:minute:second, and an offset from UTC
DATE = (
    r"^\s*(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d)(?::(\d\d)(?::(\d\d(?:\.\d{1,6})?))?)?)?"
    r"(?:Z|([-+])(\d\d)(?::?(\d\d))?)?\s*$"
)
DAY, HOUR, MINUTE = 86_400_000_000, 3_600_000_000, 60_000_000  # in microseconds

# Days are counted by the algorithms of Howard Hinnant ("chrono-compatible low-level date algorithms", 2013). Years
# begin in March, so that a leap day ends one; an era is 400 years, which have 146,097 days.
DAYS_OF_400_YEARS = 146_097
DAYS_BEFORE_1970 = 719_468  # since the 1st of March of the year 0


def timestamps(texts: Tensor, column: str) -> tuple[Tensor, Tensor]:
    """Dates such as 2024-01-31 or 2024-01-31T10:30:00+02:00 as microseconds since 1970, and which are not missing.

    Args:
        texts: Text [batch], empty where it is missing.
        column: The column's name, for messages.

    Returns:
        Microseconds [batch], int64, and booleans [batch].

    """
    is_present = tf.strings.strip(texts) != ""
    texts = tf.where(is_present, texts, "1970-01-01")
    message = f"{column}: dates such as 2024-01-31 or 2024-01-31 10:30:00 are needed"
    has_form = tf.strings.regex_full_match(texts, DATE)
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(has_form), [message])]):
        texts = tf.identity(texts)

    def number(group: int, dtype: tf.DType = tf.int64) -> Tensor:
        return tf.strings.to_number(tf.strings.regex_replace(texts, DATE, f"0\\{group}"), dtype)

    year, month, day = number(1), number(2), number(3)
    days = _days_since_1970(year, month, day)
    civil_year, civil_month, civil_day = _civil_date(days)
    exists = tf.reduce_all([year == civil_year, month == civil_month, day == civil_day])  # no 30th of February
    second_micros = tf.cast(tf.round(number(6, tf.float64) * 1e6), tf.int64)
    is_west = tf.strings.regex_replace(texts, DATE, r"\7") == "-"
    offset_minutes = (number(8) * 60 + number(9)) * tf.where(is_west, tf.constant(-1, tf.int64), 1)
    with tf.control_dependencies([tf.debugging.Assert(exists, [message])]):
        micros = days * DAY + number(4) * HOUR + (number(5) - offset_minutes) * MINUTE + second_micros
    return micros, is_present


ZONE = r"^(Z|[-+])(\d\d)?:?(\d\d)?$"


def instants(texts: Tensor) -> Tensor:
    """What `feat2vec.table.spelling.instants` gives for text [batch], but empty text for what is no date."""
    has_form = tf.strings.regex_full_match(texts, DATE_OF_KEY)
    texts = tf.where(has_form, texts, "1970-01-01")

    def part(group: int) -> Tensor:
        return tf.strings.regex_replace(texts, DATE_OF_KEY, f"\\{group}")

    def number(text: Tensor) -> Tensor:
        return tf.strings.to_number(tf.strings.join(["0", text]), tf.int64)

    year, month, day, hour, minute, second = (number(part(group)) for group in range(1, 7))
    fraction, zone = tf.strings.regex_replace(part(7), "0*$", "", replace_global=False), part(8)
    days = _days_since_1970(year, month, day)
    civil_year, civil_month, civil_day = _civil_date(days)
    zone_hours, zone_minutes = (number(tf.strings.regex_replace(zone, ZONE, f"\\{group}")) for group in (2, 3))
    is_day = tf.reduce_all([year == civil_year, month == civil_month, day == civil_day], axis=0)
    is_time = tf.reduce_all([hour < 24, minute < 60, second < 60, zone_hours < 24, zone_minutes < 60], axis=0)
    sign = tf.where(tf.strings.substr(zone, 0, 1) == "-", tf.constant(-1, tf.int64), 1)
    minutes = (days * 24 + hour) * 60 + minute - sign * (zone_hours * 60 + zone_minutes)
    seconds = tf.strings.as_string(minutes * 60 + second)
    point = tf.where(fraction != "", ".", "")
    text = tf.strings.join([seconds, point, fraction, tf.where(zone != "", "Z", "")])
    return tf.where(has_form & is_day & is_time, text, "")


def date_parts(micros: Tensor, is_present: Tensor, parts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Keys `part=value` [batch, parts] of dates in microseconds [batch], and which are not missing, [batch, parts]."""
    days = micros // DAY
    year, month, day = _civil_date(days)
    numbers = {"year": year, "quarter": (month + 2) // 3, "month": month, "day": day, "hour": micros // HOUR % 24}
    texts = {part: tf.strings.as_string(number) for part, number in numbers.items()}
    texts["weekday"] = tf.gather(tf.constant(WEEKDAYS), (days + 3) % 7)  # 1970 began on a Thursday
    keys = tf.stack([tf.strings.join([f"{part}=", texts[part]]) for part in parts], axis=1)
    return keys, tf.repeat(is_present[:, None], len(parts), axis=1)


def _days_since_1970(year: Tensor, month: Tensor, day: Tensor) -> Tensor:
    year = tf.where(month <= 2, year - 1, year)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - DAYS_BEFORE_1970


def _civil_date(days: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Year, month and day of days since 1970."""
    days += DAYS_BEFORE_1970
    era, day_of_era = days // DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS
    leap_days = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leap_days) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = tf.where(month_from_march < 10, month_from_march + 3, month_from_march - 9)
    year = era * 400 + year_of_era + tf.cast(month <= 2, tf.int64)
    return year, month, day
