//! Tables of columns in Arrow's layout, and the Python class for them.

use std::ffi::{CStr, c_void};
use std::ptr::null;
use std::sync::Arc;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};

use crate::arrow::{ArrowSchema, ArrowStream};

/// Values of a column as Arrow lays them out; a missing value has a place too.
#[derive(Debug, PartialEq)]
pub(crate) enum Values {
    /// UTF-8: ends of the texts within the bytes, after a 0.
    Text(Vec<i32>, Vec<u8>),
    /// 64-bit floating point.
    Real(Vec<f64>),
    /// 64-bit integers.
    Whole(Vec<i64>),
    /// One bit each.
    Truth(Vec<u8>),
}

impl Values {
    /// The type in Arrow's notation.
    pub(crate) fn format(&self) -> &'static CStr {
        match self {
            Self::Text(..) => c"u",
            Self::Real(_) => c"g",
            Self::Whole(_) => c"l",
            Self::Truth(_) => c"b",
        }
    }

    /// Addresses of the buffers, without the one that marks missing values.
    pub(crate) fn buffers(&self) -> Vec<*const c_void> {
        match self {
            Self::Text(ends, bytes) => vec![ends.as_ptr().cast(), bytes.as_ptr().cast()],
            Self::Real(values) => vec![values.as_ptr().cast()],
            Self::Whole(values) => vec![values.as_ptr().cast()],
            Self::Truth(bits) => vec![bits.as_ptr().cast()],
        }
    }
}

/// A named column.
#[derive(Debug, PartialEq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) values: Values,
    /// One bit per row, set where there is a value; `None` if no value is missing.
    present: Option<Vec<u8>>,
    pub(crate) null_count: usize,
}

fn bits(flags: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, flag) in flags.enumerate() {
        if index % 8 == 0 {
            bytes.push(0);
        }
        bytes[index / 8] |= u8::from(flag) << (index % 8);
    }
    bytes
}

fn is_set(bits: &[u8], index: usize) -> bool {
    bits[index / 8] >> (index % 8) & 1 == 1
}

impl Column {
    fn new<T>(name: &str, given: &[Option<T>], values: Values) -> Self {
        let null_count = given.iter().filter(|value| value.is_none()).count();
        let present = (null_count > 0).then(|| bits(given.iter().map(Option::is_some)));
        Self { name: name.to_owned(), values, present, null_count }
    }

    pub(crate) fn text<'a>(name: &str, values: impl Iterator<Item = Option<&'a str>>) -> Self {
        let given: Vec<Option<&str>> = values.collect();
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for value in &given {
            bytes.extend_from_slice(value.unwrap_or_default().as_bytes());
            ends.push(i32::try_from(bytes.len()).expect("a column of texts is below 2 GiB"));
        }
        Self::new(name, &given, Values::Text(ends, bytes))
    }

    pub(crate) fn real(name: &str, values: impl Iterator<Item = Option<f64>>) -> Self {
        let given: Vec<Option<f64>> = values.collect();
        let values = given.iter().map(|value| value.unwrap_or_default()).collect();
        Self::new(name, &given, Values::Real(values))
    }

    pub(crate) fn whole(name: &str, values: impl Iterator<Item = Option<i64>>) -> Self {
        let given: Vec<Option<i64>> = values.collect();
        let values = given.iter().map(|value| value.unwrap_or_default()).collect();
        Self::new(name, &given, Values::Whole(values))
    }

    pub(crate) fn truth(name: &str, values: impl Iterator<Item = Option<bool>>) -> Self {
        let given: Vec<Option<bool>> = values.collect();
        let values = bits(given.iter().map(|value| value.unwrap_or_default()));
        Self::new(name, &given, Values::Truth(values))
    }

    /// Address of the bits that mark missing values.
    pub(crate) fn validity(&self) -> *const c_void {
        self.present.as_ref().map_or(null(), |bits| bits.as_ptr().cast())
    }

    fn value<'py>(&self, py: Python<'py>, row: usize) -> PyResult<Bound<'py, PyAny>> {
        if self.present.as_ref().is_some_and(|bits| !is_set(bits, row)) {
            return Ok(py.None().into_bound(py));
        }
        match &self.values {
            Values::Text(ends, bytes) => {
                let text = &bytes[ends[row] as usize..ends[row + 1] as usize];
                String::from_utf8_lossy(text).into_bound_py_any(py)
            }
            Values::Real(values) => values[row].into_bound_py_any(py),
            Values::Whole(values) => values[row].into_bound_py_any(py),
            Values::Truth(values) => is_set(values, row).into_bound_py_any(py),
        }
    }
}

/// Columns of one length.
#[derive(Debug, PartialEq)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: usize,
}

/// A table of results.
///
/// pyarrow (`pyarrow.table(table)`), pandas (`pandas.DataFrame.from_arrow(table)`) and Polars
/// (`polars.DataFrame(table)`) take it through the Arrow C stream interface without a copy.
#[pyclass(frozen, eq, module = "stripewise", name = "Table")]
#[derive(PartialEq)]
pub(crate) struct PyTable(Arc<Table>);

impl PyTable {
    pub(crate) fn new(rows: usize, columns: Vec<Column>) -> Self {
        Self(Arc::new(Table { columns, rows }))
    }

    fn list<'py>(&self, py: Python<'py>, column: &Column) -> PyResult<Bound<'py, PyList>> {
        let values = (0..self.0.rows).map(|row| column.value(py, row)).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, values)
    }
}

#[pymethods]
impl PyTable {
    /// Names of the columns, in order.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.0.columns.iter().map(|column| column.name.as_str()).collect()
    }

    /// Number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.rows
    }

    fn __len__(&self) -> usize {
        self.0.rows
    }

    fn __repr__(&self) -> String {
        format!("<stripewise.Table of {} rows: {}>", self.0.rows, self.column_names().join(", "))
    }

    /// The values of a column; a missing value is `None`.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let name: String =
            name.extract().map_err(|_| PyTypeError::new_err("columns are selected by their name"))?;
        let column = self.0.columns.iter().find(|column| column.name == name);
        self.list(py, column.ok_or_else(|| PyKeyError::new_err(name))?)
    }

    /// All columns, as lists by name.
    fn to_pydict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        for column in &self.0.columns {
            all.set_item(&column.name, self.list(py, column)?)?;
        }
        Ok(all)
    }

    /// The table as a `pyarrow.Table`, without a copy.
    fn to_pyarrow<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.call_method1("table", (slf,))
    }

    /// The table as a `pandas.DataFrame`.
    fn to_pandas<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::to_pyarrow(slf)?.call_method0("to_pandas")
    }

    /// The table as a `polars.DataFrame`.
    fn to_polars<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("polars")?.call_method1("DataFrame", (slf,))
    }

    /// The Arrow C stream interface. The columns keep their types, whatever schema is requested.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        PyCapsule::new_with_value(py, ArrowStream::of(&self.0), c"arrow_array_stream")
    }

    /// The schema through the Arrow C data interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        PyCapsule::new_with_value(py, ArrowSchema::of(&self.0), c"arrow_schema")
    }
}
