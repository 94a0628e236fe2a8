"""The questions as a user of PipelineDP puts them, on its local backend."""

import pipeline_dp
from pipeline_dp import Metrics

from benchmarks.questions.table import AGES, HOURS, OCCUPATIONS, SEXES

INTERVALS = False


def make_input(table):
    """Return what a user has: rows, each with an id."""
    columns = [range(len(table["age"])), *(each.tolist() for each in table.values())]
    return list(zip(*columns, strict=True))


OCCUPATION, SEX, AGE, HOURS_PLACE = 1, 2, 3, 4


def aggregate(rows, epsilon, metric, group, keys, value, bounds):
    """Return the metric of each group; the groups are public."""
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=0)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        metrics=[metric],
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
        min_value=bounds[0],
        max_value=bounds[1],
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=(lambda row: row[group]) if group else (lambda row: "all"),
        value_extractor=lambda row: row[value],
    )
    found = engine.aggregate(rows, params, extractors, public_partitions=keys)
    accountant.compute_budgets()
    results = dict(found)
    return [results[each][0] for each in keys]


def counts_by_occupation(rows, epsilon):
    return aggregate(rows, epsilon, Metrics.COUNT, OCCUPATION, OCCUPATIONS, HOURS_PLACE, HOURS)


def median_age_by_sex(rows, epsilon):
    return aggregate(rows, epsilon, Metrics.PERCENTILE(50), SEX, SEXES, AGE, AGES)


def mean_hours_by_occupation(rows, epsilon):
    return aggregate(rows, epsilon, Metrics.MEAN, OCCUPATION, OCCUPATIONS, HOURS_PLACE, HOURS)


def total_of_hours(rows, epsilon):
    return aggregate(rows, epsilon, Metrics.SUM, None, ["all"], HOURS_PLACE, HOURS)


def standard_deviation_of_hours(rows, epsilon):
    variance = aggregate(rows, epsilon, Metrics.VARIANCE, None, ["all"], HOURS_PLACE, HOURS)
    return [max(0.0, variance[0]) ** 0.5]


# The functions that all questions use.
SHARED = (aggregate,)
