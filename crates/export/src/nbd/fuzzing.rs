//! Entry points to the parsers for fuzzing. Not part of this crate's stable interface.

use std::rc::Rc;

use stripewise_array::{ArrayError, Extent};
use stripewise_drive::{Buffer, BufferPool};

use crate::nbd::door::{Allowed, Client, Door};
use crate::nbd::transport::tls::TlsPolicy;
use crate::nbd::wire::negotiation::{Negotiation, Next, Terms};
use crate::nbd::wire::options::{OPTION_HEAD_BYTES, parse_option_head};
use crate::nbd::wire::protocol::LONGEST_TRANSFER;
use crate::nbd::wire::replies::{Outcome, Reply};
use crate::nbd::wire::requests::{REQUEST_BYTES, Request, Rules};

use crate::block::{Ending, Export, Exports, UnalignedGate};
use crate::losses::Losses;

const SIZE_BYTES: u64 = 1 << 30;

/// Parses bytes of a client: a choice of the server's settings, the client's flags, options, then
/// requests. Nothing may panic, and replies stay in proportion to the input.
pub fn client_bytes(input: &[u8]) {
    let Some(([choice, flags @ ..], mut rest)) = input.split_first_chunk::<5>() else { return };
    let policy = [TlsPolicy::None, TlsPolicy::Offered, TlsPolicy::Required][usize::from(choice % 3)];
    let Some(mut negotiation) = Negotiation::new(policy, u32::from_be_bytes(*flags)) else { return };
    let mut terms = Terms { structured: choice & 16 != 0, block_status: choice & 32 != 0 };
    while let Some((head, after)) = rest.split_first_chunk::<OPTION_HEAD_BYTES>() {
        let Some((option, length)) = parse_option_head(head) else { break };
        let Some((data, after)) = after.split_at_checked(length as usize) else { return };
        rest = after;
        let mut replies = Vec::new();
        let door = Door::default();
        let exports = Allowed { exports: &TwoExports, comer: &Client::new(&door, None) };
        let next = negotiation.option(&exports, option, data, &mut replies);
        assert!(replies.len() <= 16_000 + data.len(), "an answer of {} bytes", replies.len());
        match next {
            Next::Option => {}
            Next::End | Next::Refused(_) => return,
            Next::StartTls => negotiation.is_encrypted_now(),
            Next::Transmission(agreed) => {
                terms = agreed.terms;
                break;
            }
        }
    }
    let rules = Rules { terms, size_bytes: SIZE_BYTES, read_only: choice & 64 != 0 };
    while let Some((head, after)) = rest.split_first_chunk::<REQUEST_BYTES>() {
        let Some(request) = Request::parse(head) else { return };
        rest = after.get(request.payload_bytes() as usize..).unwrap_or_default();
        assert!(request.transfer_bytes() <= LONGEST_TRANSFER);
        let outcome = match request.command(&rules) {
            Ok(_) => Outcome::Done,
            Err(failure) => Outcome::Failed(failure),
        };
        assert!(Reply::new(&request, terms.structured, outcome).length() <= 2000);
    }
}

/// Two exports without anything behind them.
struct TwoExports;

struct Nothing;

impl Exports for TwoExports {
    type Export = Nothing;

    fn find(&self, name: &str) -> Option<Rc<Nothing>> {
        self.list().contains(&name.to_owned()).then(|| Rc::new(Nothing))
    }

    fn list(&self) -> Vec<String> {
        vec!["tank/a".to_owned(), "tank/b".to_owned()]
    }
}

impl Export for Nothing {
    fn size_bytes(&self) -> u64 {
        SIZE_BYTES
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn sector_bytes(&self) -> u64 {
        512
    }

    fn preferred_bytes(&self) -> u32 {
        4096
    }

    fn description(&self) -> String {
        "nothing".repeat(2000)
    }

    fn buffers(&self) -> &BufferPool {
        unreachable!("no request is executed")
    }

    fn unaligned(&self) -> &UnalignedGate {
        unreachable!("no request is executed")
    }

    fn ending(&self) -> &Ending {
        unreachable!("no client is connected")
    }

    fn losses(&self) -> &Rc<Losses> {
        unreachable!("no client is connected")
    }

    async fn read(&self, _: u64, _: usize) -> Result<Buffer, ArrayError> {
        Err(ArrayError::Closed)
    }

    async fn write(&self, _: u64, _: Buffer, _: bool) -> Result<(), ArrayError> {
        Err(ArrayError::Closed)
    }

    async fn flush(&self) -> Result<(), ArrayError> {
        Err(ArrayError::Closed)
    }

    async fn discard(&self, _: u64, _: u64) -> Result<(), ArrayError> {
        Err(ArrayError::Closed)
    }

    async fn write_zeroes(&self, _: u64, _: u64) -> Result<(), ArrayError> {
        Err(ArrayError::Closed)
    }

    fn extents(&self, _: u64, _: u64, _: usize) -> Result<Vec<Extent>, ArrayError> {
        Err(ArrayError::Closed)
    }

    fn is_unwritten(&self, _: u64, _: u64) -> Result<bool, ArrayError> {
        Err(ArrayError::Closed)
    }

    fn zeroes_at_once(&self, _: u64, _: u64) -> Result<bool, ArrayError> {
        Err(ArrayError::Closed)
    }
}
