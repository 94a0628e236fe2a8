"""``dptrees report``: the page of a release, made from its folder alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpcore.hierarchy_question import HierarchyQuestion
from pipelines.release_folder import ReleaseFolder, beam_files
from pipelines.user_error import UserError

REPORT = "report.html"


def run_report(path: str, paths: Sequence[str] = (), tree: str | None = None) -> int:
    """Writes the report into the folder of a release and prints where it lies.

    Args:
        path: the folder.
        paths: of nodes of a hierarchy that the page shall show beside its upper levels.
        tree: the name of that hierarchy; may be left out where there is only one.

    Raises:
        UserError: there is no such path or hierarchy.
    """
    folder = ReleaseFolder(path)
    if tree is not None and not paths:
        raise UserError("tree: goes with --path")
    print(_write(folder, _asked(folder, paths, tree) if paths else {}))
    return 0


def write_report(path: str) -> str:
    """Writes the report of a release; the same release gives the same bytes.

    Returns:
        the path of the page.
    """
    return _write(ReleaseFolder(path), {})


def _write(folder: ReleaseFolder, asked: Mapping[str, Sequence[str]]) -> str:
    from pipelines.report import write_report_html

    page, files = write_report_html(folder, asked), beam_files()
    name = str(files.join(folder.path, REPORT))
    files.write_whole(name, page.encode())
    return name


def _asked(
    folder: ReleaseFolder, paths: Sequence[str], tree: str | None
) -> Mapping[str, Sequence[str]]:
    """The paths by the name of their hierarchy, seen to lead to nodes."""
    from pipelines.report import check_asked_paths

    question = _hierarchy(folder, tree)
    try:
        check_asked_paths(folder.plan, question, paths)
    except ValueError as error:
        raise UserError(f"{folder.path}: {error}") from None
    return {question.name: paths}


def _hierarchy(folder: ReleaseFolder, tree: str | None) -> HierarchyQuestion:
    """The hierarchy of a name, or the only one.

    Raises:
        UserError: there is none, or several and no name.
    """
    known = {question.name: question for question in folder.plan.questions}
    found = [name for name, each in known.items() if isinstance(each, HierarchyQuestion)]
    if tree is None:
        if not found:
            raise UserError(f"{folder.path}: path: the release has no hierarchy")
        if len(found) > 1:
            raise UserError(f"{folder.path}: say which tree with --tree; it has {', '.join(found)}")
        tree = found[0]
    if tree not in known:
        raise UserError(f"{folder.path}: there is no tree {tree!r}; it has {', '.join(known)}")
    question = known[tree]
    if not isinstance(question, HierarchyQuestion):
        raise UserError(f"{folder.path}: path: tree {tree} is no hierarchy")
    return question
