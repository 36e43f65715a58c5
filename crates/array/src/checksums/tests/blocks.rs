//! Every kind of wrong block is detected, and no good block is reported.

use super::*;

const AT: u64 = 5 * MIB + 40 * BLOCK_BYTES;

async fn good(sums: &Checksums, column: u16, offset: u64, data: &Buffer) -> bool {
    sums.verify(column, offset, data).await.expect("a verdict").is_good()
}

#[test]
fn recorded_block_verifies_and_each_bit_flip_fails() {
    run(|context| async move {
        let bed = Bed::new(&context, 3, OPTIONS);
        let block = data(1, 1);
        record(&bed.sums, 1, AT, &block, 7).await;
        assert_eq!(bed.sums.verify(1, AT, &block).await.expect("a verdict"), Verdict::default());
        let mut random = SplitMix64::new(5);
        for _ in 0..2000 {
            let bit = random.below(BLOCK_BYTES * 8) as usize;
            let flip = || block.with_mut(|bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            flip();
            let verdict = bed.sums.verify(1, AT, &block).await.expect("a verdict");
            assert_eq!(&verdict.bad_blocks[..], [AT / BLOCK_BYTES], "bit {bit}");
            flip();
        }
    });
}

#[test]
fn a_block_of_another_place_is_bad() {
    run(|context| async move {
        let bed = Bed::new(&context, 3, OPTIONS);
        let (here, there) = (data(1, 1), data(2, 1));
        record(&bed.sums, 1, AT, &here, 7).await;
        record(&bed.sums, 1, AT + BLOCK_BYTES, &there, 7).await;
        assert!(good(&bed.sums, 1, AT, &here).await && good(&bed.sums, 1, AT + BLOCK_BYTES, &there).await);
        assert!(!good(&bed.sums, 1, AT, &there).await);
        assert!(!good(&bed.sums, 1, AT + BLOCK_BYTES, &here).await);
    });
}

/// The same bytes have a different checksum at every place: an entry misdirected together with its
/// block does not verify there.
#[test]
fn a_sum_serves_at_its_own_place_only() {
    run(|context| async move {
        let bed = Bed::new(&context, 3, OPTIONS);
        let block = data(1, 1);
        let sums = &bed.sums;
        let mut seen = std::collections::HashSet::new();
        for column in 0..3 {
            for place in 0..3 * SLAB_BYTES / BLOCK_BYTES {
                seen.insert(sums.compute(column, place * BLOCK_BYTES, &block)[0]);
            }
        }
        assert!(seen.len() as u64 >= 9 * SLAB_BYTES / BLOCK_BYTES - 1, "{} sums", seen.len());
        let stolen = sums.compute(1, AT, &block);
        for (column, offset) in [(1, AT + BLOCK_BYTES), (2, AT), (1, AT + SLAB_BYTES), (1, AT + MIB)] {
            let pin = sums.pin(column, offset, BLOCK_BYTES).await.expect("pages");
            sums.set(&pin, offset, &stolen, 7);
            assert!(!good(sums, column, offset, &block).await, "column {column} at {offset}");
        }
    });
}

#[test]
fn a_lost_write_leaves_a_block_that_is_bad() {
    run(|context| async move {
        let mut bed = Bed::new(&context, 3, OPTIONS);
        let (old, new) = (data(1, 1), data(2, 1));
        record(&bed.sums, 1, AT, &old, 7).await;
        record(&bed.sums, 1, AT, &new, 8).await;
        assert!(!good(&bed.sums, 1, AT, &old).await);
        bed.sums.checkpoint().await.expect("a checkpoint");
        bed.reopen(OPTIONS);
        assert!(!good(&bed.sums, 1, AT, &old).await && good(&bed.sums, 1, AT, &new).await);
        let pin = bed.sums.pin(1, AT, BLOCK_BYTES).await.expect("pages");
        assert_eq!(bed.sums.expected(&pin, AT).map(|recorded| recorded.sequence), Some(8));
    });
}

#[test]
fn bad_blocks_are_named_across_pages_and_rows() {
    run(|context| async move {
        let bed = Bed::new(&context, 3, OPTIONS);
        // From the last page of row 0 into the first of row 1.
        let offset = SLAB_BYTES - 3 * BLOCK_BYTES;
        let blocks = data(1, 8);
        record(&bed.sums, 2, offset, &blocks, 1).await;
        assert!(good(&bed.sums, 2, offset, &blocks).await);
        for block in [1, 2, 3, 7] {
            blocks.with_mut(|bytes| bytes[block * BLOCK_BYTES as usize + 9] ^= 4);
        }
        let verdict = bed.sums.verify(2, offset, &blocks).await.expect("a verdict");
        let first = offset / BLOCK_BYTES;
        assert_eq!(&verdict.bad_blocks[..], [first + 1, first + 2, first + 3, first + 7]);
    });
}

#[test]
fn partial_blocks_are_reported_as_unverified() {
    run(|context| async move {
        let bed = Bed::new(&context, 3, OPTIONS);
        let blocks = data(1, 3);
        record(&bed.sums, 0, AT, &blocks, 1).await;
        let verify = |from: usize, to: usize| {
            bed.sums.try_verify(0, AT + from as u64, &blocks.slice(from..to)).expect("pages are there")
        };
        blocks.with_mut(|bytes| bytes[3] ^= 1);
        assert!(!verify(0, 12288).is_good());
        // A partial bad block cannot be verified.
        let verdict = verify(512, 12288 - 1024);
        assert!(verdict.is_good());
        assert_eq!(verdict.unverified_bytes, 3584 + 3072);
        assert_eq!(verify(512, 1024).unverified_bytes, 512);
        assert_eq!(verify(3584, 4608).unverified_bytes, 1024);
        assert_eq!(verify(4096, 12288).unverified_bytes, 0);
    });
}

#[test]
fn unrecorded_blocks_pass_and_are_counted() {
    run(|context| async move {
        let bed = Bed::new(&context, 3, OPTIONS);
        let blocks = data(1, 4);
        record(&bed.sums, 0, AT, &blocks, 1).await;
        let pin = bed.sums.pin(0, AT, 16384).await.expect("pages");
        bed.sums.clear(&pin, AT + BLOCK_BYTES, 2 * BLOCK_BYTES);
        assert_eq!(bed.sums.expected(&pin, AT + BLOCK_BYTES), None);
        let verdict = bed.sums.verify(0, AT, &data(2, 4)).await.expect("a verdict");
        assert_eq!(verdict.unrecorded_blocks, 2);
        assert_eq!(&verdict.bad_blocks[..], [AT / BLOCK_BYTES, AT / BLOCK_BYTES + 3]);
    });
}

#[test]
fn phantoms_load_their_pages_and_agree() {
    run(|context| async move {
        let bed = Bed::new(&context, 2, OPTIONS);
        let spec = ChecksumSpec { volume_id: 1, width: 2, slab_bytes: SLAB_BYTES };
        let sums = Checksums::new(&BufferPool::phantom(), spec, OPTIONS, bed.places.clone());
        let phantom = Buffer::phantom(8192);
        assert!(sums.try_verify(0, AT, &phantom).is_none(), "the page is not in memory");
        record(&sums, 0, AT, &phantom, 1).await;
        assert_eq!(bed.places.reads(), 1);
        assert_eq!(sums.compute(0, AT, &phantom), sums.compute(1, 0, &phantom));
        assert!(sums.try_verify(0, AT, &phantom).expect("loaded").is_good());
        assert_eq!(sums.checkpoint().await.expect("a checkpoint").pages, 1);
        assert_eq!(sums.counters().lost_pages, 0);
    });
}

#[test]
fn journal_sequences_are_never_recorded_as_nothing() {
    assert_eq!(recorded_sequence(0x1_0000_0000), 1);
    assert_eq!(recorded_sequence(0x1_0000_0007), 7);
}
