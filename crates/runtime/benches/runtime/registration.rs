//! Benefit of registering files and buffers with the ring: the same raw loop of reads with and
//! without it, in turn.

use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};
use stripewise_drive::{Buffer, BufferPool};
use stripewise_runtime::process_cpu_ns;

use crate::files::{self, TestFile};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Plain,
    FixedFile,
    FixedFileAndBuffer,
    Vectored,
}

struct Setup {
    ring: IoUring,
    file: std::fs::File,
    buffers: Vec<Buffer>,
    iovecs: Vec<libc::iovec>,
    block_bytes: u64,
    blocks: u64,
}

impl Setup {
    fn new(file: &TestFile, block_bytes: u64, depth: usize) -> Self {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(256)
            .expect("an io_uring of Linux 6.1 or newer");
        let handle = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(&file.path)
            .expect("the file just made");
        let pool = BufferPool::new(0);
        let buffers: Vec<_> = (0..depth).map(|_| pool.allocate_zeroed(block_bytes as usize)).collect();
        let iovecs: Vec<_> = buffers
            .iter()
            .map(|buffer| libc::iovec {
                iov_base: buffer.as_ptr().expect("bytes").as_ptr().cast(),
                iov_len: block_bytes as usize,
            })
            .collect();
        ring.submitter().register_files(&[handle.as_raw_fd()]).expect("registered");
        // SAFETY: the buffers live as long as the ring: both are this structure's.
        unsafe { ring.submitter().register_buffers(&iovecs).expect("registered") };
        Self { ring, file: handle, buffers, iovecs, block_bytes, blocks: file.size_bytes / block_bytes }
    }

    fn entry(&self, way: Way, index: usize, block: u64) -> squeue::Entry {
        let (memory, length) = (self.iovecs[index].iov_base.cast::<u8>(), self.block_bytes as u32);
        let (plain, offset) = (types::Fd(self.file.as_raw_fd()), block * self.block_bytes);
        let entry = match way {
            Way::Plain => opcode::Read::new(plain, memory, length).offset(offset).build(),
            Way::FixedFile => opcode::Read::new(types::Fixed(0), memory, length).offset(offset).build(),
            Way::FixedFileAndBuffer => {
                opcode::ReadFixed::new(types::Fixed(0), memory, length, index as u16).offset(offset).build()
            }
            Way::Vectored => {
                opcode::Readv::new(plain, &raw const self.iovecs[index], 1).offset(offset).build()
            }
        };
        entry.user_data(index as u64)
    }

    /// Requests per second and microseconds of processor time per request.
    fn run(&mut self, way: Way, limit: Duration) -> (f64, f64) {
        let (mut random, mut done, mut in_flight) = (0x5EED_u64, 0_u64, 0_usize);
        let mut idle: Vec<usize> = (0..self.buffers.len()).collect();
        let (begin, cpu_before_ns) = (Instant::now(), process_cpu_ns());
        loop {
            let over = begin.elapsed() >= limit;
            if over && in_flight == 0 {
                break;
            }
            if !over {
                for index in std::mem::take(&mut idle) {
                    let entry = self.entry(way, index, files::next(&mut random) % self.blocks);
                    // SAFETY: this structure owns buffers and iovecs, and the loop ends only after
                    // all completions.
                    unsafe { self.ring.submission().push(&entry).expect("room for the depth") };
                    in_flight += 1;
                }
            }
            self.ring.submit_and_wait(1).expect("submitted");
            for answer in self.ring.completion() {
                assert_eq!(answer.result(), self.block_bytes as i32);
                idle.push(answer.user_data() as usize);
                in_flight -= 1;
                done += 1;
            }
        }
        let cpu_us = (process_cpu_ns() - cpu_before_ns) as f64 / 1e3;
        (done as f64 / begin.elapsed().as_secs_f64(), cpu_us / done as f64)
    }
}

/// Measures each way against plain reads and prints the ratios.
pub fn run(quick: bool) {
    let (limit, rounds) =
        if quick { (Duration::from_millis(300), 3) } else { (Duration::from_millis(800), 7) };
    println!(
        "Registration: random reads, {rounds} rounds of {} ms in turn; against plain reads, median (quartiles)",
        limit.as_millis()
    );
    let ways = [
        ("registered file", Way::FixedFile),
        ("registered file and buffer", Way::FixedFileAndBuffer),
        ("vectored, one piece", Way::Vectored),
    ];
    for file in files::make(1 << 30, Some(512 << 20)) {
        for (block_bytes, depth) in [(4096_u64, 32), (1 << 20, 16)] {
            let mut setup = Setup::new(&file, block_bytes, depth);
            let mut ratios = vec![(Vec::new(), Vec::new()); ways.len()];
            let mut plain = (0.0, 0.0);
            for _ in 0..rounds {
                plain = setup.run(Way::Plain, limit);
                for ((_, way), (rates, processor)) in ways.iter().zip(&mut ratios) {
                    let (per_second, cpu_us) = setup.run(*way, limit);
                    rates.push(per_second / plain.0);
                    processor.push(cpu_us / plain.1);
                }
            }
            println!(
                "  {}, {} KiB at depth {depth}: plain {:.0} per s, {:.2} us of processor each",
                file.place,
                block_bytes >> 10,
                plain.0,
                plain.1
            );
            for ((name, _), (rates, processor)) in ways.iter().zip(&ratios) {
                let (rate, cpu) = (crate::spread(rates), crate::spread(processor));
                println!(
                    "    {name:28} rate {:.3} ({:.3} to {:.3})   processor time {:.3} ({:.3} to {:.3})",
                    rate.0, rate.1, rate.2, cpu.0, cpu.1, cpu.2
                );
            }
        }
    }
}
