//! A stream that is read: each record is verified before anything is done with it.
//!
//! Faults expected: any bytes, an end at any byte, input that cannot be read.

use std::io;

use stripewise_drive::Buffer;

use crate::stream::error::StreamError;
use crate::stream::format::{PREFIX_BYTES, RECORD_BYTES, Record, StreamHeader, Sums, corrupted};

/// A stream that is read from an input: a function that fills its bytes unless the input ends
/// first, and returns the number of bytes.
pub struct IncomingStream<I> {
    input: I,
    header: StreamHeader,
    sums: Sums,
    /// Offset of the next byte.
    at: u64,
    records: u64,
    data_bytes: u64,
    /// End of the ranges so far.
    end_bytes: u64,
}

/// A verified record.
pub(crate) enum Step {
    Data {
        offset_bytes: u64,
        data: Buffer,
    },
    Zeros {
        offset_bytes: u64,
        length_bytes: u64,
    },
    /// All of the stream was there.
    End,
}

impl<I: AsyncFnMut(&mut [u8]) -> io::Result<usize>> IncomingStream<I> {
    /// Reads and verifies the header.
    pub async fn begin(mut input: I) -> Result<Self, StreamError> {
        let mut prefix = [0; PREFIX_BYTES];
        let read = fill(&mut input, &mut prefix, 0).await?;
        if read < PREFIX_BYTES {
            return Err(if read == 0 { StreamError::Cut { at: 0 } } else { StreamError::NoStream });
        }
        let mut bytes = vec![0; StreamHeader::length(&prefix)?];
        bytes[..PREFIX_BYTES].copy_from_slice(&prefix);
        let read = fill(&mut input, &mut bytes[PREFIX_BYTES..], PREFIX_BYTES as u64).await?;
        if read < bytes.len() - PREFIX_BYTES {
            return Err(StreamError::Cut { at: (PREFIX_BYTES + read) as u64 });
        }
        let (header, sum) = StreamHeader::decode(&bytes)?;
        let at = bytes.len() as u64;
        Ok(Self { input, header, sums: Sums::new(sum), at, records: 0, data_bytes: 0, end_bytes: 0 })
    }

    /// The header.
    pub fn header(&self) -> &StreamHeader {
        &self.header
    }

    /// Bytes of data so far.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Reads and verifies the next record.
    pub(crate) async fn next(&mut self) -> Result<Step, StreamError> {
        let start = self.at;
        let mut head = [0; RECORD_BYTES];
        self.read(&mut head).await?;
        let record = Record::decode(&head).ok_or(corrupted(start, "a record is impossible"))?;
        let mut data = Vec::new();
        if let Record::Data { length_bytes, .. } = record {
            // Not into a buffer at once: its memory is not held while the input is waited for.
            data.resize(length_bytes as usize, 0);
            self.read(&mut data).await?;
        }
        let sums = self.sums.all();
        if !self.sums.verify(&head, &data) {
            return Err(corrupted(start, "the checksum of a record does not match"));
        }
        match record {
            Record::Data { offset_bytes, length_bytes } => {
                self.pass(start, offset_bytes, length_bytes)?;
                self.data_bytes += length_bytes;
                Ok(Step::Data { offset_bytes, data: Buffer::from_bytes(&data) })
            }
            Record::Zeros { offset_bytes, length_bytes } => {
                self.pass(start, offset_bytes, length_bytes)?;
                Ok(Step::Zeros { offset_bytes, length_bytes })
            }
            Record::End { records, data_bytes, sums: all } => {
                if (records, data_bytes, all) != (self.records, self.data_bytes, sums) {
                    return Err(corrupted(start, "records are missing before its end"));
                }
                let mut beyond = [0];
                match fill(&mut self.input, &mut beyond, self.at).await? {
                    0 => Ok(Step::End),
                    _ => Err(StreamError::GoesOn { at: self.at }),
                }
            }
        }
    }

    /// Ranges follow one another within the size.
    fn pass(&mut self, start: u64, offset_bytes: u64, length_bytes: u64) -> Result<(), StreamError> {
        let end = offset_bytes.checked_add(length_bytes).filter(|end| *end <= self.header.size_bytes);
        self.end_bytes = end
            .filter(|_| offset_bytes >= self.end_bytes)
            .ok_or(corrupted(start, "a range is out of order or beyond the end of the snapshot"))?;
        self.records += 1;
        Ok(())
    }

    async fn read(&mut self, bytes: &mut [u8]) -> Result<(), StreamError> {
        let read = fill(&mut self.input, bytes, self.at).await?;
        self.at += read as u64;
        if read < bytes.len() { Err(StreamError::Cut { at: self.at }) } else { Ok(()) }
    }
}

async fn fill<I: AsyncFnMut(&mut [u8]) -> io::Result<usize>>(
    input: &mut I,
    bytes: &mut [u8],
    at: u64,
) -> Result<usize, StreamError> {
    input(bytes).await.map_err(|error| StreamError::Input { at, why: error.to_string() })
}

/// True if these bytes are a whole stream.
pub(crate) async fn is_whole(mut bytes: &[u8]) -> bool {
    let Ok(mut stream) =
        IncomingStream::begin(async move |to: &mut [u8]| io::Read::read(&mut bytes, to)).await
    else {
        return false;
    };
    loop {
        match stream.next().await {
            Ok(Step::End) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}
