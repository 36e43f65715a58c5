//! The protocol's numbers, under its own names.

pub(crate) const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
pub(crate) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(crate) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags of both sides.
pub(crate) const FLAG_FIXED_NEWSTYLE: u16 = 1;
pub(crate) const FLAG_NO_ZEROES: u16 = 2;

pub(crate) const OPT_EXPORT_NAME: u32 = 1;
pub(crate) const OPT_ABORT: u32 = 2;
pub(crate) const OPT_LIST: u32 = 3;
pub(crate) const OPT_STARTTLS: u32 = 5;
pub(crate) const OPT_INFO: u32 = 6;
pub(crate) const OPT_GO: u32 = 7;
pub(crate) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(crate) const OPT_LIST_META_CONTEXT: u32 = 9;
pub(crate) const OPT_SET_META_CONTEXT: u32 = 10;

pub(crate) const REP_ACK: u32 = 1;
pub(crate) const REP_SERVER: u32 = 2;
pub(crate) const REP_INFO: u32 = 3;
pub(crate) const REP_META_CONTEXT: u32 = 4;
pub(crate) const REP_ERROR: u32 = 1 << 31;
pub(crate) const REP_ERR_UNSUP: u32 = REP_ERROR + 1;
pub(crate) const REP_ERR_POLICY: u32 = REP_ERROR + 2;
pub(crate) const REP_ERR_INVALID: u32 = REP_ERROR + 3;
pub(crate) const REP_ERR_TLS_REQD: u32 = REP_ERROR + 5;
pub(crate) const REP_ERR_UNKNOWN: u32 = REP_ERROR + 6;
pub(crate) const REP_ERR_BLOCK_SIZE_REQD: u32 = REP_ERROR + 8;
pub(crate) const REP_ERR_TOO_BIG: u32 = REP_ERROR + 9;

pub(crate) const INFO_EXPORT: u16 = 0;
pub(crate) const INFO_NAME: u16 = 1;
pub(crate) const INFO_DESCRIPTION: u16 = 2;
pub(crate) const INFO_BLOCK_SIZE: u16 = 3;

/// Transmission flags.
pub(crate) const HAS_FLAGS: u16 = 1;
pub(crate) const READ_ONLY: u16 = 1 << 1;
pub(crate) const SEND_FLUSH: u16 = 1 << 2;
pub(crate) const SEND_FUA: u16 = 1 << 3;
pub(crate) const SEND_TRIM: u16 = 1 << 5;
pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
pub(crate) const SEND_DF: u16 = 1 << 7;
pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;
pub(crate) const SEND_CACHE: u16 = 1 << 10;
pub(crate) const SEND_FAST_ZERO: u16 = 1 << 11;

pub(crate) const CMD_READ: u16 = 0;
pub(crate) const CMD_WRITE: u16 = 1;
pub(crate) const CMD_DISC: u16 = 2;
pub(crate) const CMD_FLUSH: u16 = 3;
pub(crate) const CMD_TRIM: u16 = 4;
pub(crate) const CMD_CACHE: u16 = 5;
pub(crate) const CMD_WRITE_ZEROES: u16 = 6;
pub(crate) const CMD_BLOCK_STATUS: u16 = 7;

pub(crate) const CMD_FLAG_FUA: u16 = 1;
pub(crate) const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
pub(crate) const CMD_FLAG_DF: u16 = 1 << 2;
pub(crate) const CMD_FLAG_REQ_ONE: u16 = 1 << 3;
pub(crate) const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;

pub(crate) const REPLY_FLAG_DONE: u16 = 1;
pub(crate) const REPLY_NONE: u16 = 0;
pub(crate) const REPLY_OFFSET_DATA: u16 = 1;
pub(crate) const REPLY_OFFSET_HOLE: u16 = 2;
pub(crate) const REPLY_BLOCK_STATUS: u16 = 5;
pub(crate) const REPLY_ERROR: u16 = (1 << 15) + 1;
/// Set in the type of every answer that says that something went wrong.
pub(crate) const REPLY_ERROR_BIT: u16 = 1 << 15;

pub(crate) const EPERM: u32 = 1;
pub(crate) const EIO: u32 = 5;
pub(crate) const EINVAL: u32 = 22;
pub(crate) const ENOSPC: u32 = 28;
pub(crate) const EOVERFLOW: u32 = 75;
pub(crate) const ENOTSUP: u32 = 95;
pub(crate) const ESHUTDOWN: u32 = 108;

/// The one metadata context: where anything was written.
pub(crate) const BASE_ALLOCATION: &str = "base:allocation";
/// Its number in this server's replies.
pub(crate) const BASE_ALLOCATION_ID: u32 = 1;
pub(crate) const STATE_HOLE: u32 = 1;
pub(crate) const STATE_ZERO: u32 = 2;

/// The longest string that the protocol allows, bytes.
pub(crate) const LONGEST_STRING: usize = 4096;
/// The longest transfer of one request, bytes, as the protocol has it where nothing else was said.
pub(crate) const LONGEST_TRANSFER: u32 = 32 << 20;
