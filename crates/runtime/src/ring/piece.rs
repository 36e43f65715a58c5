//! Bytes to be sent, and the iovec list of their memory for the kernel. Faults expected: none.

use stripewise_drive::Buffer;

/// The kernel's own limit on the pieces of one transfer (UIO_MAXIOV).
const MAX_PIECES: usize = 1024;
/// Maximum length of one transfer; the kernel's own limit is 2 GiB less a page.
pub(crate) const MAX_TRANSFER_BYTES: usize = 1 << 30;
/// Maximum length of a piece without an allocation.
const SMALL_BYTES: usize = 48;

/// Bytes to be sent.
pub struct Piece(Bytes);

enum Bytes {
    Small { bytes: [u8; SMALL_BYTES], length: u8 },
    Vec(Vec<u8>),
    Buffer(Buffer),
}

impl Piece {
    /// A copy of `bytes`; up to 48 bytes, such as the heads of messages, need no allocation.
    pub fn copy_of(bytes: &[u8]) -> Self {
        if bytes.len() > SMALL_BYTES {
            return Self(Bytes::Vec(bytes.to_vec()));
        }
        let mut small = [0; SMALL_BYTES];
        small[..bytes.len()].copy_from_slice(bytes);
        Self(Bytes::Small { bytes: small, length: bytes.len() as u8 })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Bytes::Small { length, .. } => usize::from(*length),
            Bytes::Vec(bytes) => bytes.len(),
            Bytes::Buffer(buffer) => buffer.len(),
        }
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` with the bytes, to send them in another form.
    pub fn with<T>(&self, f: impl FnOnce(&[u8]) -> T) -> T {
        match &self.0 {
            Bytes::Small { bytes, length } => f(&bytes[..usize::from(*length)]),
            Bytes::Vec(bytes) => f(bytes),
            Bytes::Buffer(buffer) => {
                buffer.with(f).expect("phantom buffers are for models, not for networks")
            }
        }
    }

    fn address(&self) -> *const u8 {
        match &self.0 {
            Bytes::Small { bytes, .. } => bytes.as_ptr(),
            Bytes::Vec(bytes) => bytes.as_ptr(),
            Bytes::Buffer(buffer) => {
                buffer.as_ptr().expect("phantom buffers are for models, not for networks").as_ptr()
            }
        }
    }
}

impl From<Vec<u8>> for Piece {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Bytes::Vec(bytes))
    }
}

impl From<Buffer> for Piece {
    /// The buffer must not change until it is sent.
    fn from(buffer: Buffer) -> Self {
        Self(Bytes::Buffer(buffer))
    }
}

/// Lists the memory of `pieces`, from byte `skip_bytes` of the first on, up to the limits of one
/// operation.
pub(crate) fn gather(pieces: &[Piece], mut skip_bytes: usize, iovecs: &mut Vec<libc::iovec>) {
    iovecs.clear();
    let mut total_bytes = 0;
    for piece in pieces {
        let length = (piece.len() - skip_bytes).min(MAX_TRANSFER_BYTES - total_bytes);
        let start = piece.address().wrapping_add(skip_bytes);
        skip_bytes = 0;
        if iovecs.len() == MAX_PIECES || total_bytes == MAX_TRANSFER_BYTES {
            break;
        }
        if length > 0 {
            iovecs.push(libc::iovec { iov_base: start.cast_mut().cast(), iov_len: length });
            total_bytes += length;
        }
    }
}
