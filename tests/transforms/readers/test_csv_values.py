"""What strings mean, as docs/csv.md says it, line by line; and each alone."""

import re
from collections.abc import Callable
from datetime import date, datetime, time, timezone
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dptrees.transforms.readers import csv_values
from dptrees.transforms.readers.csv_values import CsvTexts, DateFormat, moments, typed
from tests.transforms.every_case import check_every_case
from tests.transforms.readers.read_files import read_csv, text_plan

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "csv.md"
NUMBER, INTEGER, DAY, TEXT = pa.float64(), pa.int64(), pa.date32(), pa.string()
TIME, ZONED = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
CLOCK = pa.time64("us")
ABOVE_ALL = float("inf")


def page_rows(head: str) -> list[list[str]]:
    """Return the rows of the table of the page that has this head."""
    table = DOCUMENT.read_text().split(f"\n| {head} |")[1].split("\n\n")[0]
    rows = [line.removeprefix("| ").removesuffix(" |") for line in table.splitlines()[2:]]
    return [row.split(" | ") for row in rows]


def field(written: str) -> str | None:
    """The text of a field as it is written in a file, between backticks."""
    return values(f"value,b\n{'' if written == 'nothing' else written[1:-1]},\n")[0]


def values(text: str) -> list[str | None]:
    """The values of a file."""
    rows = read_csv(text.encode(), text_plan("value"), block=64, limit=64)
    return [value for (value,) in rows]


def one(text: str | None, arrow_type: pa.DataType, **rules: object) -> object:
    column_rules = CsvTexts(**rules).column_texts("x")
    value = typed(pa.array([text], TEXT), arrow_type, column_rules)[0].as_py()
    return None if value != value else value  # no number is missing too


def number(shown: str) -> float | None:
    words = {"missing": None, "above all": ABOVE_ALL}
    return words[shown] if shown in words else float(shown)


def check_text(written: str, *documented: str) -> None:
    text = field(written)
    assert one(text, NUMBER) == number(documented[0])
    assert one(text, INTEGER) == number(documented[1])
    day = None if documented[2] == "missing" else date.fromisoformat(documented[2])
    assert one(text, DAY) == day
    time = None if documented[3] == "missing" else datetime.fromisoformat(documented[3])
    assert one(text, TIME) == time
    words = {"missing": None, "an empty text": ""}
    assert one(text, TEXT) == words.get(documented[4], documented[4][1:-1])
    # A zone is needed where the bounds have one.
    assert (one(text, ZONED) is None) == (re.search(r"\d:\d\d(Z|-05:00)`$", written) is None)


def check_number(written: str, *documented: str) -> None:
    for rules, value in zip(MARKS, documented, strict=True):
        assert one(field(written), NUMBER, **rules) == number(value)
        assert one(f" {field(written)} ", NUMBER, **rules) == number(value)


def check_date(form: str, written: str, documented: str) -> None:
    day = None if documented == "missing" else date.fromisoformat(documented)
    assert one(field(written), DAY, date_format=form[1:-1]) == day


def check_line(line: str, what: str) -> None:
    if line.startswith("`"):
        found = values(f"b,value\n{line[1:-1]}\n")
        assert len(found) == what.startswith("a row")
        if "with the text" in what:
            assert found == [what.split("`")[1]]


@pytest.mark.parametrize(
    "head, check",
    [
        ("in the file | number | integer | date | time | text", check_text),
        ('in the file | `decimal: ","` | `thousands: ","`', check_number),
        ("format | in the file | date", check_date),
        ("line | what it is", check_line),
    ],
)
def test_what_the_page_says(head: str, check: Callable[..., None]) -> None:
    check_every_case(check, page_rows(head))


MARKS = ({"decimal": ","}, {"thousands": ","}, {"decimal": ",", "thousands": "."})


# Each text alone, in every dialect.

FORMATS = [
    *("%d.%m.%Y", "%m/%d/%y", "%Y%m%d", "%d %B %Y", "%b %d, %Y", "%Y-%m", "%A %d/%m/%Y"),
    *("%d.%m.%Y %H:%M:%S", "%m/%d/%Y %I:%M %p", "%Y-%m-%dT%H:%M:%S.%f"),
]
ODD = [
    *("", " ", "NA", "1,5", "1.5", "1.234,5", "1,234.5", " 7", "31.02.2024", "12%", "é", "09:30"),
    *("2024-07-04", "2013-02-31", "23:59:59.25", "inf", "nan", "-inf", "0x1F", "1e999", " 42"),
    *("+5", "1.", ".", "oops", "1234567890123456789"),
]
# What is surely a value of each type.
PATTERNS = {
    NUMBER: csv_values._PLAIN_NUMBER,
    INTEGER: csv_values._INTEGER,
    DAY: csv_values._DATE,
    TIME: csv_values._TIME,
    ZONED: csv_values._ZONED_TIME,
}
PLAIN = st.one_of(
    *(st.from_regex(pattern) for pattern in PATTERNS.values()),
    *(each.map(str) for each in (st.floats(), st.integers(-(2**70), 2**70), st.dates())),
)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2068, 12, 31))
HOW = st.builds(
    dict,
    decimal=st.sampled_from([".", ","]),
    thousands=st.sampled_from([None, " ", "'", "_"]),
    trim=st.booleans(),
    null_values=st.sampled_from([(), ("NA", "7"), ("",)]),
    date_format=st.sampled_from([None, *FORMATS[:7]]),
)


def check_fate(texts: list[str | None], arrow_type: pa.DataType, **rules: object) -> None:
    """Check that a text is read among others, and in a slice, as it is alone."""
    how = CsvTexts(**rules).column_texts("x")
    together = typed(pa.array(texts, TEXT), arrow_type, how)
    alone = pa.concat_arrays([typed(pa.array([text], TEXT), arrow_type, how) for text in texts])
    assert together.type == arrow_type and str(together) == str(alone)  # NaN as NaN
    assert str(typed(pa.array(["x", *texts], TEXT).slice(1), arrow_type, how)) == str(together)
    assert len(typed(pa.array([], TEXT), arrow_type, how)) == 0


@settings(max_examples=700, deadline=None)
@given(
    rules=st.just({}) | HOW,
    arrow_type=st.sampled_from([*PATTERNS, CLOCK, TEXT]),
    data=st.data(),
)
def test_a_text_s_fate_depends_on_it_alone(rules, arrow_type, data) -> None:
    dates = st.builds(lambda day, form: day.strftime(form), MOMENTS, st.sampled_from(FORMATS))
    numbers = st.builds(lambda each: f"{each:,.2f}", st.floats(-1e9, 1e9))
    odd = st.sampled_from(ODD) | st.text(max_size=4) | PLAIN
    one_of = st.none() | dates | numbers | odd
    texts = data.draw(st.lists(one_of, min_size=1, max_size=8))
    check_fate(texts, arrow_type, **rules)


def test_texts_that_once_changed_others() -> None:
    found = [["inf", "oops"], ["2013-02-31", "2013-02-28"], ["1234567890123456789", "oops", "0x1F"]]
    check_every_case(check_fate, product(found, PATTERNS))


@pytest.mark.parametrize("arrow_type", PATTERNS, ids=str)
@given(data=st.data())
def test_a_text_that_is_surely_a_value_is_one(arrow_type, data) -> None:
    text = data.draw(st.from_regex(PATTERNS[arrow_type])).removesuffix("\n")  # $ is the very end
    assert pc.cast(pa.array([text]), arrow_type).null_count == 0


def test_whole_numbers_with_a_decimal_point_are_integers() -> None:
    texts = pa.array(["3", "4.0", "-5.", "6.5", "7.0e1", None])
    assert typed(texts, INTEGER).to_pylist() == [3, 4, -5, None, 70, None]


VALUES = {
    NUMBER: [
        *("1", "-1.5", ".5", "1e-05", "+3", "inf", "-Infinity", "nan", "NAN(12)", "1E5", "0x1p3")
    ],
    INTEGER: ["1", "-12", "0x1F", "3.0", "+5", "1e3", "7.5"],
    DAY: ["2024-07-04", "0001-01-31", "9999-12-31"],
    TIME: ["2024-07-04", "2024-07-04 10", "2024-07-04T10:00", "2024-07-04 10:00:00.123456"],
    ZONED: ["2024-07-04 10Z", "2024-07-04T10:00:00.5+02:00", "2024-07-04 10:00-0230"],
}


@pytest.mark.parametrize("arrow_type", VALUES, ids=str)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_value_is_passed_over(arrow_type, data) -> None:
    """What is not even tried, since it is no value, is none: strings one or two letters off."""
    text = data.draw(st.sampled_from(VALUES[arrow_type]))
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.integers(0, len(text)))
        letter = data.draw(st.sampled_from([*"0123456789.,:;-+eEzZTxX_ '()/%$", "", "\u00a0", "٣"]))
        text = text[:place] + letter + text[place + data.draw(st.integers(0, 1)) :]
    text = text.strip()
    # As strings: Arrow has days that Python's dates do not reach.
    known = csv_values._value(pa.array([text]), arrow_type).cast(pa.string())[0].as_py()
    assert typed(pa.array([text, "x"]), arrow_type).cast(pa.string())[0].as_py() == known or (
        # A day is that of a time, and a fraction has six digits.
        known is None and re.search(r"\d[ T]\d\d|\.\d{7}", text)
    )


@settings(max_examples=200, deadline=None)
@given(form=st.sampled_from(FORMATS), when=MOMENTS)
def test_a_date_that_python_writes_is_read_as_python_reads_it(form, when) -> None:
    text = when.strftime(form)
    found = moments(pa.array([text, None], TEXT), DateFormat(form), TIME).to_pylist()
    assert found == [datetime.strptime(text, form), None]
    assert moments(pa.array([f" {text} "]), DateFormat(form), DAY)[0].as_py() == found[0].date()


@settings(max_examples=200, deadline=None)
@given(
    form=st.sampled_from(FORMATS), text=st.from_regex(r"[0-9]{1,2}[./ ][0-9]{1,2}[./ ][0-9]{2,4}")
)
def test_no_date_is_moved(form, text) -> None:
    """What Python refuses is missing, such as 31.02., but for numbers side by side."""
    try:
        expected = datetime.strptime(text, form)
    except ValueError:
        expected = None
    found = moments(pa.array([text]), DateFormat(form), TIME)[0].as_py()
    assert found == expected or (found is None and re.search(r"%d%|%m%", form))


def test_times_of_day() -> None:
    assert one("09:30", CLOCK) == time(9, 30)
    assert one(" 23:59:59 ", CLOCK) == time(23, 59, 59)
    assert one("09:30:15.250", CLOCK) == time(9, 30, 15, 250_000)
    assert one("09:30:15.123456789", CLOCK) == time(9, 30, 15, 123_456)
    none = ["24:00", "9:30", "09:30:60", "09", "09:30Z", "", None, "2024-07-04 09:30", "noon"]
    assert [text for text in [*none, "09:30:15."] if one(text, CLOCK) is not None] == []


def test_instants_and_offsets() -> None:
    how = DateFormat("%d/%m/%Y %H:%M %z")
    texts = pa.array(["04/07/2024 23:30 -05:00", "04/07/2024 00:30 +0200", "1/1/2024 1:2 Z", "x"])
    assert moments(texts, how, ZONED).to_pylist() == [
        datetime(2024, 7, 5, 4, 30, tzinfo=timezone.utc),
        datetime(2024, 7, 3, 22, 30, tzinfo=timezone.utc),
        datetime(2024, 1, 1, 1, 2, tzinfo=timezone.utc),
        None,
    ]
    # A day is the one that is written.
    assert moments(texts, how, DAY).to_pylist()[:2] == [date(2024, 7, 4), date(2024, 7, 4)]


ZONES = [
    *("Z", "UTC", "utc", "UCT", "GMT", "GMT0", "GMT+0", "GMT-0", "Zulu", "Universal", "Greenwich"),
    *("Etc/UTC", "Etc/UCT", "Etc/GMT", "Etc/GMT+0", "Etc/Zulu", "Etc/Universal", "Etc/Greenwich"),
]


def check_instants(zone: str, space: str, form: str | None) -> None:
    mark = "," if form and "," in form else "."
    rules = {} if form is None else {"date_format": form.format(space).replace("  ", " ")}
    rules = {key: each.replace("%f ", "%f") if not space else each for key, each in rules.items()}
    for fraction, microsecond in (("", 0), (f"{mark}5", 500_000), (f"{mark}250000", 250_000)):
        text = f"2024-07-04 10:00:00{fraction}{space}{zone}"
        when = datetime(2024, 7, 4, 10, 0, 0, microsecond, tzinfo=timezone.utc)
        assert one(text, ZONED, **rules) == when
        assert one(text, DAY, **rules) == date(2024, 7, 4)
        assert one(text, ZONED, **rules) != one(text.replace("04 10", "05 10"), ZONED, **rules)
    for wrong in (f"{mark}{space}{zone}", f"5{space}{zone}", f"{space}Etc/Z", f"{space}{zone}x"):
        assert one(f"2024-07-04 10:00:00{wrong}", ZONED, **rules) is None


@pytest.mark.parametrize("form", [None, "%Y-%m-%d %H:%M:%S.%f {}%z", "%Y-%m-%d %H:%M:%S,%f {}%z"])
def test_instants_in_utc_by_any_name_whose_fraction_may_be_zero(form: str | None) -> None:
    """BigQuery writes a fraction where it is not zero, and the zone by its name."""
    check_every_case(check_instants, product(ZONES, ["", " "], [form]))


def test_a_fraction_may_be_left_out_with_the_mark_before_it() -> None:
    tenths = {
        "%Y %H%M%S.%f": {"2024 101112": 0, "2024 101112.5": 5, "2024 101112.": None},
        "%Y.%f": {"2024": 0, "2024.5": 5, "2024,5": None},
        "%Y at.%f": {"2024 at.5": 5, "2024 at": 0, "2024": None},
        "%Y %f": {"2024 5": 5, "2024 ": None, "2024": None},
        "%Y%%.%f": {"2024%": 0, "2024%.5": 5},
    }
    for form, texts in tenths.items():
        found = {text: one(text, TIME, date_format=form) for text in texts}
        assert {text: at and at.microsecond // 100_000 for text, at in found.items()} == texts


def test_formats_that_are_refused() -> None:
    rules = {
        "%d/%m": "must contain %Y or %y, the year",
        "%Y %y": "has the year twice",
        "%Y %m %b": "has the month twice",
        "%Y %Y": "has the year twice",
        "%Y %I": "must contain both %I and %p",
        "%Y %q": "has %q; known are %Y",
        "%Y %": "has %; known are %Y",
    }
    for form, rule in rules.items():
        with pytest.raises(ValueError, match=re.escape(f"date_format: {form!r} {rule}")):
            DateFormat(form)


def test_columns_that_are_written_differently() -> None:
    texts = CsvTexts(null_values={"a": ("-",)}, date_format={"day": "%d.%m.%Y"})
    assert texts.column_texts("b") is texts.column_texts("c") is CsvTexts().column_texts("a")
    assert typed(pa.array(["-", "1"]), TEXT, texts.column_texts("a")).to_pylist() == [None, "1"]
    days = pa.array(["04.07.2024", "2024-07-04"])
    assert typed(days, DAY, texts.column_texts("day")).to_pylist() == [date(2024, 7, 4), None]
    assert typed(days, DAY, texts.column_texts("other")).to_pylist() == [None, date(2024, 7, 4)]
    # A sentinel among numbers, whatever is around it.
    nulls = CsvTexts(null_values=("-999",)).column_texts("x")
    assert typed(pa.array(["-999", " -999 ", "1"]), INTEGER, nulls).to_pylist() == [None, None, 1]
    assert typed(pa.array(["-999", " -999 "]), TEXT, nulls).to_pylist() == [None, " -999 "]


def test_space_between_thousands() -> None:
    for space in (" ", "\u00a0", "\u202f"):
        assert one(f"1{space}234,5", NUMBER, decimal=",", thousands=" ") == 1234.5
    assert one("1\u2019234", INTEGER, thousands="'") == 1234
    with pytest.raises(ValueError, match="thousands: ',' is the decimal mark too"):
        CsvTexts(decimal=",", thousands=",")
    with pytest.raises(ValueError, match="decimal: ';' must be"):
        CsvTexts(decimal=";")
    with pytest.raises(ValueError, match="thousands: 'x' must be one of"):
        CsvTexts(thousands="x")
