"""Native functions of the package. `stripewise` has the interface for callers."""

from typing import Any, Callable, Mapping, final

__all__ = [
    "Table",
    "advise",
    "catalogue",
    "lab_compare",
    "lab_histograms",
    "lab_measurements",
    "lab_run",
    "lab_runs",
    "lab_samples",
    "lab_seconds",
    "parity_encode",
    "parity_kernel",
    "parity_recover",
    "parity_update",
    "predict",
    "Rounds",
    "reliability",
    "reliability_blocks",
    "replay",
    "sweep",
    "sweep_points",
    "torture",
    "validate",
]

_Progress = Callable[[int, int], None] | None

@final
class Table:
    """A table of results.

    pyarrow (`pyarrow.table(table)`), pandas (`pandas.DataFrame.from_arrow(table)`) and Polars
    (`polars.DataFrame(table)`) take it through the Arrow C stream interface without a copy.
    """

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
    @property
    def num_rows(self) -> int:
        """Number of rows."""
    def __len__(self) -> int: ...
    def __getitem__(self, key: str, /) -> list[Any]:
        """The values of a column; a missing value is `None`."""
    def __eq__(self, value: object, /) -> bool: ...
    def to_pydict(self) -> dict[str, list[Any]]:
        """All columns, as lists by name."""
    def to_pyarrow(self) -> Any:
        """The table as a `pyarrow.Table`, without a copy."""
    def to_pandas(self) -> Any:
        """The table as a `pandas.DataFrame`."""
    def to_polars(self) -> Any:
        """The table as a `polars.DataFrame`."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Rounds:
    """Rounds of an estimate."""

    def __new__(cls, request: Mapping[str, Any], is_field: bool) -> Rounds: ...
    def next_blocks(self) -> tuple[int, int] | None:
        """First and end of the next round's blocks; `None` if the answer is there."""
    def add(self, sums: bytes) -> None:
        """Adds the sums of all blocks of the round, in order."""
    def trials(self) -> tuple[int, int]:
        """Trials made, and the estimated total."""
    def document(self, field: Rounds | None) -> str:
        """The answer as a document; `field` is the estimate of the second question."""

def advise(request: Mapping[str, Any], progress: _Progress) -> tuple[str, str]: ...
def catalogue(name: str | None) -> str: ...
def lab_compare(store: str, first: str, second: str) -> str: ...
def lab_histograms(store: str, runs: list[str]) -> Table: ...
def lab_measurements(store: str, runs: list[str]) -> Table: ...
def lab_run(store: str, run: str) -> str: ...
def lab_runs(store: str) -> Table: ...
def lab_samples(store: str, runs: list[str]) -> Table: ...
def lab_seconds(store: str, runs: list[str]) -> Table: ...
def parity_encode(data: list[Any], parity: list[Any]) -> None: ...
def parity_kernel() -> str: ...
def parity_recover(
    data_units: int, sources: list[tuple[int, Any]], wanted: list[tuple[int, Any]]
) -> None: ...
def parity_update(unit: int, change: Any, parity: list[Any]) -> None: ...
def predict(request: Mapping[str, Any]) -> str: ...
def reliability(request: Mapping[str, Any], progress: _Progress) -> str: ...
def replay(drive: str, trace: str, seed: int) -> str: ...
def reliability_blocks(request: Mapping[str, Any], is_field: bool, range: tuple[int, int]) -> bytes: ...
def sweep(request: Mapping[str, Any], progress: _Progress, range: tuple[int, int] | None) -> Table: ...
def sweep_points(request: Mapping[str, Any]) -> int: ...
def torture(request: Mapping[str, Any], progress: _Progress) -> str: ...
def validate(
    study: str | None, data: str | None, halves: bool, leave_out: bool, seed: int
) -> tuple[str, Table]: ...
