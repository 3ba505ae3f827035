# pyright: basic, reportMissingImports=false
"""Bags as Ray datasets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

from ray.data import Dataset, Datasource, read_datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask

from ._bag import Paths
from ._options import AnyPath
from ._plan import Migration, Task, batches, plan, plan_migration, planned, schema

# Decoded rows beside the bytes of compressed chunks; Ray corrects it by what tasks return.
_IN_MEMORY_FACTOR = 3


class BagDatasource(Datasource):  # type: ignore[misc]
    """Topics of bags; each read task is some tasks of :func:`holdall.plan`."""

    def __init__(
        self, paths: Paths, topics: str | Sequence[str] = (), fields: Sequence[str] = (), time: Any = None, **options: Any
    ) -> None:
        super().__init__()
        self._tasks = planned(paths, topics, fields, time, **options)
        self._again = None if options else (paths, topics, fields, time)
        self._schema = schema(self._tasks[0])

    def estimate_inmemory_data_size(self) -> int:
        """Ray's question before it chooses the number of tasks."""
        return _IN_MEMORY_FACTOR * sum(task.bytes for task in self._tasks)

    def get_read_tasks(self, parallelism: int, per_task_row_limit: int | None = None, *_: Any, **__: Any) -> list[ReadTask]:
        """At least ``parallelism`` tasks where the bags have as many chunks."""
        tasks = self._tasks
        if self._again and len(tasks) < parallelism:
            paths, topics, fields, time = self._again
            tasks = plan(paths, topics, fields, time, tasks=parallelism)
        return [
            ReadTask(
                _reading(task),
                BlockMetadata(
                    num_rows=None, size_bytes=_IN_MEMORY_FACTOR * task.bytes, exec_stats=None, input_files=tuple(task.paths)
                ),
                schema=self._schema,
                per_task_row_limit=per_task_row_limit,
            )
            for task in tasks
        ]


def _reading(task: Task) -> Callable[[], Iterator[Any]]:
    def blocks() -> Iterator[Any]:
        import pyarrow as pa

        some = False
        for batch in batches(task):
            some = True
            yield pa.Table.from_batches([batch])
        if not some:
            yield schema(task).empty_table()

    return blocks


def read_bags(
    paths: Paths,
    topics: str | Sequence[str] = (),
    fields: Sequence[str] = (),
    time: Any = None,
    *,
    ray_options: dict[str, Any] | None = None,
    **options: Any,
) -> Dataset:
    """The messages of topics as a Ray dataset of Arrow tables.

    ``paths``, ``topics``, ``fields``, ``time`` and the options are those of :func:`holdall.plan`; ``ray_options`` are passed to
    ``ray.data.read_datasource``. A task whose worker dies is read again by another one.
    """
    return read_datasource(BagDatasource(paths, topics, fields, time, **options), **(ray_options or {}))


def migrate(bags: Paths, output: AnyPath, *, ray_options: dict[str, Any] | None = None, **options: Any) -> list[dict[str, Any]]:
    """Migrates the bags that need it, each in a task, after all were looked at; their reports. See :func:`holdall.plan_migration`.

    ``ray_options`` are passed to ``ray.remote``. A task whose worker dies is done again by another one.
    """
    # Checkers of types take "ray" for this module.
    ray = import_module("ray")
    run = ray.remote(**{"num_cpus": 1, **(ray_options or {})})(Migration.run)
    reports: list[dict[str, Any]] = ray.get([run.remote(each) for each in plan_migration(bags, output, **options)])
    return reports
