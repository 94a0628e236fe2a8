"""The questions as a user of diffprivlib puts them; it has no groups, so each is picked by hand."""

import numpy as np
from diffprivlib import tools

from benchmarks.questions.table import AGES, HOURS, OCCUPATIONS, SEXES

INTERVALS = False


def make_input(table):
    """Return what a user has: arrays."""
    return table


def counts_by_occupation(table, epsilon):
    return [
        tools.count_nonzero(table["occupation"] == each, epsilon=epsilon) for each in OCCUPATIONS
    ]


def median_age_by_sex(table, epsilon):
    age, sex = table["age"], table["sex"]
    return [tools.median(age[sex == each], epsilon=epsilon, bounds=AGES) for each in SEXES]


def mean_hours_by_occupation(table, epsilon):
    hours, own = table["hours"], table["occupation"]
    return [tools.mean(hours[own == each], epsilon=epsilon, bounds=HOURS) for each in OCCUPATIONS]


def total_of_hours(table, epsilon):
    return [tools.sum(table["hours"], epsilon=epsilon, bounds=HOURS)]


def standard_deviation_of_hours(table, epsilon):
    return [tools.std(table["hours"], epsilon=epsilon, bounds=HOURS)]


def cdf_of_age(table, epsilon):
    bins = AGES[1] + 1 - AGES[0]
    counts, _ = tools.histogram(
        table["age"], epsilon=epsilon, bins=bins, range=(AGES[0], AGES[1] + 1)
    )
    return np.cumsum(counts)[:-1]


# The functions that all questions use.
SHARED = ()
