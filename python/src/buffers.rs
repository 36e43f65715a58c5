//! Memory of Python objects: NumPy arrays, `bytes`, `bytearray`, `memoryview`, memory maps, and
//! anything else with the buffer protocol. Nothing is copied.
//!
//! `PyObject_GetBuffer` is in the stable interface from Python 3.11 on, and the same function with
//! the same structure in 3.9 and 3.10; PyO3 declares it for 3.11 only, so it is declared here.
//!
//! Expected faults: objects without a buffer, memory that is not contiguous, memory that may not be
//! written, outputs that overlap other memory. Each is refused before anything is written.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use pyo3::exceptions::PyTypeError;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;

use crate::failure::{Failure, Result};

/// The structure `Py_buffer` of CPython.
#[repr(C)]
struct View {
    memory: *mut c_void,
    object: *mut PyObject,
    bytes: isize,
    item_bytes: isize,
    is_read_only: c_int,
    dimensions: c_int,
    format: *const c_char,
    shape: *const isize,
    strides: *const isize,
    suboffsets: *const isize,
    internal: *mut c_void,
}

/// One contiguous piece of memory.
const SIMPLE: c_int = 0;
const WRITABLE: c_int = 1;

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut PyObject, view: *mut View, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut View);
}

/// Memory of an object, which stays where it is until this is dropped.
pub(crate) struct Memory {
    view: Box<View>,
}

// SAFETY: the view is not changed, and released with the interpreter's lock held (`drop`).
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Memory to read; `what` names it in errors.
    fn to_read(what: &str, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::new(object, SIMPLE).map_err(|error| refused(what, error, object.py(), "contiguous"))
    }

    /// Memory to write.
    fn to_write(what: &str, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::new(object, WRITABLE)
            .map_err(|error| refused(what, error, object.py(), "writable and contiguous"))
    }

    fn new(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut view = Box::new(View {
            memory: null_mut(),
            object: null_mut(),
            bytes: 0,
            item_bytes: 0,
            is_read_only: 0,
            dimensions: 0,
            format: null(),
            shape: null(),
            strides: null(),
            suboffsets: null(),
            internal: null_mut(),
        });
        // SAFETY: the object is alive, the lock is held, and the view is one that may be written.
        // Boxed, since exporters may point into it.
        match unsafe { PyObject_GetBuffer(object.as_ptr(), &mut *view, flags) } {
            0 => Ok(Self { view }),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    fn len(&self) -> usize {
        self.view.bytes as usize
    }

    fn start(&self) -> usize {
        self.view.memory as usize
    }

    fn overlaps(&self, other: &Self) -> bool {
        let is_empty = self.len() == 0 || other.len() == 0;
        !is_empty && self.start() < other.start() + other.len() && other.start() < self.start() + self.len()
    }

    fn bytes(&self) -> &[u8] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps this memory until the view is released. That other threads of
        // the interpreter do not write to it is a promise of the caller, as for NumPy's functions.
        unsafe { std::slice::from_raw_parts(self.view.memory.cast(), self.len()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        if self.len() == 0 {
            return &mut [];
        }
        // SAFETY: as `bytes`; the view was requested as writable, and `Stripe` has refused memory
        // that overlaps other memory in use.
        unsafe { std::slice::from_raw_parts_mut(self.view.memory.cast(), self.len()) }
    }
}

/// The error for memory that cannot be used; an object without any is a `TypeError`.
fn refused(what: &str, error: PyErr, py: Python<'_>, wanted: &str) -> PyErr {
    let message = format!("{what}: {}", error.value(py));
    match error.is_instance_of::<PyTypeError>(py) {
        true => PyTypeError::new_err(message),
        false => Failure::request(message, format!("a unit is {wanted} memory")).into(),
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the view is one that `PyObject_GetBuffer` filled, released once, with the lock.
        Python::attach(|_| unsafe { PyBuffer_Release(&mut *self.view) });
    }
}

/// Units that are read and units that are written, all of one length, without overlaps.
pub(crate) struct Stripe {
    read: Vec<Memory>,
    written: Vec<Memory>,
}

impl Stripe {
    /// Takes the memory of units; refuses units that do not fit together.
    pub(crate) fn new(read: &[Bound<'_, PyAny>], written: &[Bound<'_, PyAny>]) -> PyResult<Self> {
        let inputs = read.iter().enumerate();
        let outputs = written.iter().enumerate();
        let stripe = Self {
            read: inputs
                .map(|(at, unit)| Memory::to_read(&format!("input {at}"), unit))
                .collect::<PyResult<_>>()?,
            written: outputs
                .map(|(at, unit)| Memory::to_write(&format!("output {at}"), unit))
                .collect::<PyResult<_>>()?,
        };
        stripe.check()?;
        Ok(stripe)
    }

    fn check(&self) -> Result<()> {
        let all: Vec<&Memory> = self.read.iter().chain(&self.written).collect();
        let Some(length) = all.first().map(|memory| memory.len()) else { return Ok(()) };
        if let Some(other) = all.iter().find(|memory| memory.len() != length) {
            return Err(Failure::request(
                format!("units of {length} and {} bytes do not form a stripe", other.len()),
                "pad the units to one length",
            ));
        }
        for (index, output) in self.written.iter().enumerate() {
            let output_at = self.read.len() + index;
            let others = all.iter().enumerate().filter(|(at, _)| *at != output_at);
            if others.into_iter().any(|(_, other)| output.overlaps(other)) {
                return Err(Failure::request(
                    "memory that is written overlaps other memory of the stripe",
                    "give each output memory of its own",
                ));
            }
        }
        Ok(())
    }

    /// The units as slices.
    pub(crate) fn slices(&mut self) -> (Vec<&[u8]>, Vec<&mut [u8]>) {
        let read = self.read.iter().map(Memory::bytes).collect();
        (read, self.written.iter_mut().map(Memory::bytes_mut).collect())
    }
}
