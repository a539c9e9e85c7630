"""Writes pyarrow.parquet: a request log by another library than ours, from the columns that docs/request-log.md has.

    target/experiments-python/bin/python crates/chronodisk-report/tests/logs/make-log.py
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = {
    "device": (pa.uint16(), [0, 0, 1, 0]),
    "order": (pa.uint64(), [0, 1, 2, 3]),
    "op": (pa.string(), ["read", "write", "flush", "discard"]),
    "fua": (pa.bool_(), [False, True, False, False]),
    "priority": (pa.string(), ["normal", "normal", "normal", "normal"]),
    "lba_sectors": (pa.uint64(), [0, 2**54, 0, 4096]),
    "len_sectors": (pa.uint32(), [8, 2**21, 0, 1024]),
    "queue": (pa.uint16(), [0, 1, 65535, 0]),
    "issuer": (pa.uint32(), [1, 2**32 - 1, 0, 0]),
    "arrival_ns": (pa.uint64(), [0, 5, 5, 2**62]),
    "due_ns": (pa.uint64(), [100, 5, None, None]),
    "completed_ns": (pa.uint64(), [101, 5, 7, None]),
    "status": (pa.string(), ["ok", "ok", "ok", "ok"]),
    "store_failed": (pa.bool_(), [False, False, True, False]),
    "stolen": (pa.bool_(), [False, False, False, True]),
    "model_time_ns": (pa.uint64(), [11, 0, 0, 0]),
    "store_time_ns": (pa.uint64(), [0, 12, 0, 0]),
}
METADATA = {
    "chronodisk.schema": "chronodisk.requests/1",
    "chronodisk.trace.format": "msr",
    "chronodisk.trace.origin_unix_ns": "1172102400000000000",
    "chronodisk.trace.resolution_ns": "100",
    "chronodisk.trace.volumes": '["hm_0","mds_1"]',
}
NULLABLE = ("due_ns", "completed_ns")


def main() -> None:
    """Writes the file beside this one."""
    fields = [pa.field(name, kind, nullable=name in NULLABLE) for name, (kind, _) in COLUMNS.items()]
    arrays = [pa.array(values, kind) for kind, values in COLUMNS.values()]
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=METADATA))
    pq.write_table(table, Path(__file__).with_name("pyarrow.parquet"), compression="zstd")


main()
