"""A finished release for a person: its summary on the terminal, its page from its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dptrees.dpcore.choices.unit_bounds import BoundQuestion
from dptrees.dpcore.choices.value_bounds import ValueBoundsQuestion
from dptrees.dpcore.questions.planning import CloserQuantiles
from dptrees.dpcore.questions.question import Question
from dptrees.dpcore.release.guarantee import stated_guarantee, weak_guarantees
from dptrees.dpcore.release.plan import ReleasePlan
from dptrees.dpcore.release.released import full_edge, odd_totals
from dptrees.pipelines.config.configuration import Configuration
from dptrees.pipelines.config.registry import find_kind, is_tree
from dptrees.pipelines.process import UserError
from dptrees.pipelines.query.release_folder import ReleaseFolder
from dptrees.pipelines.show.figures import significant
from dptrees.pipelines.terminal_text import print_line
from dptrees.transforms.folder import files

_NO_LEDGER = "no ledger: the total budget of all releases of the same data is not tracked"

# Standard error of a total, in rows, above which few rows and no rows cannot be distinguished.
_LOUD = 100.0


def print_summary(folder: ReleaseFolder, report: str, account: str | None = None) -> None:
    """Prints what was released: the guarantee, each tree's totals and quantiles, where it lies.

    Args:
        folder: the release.
        report: the path of its page.
        account: what the ledger says of its data set; None without a ledger.
    """
    plan = folder.plan
    print_line(f"{plan.name}: {stated_guarantee(plan)}")
    if plan.bounds is not None:
        print_line(f"chosen first: {plan.bounds.chosen_in_words}")
    print_line(account or _NO_LEDGER)
    for question in plan.questions:
        tree = folder.release.tree(question.name)
        for line in find_kind(question).lines().summary(tree):
            print_line(line)
    print_line()
    print_line(f"release: {folder.path}")
    print_line(f"report:  {report}")


def total_warnings(folder: ReleaseFolder) -> Iterator[str]:
    """Warnings of trees that may have lost their rows, from the released totals alone: free, as all
    that is computed of a release is.

    Args:
        folder: the release.
    """
    trees = [folder.release.tree(question.name) for question in folder.plan.questions]
    for edge in filter(None, map(full_edge, trees)):
        yield (
            f"warning: most rows of tree {edge.tree} are counted in the end cell {edge.label}, "
            f"which also counts values beyond the bounds; check {edge.bound}"
        )
    totals = [total for tree in trees if (total := tree.rows_in_all()) is not None]
    rows = max((total.rows for total in totals), default=None)
    yield from (f"warning: {each}" for each in weak_guarantees(folder.plan, rows))
    for odd in odd_totals(totals):
        if odd.is_none and odd.tree.std_error > _LOUD:
            yield (
                f"warning: the total of tree {odd.tree.name} is no larger than its noise "
                f"(standard error {_about(odd.tree.std_error)} rows): use a larger budget, or "
                "smaller bounds on the rows of a unit; if rows were dropped, dptrees check shows "
                "why to people with access to the raw data"
            )
            continue
        held = "about 0" if odd.is_none else _about(odd.tree.rows)
        other = "" if odd.other is None else f", tree {odd.other.name} {_about(odd.other.rows)}"
        yield (
            f"warning: tree {odd.tree.name} holds {held} rows{other}, by their noisy totals: "
            "rows may have been dropped (wrong format or bounds?); run dptrees check"
        )


def _about(rows: float) -> str:
    """A number to two digits.

    >>> _about(48_123.4)
    'about 48,000'
    """
    return f"about {float(f'{rows:.2g}'):,.0f}"


def guarantee_warnings(plan: ReleasePlan) -> Iterator[str]:
    """Warnings of a budget that hardly protects anybody, from the plan alone."""
    guesses = [getattr(each, "guessed_rows", None) for each in plan.questions]
    rows = max((float(each) for each in guesses if each is not None), default=None)
    yield from (f"warning: {each}" for each in weak_guarantees(plan, rows))


def closer_quantiles(
    configuration: Configuration, plan: ReleasePlan
) -> dict[str, dict[str, object]]:
    """Return the trees whose quantiles would be clearly closer with ``optimize_for: quantiles``.

    Trees whose metrics have the count are left out, because they would lose it.

    Args:
        configuration: of the release.
        plan: of the same.

    Returns:
        by the name of the tree, the fields of `CloserQuantiles` and a sentence, ``words``.
    """
    result, trees = {}, zip(configuration.trees, configuration.workloads, strict=True)
    for (section, workload), question in zip(trees, plan.questions, strict=True):
        setting = configuration.guarantee.setting(question.budget or plan.budget)
        closer = workload.closer_quantiles(question, setting)
        if closer is not None and "count" not in getattr(section, "metrics", ()):
            result[question.name] = {**closer._asdict(), "words": closer_in_words(closer)}
    return result


def closer_in_words(closer: CloserQuantiles) -> str:
    """Return both errors, and what the release would not have, in a sentence.

    >>> closer_in_words(CloserQuantiles(3.0551, 5.947, 28.72)).partition(";")[0]
    'optimize_for: quantiles would be closer: with about 29 rows or more, ranks are expected to be \
off by 3.06 rows instead of 5.95'
    """
    error, tree_error = (significant(each, 3) for each in closer[:2])
    rows = significant(closer.least_rows, 2)
    return (
        f"optimize_for: quantiles would be closer: with about {rows} rows or more, ranks are "
        f"expected to be off by {error} rows instead of {tree_error}; it releases no CDF, counts, "
        "number of rows or intervals"
    )


REPORT = "report.html"


def run_report(path: str, paths: Sequence[str] = (), tree: str | None = None) -> int:
    """Write the report into the folder of a release and print its path.

    Args:
        path: the folder.
        paths: of nodes that the page shows in addition to those that fit, in a tree whose nodes
            have paths.
        tree: its name; may be left out where only one tree has paths.

    Raises:
        UserError: there is no such path or tree.
    """
    folder = ReleaseFolder(path)
    if not all(map(is_tree, folder.plan.questions)):
        bounds = (BoundQuestion, ValueBoundsQuestion)
        chosen = any(isinstance(each, bounds) for each in folder.plan.questions)
        noun = "a choice of bounds" if chosen else "a selection of keys"
        raise UserError(f"{path}: holds {noun}, which has no page")
    if tree is not None and not paths:
        raise UserError("tree: goes with --path")
    print_line(_write(folder, _chosen_paths(folder, paths, tree) if paths else {}))
    return 0


def write_report(path: str) -> str:
    """Writes the report of a release; the same release gives the same bytes.

    Returns:
        the path of the page.
    """
    return _write(ReleaseFolder(path), {})


def _write(folder: ReleaseFolder, requested_paths: Mapping[str, Sequence[str]]) -> str:
    from dptrees.pipelines.report.report import write_report_html

    page = write_report_html(folder, requested_paths)
    name = str(files.join(folder.path, REPORT))
    files.write_whole(name, page.encode())
    return name


def _chosen_paths(
    folder: ReleaseFolder, paths: Sequence[str], tree: str | None
) -> Mapping[str, Sequence[str]]:
    """The paths by the name of their tree, seen to lead to nodes."""
    from dptrees.pipelines.report.report import check_chosen_paths

    question = _question(folder, tree)
    try:
        check_chosen_paths(folder, question, paths)
    except ValueError as error:
        raise UserError(f"{folder.path}: {error}") from None
    return {question.name: paths}


def _question(folder: ReleaseFolder, tree: str | None) -> Question:
    """The tree of a name, or the only one with paths.

    Raises:
        UserError: there is none, or several and no name.
    """
    known = {question.name: question for question in folder.plan.questions}
    if tree is None:
        results = [name for name, each in known.items() if find_kind(each).check_paths is not None]
        if not results:
            raise UserError(f"{folder.path}: path: the release has no tree of paths")
        if len(results) > 1:
            raise UserError(f"{folder.path}: choose one with --tree; it has {', '.join(results)}")
        tree = results[0]
    if tree not in known:
        raise UserError(f"{folder.path}: there is no tree {tree!r}; it has {', '.join(known)}")
    return known[tree]
