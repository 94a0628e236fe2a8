"""Answers of PyDP and dpmm, by a Python that has one of them; imports nothing of this project.

``python peer_releases.py FOLDER`` reads FOLDER/request.json and FOLDER/rows.npy, and writes
FOLDER/answers.npy: a mean of each release (not a number: the package refused), or synthetic rows.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np


def means(rows, request):
    """Means of PyDP, whose bounds it chooses itself."""
    from pydp.algorithms.laplacian import BoundedMean

    values = rows.tolist()
    for _ in range(request["releases"]):
        try:
            yield BoundedMean(epsilon=request["epsilon"], dtype="float").quick_result(values)
        except RuntimeError:
            yield float("nan")


def tables(rows, request):
    """Synthetic rows of dpmm, at a delta of 1e-9."""
    import pandas as pd
    from dpmm.models.aim import AIMGM
    from dpmm.models.mst import MSTGM

    names = [f"c{each}" for each in range(rows.shape[1])]
    domain = dict(zip(names, request["sizes"], strict=True))
    frame = pd.DataFrame(rows, columns=names)
    for seed in range(request["releases"]):
        if request["method"] == "AIM":
            kind, further = AIMGM, {"rounds": 2 * len(names), "max_model_size": 8}
        else:
            kind, further = MSTGM, {}
        model = kind(
            epsilon=request["epsilon"],
            delta=1e-9,
            domain=domain,
            n_jobs=1,
            n_iters=200,
            **further,
        )
        model.set_domain(domain)
        model.set_random_state(np.random.RandomState(seed))
        model.fit(frame)
        yield model.generate(n_records=len(frame))[names].to_numpy().astype(np.int64)


def main():
    """Answer one request."""
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    answer = means if request["method"] == "PyDP" else tables
    np.save(folder / "answers.npy", np.array(list(answer(np.load(folder / "rows.npy"), request))))


if __name__ == "__main__":
    main()
