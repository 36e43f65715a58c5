//! Sockets: addresses and permissions, complete transfers, and release of cancelled operations.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::rc::Rc;

use crate::kit::{contents, disk_directory};
use stripewise_drive::{Buffer, yield_now};
use stripewise_runtime::{ListenError, OWNER_ONLY, Piece, RealExecutor, Stream};

fn empty(length: usize) -> Buffer {
    Buffer::from_bytes(&vec![0xEE; length])
}

async fn receive_to_end(stream: &Stream) -> Vec<u8> {
    let (mut all, buffer) = (Vec::new(), empty(100_000));
    loop {
        match stream.receive(buffer.clone()).await.expect("received") {
            0 => return all,
            bytes => all.extend_from_slice(&buffer.slice(0..bytes).to_vec()),
        }
    }
}

/// Splits bytes into 2,500 pieces of all kinds and of odd lengths: more than one operation can
/// send.
fn pieces_of(bytes: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    for index in 0..2_499 {
        let length = [0, 1, 16, 48, 49, 4096, 5_000][index % 7].min(rest.len());
        let (piece, after) = rest.split_at(length);
        rest = after;
        pieces.push(match index % 3 {
            0 => Piece::copy_of(piece),
            1 => Piece::from(piece.to_vec()),
            _ => Piece::from(Buffer::from_bytes(piece)),
        });
    }
    pieces.push(Piece::from(rest.to_vec()));
    pieces
}

/// Exchanges data in both directions at once, with both ends in one executor: each side waits for
/// the other when the kernel's buffers are full.
async fn exchange(a: Stream, b: Stream) {
    let (a, b) = (Rc::new(a), Rc::new(b));
    let (one, two) = (contents(1, 9 << 20), contents(2, 5 << 20));
    let send = |stream: &Rc<Stream>, bytes: &[u8]| {
        let (stream, pieces) = (stream.clone(), pieces_of(bytes));
        async move {
            stream.send(pieces).await.expect("sent");
            stream.shutdown(Shutdown::Write);
        }
    };
    let received = futures_join(
        futures_join(send(&a, &one), receive_to_end(&b)),
        futures_join(send(&b, &two), receive_to_end(&a)),
    )
    .await;
    let ((_, from_a), (_, from_b)) = received;
    assert!(from_a == one, "data of a");
    assert!(from_b == two, "data of b");
}

/// Runs both futures to their ends.
async fn futures_join<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    let (mut of_a, mut of_b) = (None, None);
    std::future::poll_fn(|context| {
        if of_a.is_none()
            && let std::task::Poll::Ready(result) = a.as_mut().poll(context)
        {
            of_a = Some(result);
        }
        if of_b.is_none()
            && let std::task::Poll::Ready(result) = b.as_mut().poll(context)
        {
            of_b = Some(result);
        }
        match of_a.is_some() && of_b.is_some() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    (of_a.expect("ended"), of_b.expect("ended"))
}

#[test]
fn data_arrives_whole_over_unix_and_tcp_sockets() {
    let directory = disk_directory();
    let executor = RealExecutor::new().expect("io_uring");
    let network = executor.network();
    let path = directory.path().join("socket");
    executor.block_on(async {
        let listener = network.listen_unix(&path, OWNER_ONLY).expect("listens");
        let (client, server) = futures_join(network.connect_unix(&path), listener.accept()).await;
        let (client, server) = (client.expect("connected"), server.expect("accepted"));
        assert!(server.is_unix());
        exchange(client, server).await;

        let listener = network.listen_tcp("127.0.0.1:0".parse().expect("an address")).expect("listens");
        let address = listener.address().expect("TCP has one");
        assert_ne!(address.port(), 0);
        let (client, server) = futures_join(network.connect_tcp(address), listener.accept()).await;
        let (client, server) = (client.expect("connected"), server.expect("accepted"));
        assert!(server.peer().starts_with("127.0.0.1:"), "{}", server.peer());
        exchange(client, server).await;
    });
}

#[test]
fn a_buffer_is_received_whole_or_the_end_is_reported() {
    let directory = disk_directory();
    let path = directory.path().join("socket");
    let executor = RealExecutor::new().expect("io_uring");
    let listener = executor.network().listen_unix(&path, OWNER_ONLY).expect("listens");
    let bytes = contents(3, 1 << 20);
    let theirs = bytes.clone();
    let client = std::thread::spawn(move || {
        let mut client = UnixStream::connect(path).expect("connected");
        theirs.chunks(77_777).for_each(|part| client.write_all(part).expect("written"));
    });
    executor.block_on(async {
        let stream = listener.accept().await.expect("accepted");
        let buffer = empty(1_000_000);
        stream.receive_all(buffer.clone()).await.expect("received");
        assert!(buffer.to_vec() == bytes[..1_000_000]);
        let error = stream.receive_all(empty(1 << 20)).await.expect_err("the stream is shorter");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    });
    client.join().expect("ended");
}

#[test]
fn a_socket_file_is_private_and_removed_at_the_end() {
    let directory = disk_directory();
    let path = directory.path().join("socket");
    let executor = RealExecutor::new().expect("io_uring");
    let network = executor.network();
    let listener = network.listen_unix(&path, OWNER_ONLY).expect("listens");
    let found = std::fs::symlink_metadata(&path).expect("is there");
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    let refused = network.listen_unix(&path, OWNER_ONLY).err().expect("it is in use");
    assert!(matches!(refused, ListenError::InUse { .. }), "{refused}");
    assert!(refused.to_string().contains("socket"), "{refused}");
    UnixStream::connect(&path).expect("still listens");
    assert_eq!(
        std::fs::read_dir(directory.path()).expect("a folder").count(),
        1,
        "nothing else is left there"
    );
    drop(listener);
    assert!(!path.exists());
    let open_to_all = network.listen_unix(&path, 0o666).expect("listens");
    assert_eq!(std::fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o666);
    // A socket file that has replaced the listener's own stays.
    std::fs::remove_file(&path).expect("removed");
    let _other = UnixListener::bind(&path).expect("listens");
    drop(open_to_all);
    assert!(path.exists());
}

#[test]
fn stale_sockets_are_replaced_and_other_files_kept() {
    let directory = disk_directory();
    let path = directory.path().join("socket");
    let executor = RealExecutor::new().expect("io_uring");
    let network = executor.network();
    drop(UnixListener::bind(&path).expect("listens"));
    assert!(path.exists(), "a listener of the standard library leaves its file");
    let listener = network.listen_unix(&path, OWNER_ONLY).expect("a stale socket");
    UnixStream::connect(&path).expect("connected");
    drop(listener);
    std::fs::write(&path, "precious").expect("written");
    let refused = network.listen_unix(&path, OWNER_ONLY).err().expect("no socket");
    assert!(matches!(refused, ListenError::NotASocket { .. }), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).expect("still there"), "precious");
    let nowhere = directory.path().join("missing/socket");
    let refused = network.listen_unix(&nowhere, OWNER_ONLY).err().expect("no such folder");
    assert!(refused.to_string().contains("missing/socket"), "{refused}");
}

#[test]
fn long_socket_paths_work_and_invalid_names_fail() {
    let directory = disk_directory();
    let folder = directory.path().join("f".repeat(120)).join("g".repeat(120));
    std::fs::create_dir_all(&folder).expect("made");
    let path = folder.join("socket");
    let executor = RealExecutor::new().expect("io_uring");
    let network = executor.network();
    executor.block_on(async {
        let listener = network.listen_unix(&path, OWNER_ONLY).expect("listens");
        let (client, server) = futures_join(network.connect_unix(&path), listener.accept()).await;
        client.expect("connected").send(vec![Piece::copy_of(b"hello")]).await.expect("sent");
        let buffer = empty(5);
        server.expect("accepted").receive_all(buffer.clone()).await.expect("received");
        assert_eq!(buffer.to_vec(), b"hello");
        let refused = network.listen_unix(&path, OWNER_ONLY).err().expect("in use");
        assert!(matches!(refused, ListenError::InUse { .. }), "{refused}");
        drop(listener);
        assert!(!path.exists());
        let long = folder.join("s".repeat(200));
        let error = network.connect_unix(&long).await.err().expect("no address has room for it");
        assert!(error.to_string().contains("200 bytes"), "{error}");
    });
}

#[test]
fn busy_addresses_and_closed_ports_are_reported() {
    let executor = RealExecutor::new().expect("io_uring");
    let network = executor.network();
    let listener = network.listen_tcp("127.0.0.1:0".parse().expect("an address")).expect("listens");
    let address = listener.address().expect("TCP has one");
    let refused = network.listen_tcp(address).err().expect("in use");
    assert!(matches!(refused, ListenError::InUse { .. }), "{refused}");
    assert!(refused.to_string().contains(&address.to_string()), "{refused}");
    drop(listener);
    let error = executor.block_on(network.connect_tcp(address)).err().expect("no listener");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let nowhere = Path::new("/nonexistent/socket");
    let error = executor.block_on(network.connect_unix(nowhere)).err().expect("nothing is there");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_cancelled_operation_releases_its_socket() {
    let executor = RealExecutor::new().expect("io_uring");
    let (network, context) = (executor.network(), executor.context());
    let listener = network.listen_tcp("127.0.0.1:0".parse().expect("an address")).expect("listens");
    let mut silent = TcpStream::connect(listener.address().expect("TCP has one")).expect("connected");
    executor.block_on(async {
        let stream = listener.accept().await.expect("accepted");
        let limited = context.time_limit_ns(1_000_000, Box::pin(stream.receive(empty(100)))).await;
        assert!(limited.is_err(), "nothing was sent");
        // More than the kernel buffers, and the peer does not read.
        let endless = vec![Piece::from(vec![7; 64 << 20])];
        let limited = context.time_limit_ns(20_000_000, Box::pin(stream.send(endless))).await;
        assert!(limited.is_err(), "the peer does not read");
        drop(stream);
        // A cancelled accept takes no connection.
        let limited = context.time_limit_ns(1_000_000, Box::pin(listener.accept())).await;
        assert!(limited.is_err(), "no other client");
        context.sleep_ns(1_000_000).await;
    });
    // A descriptor still held by an operation would keep the connection open.
    silent.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("set");
    let mut rest = Vec::new();
    match silent.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    assert!(rest.len() < 64 << 20);
}

#[test]
fn dropping_the_executor_ends_pending_socket_calls() {
    let directory = disk_directory();
    let path = directory.path().join("socket");
    let executor = RealExecutor::new().expect("io_uring");
    let network = executor.network();
    let listener = Rc::new(network.listen_unix(&path, OWNER_ONLY).expect("listens"));
    let mut client = UnixStream::connect(&path).expect("connected");
    let stream = Rc::new(executor.block_on(listener.accept()).expect("accepted"));
    let (theirs, accepting) = (stream.clone(), listener.clone());
    executor.context().spawn(async move { theirs.receive(empty(10)).await });
    executor.context().spawn(async move { accepting.accept().await.map(drop) });
    executor.block_on(yield_now());
    drop(executor);
    // Later operations fail, and the client sees the end once the stream is dropped.
    let other = RealExecutor::new().expect("io_uring");
    let error = other.block_on(stream.send(vec![Piece::copy_of(b"late")])).expect_err("ended");
    assert_eq!(error.kind(), ErrorKind::NotConnected);
    drop(stream);
    client.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("set");
    assert_eq!(client.read(&mut [0; 10]).expect("the end"), 0);
}

#[test]
fn data_received_in_a_stall_precedes_the_timeout() {
    let executor = RealExecutor::new().expect("io_uring");
    let (network, context) = (executor.network(), executor.context());
    let listener = network.listen_tcp("127.0.0.1:0".parse().expect("an address")).expect("listens");
    let mut client = TcpStream::connect(listener.address().expect("TCP has one")).expect("connected");
    executor.block_on(async {
        let stream = Rc::new(listener.accept().await.expect("accepted"));
        for round in 0..3 {
            // Passes through two tasks, so that some turns lie between the completion and the task
            // with the time limit.
            let receiving = context.spawn({
                let stream = stream.clone();
                async move { stream.receive(empty(1)).await }
            });
            let passing_on = context.spawn(receiving);
            let limited = context.spawn(context.time_limit_ns(20_000_000, Box::pin(passing_on)));
            // Lets the receive reach the kernel.
            context.sleep_ns(1_000_000).await;
            client.write_all(b"x").expect("sent");
            std::thread::sleep(std::time::Duration::from_millis(60));
            let received = limited.await.unwrap_or_else(|_| panic!("round {round}: answered, and timed out"));
            assert_eq!(received.expect("received"), 1);
        }
    });
}
