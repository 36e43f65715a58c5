//! Files of messages: a pair of datagram sockets, of which each read gives one message and each
//! write takes one, as `/dev/fuse`.

use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use stripewise_drive::BufferPool;
use stripewise_runtime::{Piece, RealExecutor};

#[test]
fn messages_arrive_whole_and_are_sent_in_one_piece() {
    let executor = RealExecutor::new().expect("io_uring");
    let (ours, theirs) = UnixDatagram::pair().expect("a pair");
    theirs.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
    let file = executor.network().message_file(ours.as_fd()).expect("a descriptor");
    let buffers = BufferPool::new(1 << 20);
    let body = buffers.allocate(4096);
    let mut head = [0; 8];
    executor.block_on(async {
        assert_eq!(file.try_receive(&mut head, &body).expect("open"), None, "nothing was sent yet");
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            theirs.send(b"headhead and body").expect("sent");
            theirs.send(b"short").expect("sent");
            theirs
        });
        file.readable().await;
        assert_eq!(file.try_receive(&mut head, &body).expect("open"), Some(17));
        assert_eq!((&head, &body.to_vec()[..9]), (b"headhead", &b" and body"[..]));
        let theirs = sender.join().expect("no panic");
        assert_eq!(
            file.try_receive(&mut head, &body).expect("open"),
            Some(5),
            "the next one, without waiting"
        );
        assert_eq!(&head[..5], b"short");
        assert_eq!(file.try_receive(&mut head, &body).expect("open"), None);

        let data = buffers.allocate(3000);
        data.fill(7);
        for number in 0..20 {
            file.send(vec![Piece::copy_of(&[number; 16]), Piece::from(data.clone())]);
        }
        // They are on their way when the executor has nothing else to do.
        executor.context().sleep_ns(1_000_000).await;
        for number in 0..20 {
            let mut received = [0; 4096];
            assert_eq!(theirs.recv(&mut received).expect("all are sent"), 3016, "message {number}");
            assert_eq!((&received[..16], received[16], received[3015]), (&[number; 16][..], 7, 7));
        }
    });
}
