"""One package answers the questions: ``python -m benchmarks.questions.answering PACKAGE RELEASES``.

It prints a line of JSON, and imports nothing of this project but the table and the answers of the
package, so that the Python of the other packages can run it.
"""

import importlib
import inspect
import json
import sys
import time
import warnings

from benchmarks.questions.table import make_table, true_answers

EPSILON = 1.0


def answered(package, releases):
    """Return what is measured of each question: lines, seconds of one answer, error; or why not."""
    table, found = make_table(), {}
    true = true_answers(table)
    begun = time.perf_counter()
    try:
        answers = importlib.import_module(f"benchmarks.questions.{package}_answers")
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {str(error)[:90]}"}
    seconds = time.perf_counter() - begun
    given = answers.make_input(table)
    shared = sum(map(lines, answers.SHARED))
    for question, expected in true.items():
        answer = getattr(answers, question.lower().replace(" ", "_"), None)
        if answer is not None:
            found[question] = measured(answer, given, expected, releases)
            found[question]["shared"] = shared
    first = seconds + next((each["first"] for each in found.values() if "first" in each), 0.0)
    return {"import": first, "intervals": answers.INTERVALS, "questions": found}


def lines(function):
    """Return how many lines the body of a function has, without what describes it."""
    body = inspect.getsource(function).strip().splitlines()[1:]
    return len([line for line in body if line.strip() and not line.strip().startswith('"""')])


def measured(answer, given, expected, releases):
    """Return the lines, the median seconds and the root mean square error of one answer."""
    squares, seconds = [], []
    for _ in range(releases):
        begun = time.perf_counter()
        try:
            numbers = list(answer(given, EPSILON))
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {str(error)[:90]}"}
        seconds.append(time.perf_counter() - begun)
        assert len(numbers) == len(expected), (numbers, expected)
        squares += [
            (float(one) - float(other)) ** 2 for one, other in zip(numbers, expected, strict=True)
        ]
    first = seconds[0]
    return {
        "first": first,
        "lines": lines(answer),
        "seconds": sorted(seconds)[len(seconds) // 2],
        "rmse": (sum(squares) / len(squares)) ** 0.5,
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(answered(sys.argv[1], int(sys.argv[2]))))
