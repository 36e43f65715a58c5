"""Tables go to pyarrow, pandas and Polars through the Arrow C stream interface."""

from __future__ import annotations

import gc
import sys

import pandas
import polars
import pyarrow
import pytest

import stripewise


@pytest.fixture(scope="module")
def table() -> stripewise.Table:
    """A table with texts, whole and real numbers, and missing values."""
    return stripewise.sweep(
        "mg08ada800e", drives=(2, 4), layouts=("raid0", "raid5"), blocks=("64K",), depths=(1,), progress=False
    )


def test_pyarrow_takes_every_value(table: stripewise.Table) -> None:
    taken = pyarrow.table(table)
    taken.validate(full=True)
    assert taken.to_pydict() == table.to_pydict()
    assert taken.schema.field("iops").type == pyarrow.float64()
    assert taken.schema.field("drives").type == pyarrow.int64()
    assert taken["iops"].null_count == table["iops"].count(None) > 0


def test_no_column_is_copied(table: stripewise.Table) -> None:
    def addresses() -> list[int]:
        taken = pyarrow.table(table)
        buffers = [buffer for column in taken.columns for buffer in column.chunk(0).buffers()]
        return [buffer.address for buffer in buffers if buffer is not None]

    assert addresses() == addresses()


def test_columns_outlive_the_table() -> None:
    rows = stripewise.validate("001")["rows"]
    expected = rows.to_pydict()
    taken = pyarrow.table(rows)
    del rows
    gc.collect()
    taken.validate(full=True)
    assert taken.to_pydict() == expected
    assert taken.schema.field("fitted").type == pyarrow.bool_()


def test_pandas_takes_every_value(table: stripewise.Table) -> None:
    frame = table.to_pandas()
    assert list(frame.columns) == table.column_names
    assert frame["iops"].isna().sum() == table["iops"].count(None)
    if hasattr(pandas.DataFrame, "from_arrow"):
        assert pandas.DataFrame.from_arrow(table)["layout"].tolist() == table["layout"]


def test_polars_takes_every_value(table: stripewise.Table) -> None:
    assert polars.DataFrame(table).to_dict(as_series=False) == table.to_pydict()
    assert table.to_polars().shape == (len(table), len(table.column_names))


def test_unused_capsules_are_released(table: stripewise.Table) -> None:
    for _ in range(100):
        table.__arrow_c_stream__()
        table.__arrow_c_schema__()
    assert pyarrow.schema(table).names == table.column_names


def test_a_schema_can_be_read_twice_and_a_batch_once(table: stripewise.Table) -> None:
    reader = pyarrow.RecordBatchReader.from_stream(table)
    assert reader.schema == pyarrow.table(table).schema
    assert reader.read_next_batch().num_rows == len(table)
    with pytest.raises(StopIteration):
        reader.read_next_batch()


def test_a_part_of_the_columns_may_be_taken(table: stripewise.Table) -> None:
    batch = pyarrow.RecordBatchReader.from_stream(table).read_next_batch()
    column = batch.column(0)
    del batch
    gc.collect()
    assert column.to_pylist() == table["layout"]


def test_columns_are_found_by_name(table: stripewise.Table) -> None:
    assert table["layout"][0] == "raid0"
    with pytest.raises(KeyError, match="speed"):
        table["speed"]
    with pytest.raises(TypeError):
        table[0]  # type: ignore[index]
    assert "iops" in repr(table) and sys.getrefcount(table) < 1000
