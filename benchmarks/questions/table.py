"""The table of the questions, and their true answers; it imports nothing but NumPy.

Its shape is that of the UCI Adult data (48,842 rows), its values are made up.
"""

import numpy as np

ROWS = 48_842
SEXES = ["Female", "Male"]
OCCUPATIONS = [f"occupation {number:02d}" for number in range(15)]
AGES, HOURS = (17, 90), (1, 99)


def make_table():
    """Return the columns by name."""
    random = np.random.default_rng(2013)
    weights = 1 / np.arange(1, 16)
    occupation = random.choice(OCCUPATIONS, ROWS, p=weights / weights.sum())
    sex = random.choice(SEXES, ROWS, p=[0.33, 0.67])
    usual = random.random(ROWS) < 0.45
    hours = np.where(usual, 40, random.normal(39, 14, ROWS).round())
    return {
        "occupation": occupation,
        "sex": sex,
        "age": np.clip(random.gamma(5, 8, ROWS), *AGES).astype(np.int64),
        "hours": np.clip(hours, *HOURS).astype(np.int64),
        "country": np.minimum(random.geometric(0.12, ROWS), 42).astype(np.int64),
    }


def true_answers(table):
    """Return the true answer to each question, (n,) numbers."""
    occupation, sex, age, hours = (table[name] for name in ("occupation", "sex", "age", "hours"))
    return {
        "counts by occupation": [np.sum(occupation == each) for each in OCCUPATIONS],
        "median age by sex": [
            np.quantile(age[sex == each], 0.5, method="inverted_cdf") for each in SEXES
        ],
        "mean hours by occupation": [hours[occupation == each].mean() for each in OCCUPATIONS],
        "total of hours": [hours.sum()],
        "standard deviation of hours": [hours.std()],
        "number of countries": [len(np.unique(table["country"]))],
        "CDF of age": [np.sum(age < value) for value in range(AGES[0] + 1, AGES[1] + 1)],
    }
