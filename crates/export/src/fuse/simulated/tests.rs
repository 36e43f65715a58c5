use std::io;
use std::rc::Rc;

use stripewise_drive::{BufferPool, Context, Drive, FaultyDrive, MemoryDrive};
use stripewise_layout::{LayoutSpec, Level};
use stripewise_pool::{OpenMode, Pool, PoolSpec, VolumeSpec};
use stripewise_runtime::VirtualExecutor;

use super::*;

const MIB: u64 = 1 << 20;

struct NoHost;

impl Host for NoHost {
    fn keeps_from_writing(&self, _volume: &str) -> Option<String> {
        None
    }

    fn remark(&self, _text: String) {}
}

/// A mounted pool `tank` with volume `data` of 4 MiB.
struct Mounted {
    context: Context,
    images: Vec<Rc<MemoryDrive>>,
    drives: Vec<Rc<FaultyDrive>>,
    pool: Pool,
    exports: PoolExports,
    mount: SimulatedMount,
}

fn as_drives(drives: &[Rc<FaultyDrive>]) -> Vec<Rc<dyn Drive>> {
    drives.iter().map(|drive| drive.clone() as Rc<dyn Drive>).collect()
}

impl Mounted {
    async fn begin(context: &Context) -> Self {
        let images: Vec<_> = (0..2).map(|disk| MemoryDrive::new(&format!("disk{disk}"), 32 * MIB)).collect();
        let drives: Vec<_> = images.iter().map(|image| FaultyDrive::new(context, image.clone(), 1)).collect();
        let spec = PoolSpec { name: "tank".to_owned(), drives: as_drives(&drives), ..PoolSpec::default() };
        let pool = Pool::create(context, &BufferPool::new(8 << 20), spec).await.expect("a pool");
        let spec = VolumeSpec {
            size_bytes: Some(4 * MIB),
            ..VolumeSpec::new("data", LayoutSpec::new(Level::Raid1))
        };
        pool.create_volume(spec).await.expect("a volume");
        let exports = PoolExports::new();
        exports.add(pool.clone(), false);
        let mount = SimulatedMount::new(context, exports.clone(), Tree::Pools, Rc::new(NoHost));
        let mount = mount.expect("mounted");
        Self { context: context.clone(), images, drives, pool, exports, mount }
    }

    async fn open(&self) -> Descriptor {
        self.mount.open("tank/data").await.expect("opened")
    }

    /// Takes all drives from the pool, and opens it again.
    async fn lose_and_reopen(&mut self) {
        self.drives.iter().for_each(|drive| drive.unplug());
        self.exports.remove("tank");
        let _ = self.pool.close().await;
        self.drives =
            self.images.iter().map(|image| FaultyDrive::new(&self.context, image.clone(), 1)).collect();
        let (buffers, mode) = (BufferPool::new(8 << 20), OpenMode::ReadWrite);
        let opened = Pool::open(&self.context, &buffers, as_drives(&self.drives), mode, Default::default());
        self.pool = opened.await.expect("opened again");
        self.exports.add(self.pool.clone(), false);
    }
}

fn in_virtual_time(test: impl AsyncFnOnce(Mounted)) {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    executor.block_on(async { test(Mounted::begin(&context).await).await });
}

fn number(answer: io::Result<impl Sized>) -> i32 {
    answer.err().and_then(|error| error.raw_os_error()).unwrap_or(0)
}

#[test]
fn files_hold_what_is_written() {
    in_virtual_time(async |mounted| {
        let (first, second) = (mounted.open().await, mounted.open().await);
        let data: Vec<u8> = (0..3 * MIB as usize - 1).map(|byte| (byte % 251) as u8).collect();
        assert_eq!(first.write(1, &data, false).await.expect("written"), data.len());
        second.sync().await.expect("durable");
        assert!(second.read(1, data.len()).await.expect("read") == data);
        second.punch_hole(4096, 8192).await.expect("a hole");
        assert!(first.read(4096, 8192).await.expect("read") == [0; 8192]);
        assert_eq!(first.read(4 * MIB - 8, 100).await.expect("read").len(), 8, "up to the end");
        assert_eq!(first.write(4 * MIB - 8, &[1; 100], true).await.expect("written"), 8);
        assert_eq!(number(first.write(4 * MIB, &[1; 100], true).await), libc::ENOSPC);
        assert_eq!(number(mounted.mount.open("tank/other").await), libc::ENOENT);
        assert_eq!(number(mounted.mount.open("tank").await), libc::EISDIR);
        first.close_once().await.expect("closed");
        // The server serves what was sent before the unmount, and then no more.
        drop(mounted.mount);
        assert_eq!(number(first.sync().await), libc::ENOTCONN);
    });
}

#[test]
fn files_are_in_use_until_they_are_closed() {
    in_virtual_time(async |mounted| {
        let open = mounted.open().await;
        assert_eq!(mounted.exports.in_use(), ["tank/data"]);
        drop(open);
        mounted.context.sleep_ns(1).await;
        assert!(mounted.exports.in_use().is_empty());
    });
}

#[test]
fn each_descriptor_reports_a_loss_once() {
    in_virtual_time(async |mut mounted| {
        let (first, second) = (mounted.open().await, mounted.open().await);
        first.write(0, &[1; 4096], false).await.expect("written");
        mounted.lose_and_reopen().await;
        assert_eq!(number(second.close_once().await), libc::EIO);
        for descriptor in [&second, &first] {
            assert_eq!(number(descriptor.sync().await), libc::EIO);
            assert_eq!(number(descriptor.sync().await), 0);
        }
        assert_eq!(number(mounted.open().await.sync().await), 0);
    });
}

#[test]
fn a_durable_write_reports_a_loss_as_fsync_does() {
    in_virtual_time(async |mut mounted| {
        let (first, second) = (mounted.open().await, mounted.open().await);
        first.write(0, &[1; 4096], false).await.expect("written");
        mounted.lose_and_reopen().await;
        assert_eq!(number(second.write(8192, &[2; 512], false).await), 0);
        assert_eq!(number(second.write(8192, &[3; 512], true).await), libc::EIO);
        assert_eq!(number(second.write(8192, &[3; 512], true).await), 0);
        assert_eq!(number(second.sync().await), 0, "reported once");
        assert_eq!(number(first.sync().await), libc::EIO);
    });
}
