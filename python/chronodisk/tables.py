"""Requests as Arrow tables."""

import os
from typing import TYPE_CHECKING, Any, Protocol, Self

from chronodisk import _core

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class ArrowTable(Protocol):
    """Any table with the Arrow PyCapsule interface: of pyarrow, polars, pandas, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The stream of its batches."""
        ...


class Requests:
    """The log of a device: one row per request in order of arrival, the columns of ``chronodisk.requests/1``.

    ``arrival_ns``, ``due_ns`` and ``completed_ns`` are instants; the service time is ``due_ns - arrival_ns``.
    Libraries read the table through the Arrow PyCapsule interface, and share its memory.
    """

    __slots__ = ("_core",)

    def __init__(self, core: _core.Requests) -> None:
        self._core = core

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a log in Parquet, such as ``requests-1.parquet`` of a run."""
        return cls(_core.read_requests(os.fspath(path)))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the log in Parquet; the file is complete or not there."""
        self._core.write(os.fspath(path))

    def __len__(self) -> int:
        return len(self._core)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._core.__arrow_c_stream__(requested_schema)

    def to_pyarrow(self) -> "pyarrow.Table":
        """As a table of pyarrow, which must be installed."""
        import pyarrow

        return pyarrow.table(self)

    def to_polars(self) -> "polars.DataFrame":
        """As a data frame of polars, which must be installed."""
        import polars

        return polars.DataFrame(self)

    def to_pandas(self) -> "pandas.DataFrame":
        """As a data frame of pandas, which must be installed, with pyarrow."""
        frame: pandas.DataFrame = self.to_pyarrow().to_pandas()
        return frame

    def service_times_ns(self) -> Any:
        """``due_ns - arrival_ns`` of each request as an array of numpy, which must be installed, with pyarrow."""
        table = self.to_pyarrow()
        return table["due_ns"].to_numpy() - table["arrival_ns"].to_numpy()

    def __repr__(self) -> str:
        return f"<Requests: {len(self)} rows>"
