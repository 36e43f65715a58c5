//! Connecting to an export: name lookup, TLS and negotiation.
//!
//! Expected faults: unknown names, hosts that do not respond, servers that do not speak NBD,
//! require TLS or lack it, do not have the export, or disconnect; wrong lengths. All within a time
//! limit.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::rc::Rc;

use stripewise_drive::Context;
use stripewise_runtime::{Network, Piece, Stream};

use super::error::{ConnectFault, shown};
use super::tls::ClientTls;
use super::uri::{NbdPlace, NbdUri};
use crate::bridge::off_thread;
use crate::nbd::transport::Transport;
use crate::nbd::transport::inbox::Inbox;
use crate::nbd::wire::protocol::*;

/// Maximum length of an option reply.
const LONGEST_REPLY: u32 = 32 << 10;
/// Maximum number of replies to one option.
const MOST_REPLIES: usize = 1000;
/// Timeout between two parts of a reply: far longer than any request timeout, which ends the whole
/// connection first.
const PAUSE_NS: u64 = 3_600_000_000_000;

/// A connection that is ready for requests.
pub(crate) struct Link {
    pub transport: Rc<Transport>,
    pub inbox: Inbox,
    pub terms: Terms,
    pub peer: Peer,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process that listens at a unix socket, if it is one of this namespace.
    pub process: Option<u32>,
    /// Addresses of the server and of this end, of a TCP connection.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
}

/// Properties of the export as the server reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub size_bytes: u64,
    pub flags: u16,
    pub structured: bool,
    pub smallest_bytes: u32,
    pub longest_bytes: u32,
}

/// Connects to an export, within `limit_ns`.
pub(crate) async fn connect(
    context: &Context,
    network: &Network,
    uri: &NbdUri,
    limit_ns: u64,
) -> Result<Link, ConnectFault> {
    let connecting = pin!(connect_in_time(context, network, uri, limit_ns));
    context.time_limit_ns(limit_ns, connecting).await.map_err(|_| ConnectFault::Silent { limit_ns })?
}

async fn connect_in_time(
    context: &Context,
    network: &Network,
    uri: &NbdUri,
    limit_ns: u64,
) -> Result<Link, ConnectFault> {
    let tls = match (uri.encrypted, &uri.certificates) {
        (false, _) => None,
        (true, None) => return Err(ConnectFault::NoAuthority),
        (true, Some(folder)) => {
            let folder = folder.clone();
            let loaded = off_thread(move || ClientTls::load(&folder)).await;
            Some(
                loaded
                    .map_err(|error| ConnectFault::BrokenOff { error })?
                    .map_err(ConnectFault::Certificates)?,
            )
        }
    };
    let stream = match &uri.address.place {
        NbdPlace::Unix(path) => {
            network.connect_unix(path).await.map_err(|error| ConnectFault::Unreachable { error })?
        }
        NbdPlace::Tcp { host, port } => {
            let addresses = addresses_of(host, *port).await?;
            reach(context, network, &addresses, limit_ns).await?
        }
    };
    let addresses = stream.peer_address().zip(stream.own_address());
    let peer = Peer { process: stream.peer_process(), addresses };
    let stream = Rc::new(stream);
    let mut negotiation =
        Negotiation { transport: Transport::Plain(stream), inbox: Inbox::new(context, PAUSE_NS) };
    let terms = negotiation.run(uri, tls.as_ref()).await?;
    let Negotiation { transport, inbox } = negotiation;
    Ok(Link { transport: Rc::new(transport), inbox, terms, peer })
}

/// Resolves a host name, on a thread of its own since the system call blocks.
async fn addresses_of(host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectFault> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let name = host.to_owned();
    let found = off_thread(move || (name.as_str(), port).to_socket_addrs().map(Vec::from_iter)).await;
    let unknown = |error| ConnectFault::UnknownHost { host: host.to_owned(), error };
    match found.and_then(|found| found) {
        Ok(addresses) if addresses.is_empty() => Err(unknown(io::Error::other("it has no address"))),
        Ok(addresses) => Ok(addresses),
        Err(error) => Err(unknown(error)),
    }
}

/// Tries each address in turn, with an equal share of the time limit.
async fn reach(
    context: &Context,
    network: &Network,
    addresses: &[SocketAddr],
    limit_ns: u64,
) -> Result<Stream, ConnectFault> {
    let share_ns = limit_ns / addresses.len().max(1) as u64;
    let mut last = io::Error::other("it has no address");
    for address in addresses {
        match context.time_limit_ns(share_ns, pin!(network.connect_tcp(*address))).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(ConnectFault::Unreachable { error: last })
}

struct Negotiation {
    transport: Transport,
    inbox: Inbox,
}

fn broken(error: io::Error) -> ConnectFault {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            ConnectFault::BrokenOff { error: io::Error::other("the server closed the connection") }
        }
        _ => ConnectFault::BrokenOff { error },
    }
}

fn not_nbd(what: &str) -> ConnectFault {
    ConnectFault::NotNbd(what.to_owned())
}

impl Negotiation {
    async fn run(&mut self, uri: &NbdUri, tls: Option<&ClientTls>) -> Result<Terms, ConnectFault> {
        self.greet().await?;
        if let Some(tls) = tls {
            self.encrypt(uri, tls).await?;
        }
        let (answer, said) = self.option(OPT_STRUCTURED_REPLY, &[], |_, _| {}).await?;
        if answer == REP_ERR_TLS_REQD {
            return Err(ConnectFault::WantsTls);
        }
        let structured = answer == REP_ACK;
        drop(said);
        let name = uri.address.export.as_bytes();
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name);
        data.extend(1_u16.to_be_bytes());
        data.extend(INFO_BLOCK_SIZE.to_be_bytes());
        let mut export = None;
        let mut sizes = None;
        let (answer, said) = self
            .option(OPT_GO, &data, |kind, data| {
                if kind == REP_INFO && data.len() == 12 && data[..2] == INFO_EXPORT.to_be_bytes() {
                    export = Some((u64_at(data, 2), u16::from_be_bytes([data[10], data[11]])));
                } else if kind == REP_INFO && data.len() == 14 && data[..2] == INFO_BLOCK_SIZE.to_be_bytes() {
                    sizes = Some((u32_at(data, 2), u32_at(data, 10)));
                }
            })
            .await?;
        match answer {
            REP_ACK => {}
            REP_ERR_UNKNOWN => {
                return Err(ConnectFault::NoExport { export: uri.address.export.clone(), said });
            }
            REP_ERR_TLS_REQD => return Err(ConnectFault::WantsTls),
            REP_ERR_UNSUP => return Err(not_nbd("it does not support the GO option")),
            REP_ERR_BLOCK_SIZE_REQD => return Err(not_nbd("it rejects the negotiation of block sizes")),
            _ => return Err(ConnectFault::Refused { said }),
        }
        let (size_bytes, flags) =
            export.ok_or_else(|| not_nbd("it does not report the size of the export"))?;
        // Without block sizes from the server, these are safe for every server.
        let (smallest_bytes, longest_bytes) = sizes.unwrap_or((512, LONGEST_TRANSFER));
        Ok(Terms { size_bytes, flags, structured, smallest_bytes, longest_bytes })
    }

    async fn greet(&mut self) -> Result<(), ConnectFault> {
        if !self.inbox.need(&self.transport, 8).await.map_err(broken)? {
            return Err(broken(io::ErrorKind::UnexpectedEof.into()));
        }
        if u64::from_be_bytes(self.inbox.take()) != NBDMAGIC {
            return Err(not_nbd("its greeting is not that of NBD"));
        }
        self.more(10).await?;
        if u64::from_be_bytes(self.inbox.take()) != IHAVEOPT {
            return Err(not_nbd("it speaks the oldstyle protocol"));
        }
        let flags = u16::from_be_bytes(self.inbox.take());
        if flags & FLAG_FIXED_NEWSTYLE == 0 {
            return Err(not_nbd("it does not speak the fixed newstyle protocol"));
        }
        let answer = u32::from(flags & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES));
        self.send(answer.to_be_bytes().to_vec()).await
    }

    async fn encrypt(&mut self, uri: &NbdUri, tls: &ClientTls) -> Result<(), ConnectFault> {
        let (answer, said) = self.option(OPT_STARTTLS, &[], |_, _| {}).await?;
        if answer != REP_ACK {
            return Err(ConnectFault::NoTls { said });
        }
        if self.inbox.available() > 0 {
            return Err(not_nbd("it sent unencrypted data after agreeing to TLS"));
        }
        let stream = self.transport.stream().clone();
        let session = tls.handshake(&stream, uri.expected_name()).await;
        let session = session.map_err(|error| ConnectFault::Tls { error })?;
        self.transport = Transport::Tls(stream, Box::new(session.into()));
        Ok(())
    }

    /// Sends an option. Returns the last reply and its message; earlier replies go to `each`.
    async fn option(
        &mut self,
        option: u32,
        data: &[u8],
        mut each: impl FnMut(u32, &[u8]),
    ) -> Result<(u32, String), ConnectFault> {
        let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.send(bytes).await?;
        for _ in 0..MOST_REPLIES {
            self.more(20).await?;
            let magic = u64::from_be_bytes(self.inbox.take());
            let of = u32::from_be_bytes(self.inbox.take());
            let kind = u32::from_be_bytes(self.inbox.take());
            let length = u32::from_be_bytes(self.inbox.take());
            if magic != OPTION_REPLY_MAGIC || of != option || length > LONGEST_REPLY {
                return Err(not_nbd("malformed option reply"));
            }
            self.more(length as usize).await?;
            let data = self.inbox.take_vec(length as usize);
            if kind == REP_ACK {
                return Ok((kind, String::new()));
            }
            if kind & REP_ERROR != 0 {
                return Ok((kind, shown(&String::from_utf8_lossy(&data))));
            }
            each(kind, &data);
        }
        Err(not_nbd("too many replies to one option"))
    }

    async fn more(&mut self, count: usize) -> Result<(), ConnectFault> {
        self.inbox.need_more(&self.transport, count).await.map_err(broken)
    }

    async fn send(&mut self, bytes: Vec<u8>) -> Result<(), ConnectFault> {
        self.transport.send(vec![Piece::from(bytes)]).await.map_err(broken)
    }
}

fn u64_at(data: &[u8], at: usize) -> u64 {
    data[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    data[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
