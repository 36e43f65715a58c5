//! A drive executes the write that repairs a lost block, and drops it again with its cache: the
//! block stays lost.

use std::rc::Rc;

use futures_util::future::join;
use stripewise_array::{Array, ArrayOptions, Member, MemberOptions, NoHost};
use stripewise_drive::{Buffer, BufferPool, Context, MemoryDrive};
use stripewise_runtime::VirtualExecutor;

use crate::kit::array::shape;
use crate::kit::forgetful::Forgetful;
use crate::kit::linear::{LinearSpec, SlotInit};

const MIB: u64 = 1 << 20;
const PIECE: u64 = 64 << 10;
const BLOCK: usize = 4096;

fn drive() -> Rc<Forgetful> {
    Forgetful::over(MemoryDrive::new("d", 32 * MIB))
}

/// An array on one drive, whose first block is lost.
async fn with_a_lost_block(context: &Context, drive: &Rc<Forgetful>, is_dead: bool) -> Array {
    let spec = LinearSpec {
        id: 7,
        shape: shape("single", 1, PIECE),
        base_bytes: MIB,
        space_bytes: 12 * MIB,
        journal_slabs: 0,
        write_back: false,
        checksums: false,
    };
    let member = Member::new(context, drive.clone(), MemberOptions::default());
    let mut init = spec.init(vec![SlotInit::Active(member)]).unwrap();
    if !is_dead {
        init.lost_blocks = [(0, 0)].into_iter().collect();
    }
    let (buffers, options) = (BufferPool::new(8 << 20), ArrayOptions::default());
    let array = Array::create(context, &buffers, init, Rc::new(NoHost), options).await.unwrap();
    if is_dead {
        array.note_dead_blocks([0]);
    }
    array
}

/// The drive has carried the write out, and dropped it again before it was answered.
#[test]
fn write_dropped_by_a_refused_flush_repairs_no_block() {
    for is_dead in [true, false] {
        let drive = drive();
        let executor = VirtualExecutor::new();
        let context = executor.context();
        executor.block_on(async {
            let array = with_a_lost_block(&context, &drive, is_dead).await;
            let block = || Buffer::from_bytes(&vec![2; BLOCK]);
            array.write(PIECE, block(), false).await.unwrap();
            array.flush().await.unwrap();
            drive.answers_late.set(true);
            let refused = async {
                drive.refuse_next();
                array.flush().await.expect_err("the drive has lost the block again");
                assert_eq!(drive.refused.get(), 1);
                drive.answer();
            };
            join(array.write(0, block(), false), refused).await.0.expect("the drive took it");
            let case = format!("dead {is_dead}: it is as lost as before");
            array.read(0, BLOCK).await.expect_err(&case);
            array.flush().await.expect_err("a write that ended since has been lost");
            array.flush().await.unwrap();
            array.read(0, BLOCK).await.expect_err(&case);
            array.write(0, block(), false).await.unwrap();
            array.flush().await.unwrap();
            assert!(array.read(0, BLOCK).await.unwrap().to_vec() == vec![2; BLOCK]);
        });
    }
}
