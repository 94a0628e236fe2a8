"""A released sparse tree answers from its tables alone: paths, children, the largest, and what can
be said of nodes that are not there. Limits have false alarms below 1e-6; the keys are fixed."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dptrees.dpcore.noise.randomness import ReleaseKey
from dptrees.dpcore.noise.source import KeyedChoices
from dptrees.dpcore.privacy.unit import ADD_REMOVE_ROW
from dptrees.dpcore.questions.released import NODES_SCHEMA
from dptrees.dpcore.questions.sparse_counts import NodeCounts
from dptrees.dpcore.release.released import ReleaseReader, release_counts
from dptrees.dpcore.sparse.domain import CodeDomain, SparseDomain
from dptrees.dpcore.sparse.labels import LabelDomain, PathDomain
from dptrees.dpcore.sparse.plan import plan_sparse
from dptrees.dpcore.sparse.question import SparseQuestion
from dptrees.dpcore.sparse.released import ReleasedSparse
from tests.dpcore.sparse.counts import counts_by_path, exact_levels, release_plan

EPSILON, DELTA = Fraction(3), Fraction(1, 100)
RNG = np.random.default_rng(8)
SIZE = 3000
LABELS = ["a", "b/c", "d\\", "e", "-"]
ROWS = pa.table(
    {
        "code": np.minimum(RNG.geometric(0.03, SIZE) - 1, 255),
        "x": pa.array([LABELS[n] for n in np.minimum(RNG.geometric(0.5, SIZE) - 1, 4)]),
        "y": pa.array([LABELS[n] for n in np.minimum(RNG.geometric(0.4, SIZE) - 1, 4)]),
        "path": pa.array(
            [["a", "a/b", "a/b/c", "b/c/d/e", "ab/c"][n] for n in RNG.integers(0, 5, SIZE)]
        ),
    }
)

CHOICES = KeyedChoices(key=ReleaseKey(bytes(32)), release="release")
DOMAINS: dict[str, SparseDomain] = {
    "codes": CodeDomain(column="code", widths=(2, 2, 4), notation="hex"),
    "labels": LabelDomain(label_columns=("x", "y")),
    "paths": PathDomain(column="path", depth=3),
}


def question(form: str, *, prune: int = 0, **fields: Any) -> SparseQuestion:
    domain = DOMAINS[form]
    plan = plan_sparse(domain.names, EPSILON, DELTA, ADD_REMOVE_ROW)
    return SparseQuestion(
        name=form, domain=domain, plan=plan, prune_below=prune, shards=3, **fields
    )


def exact_leaves(domain: SparseDomain) -> NodeCounts:
    return domain.leaf_counts({name: ROWS[name] for name in ROWS.column_names})


def released(*questions: SparseQuestion, run: int = 0) -> ReleaseReader:
    leaves = {each.name: exact_leaves(each.domain) for each in questions}
    return release_counts(release_plan(*questions), leaves, ReleaseKey(run.to_bytes(32, "big")))


def exact_counts(form: str) -> list[dict[str, int]]:
    """Per level, the rows of every node by its path."""
    return counts_by_path(DOMAINS[form], exact_leaves(DOMAINS[form]))


def read_tree(release: ReleaseReader, form: str) -> ReleasedSparse:
    tree = release.tree(form)
    assert isinstance(tree, ReleasedSparse)
    return tree


@pytest.fixture(scope="module", params=[0, 30], ids=["every node", "pruned"])
def release(request: pytest.FixtureRequest) -> ReleaseReader:
    return released(*(question(form, prune=request.param) for form in DOMAINS))


@pytest.mark.parametrize("form", DOMAINS)
def test_every_released_node_is_found_by_its_path(release: ReleaseReader, form: str) -> None:
    tree, total = read_tree(release, form), read_tree(release, form).at_path("").count
    for level in range(tree.question.plan.height + 1):
        rows = tree.rows(level)
        assert rows.schema == NODES_SCHEMA and set(rows["level"].to_pylist()) == {level}
        labels = rows["label"].to_pylist()
        assert len(set(labels)) == len(labels)
        for row in rows.to_pylist():
            answer = tree.at_path(row["label"])
            for name in ("label", "estimate", "std_error", "ci_low", "ci_high", "count"):
                assert getattr(answer, name) == row[name]
            assert answer.fraction == row["count"] / total


@pytest.mark.parametrize("form", DOMAINS)
def test_children_are_the_nodes_one_label_below(release: ReleaseReader, form: str) -> None:
    tree, domain = read_tree(release, form), DOMAINS[form]
    height, released_below = tree.question.plan.height, 0
    for level in range(height):
        below = tree.rows(level + 1).to_pylist()
        parents = parent_paths(domain, level + 1, [row["label"] for row in below], form)
        for row in tree.rows(level).to_pylist():
            children = tree.children(row["label"])
            expected = [
                child["label"]
                for child, parent in zip(below, parents, strict=True)
                if parent == row["label"]
            ]
            assert [child.label for child in children] == expected
            assert sum(child.count for child in children) <= row["count"]
            released_below += len(children)
    # Every node but the root is somebody's child.
    assert released_below == sum(len(tree.rows(level)) for level in range(1, height + 1))


def parent_paths(domain: SparseDomain, level: int, paths: list[str], form: str) -> list[str]:
    """The paths of parents, from the exact tree: it knows the keys behind the paths."""
    keys = exact_levels(domain, exact_leaves(domain))[level].keys
    own = domain.paths(level, keys).to_pylist()
    above = domain.paths(level - 1, domain.parent_keys(level, keys)).to_pylist()
    known = dict(zip(own, above, strict=True))
    return [known[path] for path in paths]


@pytest.mark.parametrize("form", DOMAINS)
def test_the_largest_of_a_level(release: ReleaseReader, form: str) -> None:
    tree = read_tree(release, form)
    for level, name in enumerate(tree.level_names):
        assert tree.find_level(name) == level == tree.find_level(str(level))
        rows = tree.rows(level).to_pylist()
        order = sorted(rows, key=lambda row: -row["count"])
        for number in (1, 2, 100):
            found = [answer.label for answer in tree.top(number, level)]
            assert found == [row["label"] for row in order[:number]]


def test_refusals(release: ReleaseReader) -> None:
    tree = read_tree(release, "labels")
    most = {level: tree.question.unpublished_most(level) for level in (1, 2)}
    for path, level in (("z", 1), ("a/z", 2), ("b/c", 2)):  # the label b/c is written b\/c
        with pytest.raises(ValueError, match=f"so it has from 0 to {most[level]} rows$"):
            tree.at_path(path)
        with pytest.raises(ValueError, match="no node of this path with children"):
            tree.children(path)
    assert tree.at_path("/") == tree.at_path("")
    for path in ("a/", "//", "a/b/c", "a\\b"):
        for query in (tree.at_path, tree.children):
            with pytest.raises(ValueError, match=r"^path [^:]*: (it has|a backslash)"):
                query(path)
    with pytest.raises(ValueError, match="its length /1 is none of"):
        read_tree(release, "codes").at_path("00/1")
    leaf = tree.top(1, 2)[0].label
    with pytest.raises(ValueError, match="no node of this path with children"):
        tree.children(leaf)
    for name in ("3", "-1", "w", ""):
        with pytest.raises(ValueError, match="is none of root, x, y"):
            tree.find_level(name)
    for level in (-1, 3):
        with pytest.raises(ValueError, match=f"level: {level} is not between 0 and 2"):
            tree.top(1, level)


@pytest.mark.parametrize("prune", [0, 30])
@pytest.mark.parametrize("form", DOMAINS)
def test_what_is_said_of_nodes_always_holds(form: str, prune: int) -> None:
    """Check that every published node has rows, and that an unpublished one has at most the stated
    number."""
    exact, largest, within = exact_counts(form), 0, 0
    planned = question(form, prune=prune)
    for run in range(25):
        tree = read_tree(released(planned, run=run), form)
        for level, truth in enumerate(exact):
            rows = {row["label"]: row for row in tree.rows(level).to_pylist()}
            assert rows.keys() <= truth.keys()  # nothing that has no rows
            most = planned.unpublished_most(level)
            for label, count in truth.items():
                if label not in rows:
                    assert count <= most
                    largest = max(largest, count)
                    within += count > 2 * planned.plan.radius(level)
    # Folding takes more away than the threshold alone: the bound must know of it.
    if form == "codes":
        assert largest > 0 and (prune == 0 or within > 0)
    assert prune or not within


def test_intervals_cover_at_the_confidence() -> None:
    """Over many releases, of the nodes that are published; a planted shift is found."""
    exact = exact_counts("codes")
    hits, shifted, seen = 0, 0, 0
    for run in range(70):
        tree = read_tree(released(question("codes", confidence=0.8), run=run), "codes")
        for level in (1, 2):
            for row in tree.rows(level).to_pylist():
                truth, width = exact[level][row["label"]], row["ci_high"] - row["ci_low"]
                hits += row["ci_low"] <= truth <= row["ci_high"]
                shifted += row["ci_low"] <= truth + width / 2 <= row["ci_high"]
                seen += 1
    least = stats.binom.ppf(1e-6, seen, 0.8)
    assert seen > 500 and shifted < least <= hits


def test_shards_do_not_change_what_is_counted() -> None:
    for form, domain in DOMAINS.items():
        totals = []
        for shards in (1, 3, 50):
            planned = replace(question(form), shards=shards)
            partials = list(planned.split_counts(exact_leaves(domain), CHOICES))
            assert sorted(partial.place for partial in partials) == planned.places
            assert len(partials) == 1 + domain.height * shards
            levels = [0] * (domain.height + 1)
            for partial in partials:
                levels[partial.place.group] += partial.total
            totals.append(levels)
        assert totals[0] == totals[1] == totals[2] and totals[0][0] == SIZE


def test_another_confidence_or_pruning_draws_the_same_noise() -> None:
    base = read_tree(released(question("codes")), "codes")
    for other in (question("codes", confidence=0.5), question("codes", prune=30)):
        tree = read_tree(released(other), "codes")
        for level in range(4):
            noisy = dict(zip(*(base.rows(level)[n].to_pylist() for n in NOISY), strict=True))
            for label, estimate in zip(
                *(tree.rows(level)[n].to_pylist() for n in NOISY), strict=True
            ):
                assert noisy[label] == estimate
    more = read_tree(released(question("codes", weight=Fraction(2)), run=1), "codes")
    assert more.rows(1)["estimate"].to_pylist() != base.rows(1)["estimate"].to_pylist()


NOISY = ("label", "estimate")
