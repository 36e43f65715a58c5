//! Clients whose pool was closed under them and opened again, with acknowledged writes that no
//! flush covered.

use crate::kit::client::{Client, FLUSH, FUA, READ, TRIM, WRITE, WRITE_ZEROES};
use crate::kit::{Served, Wanted, contents};

const EIO: u32 = 5;

fn flush(client: &mut Client) -> u32 {
    client.ask(FLUSH, 0, 0, 0, &[])
}

#[test]
fn a_reconnecting_client_gets_a_loss_once() {
    let served = Served::start(Wanted::default());
    let ready = || Client::ready(&served.socket, "tank/data");
    let (durable, lost) = (contents(1, 8192), contents(2, 8192));
    let (mut writer, mut other) = (ready(), ready());
    writer.write(0, &durable);
    assert_eq!(flush(&mut other), 0);
    served.lose_and_reopen();
    assert!(writer.is_closed() && other.is_closed());
    let (mut writer, mut other) = (ready(), ready());
    assert_eq!([flush(&mut writer), flush(&mut other)], [0, 0], "all of it is durable");

    // One of them leaves before the loss, and one does not write.
    writer.write(0, &lost);
    drop(writer);
    served.wait_for_notice("(connection 2) disconnected");
    served.lose_and_reopen();
    assert!(other.is_closed());
    let (mut first, mut second) = (ready(), ready());
    first.read(0, 512);
    assert_eq!(flush(&mut first), EIO);
    assert_eq!(flush(&mut first), 0, "reported once");
    assert_eq!(second.ask(WRITE, FUA, 0, 512, &[1; 512]), EIO);
    assert!(second.read(0, 512) != [1; 512], "the refused write was not executed");
    assert_eq!(second.ask(WRITE, FUA, 0, 512, &[1; 512]), 0);
    let mut third = ready();
    assert_eq!(flush(&mut third), 0, "both got it");

    // All commands that imply the state of earlier writes report the loss.
    for kind in [TRIM, WRITE_ZEROES] {
        second.write(0, &lost);
        served.lose_and_reopen();
        second = ready();
        assert_eq!(second.ask(READ, 0, 0, 0, &[]), 0);
        assert_eq!(second.ask(kind, 0, 0, 4096, &[]), EIO);
        assert_eq!(second.ask(kind, 0, 0, 4096, &[]), 0);
    }
}
