//! What a client wants, option by option: bytes in, bytes and a decision out, no I/O.
//!
//! Expected faults: unknown options (refused, the client may go on), exports that do not exist,
//! lengths that lie, strings that are no text, and clients that talk in the clear where that is not
//! allowed. None of it takes memory beyond the option itself.

use std::rc::Rc;

use crate::block::{Export, Exports};
use crate::nbd::door::Allowed;
use crate::nbd::transport::tls::TlsPolicy;
use crate::nbd::wire::options::{parse_info, parse_meta_context};
use crate::nbd::wire::protocol::*;

/// Bytes that the server sends first.
pub(crate) fn greeting() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(18);
    bytes.extend(NBDMAGIC.to_be_bytes());
    bytes.extend(IHAVEOPT.to_be_bytes());
    bytes.extend((FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
    bytes
}

/// How it goes on after an option.
pub(crate) enum Next<X> {
    /// With another option.
    Option,
    /// The connection is encrypted, then negotiation starts over.
    StartTls,
    /// With requests to this export.
    Transmission(Agreed<X>),
    /// Not at all.
    End,
    /// Nor here, for this reason, which the protocol has no way to tell the client.
    Refused(String),
}

/// Which export a client uses from now on, and how.
pub(crate) struct Agreed<X> {
    pub export: Rc<X>,
    /// Its full name.
    pub name: String,
    pub terms: Terms,
}

/// What was agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub structured: bool,
    pub block_status: bool,
}

/// A negotiation under way.
pub(crate) struct Negotiation {
    tls: TlsPolicy,
    is_encrypted: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export for which `base:allocation` was asked for.
    context_of: Option<String>,
}

impl Negotiation {
    /// `client_flags`: the client's answer to the greeting. `None` where it asks for what there is
    /// not.
    pub(in crate::nbd) fn new(tls: TlsPolicy, client_flags: u32) -> Option<Self> {
        let known = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        if client_flags & !known != 0 {
            return None;
        }
        let no_zeroes = client_flags & u32::from(FLAG_NO_ZEROES) != 0;
        Some(Self { tls, is_encrypted: false, no_zeroes, structured: false, context_of: None })
    }

    /// What was agreed in the clear does not count any more.
    pub(in crate::nbd) fn is_encrypted_now(&mut self) {
        self.is_encrypted = true;
        self.structured = false;
        self.context_of = None;
    }

    /// Adds the answers to an option to `replies`.
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
                _ => return refuse(REP_ERR_TLS_REQD, "this server wants TLS first"),
            }
        }
        match option {
            OPT_EXPORT_NAME => self.export_name(exports, data, replies),
            OPT_ABORT => {
                reply(replies, option, REP_ACK, &[]);
                Next::End
            }
            OPT_LIST if !data.is_empty() => refuse(REP_ERR_INVALID, "a list takes no data"),
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
            _ => refuse(REP_ERR_UNSUP, "this server does not know the option"),
        }
    }

    fn export_name<E: Exports>(
        &self,
        exports: &Allowed<'_, E>,
        data: &[u8],
        replies: &mut Vec<u8>,
    ) -> Next<E::Export> {
        // The one option to which there is no way of saying no.
        let found = std::str::from_utf8(data).ok().and_then(|name| find(exports, name));
        let Some((name, export)) = found else {
            let name = String::from_utf8_lossy(data);
            return Next::Refused(format!(
                "it asked for {:?}, and there is no such export",
                shortened(&name, 200)
            ));
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
            reply(replies, option, REP_ERR_INVALID, b"the lengths in it do not fit, or the name is no text");
            return Next::Option;
        };
        let Some((name, export)) = find(exports, name) else {
            let why = format!("there is no export \"{}\" here", shortened(name, 200));
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
            // Whatever comes of this one, the one before does not count any more.
            self.context_of = None;
            if !self.structured {
                return refuse(REP_ERR_INVALID, "STRUCTURED_REPLY comes first");
            }
        }
        let Some((name, queries)) = parse_meta_context(data) else {
            return refuse(REP_ERR_INVALID, "the lengths in it do not fit, or a string is no text");
        };
        let Some((name, _)) = find(exports, name) else {
            return refuse(REP_ERR_UNKNOWN, "there is no export of this name here");
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

/// The export of that name, and its full name. Where there is but one it may go without a name.
fn find<E: Exports>(exports: &Allowed<'_, E>, name: &str) -> Option<(String, Rc<E::Export>)> {
    if name.is_empty() {
        let mut names = exports.list();
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

/// Adds an answer to an option.
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

/// At most so many bytes of a text, and whole characters.
pub(crate) fn shortened(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}
