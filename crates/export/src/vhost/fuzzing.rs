//! Entry point to the parsers for fuzzing. Not part of this crate's stable interface.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use stripewise_runtime::make_shared_file;

use super::memory::{GuestMemory, Region};
use super::request::Request;
use super::ring::{Ring, RingAt, total};
use super::wire::{HEAD_BYTES, Head, Message, RegionAt};

const MEMORY_BYTES: u64 = 64 << 10;
const AVAILABLE_AT: u64 = 0x4000;
const USED_AT: u64 = 0x5000;
/// Maximum chains taken from one ring.
const MAX_CHAINS: usize = 256;

/// Takes bytes as a message of a front end, and as a guest's memory with a ring in it: choices of
/// the ring's settings, then descriptors; the other rings follow at fixed places. Nothing may
/// panic, and no access may leave the memory.
pub fn guest_bytes(input: &[u8]) {
    if let Some((head, body)) = input.split_first_chunk::<HEAD_BYTES>()
        && let Ok(head) = Head::parse(head)
    {
        let _ = Message::parse(head.code, body.get(..head.body_bytes).unwrap_or(body));
    }
    let Some(([size, choice], contents)) = input.split_first_chunk::<2>() else { return };
    let contents = &contents[..contents.len().min(MEMORY_BYTES as usize)];
    let Ok(memory) = memory_of(contents) else { return };
    let at = RingAt { size: 1 << (size % 11), descriptors: 0, used: USED_AT, available: AVAILABLE_AT };
    let Ok(mut ring) = Ring::new(Rc::new(memory), at, choice & 1 != 0, u16::from(*choice >> 1)) else {
        return;
    };
    for _ in 0..MAX_CHAINS {
        let Ok(Some(chain)) = ring.pop() else { break };
        let memory = ring.memory().clone();
        let Ok(request) = Request::parse(&memory, &chain) else { break };
        let mut data = vec![0; request.buffer_bytes().min(MEMORY_BYTES) as usize];
        let (to_device, to_guest) = (total(chain.readable()), total(chain.writable()));
        data.truncate(to_device.max(to_guest - 1) as usize);
        if to_device >= data.len() as u64 {
            memory.read(chain.readable(), to_device - data.len() as u64, &mut data);
        }
        if to_guest >= data.len() as u64 {
            memory.write(chain.writable(), 0, &data);
        }
        memory.write(chain.writable(), to_guest - 1, &[0]);
        ring.push_used(chain.head, 1);
        ring.wants_signal();
        ring.enable_kicks();
    }
}

/// Two adjacent regions of a guest, which begin with `contents`.
pub(super) fn memory_of(contents: &[u8]) -> std::io::Result<GuestMemory> {
    let file = File::from(make_shared_file(MEMORY_BYTES)?);
    file.write_all_at(contents, 0)?;
    let half = MEMORY_BYTES / 2;
    let regions = [0, half].map(|start| {
        let place = RegionAt {
            guest_address: start,
            length_bytes: half,
            user_address: start,
            file_offset_bytes: start,
        };
        Region::new(place, OwnedFd::from(file.try_clone()?))
    });
    GuestMemory::new(regions.into_iter().collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_memory_is_refused_or_used() {
        let mut state = 1_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        for _ in 0..300 {
            let length = random() as usize % 0x6000;
            // Small numbers, so that many addresses and indexes are valid.
            let mut input: Vec<u8> = (0..length).map(|_| (random() % 8) as u8).collect();
            input.iter_mut().step_by(16).for_each(|byte| *byte = random() as u8);
            guest_bytes(&input);
        }
    }
}
