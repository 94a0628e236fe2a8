"""The job's counters, which every engine shows beside its own: how much of the work is done.

No counter depends on the rows: not on how many were read, not how many a policy dropped, nor the
size of anything computed from exact counts. An engine's page, its log and its history are read by
more people than the data is, and an exact count shown there would be a release without noise.
"""

from apache_beam.metrics import Metrics

NAMESPACE = "dptrees"

SPLITS_READ = Metrics.counter(NAMESPACE, "splits_read")
"""Splits of input files read to their end; as many as the files' layout has."""

CHUNKS_MEASURED = Metrics.counter(NAMESPACE, "chunks_measured")
"""Chunks of trees, and shards of sparse ones, whose noise was drawn; as many as the plan has."""

PARTS_WRITTEN = Metrics.counter(NAMESPACE, "parts_written")
"""Parts of the release written; as many as the plan has."""

BYTES_WRITTEN = Metrics.counter(NAMESPACE, "bytes_written")
"""Bytes of those parts: a function of the noisy release alone."""
