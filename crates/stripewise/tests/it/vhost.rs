//! Volumes as disks of virtual machines: sockets of a daemon, and its end under guests.

#[allow(dead_code)]
#[path = "../../../export/tests/it/vhost/front_end.rs"]
mod front_end;

use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use stripewise_drive::Context;
use stripewise_runtime::{Network, RealExecutor};

use crate::kit::Sandbox;
use crate::kit::daemon::{Daemon, until};
use front_end::{EVENT_IDX, FLUSHES, FrontEnd, Guest, PROTOCOL_FEATURES, VERSION_1, WRITE, running};

fn with_executor<F: Future<Output = ()>>(test: impl FnOnce(Context, Network) -> F) {
    let executor = RealExecutor::new().expect("io_uring");
    executor.block_on(test(executor.context(), executor.network()));
}

/// A socket that is there.
fn socket(sandbox: &Sandbox, name: &str) -> PathBuf {
    let socket = sandbox.path(name);
    until("a socket", || socket.exists());
    socket
}

#[test]
fn virtual_machines_use_volumes() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    let daemon = Daemon::start(&sandbox, "--vhost-user @vm/disks");
    sandbox.ok("volume create tank/a --layout raid5 --size 16MiB");
    let at = socket(&sandbox, "vm/disks/tank/a");
    assert_eq!(at.metadata().expect("there").permissions().mode() & 0o777, 0o600);
    with_executor(|context, network| async move {
        let (front_end, mut guest) = running(&network, &context, &at, 1).await;
        assert_eq!(front_end.execute(&mut guest, 0, (WRITE, 3), &[7; 512], 0).await.0, 0);
        let busy = sandbox.fails("volume delete tank/a --yes");
        assert!(busy.contains("a client has tank/a open"), "{busy}");
        // In order: what was acknowledged is on the drives.
        let said = daemon.end();
        assert!(said.contains("all pools are closed"), "{said}");
        front_end.until_closed().await;
        assert!(!at.exists() && !sandbox.path("vm/disks/tank").exists());
        assert_eq!(sandbox.read("tank/a", 3 * 512, 512), [7; 512]);
    });
}

#[test]
fn sockets_among_mounted_volumes_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    std::fs::create_dir(sandbox.path("m")).expect("made");
    for folder in ["@m", "@m/sockets"] {
        let refused = sandbox.run(&format!("serve --fuse @m --vhost-user {folder}")).expect_code(2);
        assert!(refused.err.contains("within that of --fuse"), "{}", refused.err);
    }
}

const REQUESTS: u16 = 12;

/// Connects as soon as a daemon listens: the socket may be that of one that was killed.
async fn connect(network: &Network, context: &Context, socket: &Path) -> FrontEnd {
    until("it listens", || UnixStream::connect(socket).is_ok());
    FrontEnd::connect(network, context, socket).await
}

#[test]
fn requests_in_flight_survive_a_killed_daemon() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 16MiB");
    for round in 0..4_u64 {
        let daemon = Daemon::start(&sandbox, "--vhost-user @disks");
        let at = socket(&sandbox, "disks/tank/a");
        let sandbox = &sandbox;
        with_executor(|context, network| async move {
            let mut front_end = connect(&network, &context, &at).await;
            front_end.negotiate(EVENT_IDX | PROTOCOL_FEATURES | FLUSHES | VERSION_1).await;
            let inflight = front_end.get_inflight(1).await;
            let mut guest = Guest::new(1);
            front_end.set_up(&guest, Some(&inflight)).await;
            let byte = |slot: u16| [(round * 16) as u8 + slot as u8; 4096];
            for slot in 0..REQUESTS {
                guest.put_request(0, slot, WRITE, u64::from(slot) * 8, &byte(slot), 0);
                guest.make_available(0, 3 * slot);
            }
            front_end.kick(0).await;
            // At some moment: none, some or all of them are answered.
            context.sleep_ns(round * 300_000).await;
            daemon.kill();
            let daemon = Daemon::start(sandbox, "--vhost-user @disks");
            let mut front_end = connect(&network, &context, &at).await;
            front_end.set_up(&guest, Some(&inflight)).await;
            let mut heads = front_end.until_used(&mut guest, 0, REQUESTS.into()).await;
            heads.sort_unstable();
            assert_eq!(heads, (0..REQUESTS).map(|slot| 3 * slot).collect::<Vec<_>>(), "each once");
            assert!((0..REQUESTS).all(|slot| guest.status(0, slot) == 0));
            daemon.end();
            for slot in 0..REQUESTS {
                assert_eq!(sandbox.read("tank/a", u64::from(slot) * 4096, 4096), byte(slot));
            }
        });
    }
}
