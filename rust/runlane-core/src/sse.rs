//! Event streams: a decoder that any cutting of the bytes leaves unmoved, and the encoder beside it.
//!
//! The grammar is the event stream of the WHATWG HTML standard, section "Server-sent events". What goes beyond it
//! (limits, strict UTF-8, the report of an unfinished block) never changes which events a stream has.

mod decode;
mod encode;
mod field;
mod tail;

pub use decode::{Decoder, Event, Fault, Incomplete, Limits};
pub use encode::{Frame, Measured, Refusal};
pub use field::MAX_RETRY_MS;
pub use tail::MAX_RAW_TAIL;
