# pyright: basic, reportMissingImports=false
"""Bags as Dask data frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._bag import Paths
from ._options import AnyPath
from ._plan import Migration, Task, plan_migration, planned, read, schema


def _frame(task: Task) -> Any:
    return read(task).to_pandas()


def read_bags(paths: Paths, topics: str | Sequence[str] = (), fields: Sequence[str] = (), time: Any = None, **options: Any) -> Any:
    """The messages of topics as a ``dask.dataframe``: a partition for each task of :func:`holdall.plan`, which has the other options.

    pandas has no structs: their fields are columns, unless ``flat=False``.
    """
    import dask.dataframe

    tasks = planned(paths, topics, fields, time, **{"flat": True, **options})
    return dask.dataframe.from_map(_frame, tasks, meta=schema(tasks[0]).empty_table().to_pandas())


def delayed(paths: Paths, topics: str | Sequence[str] = (), fields: Sequence[str] = (), time: Any = None, **options: Any) -> list[Any]:
    """The same as ``dask.delayed`` Arrow tables, one for each task."""
    from dask.delayed import delayed

    return [delayed(read)(task) for task in planned(paths, topics, fields, time, **options)]


def migrate(bags: Paths, output: AnyPath, **options: Any) -> list[Any]:
    """The migrations of the bags that need it as ``dask.delayed`` reports, after all were looked at; see :func:`holdall.plan_migration`."""
    from dask.delayed import delayed

    return [delayed(Migration.run)(each) for each in plan_migration(bags, output, **options)]
