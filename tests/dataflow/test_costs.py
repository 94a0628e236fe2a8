"""The page of Dataflow says what its command computes."""

from benchmarks.dataflow_costs import BEGIN, END, page, parser
from tests.google_cloud import PROJECT


def test_the_table_is_as_computed() -> None:
    text = (PROJECT / "docs" / "deploy" / "dataflow.md").read_text(encoding="utf-8")
    committed = BEGIN + text.split(BEGIN)[1].split(END)[0] + END
    assert committed == page(parser().parse_args([])), "python -m benchmarks.dataflow_costs --write"
