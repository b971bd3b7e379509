//! Canonical JSON: one text for equal values, so that a digest of it means something.
//!
//! [`Form::Interchange`] is RFC 8785 exactly. [`Form::Record`] differs in one thing: integers of any size keep
//! their digits. [`Form::Lossless`] is no canonical form but shares the rules of text and the limits.
//!
//! The invariant: what comes out is read back as the same form, byte for byte; whatever has no such text is refused
//! with its place. Nothing recurses, so depth is bounded by the limits alone.

mod drain;
mod emit;
pub mod number;
pub mod order;
mod parse;
mod problem;
mod tape;
mod text;
mod write;

pub use drain::{Count, Drain, Hash, Hex, Keep};
pub use emit::emit;
pub use parse::parse;
pub use problem::{Pointer, Problem, Refusal};
pub use tape::{Span, Tape, Token};
pub use write::{Form, Limits, Stop, Writer, render_key};

/// The canonical text of a JSON document.
///
/// # Errors
/// [`Refusal`] with what is wrong and where.
pub fn canonicalize(document: &[u8], form: Form, limits: Limits) -> Result<Vec<u8>, Refusal> {
    let mut writer = Writer::<Keep>::new(form, limits);
    emit(&parse(document, form, limits)?, &mut writer)?;
    Ok(writer.into_text())
}

/// The SHA-256 of [`canonicalize`], in hexadecimal, without the text in between.
///
/// # Errors
/// As [`canonicalize`].
pub fn digest(document: &[u8], form: Form, limits: Limits) -> Result<Hex, Refusal> {
    let mut writer = Writer::<Hash>::new(form, limits);
    emit(&parse(document, form, limits)?, &mut writer)?;
    Ok(writer.into_hex())
}

#[cfg(test)]
mod tests;
