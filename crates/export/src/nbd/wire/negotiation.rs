//! Server side of the negotiation, option by option: takes bytes, returns bytes and a decision,
//! without I/O.
//!
//! Expected faults: unknown options (refused; the client may continue), exports that do not exist,
//! wrong lengths, strings that are not UTF-8, and unencrypted clients where TLS is required. None
//! takes memory beyond the option itself.

use std::rc::Rc;

use crate::block::{Export, Exports};
use crate::nbd::door::Allowed;
use crate::nbd::transport::tls::TlsPolicy;
use crate::nbd::wire::options::{parse_info, parse_meta_context};
use crate::nbd::wire::protocol::*;

/// The server's greeting.
pub(crate) fn greeting() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(18);
    bytes.extend(NBDMAGIC.to_be_bytes());
    bytes.extend(IHAVEOPT.to_be_bytes());
    bytes.extend((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

/// Next step after an option.
pub(crate) enum Next<X> {
    /// Another option follows.
    Option,
    /// The TLS handshake follows, then the negotiation starts over.
    StartTls,
    /// Requests to this export follow.
    Transmission(Agreed<X>),
    /// The client ended the negotiation.
    End,
    /// The connection must end, for a reason that the protocol cannot report to the client.
    Refused(String),
}

/// Result of a negotiation.
pub(crate) struct Agreed<X> {
    pub export: Rc<X>,
    /// Full name of the export.
    pub name: String,
    pub terms: Terms,
}

/// Negotiated features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub structured: bool,
    pub block_status: bool,
}

/// State of a negotiation.
pub(crate) struct Negotiation {
    tls: TlsPolicy,
    is_encrypted: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export for which the client selected `base:allocation`.
    context_of: Option<String>,
}

impl Negotiation {
    /// Starts with the client's flags from its reply to the greeting. `None` if it sets unknown
    /// ones.
    pub(in crate::nbd) fn new(tls: TlsPolicy, client_flags: u32) -> Option<Self> {
        let known = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        if client_flags & !known != 0 {
            return None;
        }
        let no_zeroes = client_flags & u32::from(FLAG_NO_ZEROES) != 0;
        Some(Self { tls, is_encrypted: false, no_zeroes, structured: false, context_of: None })
    }

    /// Records the TLS handshake, which discards everything negotiated before it.
    pub(in crate::nbd) fn is_encrypted_now(&mut self) {
        self.is_encrypted = true;
        self.structured = false;
        self.context_of = None;
    }

    /// Handles an option, and appends the replies to `replies`.
    pub(in crate::nbd) fn option<E: Exports>(
        &mut self,
        exports: &Allowed<'_, E>,
        option: u32,
        data: &[u8],
        replies: &mut Vec<u8>,
    ) -> Next<E::Export> {
        let mut refuse = |error: u32, why: &str| {
            reply(replies, option, error, why.as_bytes());
            Next::Option
        };
        if self.tls == TlsPolicy::Required && !self.is_encrypted {
            match option {
                OPT_STARTTLS | OPT_ABORT => {}
                OPT_EXPORT_NAME => return Next::Refused("it asked for an export without TLS".to_owned()),
                _ => return refuse(REP_ERR_TLS_REQD, "this server requires TLS"),
            }
        }
        match option {
            OPT_EXPORT_NAME => self.export_name(exports, data, replies),
            OPT_ABORT => {
                reply(replies, option, REP_ACK, &[]);
                Next::End
            }
            OPT_LIST if !data.is_empty() => refuse(REP_ERR_INVALID, "LIST takes no data"),
            OPT_LIST => {
                for name in exports.list() {
                    reply(replies, option, REP_SERVER, &with_length(&name));
                }
                reply(replies, option, REP_ACK, &[]);
                Next::Option
            }
            OPT_STARTTLS if !data.is_empty() => refuse(REP_ERR_INVALID, "STARTTLS takes no data"),
            OPT_STARTTLS if self.is_encrypted => refuse(REP_ERR_INVALID, "TLS is in use already"),
            OPT_STARTTLS if self.tls == TlsPolicy::None => {
                refuse(REP_ERR_POLICY, "this server has no certificate for TLS")
            }
            OPT_STARTTLS => {
                reply(replies, option, REP_ACK, &[]);
                Next::StartTls
            }
            OPT_INFO | OPT_GO => self.info(exports, option, data, replies),
            OPT_STRUCTURED_REPLY if !data.is_empty() => {
                refuse(REP_ERR_INVALID, "STRUCTURED_REPLY takes no data")
            }
            OPT_STRUCTURED_REPLY => {
                self.structured = true;
                reply(replies, option, REP_ACK, &[]);
                Next::Option
            }
            OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => {
                self.meta_context(exports, option, data, replies);
                Next::Option
            }
            _ => refuse(REP_ERR_UNSUP, "unknown option"),
        }
    }

    fn export_name<E: Exports>(
        &self,
        exports: &Allowed<'_, E>,
        data: &[u8],
        replies: &mut Vec<u8>,
    ) -> Next<E::Export> {
        // The only option without an error reply.
        let found = std::str::from_utf8(data).ok().and_then(|name| find(exports, name));
        let Some((name, export)) = found else {
            let name = String::from_utf8_lossy(data);
            return Next::Refused(format!("it asked for the unknown export {:?}", shortened(&name, 200)));
        };
        replies.extend(export.size_bytes().to_be_bytes());
        replies.extend(transmission_flags(&*export, self.structured).to_be_bytes());
        if !self.no_zeroes {
            replies.extend([0; 124]);
        }
        let terms = self.terms(&name);
        Next::Transmission(Agreed { export, name, terms })
    }

    fn info<E: Exports>(
        &mut self,
        exports: &Allowed<'_, E>,
        option: u32,
        data: &[u8],
        replies: &mut Vec<u8>,
    ) -> Next<E::Export> {
        let Some((name, wanted)) = parse_info(data) else {
            reply(replies, option, REP_ERR_INVALID, b"invalid lengths, or the name is not UTF-8");
            return Next::Option;
        };
        let Some((name, export)) = find(exports, name) else {
            let why = format!("this server has no export \"{}\"", shortened(name, 200));
            reply(replies, option, REP_ERR_UNKNOWN, why.as_bytes());
            return Next::Option;
        };
        let mut info = |kind: u16, data: &[u8]| {
            reply(replies, option, REP_INFO, &[&kind.to_be_bytes(), data].concat());
        };
        let flags = transmission_flags(&*export, self.structured);
        info(INFO_EXPORT, &[&export.size_bytes().to_be_bytes()[..], &flags.to_be_bytes()].concat());
        if wanted.contains(&INFO_NAME) {
            info(INFO_NAME, name.as_bytes());
        }
        if wanted.contains(&INFO_DESCRIPTION) {
            info(INFO_DESCRIPTION, shortened(&export.description(), LONGEST_STRING).as_bytes());
        }
        if wanted.contains(&INFO_BLOCK_SIZE) {
            let sizes = [1, export.preferred_bytes().min(LONGEST_TRANSFER), LONGEST_TRANSFER];
            info(INFO_BLOCK_SIZE, &sizes.map(u32::to_be_bytes).concat());
        }
        reply(replies, option, REP_ACK, &[]);
        if option == OPT_INFO {
            return Next::Option;
        }
        let terms = self.terms(&name);
        Next::Transmission(Agreed { export, name, terms })
    }

    fn meta_context<E: Exports>(
        &mut self,
        exports: &Allowed<'_, E>,
        option: u32,
        data: &[u8],
        replies: &mut Vec<u8>,
    ) {
        let mut refuse = |error: u32, why: &str| reply(replies, option, error, why.as_bytes());
        let is_set = option == OPT_SET_META_CONTEXT;
        if is_set {
            // Even a failed selection replaces the one before.
            self.context_of = None;
            if !self.structured {
                return refuse(REP_ERR_INVALID, "STRUCTURED_REPLY must come first");
            }
        }
        let Some((name, queries)) = parse_meta_context(data) else {
            return refuse(REP_ERR_INVALID, "invalid lengths, or a string is not UTF-8");
        };
        let Some((name, _)) = find(exports, name) else {
            return refuse(REP_ERR_UNKNOWN, "this server has no export of this name");
        };
        let lists_all = !is_set && (queries.is_empty() || queries.contains(&"base:"));
        if lists_all || queries.contains(&BASE_ALLOCATION) {
            let id = if is_set { BASE_ALLOCATION_ID } else { 0 };
            let context = [&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()].concat();
            reply(replies, option, REP_META_CONTEXT, &context);
            if is_set {
                self.context_of = Some(name);
            }
        }
        reply(replies, option, REP_ACK, &[]);
    }

    fn terms(&self, name: &str) -> Terms {
        let block_status = self.structured && self.context_of.as_deref() == Some(name);
        Terms { structured: self.structured, block_status }
    }
}

/// Finds an export by name, and returns its full name. An empty name selects the only export,
/// whatever snapshots it has.
fn find<E: Exports>(exports: &Allowed<'_, E>, name: &str) -> Option<(String, Rc<E::Export>)> {
    if name.is_empty() {
        let mut names = exports.list();
        names.retain(|name| !name.contains('@'));
        let name = names.pop().filter(|_| names.is_empty())?;
        let export = exports.find(&name)?;
        return Some((name, export));
    }
    Some((name.to_owned(), exports.find(name)?))
}

fn transmission_flags(export: &impl Export, structured: bool) -> u16 {
    let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
    if structured {
        flags |= SEND_DF;
    }
    flags |= if export.is_read_only() { READ_ONLY } else { SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO };
    flags
}

/// Appends an option reply.
pub(crate) fn reply(replies: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    replies.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    replies.extend(option.to_be_bytes());
    replies.extend(kind.to_be_bytes());
    replies.extend((data.len() as u32).to_be_bytes());
    replies.extend(data);
}

fn with_length(name: &str) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes(), name.as_bytes()].concat()
}

/// The start of a text: at most `most` bytes, in whole characters.
pub(crate) fn shortened(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
