"""Releases of many small files on S3: seconds of a processor and requests, for each file.

    python -m benchmarks.object_store [--files 20 220]

The store is moto's server, a process of its own on this machine, so only the release's own time is
counted. What a file costs is the difference of two releases, of few and of many files.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import make_key, run_command
from deploy.cluster.processes import free_ports

ROWS, COLUMNS, BUCKET = 10_000, 10, "bucket"
ACCESS = {
    "AWS_ACCESS_KEY_ID": "benchmark",
    "AWS_SECRET_ACCESS_KEY": "benchmark",
    "AWS_DEFAULT_REGION": "us-east-1",
}
CONFIG = """
release: files
input: {{format: parquet, path: "s3://{bucket}/{files}/*.parquet"}}
output: {folder}/out-{files}
key_file: {folder}/release.key
privacy: {{epsilon: 1, neighbors: add_remove, unit: row}}
trees: [{{name: x, domain: {{column: x, type: integer, lower: 0, upper: 50}}}}]
"""


def put_files(client: Any, files: int) -> None:
    """Write the files of a release into the store."""
    generator = np.random.default_rng(3)
    for number in range(files):
        others = {f"other{column}": generator.random(ROWS) for column in range(COLUMNS)}
        written = io.BytesIO()
        pq.write_table(pa.table({"x": np.arange(ROWS) % 50} | others), written)
        key = f"{files}/{number:05d}.parquet"
        client.put_object(Bucket=BUCKET, Key=key, Body=written.getvalue())


def released(folder: Path, files: int, address: str) -> float:
    """Make the release of so many files; return its seconds of a processor."""
    path = folder / f"{files}.yaml"
    path.write_text(CONFIG.format(bucket=BUCKET, folder=folder, files=files))
    run = run_command(["release", str(path), f"--s3_endpoint_url={address}"], **ACCESS)
    return run.processor


def requests(log: str) -> Counter[str]:
    """The requests of a server's log, by their method."""
    return Counter(re.findall(r'"([A-Z]+) /', log))


def main() -> int:
    """Print what each of the releases takes, and what a file does."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, nargs=2, default=(20, 220))
    few, many = parser.parse_args().files
    import boto3

    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_ports(1)[0]
        address = f"http://localhost:{port}"
        log = folder / "requests.log"
        make_key(folder)
        with log.open("w") as written:
            server = subprocess.Popen(
                [sys.executable, "-m", "moto.server", "-p", str(port)],
                stdout=written,
                stderr=written,
            )
        try:
            while "Running on" not in log.read_text():
                time.sleep(0.1)
            os.environ.update(ACCESS)
            client = boto3.client("s3", endpoint_url=address)
            client.create_bucket(Bucket=BUCKET)
            spent, counted = [], []
            for files in (few, many):
                put_files(client, files)
                before = len(log.read_text())
                spent.append(released(folder, files, address))
                counted.append(requests(log.read_text()[before:]))
                print(f"{files} files: {spent[-1]:.2f} s of a processor, {dict(counted[-1])}")
        finally:
            server.kill()
            server.wait()
    each = (spent[1] - spent[0]) / (many - few)
    number = (counted[1].total() - counted[0].total()) / (many - few)
    print(f"a file: {each:.3f} s of a processor, {number:.1f} requests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
