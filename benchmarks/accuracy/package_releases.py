"""Releases by packages from PyPI, made by a Python that has them.

``python package_releases.py`` reads requests as lines of JSON and answers each with a line of JSON,
arrays lying in files. It imports nothing of this project.

The input is counts of cells, and rows are made of them only for what needs rows. Everything
is as a user would call it with a row as the unit: one partition a row, the cells being public.
"""

import json
import sys

import numpy as np
import opendp.prelude as dp
from pipeline_dp import aggregate_params, budget_accounting, dp_computations
from pipeline_dp.combiners import QuantileAccumulator
from pydp.algorithms.laplacian import Percentile

dp.enable_features("contrib", "idealized-numerics")


class NothingFor(Exception):
    """A package has no answer under this budget."""


def noised(counted, request):
    """OpenDP's exact noise on what counts, of scale as small as the budget allows."""
    then = dp.m.then_laplace if request["measure"] == "epsilon" else dp.m.then_gaussian
    return dp.binary_search_chain(
        lambda scale: counted >> then(scale=scale), d_in=1, d_out=request["amount"], T=float
    )


def vector(request, cells):
    """The space of counts of cells."""
    metric = dp.l1_distance if request["measure"] == "epsilon" else dp.l2_distance
    kind = "i64" if request["measure"] == "epsilon" else "f64"
    return dp.vector_domain(dp.atom_domain(T="i64"), size=cells), metric(T=kind)


def opendp_histogram(counts, request):
    """Noise on the count of every cell."""
    release = noised(vector(request, counts.size), request)
    for _ in range(request["releases"]):
        yield np.cumsum(release(counts.tolist())), None


def opendp_tree(counts, request):
    """A tree of OpenDP's own fan-out, made consistent, and its own quantiles of that."""
    if request["measure"] != "epsilon":
        raise NothingFor("its tree takes l1 alone")
    fanout = dp.t.choose_branching_factor(size_guess=int(counts.sum()))
    tree = dp.t.make_b_ary_tree(
        *vector(request, counts.size), leaf_count=counts.size, branching_factor=fanout
    )
    release, consistent = noised(tree, request), dp.t.make_consistent_b_ary_tree(fanout)
    quantiles = dp.t.make_quantiles_from_counts(
        bin_edges=[float(edge) for edge in range(counts.size + 1)],
        alphas=request["quantiles"],
        F=float,
        TA=float,
    )
    for _ in range(request["releases"]):
        cells = consistent(release(counts.tolist()))
        yield np.cumsum(cells), quantiles(cells)


def repeat_cells(counts):
    """Repeat each cell as often as it has rows."""
    return np.repeat(np.arange(counts.size), counts).tolist()


def opendp_quantiles(counts, request):
    """The exponential mechanism, or its better relatives, for each quantile by itself."""
    share = request["amount"] / len(request["quantiles"])
    pure = request["measure"] == "epsilon"
    measure = dp.max_divergence() if pure else dp.zero_concentrated_divergence()
    space = dp.vector_domain(dp.atom_domain(T="i32")), dp.symmetric_distance()

    def release(quantile):
        def with_scale(scale):
            return dp.m.make_private_quantile(
                *space, measure, candidates=list(range(counts.size)), alpha=quantile, scale=scale
            )

        return dp.binary_search_chain(with_scale, d_in=1, d_out=share, T=float)

    releases, rows = [release(each) for each in request["quantiles"]], repeat_cells(counts)
    for _ in range(request["releases"]):
        yield None, [each(rows) for each in releases]


def pure_alone(request):
    """Refuses rho."""
    if request["measure"] != "epsilon":
        raise NothingFor("has no rho")


def pipeline_dp_counts(counts, request):
    """What its combiner of counts adds to each partition."""
    pure_alone(request)
    mechanism = dp_computations.LaplaceMechanism.create_from_epsilon(request["amount"], 1.0)
    for _ in range(request["releases"]):
        yield np.cumsum([mechanism.add_noise(int(each)) for each in counts]), None


def pipeline_dp_quantiles(counts, request):
    """Its combiner of percentiles: the tree of Google's library, 16^4 leaves from 0 to K."""
    pure_alone(request)
    kept = QuantileAccumulator(0, counts.size)
    for cell in repeat_cells(counts):
        kept.add_entry(cell + 0.5)
    if kept.tree is None:
        kept.create_tree()
    spec = budget_accounting.MechanismSpec(
        mechanism_type=aggregate_params.MechanismType.LAPLACE,
        _eps=request["amount"],
        _delta=0,
    )
    for _ in range(request["releases"]):
        percentiles = dp_computations.compute_dp_quantiles(
            kept.tree, spec, request["quantiles"], 1, 1
        )
        yield None, percentiles


def pydp_percentiles(counts, request):
    """Its percentile for each quantile by itself."""
    pure_alone(request)
    share = request["amount"] / len(request["quantiles"])
    rows = [cell + 0.5 for cell in repeat_cells(counts)]
    for _ in range(request["releases"]):
        yield (
            None,
            [
                Percentile(
                    epsilon=share,
                    percentile=each,
                    lower_bound=0,
                    upper_bound=counts.size,
                    dtype="float",
                ).quick_result(rows)
                for each in request["quantiles"]
            ],
        )


METHODS = {
    "OpenDP, histogram": opendp_histogram,
    "OpenDP, tree": opendp_tree,
    "OpenDP, quantiles": opendp_quantiles,
    "PipelineDP, counts": pipeline_dp_counts,
    "PipelineDP, quantiles": pipeline_dp_quantiles,
    "PyDP, percentiles": pydp_percentiles,
}


def answered(request):
    """Writes the answers of a request, and says what there is."""
    counts = np.load(request["counts"])
    try:
        found = list(METHODS[request["method"]](counts, request))
    except NothingFor as nothing:
        return {"absent": str(nothing)}
    arrays = {}
    for place, name in enumerate(("prefixes", "quantiles")):
        if found and found[0][place] is not None:
            arrays[name] = np.array([each[place] for each in found], float)
    np.savez(request["answers"], **arrays)
    return {"written": sorted(arrays)}


def main():
    """Answers until there are no more requests."""
    for line in sys.stdin:
        print(json.dumps(answered(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
