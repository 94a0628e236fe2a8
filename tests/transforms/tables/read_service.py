"""A stand-in for BigQuery's Storage Read API: a gRPC server of one's own, with the real messages.

It keeps rows by the moment from which on they are the table's, gives requested columns, in
streams, and can break a stream once, to see that it is read on where it broke.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import grpc
import pyarrow as pa
from google.cloud.bigquery_storage_v1 import types

_SERVICE = "google.cloud.bigquery.storage.v1.BigQueryRead"


class ReadService:
    """The service.

    Args:
        states: rows by the moment from which on they are there, in order.
    """

    def __init__(self, *states: tuple[datetime, pa.Table]) -> None:
        self.states, self.sessions, self.broken = states, [], False  # type: ignore[var-annotated]
        self._rows: dict[str, pa.Table] = {}

    def create(self, request: Any, context: Any) -> Any:
        session = request.read_session
        if not session.table.endswith("/tables/visits"):
            context.abort(grpc.StatusCode.NOT_FOUND, "no such table: secret words")
        moment = session.table_modifiers.snapshot_time
        rows = [table for since, table in self.states if since <= moment][-1]
        fields = list(session.read_options.selected_fields)
        rows = rows.select([name for name in rows.column_names if not fields or name in fields])
        self.sessions.append(request)
        number = len(self.sessions)
        streams = min(request.max_stream_count, 3)
        names = [f"sessions/{number}/streams/{stream}" for stream in range(streams)]
        for stream, name in enumerate(names):
            self._rows[name] = rows.take(list(range(stream, rows.num_rows, streams)))
        return types.ReadSession(
            name=f"sessions/{number}",
            arrow_schema={"serialized_schema": rows.schema.serialize().to_pybytes()},
            streams=[types.ReadStream(name=name) for name in names],
            estimated_total_bytes_scanned=rows.nbytes,
        )

    def read(self, request: Any, context: Any) -> Iterator[Any]:
        rows = self._rows[request.read_stream]
        for place in range(request.offset, rows.num_rows):
            if place and not self.broken:
                self.broken = True
                context.abort(grpc.StatusCode.UNAVAILABLE, "broken")
            (batch,) = rows.slice(place, 1).combine_chunks().to_batches()
            yield types.ReadRowsResponse(
                arrow_record_batch={
                    "serialized_record_batch": batch.serialize().to_pybytes(),
                    "row_count": 1,
                },
                row_count=1,
                arrow_schema={"serialized_schema": rows.schema.serialize().to_pybytes()},
            )

    @contextmanager
    def served(self) -> Iterator[str]:
        """Its address, as long as the block lasts."""
        methods = {
            "CreateReadSession": grpc.unary_unary_rpc_method_handler(
                self.create,
                types.CreateReadSessionRequest.deserialize,
                types.ReadSession.serialize,
            ),
            "ReadRows": grpc.unary_stream_rpc_method_handler(
                self.read, types.ReadRowsRequest.deserialize, types.ReadRowsResponse.serialize
            ),
        }
        server = grpc.server(ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, methods),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None)
