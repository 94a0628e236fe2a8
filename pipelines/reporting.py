"""``dptrees report``: the page of a release, made from its folder alone."""

from __future__ import annotations

from pipelines.release_folder import ReleaseFolder, beam_files

REPORT = "report.html"


def run_report(path: str) -> int:
    """Writes the report into the folder of a release and prints where it lies."""
    print(write_report(path))
    return 0


def write_report(path: str) -> str:
    """Writes the report of a release; the same release gives the same bytes.

    Returns:
        the path of the page.
    """
    from pipelines.report import write_report_html

    folder = ReleaseFolder(path)
    page = write_report_html(
        folder.plan,
        lambda tree: folder.batches("nodes", tree),
        lambda tree: folder.batches("cdf", tree),
        folder.quantiles(),
        folder.manifest,
    )
    files = beam_files()
    name = str(files.join(path, REPORT))
    files.write_whole(name, page.encode())
    return name
