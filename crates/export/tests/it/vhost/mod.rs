//! Tests of the server for vhost-user-blk: server and front end on one executor.

mod front_end;
mod malice;
mod requests;
mod sessions;

use std::cell::RefCell;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;

use stripewise_drive::{BufferPool, Context};
use stripewise_export::PoolExports;
use stripewise_export::budget::Budget;
use stripewise_export::vhost::{VhostLimits, VhostNotice, VhostServer};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{Pool, PoolSpec, VolumeSpec};
use stripewise_runtime::{Network, RealExecutor};
use tempfile::TempDir;

use crate::kit::{MIB, memory_drives};

/// A pool `tank` with the volume `v` of 64 MiB, served.
pub struct Served {
    pub context: Context,
    pub network: Network,
    pub pool: Pool,
    pub server: VhostServer<PoolExports>,
    pub notices: Rc<RefCell<Vec<String>>>,
    folder: TempDir,
}

impl Served {
    pub fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until `is_so`.
    pub async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..6000 {
            if is_so() {
                return;
            }
            self.context.sleep_ns(5_000_000).await;
        }
        panic!("{what} in time; notices: {:?}", self.notices.borrow());
    }

    pub async fn until_notice(&self, part: &str) {
        self.until(part, || self.notices.borrow().iter().any(|notice| notice.contains(part))).await;
    }
}

/// Runs `test` with a served pool.
pub fn with_served<F: Future<Output = ()>>(
    limits: VhostLimits,
    read_only: bool,
    test: impl FnOnce(Rc<Served>) -> F,
) {
    let executor = RealExecutor::new().expect("io_uring");
    let (context, network) = (executor.context(), executor.network());
    executor.block_on(async {
        let buffers = BufferPool::new(64 << 20);
        let spec = PoolSpec { name: "tank".into(), drives: memory_drives(4, 128), ..PoolSpec::default() };
        let pool = Pool::create(&context, &buffers, spec).await.expect("a pool");
        let layout = LayoutSpec::parse("raid5").expect("a layout");
        let size_bytes = Some(64 * MIB);
        pool.create_volume(VolumeSpec { size_bytes, ..VolumeSpec::new("v", layout) })
            .await
            .expect("a volume");
        let exports = PoolExports::new();
        exports.add(pool.clone(), read_only);
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let notices = Rc::<RefCell<Vec<String>>>::default();
        let noted = notices.clone();
        let note = Box::new(move |notice: &VhostNotice| noted.borrow_mut().push(notice.to_string()));
        let budget = Budget::default();
        let server = VhostServer::start(&context, &network, exports, folder.path(), limits, &budget, note);
        let served = Rc::new(Served { context, network, pool: pool.clone(), server, notices, folder });
        let socket = served.socket("tank/v");
        served.until("a socket", || socket.exists()).await;
        test(served.clone()).await;
        assert!(served.server.end().await, "all front ends are gone");
        assert!(!socket.exists());
        pool.close().await.expect("closed");
    });
}
