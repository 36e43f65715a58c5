//! A client that sends exactly the given bytes, valid or not. Its reads and writes have a timeout
//! of 60 s.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const FAST_ZERO: u16 = 16;

pub const OPT_EXPORT_NAME: u32 = 1;
pub const OPT_ABORT: u32 = 2;
pub const OPT_LIST: u32 = 3;
pub const OPT_STARTTLS: u32 = 5;
pub const OPT_INFO: u32 = 6;
pub const OPT_GO: u32 = 7;
pub const OPT_STRUCTURED_REPLY: u32 = 8;
pub const OPT_LIST_META_CONTEXT: u32 = 9;
pub const OPT_SET_META_CONTEXT: u32 = 10;

pub const ACK: u32 = 1;
pub const ERROR: u32 = 1 << 31;
pub const POLICY: u32 = ERROR + 2;

/// A structured reply, or a simple one as type `SIMPLE` with its error as payload.
pub const SIMPLE: u16 = 0x7fff;

pub struct Client {
    pub stream: UnixStream,
}

impl Client {
    /// Connected, and past the greeting.
    pub fn connect(socket: &Path) -> Self {
        let mut client = Self::connect_silently(socket);
        let greeting = client.receive(18);
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        assert_eq!(greeting[16..], [0, 3]);
        client.send(&3_u32.to_be_bytes());
        client
    }

    pub fn connect_silently(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("connected");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        stream.set_write_timeout(Some(Duration::from_secs(60))).expect("set");
        Self { stream }
    }

    /// Ready for requests to `name`, with structured replies and block status.
    pub fn ready(socket: &Path, name: &str) -> Self {
        Self::try_ready(socket, name).expect("there is a place")
    }

    /// As [`Self::ready`], where there may be too many: what the server says then.
    pub fn try_ready(socket: &Path, name: &str) -> Result<Self, String> {
        let mut client = Self::connect(socket);
        match client.option(OPT_STRUCTURED_REPLY, &[]).as_slice() {
            [(POLICY, why)] => return Err(String::from_utf8_lossy(why).into_owned()),
            replies => assert_eq!(replies, [(ACK, vec![])]),
        }
        let replies = client.option(OPT_SET_META_CONTEXT, &meta_context(name, &["base:allocation"]));
        if let [(error, why)] = replies.as_slice()
            && *error >= ERROR
        {
            return Err(String::from_utf8_lossy(why).into_owned());
        }
        assert_eq!(replies.len(), 2, "{replies:?}");
        let replies = client.option(OPT_GO, &info(name, &[3]));
        assert_eq!(replies.last().expect("an answer").0, ACK, "{replies:?}");
        Ok(client)
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sent");
    }

    pub fn receive(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).expect("an answer");
        bytes
    }

    /// True if the server closes the connection without sending more.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => rest.is_empty(),
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    fn number<const N: usize>(&mut self) -> [u8; N] {
        self.receive(N).try_into().expect("as many bytes")
    }

    /// Sends an option. Returns kind and data of each reply, up to the last.
    pub fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send(&option_bytes(option, data));
        let mut replies = Vec::new();
        loop {
            assert_eq!(u64::from_be_bytes(self.number()), 0x0003_e889_0455_65a9);
            assert_eq!(u32::from_be_bytes(self.number()), option);
            let kind = u32::from_be_bytes(self.number());
            let length = u32::from_be_bytes(self.number()) as usize;
            replies.push((kind, self.receive(length)));
            if kind == ACK || kind & ERROR != 0 {
                return replies;
            }
        }
    }

    pub fn request(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) {
        self.send(&request_bytes(kind, flags, cookie, offset, length));
    }

    /// The next reply: cookie, type and payload. The payload of a simple reply is its error; simple
    /// read data are not supported.
    pub fn answer(&mut self) -> (u64, u16, Vec<u8>) {
        match u32::from_be_bytes(self.number()) {
            0x6744_6698 => {
                let error = self.receive(4);
                (u64::from_be_bytes(self.number()), SIMPLE, error)
            }
            0x668e_33ef => {
                assert_eq!(u16::from_be_bytes(self.number()), 1, "the only chunk");
                let kind = u16::from_be_bytes(self.number());
                let cookie = u64::from_be_bytes(self.number());
                let length = u32::from_be_bytes(self.number()) as usize;
                (cookie, kind, self.receive(length))
            }
            magic => panic!("a reply begins with {magic:#x}"),
        }
    }

    /// Sends a request and returns its error, 0 for none.
    pub fn ask(&mut self, kind: u16, flags: u16, offset: u64, length: u32, payload: &[u8]) -> u32 {
        self.request(kind, flags, 77, offset, length);
        self.send(payload);
        let (cookie, _, _, error) = self.answer_with_error();
        assert_eq!(cookie, 77);
        error
    }

    fn answer_with_error(&mut self) -> (u64, u16, Vec<u8>, u32) {
        let (cookie, kind, payload) = self.answer();
        let is_error = kind == SIMPLE || kind & (1 << 15) != 0;
        let error = if is_error { u32::from_be_bytes(payload[..4].try_into().expect("an error")) } else { 0 };
        (cookie, kind, payload, error)
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        assert_eq!(self.ask(WRITE, 0, offset, bytes.len() as u32, bytes), 0);
    }

    pub fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        self.try_read(offset, length).unwrap_or_else(|(error, why)| panic!("{error}: {why}"))
    }

    /// The data, or the error with its message.
    pub fn try_read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, (u32, String)> {
        self.request(READ, 0, 78, offset, length);
        let (_, kind, payload, error) = self.answer_with_error();
        if error != 0 {
            return Err((error, String::from_utf8_lossy(payload.get(6..).unwrap_or_default()).into_owned()));
        }
        match kind {
            1 => Ok(payload[8..].to_vec()),
            2 => Ok(vec![0; length as usize]),
            0 => Ok(Vec::new()),
            _ => panic!("a reply of type {kind}"),
        }
    }

    /// Length and flags of each extent.
    pub fn status(&mut self, offset: u64, length: u32) -> Vec<(u32, u32)> {
        self.request(BLOCK_STATUS, 0, 79, offset, length);
        let (_, kind, payload) = self.answer();
        assert_eq!(kind, 5);
        let numbers: Vec<u32> = payload
            .chunks(4)
            .map(|number| u32::from_be_bytes(number.try_into().expect("four bytes")))
            .collect();
        assert_eq!(numbers[0], 1, "the context's number");
        numbers[1..].chunks(2).map(|pair| (pair[0], pair[1])).collect()
    }
}

pub fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    [b"IHAVEOPT", &option.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
}

pub fn request_bytes(kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

pub fn info(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((wanted.len() as u16).to_be_bytes());
    wanted.iter().for_each(|kind| data.extend(kind.to_be_bytes()));
    data
}

pub fn meta_context(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(query.as_bytes());
    }
    data
}
