"""``dptrees report``: the page of a release, made from its folder alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dptrees.dpcore.choices.unit_bounds import BoundQuestion
from dptrees.dpcore.choices.value_bounds import ValueBoundsQuestion
from dptrees.dpcore.questions.question import Question
from dptrees.pipelines.kinds import find_kind, is_tree
from dptrees.pipelines.release_folder import ReleaseFolder, beam_files
from dptrees.pipelines.terminal_text import print_line
from dptrees.pipelines.user_error import UserError

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
    from dptrees.pipelines.report import write_report_html

    page, files = write_report_html(folder, requested_paths), beam_files()
    name = str(files.join(folder.path, REPORT))
    files.write_whole(name, page.encode())
    return name


def _chosen_paths(
    folder: ReleaseFolder, paths: Sequence[str], tree: str | None
) -> Mapping[str, Sequence[str]]:
    """The paths by the name of their tree, seen to lead to nodes."""
    from dptrees.pipelines.report import check_chosen_paths

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
