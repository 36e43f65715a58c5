//! The Arrow C data and stream interface of a table: pyarrow, pandas and Polars read its columns
//! where they are, without a copy. One batch per stream.
//!
//! <https://arrow.apache.org/docs/format/CDataInterface.html> defines the structures and who
//! releases them. The buffers belong to the [`Table`], which each exported array keeps alive.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use crate::table::{Column, Table};

/// Columns may have missing values.
const NULLABLE: i64 = 2;

/// Type and name of a column, or of the table.
#[repr(C)]
pub(crate) struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// Buffers of a column, or the columns of the table.
#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// A table as a stream of one batch.
#[repr(C)]
pub(crate) struct ArrowStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowStream)>,
    private_data: *mut c_void,
}

// SAFETY: the structures own what they point to, which is never changed after it was made.
unsafe impl Send for ArrowSchema {}
// SAFETY: as above.
unsafe impl Send for ArrowStream {}

/// Owner of what a schema points to.
struct SchemaParts {
    _name: CString,
    children: Vec<*mut ArrowSchema>,
}

/// Owner of what an array points to.
struct ArrayParts {
    _table: Arc<Table>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

/// Owner of a stream's table; the batch is taken once.
struct StreamParts {
    table: Arc<Table>,
    is_taken: bool,
}

impl ArrowSchema {
    /// The schema of a table: a structure of its columns.
    pub(crate) fn of(table: &Table) -> Self {
        let child = |column: &Column| {
            let schema = Self::new(column.values.format(), &column.name, NULLABLE, Vec::new());
            Box::into_raw(Box::new(schema))
        };
        Self::new(c"+s", "", 0, table.columns.iter().map(child).collect())
    }

    fn new(format: &'static CStr, name: &str, flags: i64, children: Vec<*mut ArrowSchema>) -> Self {
        let name = CString::new(name).expect("column names have no zero bytes");
        let name_at = name.as_ptr();
        let mut parts = Box::new(SchemaParts { _name: name, children });
        Self {
            format: format.as_ptr(),
            name: name_at,
            metadata: null(),
            flags,
            n_children: parts.children.len() as i64,
            children: parts.children.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(release_schema),
            private_data: Box::into_raw(parts).cast(),
        }
    }
}

impl Drop for ArrowSchema {
    /// Releases a schema that no consumer took.
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: this is a schema that was not released yet.
            unsafe { release(self) }
        }
    }
}

/// # Safety
/// `schema` is one of [`ArrowSchema::new`], not yet released.
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: by the caller's promise the private data is what `new` made, and is given up here
    // once. Children are boxes of `new` too; dropping one releases it unless a consumer moved it.
    unsafe {
        let parts: Box<SchemaParts> = Box::from_raw((*schema).private_data.cast());
        for child in &parts.children {
            drop(Box::from_raw(*child));
        }
        (*schema).release = None;
    }
}

impl ArrowArray {
    /// The batch of all rows of a table.
    fn of(table: &Arc<Table>) -> Self {
        let child = |column: &Column| {
            let mut buffers = vec![column.validity()];
            buffers.extend(column.values.buffers());
            Box::into_raw(Box::new(Self::new(table, column.null_count as i64, buffers, Vec::new())))
        };
        Self::new(table, 0, vec![null()], table.columns.iter().map(child).collect())
    }

    fn new(
        table: &Arc<Table>,
        null_count: i64,
        buffers: Vec<*const c_void>,
        children: Vec<*mut ArrowArray>,
    ) -> Self {
        let mut parts = Box::new(ArrayParts { _table: Arc::clone(table), buffers, children });
        Self {
            length: table.rows as i64,
            null_count,
            offset: 0,
            n_buffers: parts.buffers.len() as i64,
            n_children: parts.children.len() as i64,
            buffers: parts.buffers.as_mut_ptr(),
            children: parts.children.as_mut_ptr(),
            dictionary: null_mut(),
            release: Some(release_array),
            private_data: Box::into_raw(parts).cast(),
        }
    }

    /// The end of a stream.
    fn end() -> Self {
        Self {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: null_mut(),
            children: null_mut(),
            dictionary: null_mut(),
            release: None,
            private_data: null_mut(),
        }
    }
}

impl Drop for ArrowArray {
    /// Releases a child that no consumer moved.
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: this is an array that was not released yet.
            unsafe { release(self) }
        }
    }
}

/// # Safety
/// `array` is one of [`ArrowArray::new`], not yet released.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: as `release_schema`.
    unsafe {
        let parts: Box<ArrayParts> = Box::from_raw((*array).private_data.cast());
        for child in &parts.children {
            drop(Box::from_raw(*child));
        }
        (*array).release = None;
    }
}

impl ArrowStream {
    /// A stream of the whole table.
    pub(crate) fn of(table: &Arc<Table>) -> Self {
        let parts = Box::new(StreamParts { table: Arc::clone(table), is_taken: false });
        Self {
            get_schema: Some(stream_schema),
            get_next: Some(stream_next),
            get_last_error: Some(stream_error),
            release: Some(release_stream),
            private_data: Box::into_raw(parts).cast(),
        }
    }
}

impl Drop for ArrowStream {
    /// Releases a stream that no consumer took.
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: this is a stream that was not released yet.
            unsafe { release(self) }
        }
    }
}

/// # Safety
/// `stream` is one of [`ArrowStream::of`], not yet released; `out` may be written.
unsafe extern "C" fn stream_schema(stream: *mut ArrowStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: by the caller's promise; `out` holds nothing that is to be dropped.
    unsafe {
        let parts = &*(*stream).private_data.cast::<StreamParts>();
        out.write(ArrowSchema::of(&parts.table));
    }
    0
}

/// # Safety
/// As [`stream_schema`].
unsafe extern "C" fn stream_next(stream: *mut ArrowStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: by the caller's promise; streams are used by one thread at a time.
    unsafe {
        let parts = &mut *(*stream).private_data.cast::<StreamParts>();
        let is_first = !std::mem::replace(&mut parts.is_taken, true);
        out.write(if is_first { ArrowArray::of(&parts.table) } else { ArrowArray::end() });
    }
    0
}

/// # Safety
/// Any stream: nothing here fails, so there is no error to describe.
unsafe extern "C" fn stream_error(_: *mut ArrowStream) -> *const c_char {
    null()
}

/// # Safety
/// `stream` is one of [`ArrowStream::of`], not yet released.
unsafe extern "C" fn release_stream(stream: *mut ArrowStream) {
    // SAFETY: by the caller's promise the private data is what `of` made, and is given up here once.
    unsafe {
        drop(Box::<StreamParts>::from_raw((*stream).private_data.cast()));
        (*stream).release = None;
    }
}
