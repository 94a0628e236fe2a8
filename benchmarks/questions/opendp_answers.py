"""The questions as a user of OpenDP puts them, by its interface for Polars."""

import opendp.prelude as dp
import polars as pl

from benchmarks.questions.table import AGES, HOURS, OCCUPATIONS, SEXES

dp.enable_features("contrib")
INTERVALS = False
MOST_ROWS = 60_000


def make_input(table):
    """Return what a user has: a lazy frame."""
    return pl.DataFrame(table).lazy()


def context(frame, epsilon, *by):
    """Begin a query of one question; the groups are public."""
    margins = [dp.polars.Margin(max_length=MOST_ROWS)]
    margins += [dp.polars.Margin(by=by, max_length=MOST_ROWS, invariant="keys")] if by else []
    return dp.Context.compositor(
        data=frame,
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=epsilon),
        split_evenly_over=1,
        margins=margins,
    ).query()


def counts_by_occupation(frame, epsilon):
    query = context(frame, epsilon, "occupation").group_by("occupation").agg(dp.len())
    found = dict(query.release().collect().iter_rows())
    return [found[each] for each in OCCUPATIONS]


def median_age_by_sex(frame, epsilon):
    values = list(range(AGES[0], AGES[1] + 1))
    median = pl.col("age").fill_null(0).dp.median(candidates=values)
    query = context(frame, epsilon, "sex").group_by("sex").agg(median)
    found = dict(query.release().collect().iter_rows())
    return [found[each] for each in SEXES]


def mean_hours_by_occupation(frame, epsilon):
    mean = pl.col("hours").fill_null(0).dp.mean(bounds=HOURS)
    query = context(frame, epsilon, "occupation").group_by("occupation").agg(mean)
    found = dict(query.release().collect().iter_rows())
    return [found[each] for each in OCCUPATIONS]


def total_of_hours(frame, epsilon):
    query = context(frame, epsilon).select(pl.col("hours").fill_null(0).dp.sum(bounds=HOURS))
    return query.release().collect().row(0)


def number_of_countries(frame, epsilon):
    query = context(frame, epsilon).select(pl.col("country").dp.n_unique())
    return query.release().collect().row(0)


# The functions that all questions use.
SHARED = (context,)
