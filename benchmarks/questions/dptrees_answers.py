"""The questions as a user of this project puts them."""

import pandas as pd

import dptrees
from benchmarks.questions.table import AGES, HOURS, OCCUPATIONS, SEXES

# Each answer has an interval for the true one.
INTERVALS = True


def make_input(table):
    """Return what a user has: a DataFrame."""
    return pd.DataFrame(table)


def counts_by_occupation(frame, epsilon):
    request = dptrees.of(frame, epsilon=epsilon).count("occupation", OCCUPATIONS)
    return request.release()["occupation"].nodes(level=1)["estimate"]


def median_age_by_sex(frame, epsilon):
    request = dptrees.of(frame, epsilon=epsilon).by("sex", SEXES).median("age", AGES)
    return request.release()["age"].median()["value"]


def mean_hours_by_occupation(frame, epsilon):
    request = dptrees.of(frame, epsilon=epsilon).by("occupation", OCCUPATIONS).mean("hours", HOURS)
    return request.release()["hours"].mean()["value"]


def total_of_hours(frame, epsilon):
    request = dptrees.of(frame, epsilon=epsilon).total("hours", HOURS)
    return request.release()["hours"].total()["value"]


def standard_deviation_of_hours(frame, epsilon):
    request = dptrees.of(frame, epsilon=epsilon).metrics("hours", ["std"], HOURS)
    return request.release()["hours"].std()["value"]


def number_of_countries(frame, epsilon):
    request = dptrees.of(frame, epsilon=epsilon).distinct("country")
    return request.release()["country"].top()["estimate"]


def cdf_of_age(frame, epsilon):
    request = dptrees.of(frame, epsilon=epsilon).cdf("age", AGES)
    return request.release()["age"].cdf()["count"][:-1]


# The functions that all questions use.
SHARED = ()
