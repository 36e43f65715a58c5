//! Intel's ISA-L, if it is installed: opened at run time, so that nothing is needed to build.
//!
//! Its absence is expected; then there is nothing to compare with and the benchmark says so.

use std::ffi::{CStr, c_int, c_uchar, c_void};

type GenerateFn = unsafe extern "C" fn(vectors: c_int, length: c_int, array: *mut *mut c_void) -> c_int;
type InitTablesFn = unsafe extern "C" fn(k: c_int, rows: c_int, matrix: *mut c_uchar, tables: *mut c_uchar);
type EncodeFn = unsafe extern "C" fn(
    length: c_int,
    k: c_int,
    rows: c_int,
    tables: *mut c_uchar,
    data: *mut *mut c_uchar,
    coding: *mut *mut c_uchar,
);

/// The three functions of ISA-L that our encoding is measured against.
pub struct Isal {
    xor_gen: GenerateFn,
    pq_gen: GenerateFn,
    ec_encode_data: EncodeFn,
    ec_init_tables: InitTablesFn,
}

/// Tables for `ec_encode_data`, made once per code as its users do.
pub struct Tables(Vec<u8>);

impl Isal {
    /// Opens the library.
    pub fn open() -> Option<Isal> {
        let handle = [c"libisal.so.2", c"libisal.so"].iter().find_map(|name| {
            // SAFETY: the name is a C string; the library's constructors do nothing but pick their
            // kernels.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
            (!handle.is_null()).then_some(handle)
        })?;
        let symbol = |name: &CStr| {
            // SAFETY: the handle is open and stays so.
            let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        // SAFETY: these are the functions' signatures in isa-l/raid.h and isa-l/erasure_code.h.
        unsafe {
            Some(Isal {
                xor_gen: std::mem::transmute::<*mut c_void, GenerateFn>(symbol(c"xor_gen")?),
                pq_gen: std::mem::transmute::<*mut c_void, GenerateFn>(symbol(c"pq_gen")?),
                ec_encode_data: std::mem::transmute::<*mut c_void, EncodeFn>(symbol(c"ec_encode_data")?),
                ec_init_tables: std::mem::transmute::<*mut c_void, InitTablesFn>(symbol(c"ec_init_tables")?),
            })
        }
    }

    /// Tables of the same code as ours: rows 1, 2^i, 4^i.
    pub fn tables(&self, data_units: usize, rows: usize) -> Tables {
        let mut matrix: Vec<u8> = Vec::new();
        for row in 0..rows {
            let mut power = 1u8;
            for _ in 0..data_units {
                matrix.push(power);
                for _ in 0..row {
                    power = (power << 1) ^ if power & 0x80 != 0 { 0x1d } else { 0 };
                }
            }
        }
        let mut tables = vec![0; 32 * data_units * rows];
        // SAFETY: the matrix is rows x k, the tables 32 bytes for each of its entries.
        unsafe {
            (self.ec_init_tables)(
                data_units as c_int,
                rows as c_int,
                matrix.as_mut_ptr(),
                tables.as_mut_ptr(),
            )
        }
        Tables(tables)
    }

    /// `xor_gen`, `pq_gen` or `ec_encode_data`, by the number of parity units.
    pub fn encode(&self, tables: &Tables, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        let length = parity[0].len() as c_int;
        let members = data.len() + parity.len();
        let mut pointers = [std::ptr::null_mut::<u8>(); 32];
        let parity_pointers = parity.iter_mut().map(|unit| unit.as_mut_ptr());
        let all = data.iter().map(|unit| unit.as_ptr().cast_mut()).chain(parity_pointers);
        for (slot, pointer) in pointers.iter_mut().zip(all) {
            *slot = pointer;
        }
        let array = pointers.as_mut_ptr();
        // SAFETY: as many pointers as said, each to `length` bytes; the data is only read.
        let failed = unsafe {
            match parity.len() {
                1 => (self.xor_gen)(members as c_int, length, array.cast()),
                2 => (self.pq_gen)(members as c_int, length, array.cast()),
                rows => {
                    let coding = array.add(data.len());
                    let tables = tables.0.as_ptr().cast_mut();
                    (self.ec_encode_data)(length, data.len() as c_int, rows as c_int, tables, array, coding);
                    0
                }
            }
        };
        assert_eq!(failed, 0, "ISA-L refused the arguments");
    }
}
