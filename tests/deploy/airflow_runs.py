"""``airflow dags test`` of the DAG of deploy/airflow, several times in one process.

It is started by `tests.deploy.test_airflow` with Airflow's own Python, which knows nothing of the
project. Standard input holds a list of runs: each a `date`, and `variables` of Airflow. What came
of them goes to the file that is named, one object a line.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

DAG = "dptrees_daily"


def main() -> None:
    """Runs what standard input asks for."""
    from airflow.cli.cli_parser import get_parser

    parser, told = get_parser(), Path(sys.argv[1])
    for run in json.load(sys.stdin):
        names = {f"AIRFLOW_VAR_{name.upper()}": text for name, text in run["variables"].items()}
        os.environ.update(names)
        chosen = parser.parse_args(["dags", "test", DAG, run["date"]])
        with suppress(SystemExit):  # "DagRun failed"
            chosen.func(chosen)
        for name in names:
            del os.environ[name]
        with told.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_outcome(run["date"])) + "\n")


def _outcome(date: str) -> dict[str, Any]:
    """What Airflow's database tells of the latest run of a day."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session

    with create_session() as session:
        tasks = session.query(TaskInstance).filter(TaskInstance.dag_id == DAG).all()
        (task,) = [each for each in tasks if str(each.dag_run.start_date).startswith(date)]
        given = task.xcom_pull(task_ids="release")
        return {"state": task.state, "tries": task.try_number, "xcom": given}


if __name__ == "__main__":
    main()
