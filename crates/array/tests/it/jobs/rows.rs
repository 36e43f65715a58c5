//! Rows of slabs, with clients that keep writing: column migration, columns that return and resync,
//! volumes that grow, and thin volumes.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::kit::array::{Model, SECTOR, TestDrive, dirty, shape, space};
use crate::kit::linear::{LinearSpec, rebuild};
use stripewise_array::rows::{Places, RowTable, SlotPlace, SlotState};
use stripewise_array::{
    AreaPlace, Array, ArrayError, ArrayHandle, ArrayHost, ArrayInit, ArrayMember, ArrayOptions, BlockSet,
    HostRequest, LocalFuture, NoHost, lock_order,
};
use stripewise_drive::{BufferPool, Context, MemoryDrive, SplitMix64};
use stripewise_runtime::VirtualExecutor;

const MIB: u64 = 1 << 20;

/// Drives with room for more slabs than the array has.
struct Field {
    context: Context,
    buffers: BufferPool,
    spec: LinearSpec,
    drives: Vec<TestDrive>,
}

impl Field {
    fn new(context: &Context, level: &str, width: usize, drives: usize) -> Self {
        let spec = space(&shape(level, width, 16384), 77, 4 * MIB);
        let made = (0..drives).map(|i| {
            let drive = TestDrive::new(context, &format!("drive{i}"), 16 * MIB, i as u64);
            dirty(&drive.image, i as u64);
            drive
        });
        Self { context: context.clone(), buffers: BufferPool::new(8 << 20), drives: made.collect(), spec }
    }

    fn member(&self, number: u32) -> ArrayMember {
        let member = self.drives[number as usize].member(&self.context);
        ArrayMember { number, member, slabs_base_bytes: MIB, sums_base_bytes: 0 }
    }

    fn members(&self) -> Vec<ArrayMember> {
        (0..self.drives.len() as u32).map(|number| self.member(number)).collect()
    }

    fn init(&self, rows: RowTable) -> ArrayInit {
        let spec = self.spec.array_spec();
        ArrayInit {
            size_bytes: rows.rows() * spec.row_data_bytes().expect("possible"),
            spec,
            rows,
            map: (0..2).map(|drive| AreaPlace { drive, slab: 0, slabs: 1 }).collect(),
            journal: Vec::new(),
            journal_epoch: 0,
            write_back: false,
            checksums: None,
            lost_blocks: BlockSet::default(),
            dead_blocks: BlockSet::default(),
            read_only: false,
            members: self.members(),
        }
    }

    async fn create(&self, rows: RowTable, host: Rc<dyn ArrayHost>) -> Array {
        Array::create(&self.context, &self.buffers, self.init(rows), host, ArrayOptions::default())
            .await
            .expect("a new array")
    }
}

fn place(drive: u32, slab: u32) -> SlotPlace {
    SlotPlace { drive, slab, state: SlotState::Active }
}

/// Row `r` on `width` drives from drive `r` on, round and round, slabs as they come.
fn scattered(width: usize, drives: u32, rows: u64) -> RowTable {
    let mut next = vec![1u32; drives as usize];
    let mut table = RowTable::new(width, rows);
    for row in 0..rows {
        let places: Places = (0..width as u32)
            .map(|column| {
                let drive = (row as u32 + column) % drives;
                next[drive as usize] += 1;
                place(drive, next[drive as usize] - 1)
            })
            .collect();
        table.set(row, 1, &places);
    }
    table
}

/// Writes at random until `over` is set, and records the writes in the model.
async fn client(array: Array, model: Rc<Model>, over: Rc<Cell<bool>>, seed: u64) {
    let mut random = SplitMix64::new(seed);
    let mut version = 1;
    while !over.get() {
        version += 1;
        let count = 1 + random.below(80);
        let first = random.below(model.sectors() - count);
        array.write(first * SECTOR, Model::data(first, count, version), false).await.expect("a write");
        model.set(first, count, version);
        if random.chance(0.1) {
            array.flush().await.expect("a flush");
        }
        if random.chance(0.2) {
            let first = random.below(model.sectors() - 64);
            let data = array.read(first * SECTOR, 64 * SECTOR as usize).await.expect("a read");
            model.check(first, &data, seed, "a concurrent read");
        }
    }
}

#[test]
fn columns_move_under_load_and_free_their_old_slabs() {
    for (level, width, seed) in
        [("raid5", 4, 1), ("raid0", 3, 2), ("raid10", 4, 3), ("raid6", 5, 4), ("raid1", 2, 5)]
    {
        let executor = VirtualExecutor::shuffled(seed);
        let context = executor.context();
        executor.block_on(async {
            let field = Field::new(&context, level, width, 7);
            let array = field.create(scattered(width, 7, 4), Rc::new(NoHost)).await;
            let model = Rc::new(Model::new(array.capacity_bytes()));
            let over = Rc::new(Cell::new(false));
            let writing = context.spawn(client(array.clone(), model.clone(), over.clone(), seed));
            context.sleep_ns(20_000_000).await;
            let mut random = SplitMix64::new(seed);
            for slab in 10..14u32 {
                let row = random.below(4);
                let column = random.below(width as u64) as usize;
                let rows = array.rows();
                let used: Vec<u32> =
                    rows.run(row).expect("a row").places_of(row).iter().map(|p| p.drive).collect();
                let drive = (0..7).find(|drive| !used.contains(drive)).expect("a drive that is free");
                let to = place(drive, slab);
                array.migrate_column(row, column, to).await.expect("a move");
                context.sleep_ns(random.below(3_000_000)).await;
                let mut rows = array.rows();
                let old = rows.place(row, column).expect("a place");
                let mut places = rows.run(row).expect("a row").places_of(row);
                places[column] = to;
                rows.set(row, 1, &places);
                // Nothing may be written to the old slab after this.
                array.set_rows(rows);
                array.drain_reads().await;
                context.sleep_ns(5_000_000).await;
                let at = MIB + u64::from(old.slab) * MIB;
                let before = peek(&field.drives[old.drive as usize].image, at);
                context.sleep_ns(20_000_000).await;
                assert!(
                    before == peek(&field.drives[old.drive as usize].image, at),
                    "{level}: an old slab was written"
                );
            }
            over.set(true);
            writing.await;
            model.check_all(&array, seed, "after the moves").await;
            let report = array.scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!((report.blamed.len(), report.unattributed_blocks), (0, 0), "{level}: {report:?}");
        });
    }
}

fn peek(image: &Rc<MemoryDrive>, at: u64) -> Vec<u8> {
    use stripewise_drive::{Buffer, Drive, IoRequest};
    let buffer = Buffer::from_bytes(&vec![0; MIB as usize]);
    assert!(matches!(image.submit(IoRequest::read(at, buffer.clone())).try_take(), Ok(Ok(()))));
    buffer.to_vec()
}

#[test]
fn rows_held_through_a_handle_keep_writers_out() {
    let executor = VirtualExecutor::shuffled(3);
    let context = executor.context();
    executor.block_on(async {
        let field = Field::new(&context, "raid5", 4, 4);
        let array = field.create(scattered(4, 4, 4), Rc::new(NoHost)).await;
        let handle = ArrayHandle::from(array.clone());
        let held = lock_order::scope(handle.lock_rows(vec![0])).await;
        let has_written = Rc::new(Cell::new(false));
        let (writer, written) = (array.clone(), has_written.clone());
        let writing = context.spawn(async move {
            writer.write(0, Model::data(0, 8, 1), false).await.expect("a write");
            written.set(true);
        });
        context.sleep_ns(1_000_000_000).await;
        assert!(!has_written.get(), "the row is held");
        drop(held);
        writing.await;
    });
}

#[test]
fn a_move_whose_new_drive_fails_changes_nothing() {
    let executor = VirtualExecutor::shuffled(9);
    let context = executor.context();
    executor.block_on(async {
        let field = Field::new(&context, "raid5", 4, 6);
        let array = field.create(scattered(4, 4, 4), Rc::new(NoHost)).await;
        let model = Rc::new(Model::new(array.capacity_bytes()));
        let over = Rc::new(Cell::new(false));
        let writing = context.spawn(client(array.clone(), model.clone(), over.clone(), 9));
        context.sleep_ns(20_000_000).await;
        field.drives[5].faults.make_unwritable(0..u64::MAX / 2);
        array.migrate_column(1, 2, place(5, 3)).await.expect_err("the new drive takes nothing");
        assert!(array.lacking_rows().is_empty(), "the old place is as good as before");
        over.set(true);
        writing.await;
        model.check_all(&array, 9, "after a move that failed").await;
    });
}

#[test]
fn returning_drive_catches_up_with_missed_writes() {
    for (level, width, seed) in [("raid5", 4, 1), ("raid6", 5, 2), ("raid10", 4, 3), ("raid1", 3, 4)] {
        let executor = VirtualExecutor::shuffled(seed);
        let context = executor.context();
        executor.block_on(async {
            let field = Field::new(&context, level, width, width);
            let array = field.create(scattered(width, width as u32, 8), Rc::new(NoHost)).await;
            let model = Rc::new(Model::new(array.capacity_bytes()));
            let fill = model.sectors();
            for first in (0..fill).step_by(256) {
                array.write(first * SECTOR, Model::data(first, 256, 1), false).await.expect("a write");
                model.set(first, 256, 1);
            }
            array.flush().await.expect("a flush");
            // All marks are taken back: nothing is on its way.
            context.sleep_ns(20_000_000_000).await;
            array.flush().await.expect("a flush");
            set_state(&array, 2, SlotState::Missing);
            array.drive_gone(2);
            for (number, first) in [3u64, fill / 2 + 5].into_iter().enumerate() {
                let version = 2 + number as u32;
                array.write(first * SECTOR, Model::data(first, 40, version), false).await.expect("a write");
                model.set(first, 40, version);
            }
            model.check_all(&array, seed, "while it is away").await;
            // It comes back after a restart, too: what it lacks is known from the map.
            let rows = array.rows();
            array.close().await.expect("closing");
            let mut init = field.init(rows);
            init.members.remove(2);
            let array = Array::open(&context, &field.buffers, init, Rc::new(NoHost), ArrayOptions::default())
                .await
                .expect("it opens without");
            array.add_member(field.member(2));
            set_state(&array, 2, SlotState::CatchingUp);
            model.check_all(&array, seed, "while it catches up").await;
            let report = rebuild(&array).await.expect("catching up");
            let all = 8 * MIB;
            assert!(
                report.bytes > 0 && report.bytes <= all / 2,
                "{level}: {} of {all} bytes copied",
                report.bytes
            );
            model.check_all(&array, seed, "after it caught up").await;
            let report = array.scrub(&|_, _| {}).await.expect("a scrub");
            assert_eq!((report.blamed.len(), report.unattributed_blocks), (0, 0), "{level}: {report:?}");
        });
    }
}

/// Records the state of a drive's places, as a pool does when the drive leaves or returns.
fn set_state(array: &Array, drive: u32, state: SlotState) {
    let mut rows = array.rows();
    rows.update(|_, _, places| {
        for place in places.iter_mut().filter(|place| place.drive == drive) {
            place.state = state;
        }
        true
    });
    array.set_rows(rows);
}

/// Gives rows slabs until there are none left.
struct Landlord {
    array: RefCell<Weak<Array>>,
    free_rows: Cell<u32>,
    context: Context,
}

impl ArrayHost for Landlord {
    fn ask(&self, _: u128, request: HostRequest) -> LocalFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let HostRequest::AllocateRows { first_row, rows } = request else { return Ok(()) };
            assert_eq!(rows, 1);
            self.context.sleep_ns(1_000_000).await;
            let array = self.array.borrow().upgrade().expect("the array lives");
            let mut table = array.rows();
            if !table.is_hole(first_row) {
                return Ok(());
            }
            let left = self.free_rows.get();
            if left == 0 {
                return Err("all slabs are in use".to_owned());
            }
            self.free_rows.set(left - 1);
            let places: Places = (0..4).map(|drive| place(drive, left)).collect();
            table.set(first_row, 1, &places);
            array.set_rows(table);
            Ok(())
        })
    }
}

#[test]
fn thin_array_allocates_on_write_frees_on_discard() {
    let executor = VirtualExecutor::shuffled(4);
    let context = executor.context();
    executor.block_on(async {
        let field = Field::new(&context, "raid5", 4, 4);
        let host = Rc::new(Landlord {
            array: RefCell::default(),
            free_rows: Cell::new(3),
            context: context.clone(),
        });
        let array = Rc::new(field.create(RowTable::new(4, 100), host.clone()).await);
        *host.array.borrow_mut() = Rc::downgrade(&array);
        assert_eq!(array.capacity_bytes(), 300 * MIB);
        let zeros = array.read(50 * MIB, 4096).await.expect("a hole reads as zeros").to_vec();
        assert!(zeros.iter().all(|byte| *byte == 0));
        array.write_zeroes(10 * MIB, 4 * MIB).await.expect("zeros need no space");
        array.discard(10 * MIB, 4 * MIB).await.expect("nor does a discard");
        assert_eq!(array.rows().allocated_rows(), 0);
        // Several at once into one row: it is allocated once.
        let writes = (0..3u64).map(|i| array.write(i * 8192, Model::data(i * 16, 8, 5), false));
        for result in futures_util::future::join_all(writes).await {
            result.expect("a write");
        }
        assert_eq!(array.rows().allocated_rows(), 1);
        for row in [7u64, 99] {
            array.write(row * 3 * MIB, Model::data(row, 8, 5), true).await.expect("a write");
        }
        let error = array.write(20 * 3 * MIB, Model::data(0, 8, 5), false).await.expect_err("full");
        assert!(matches!(error, ArrayError::NoSpace(_)), "{error}");
        // Reads still work, and writes to rows that have their slabs.
        assert_eq!(
            array.read(7 * 3 * MIB, 4096).await.expect("a read").to_vec(),
            Model::data(7, 8, 5).to_vec()
        );
        array.write(7 * 3 * MIB, Model::data(7, 8, 6), false).await.expect("a write");
        array.flush().await.expect("a flush");
        // Discarding a whole row gives it back.
        array.discard(7 * 3 * MIB, 3 * MIB).await.expect("a discard");
        assert_eq!(array.empty_rows(), [7]);
        let record = async {
            let mut table = array.rows();
            table.clear(7, 1);
            array.set_rows(table);
            host.free_rows.set(1);
            Ok(())
        };
        assert!(array.release_row(7, record).await.expect("released"));
        array.write(20 * 3 * MIB, Model::data(0, 8, 9), false).await.expect("there is space again");
        let data = array.read(7 * 3 * MIB, 4096).await.expect("a read").to_vec();
        assert!(data.iter().all(|byte| *byte == 0), "what was discarded reads as zeros");
    });
}

#[test]
fn regrown_array_reads_zeros_beyond_the_shrink() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async {
        let field = Field::new(&context, "raid5", 4, 4);
        let array = field.create(scattered(4, 4, 2), Rc::new(NoHost)).await;
        let small = array.capacity_bytes();
        assert_eq!(small, 6 * MIB);
        array.write(small - 4096, Model::data(1, 8, 1), true).await.expect("a write");
        array.write(small, Model::data(1, 8, 1), true).await.expect_err("beyond the end");
        array.set_rows(scattered(4, 4, 4));
        array.resize(2 * small - MIB / 2).await.expect("growing");
        array.write(small, Model::data(2, 8, 1), true).await.expect("a write behind the old end");
        array.resize(small - 2048).await.expect("shrinking");
        array.resize(2 * small).await.expect("growing again");
        let data = array.read(small - 4096, 8192).await.expect("a read").to_vec();
        assert_eq!(data[..2048], Model::data(1, 8, 1).to_vec()[..2048]);
        assert!(data[2048..].iter().all(|byte| *byte == 0), "what lay beyond the end is forgotten");
        let rows = array.rows();
        array.close().await.expect("closing");
        let array =
            Array::open(&context, &field.buffers, field.init(rows), Rc::new(NoHost), ArrayOptions::default())
                .await
                .expect("it opens again");
        let again = array.read(small - 4096, 8192).await.expect("a read").to_vec();
        assert!(again == data);
    });
}
