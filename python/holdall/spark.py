# pyright: basic, reportMissingImports=false
"""Bags as a data source of Spark 4: ``spark.dataSource.register(holdall.spark.BagDataSource)``, then ``spark.read.format("bags")``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ._bag import Paths, _paths
from ._plan import Task, batches, planned, schema


class _Partition(InputPartition):  # type: ignore[misc]
    def __init__(self, task: Task) -> None:
        self.task = task


def _spark_schema(found: Any) -> Any:
    """Arrow's types that Spark does not have become those that hold their values."""
    import pyarrow as pa

    wider = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}

    def converted(kind: Any) -> Any:
        if pa.types.is_timestamp(kind):
            return pa.timestamp("us", kind.tz)
        if pa.types.is_large_list(kind) or pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
            return pa.list_(converted(kind.value_type))
        if pa.types.is_large_string(kind):
            return pa.string()
        if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
            return pa.binary()
        if pa.types.is_struct(kind):
            return pa.struct([pa.field(field.name, converted(field.type)) for field in kind])
        return wider.get(kind, kind)

    return pa.schema([pa.field(field.name, converted(field.type)) for field in found])


class _Reader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def _tasks(self) -> list[Task]:
        options = self._options
        lists = {name: json.loads(options.get(name, "[]")) for name in ("topics", "fields")}
        time = json.loads(options["time"]) if "time" in options else None
        tasks = int(options["tasks"]) if "tasks" in options else None
        flat = json.loads(options.get("flat", "false"))
        return planned(json.loads(options["paths"]), lists["topics"], lists["fields"], time, tasks=tasks, flat=flat)

    def partitions(self) -> Sequence[InputPartition]:
        return [_Partition(task) for task in self._tasks()]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        assert isinstance(partition, _Partition)
        wanted = _spark_schema(schema(partition.task))
        for batch in batches(partition.task):
            yield from pa.Table.from_batches([batch]).cast(wanted, safe=False).to_batches()


class BagDataSource(DataSource):  # type: ignore[misc]
    """The format ``bags``; its options are JSON: ``paths``, ``topics``, ``fields``, ``time``, ``tasks``, ``flat``."""

    @classmethod
    def name(cls) -> str:
        return "bags"

    def schema(self) -> StructType:
        task = _Reader(self.options)._tasks()[0]
        return from_arrow_schema(_spark_schema(schema(task)))

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(self.options)


def read_bags(
    session: SparkSession,
    paths: Paths,
    topics: str | Sequence[str] = (),
    fields: Sequence[str] = (),
    time: Any = None,
    *,
    tasks: int | None = None,
    flat: bool = False,
) -> DataFrame:
    """The messages of topics as a Spark data frame; the arguments are those of :func:`holdall.plan`."""
    session.dataSource.register(BagDataSource)
    wanted = [topics] if isinstance(topics, str) else list(topics)
    reader = session.read.format("bags").option("paths", json.dumps(_paths(paths)))
    reader = reader.option("topics", json.dumps(wanted)).option("fields", json.dumps(list(fields))).option("flat", json.dumps(flat))
    if time is not None:
        from ._plan import _bounds

        start, end = _bounds(time)
        reader = reader.option("time", json.dumps([start, None if end is None else end + 1]))
    return (reader if tasks is None else reader.option("tasks", str(tasks))).load()
