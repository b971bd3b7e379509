//! The common chunk of an `OpenAI` chat completion, for Python.

use pyo3::prelude::*;
use pyo3::types::PyString;
use runlane_core::openai_chat::{Delta, scan};

/// What a chunk says: which kind of text, of which call, and the text.
type Said<'py> = (u8, u32, Bound<'py, PyString>);

/// Read a chunk of the common shape; None for any other.
#[pyfunction]
#[pyo3(signature = (chunk, /))]
pub(crate) fn scan_chat_chunk<'py>(chunk: &Bound<'py, PyString>) -> Option<Said<'py>> {
    let py = chunk.py();
    // A text with lone surrogates has no UTF-8 form: the general decoder reads it.
    let text = chunk.to_str().ok()?;
    let (kind, index, said) = match scan(text)? {
        Delta::Nothing => return Some((0, 0, PyString::new(py, ""))),
        Delta::Text(said) => (1, 0, said),
        Delta::Reasoning(said) => (2, 0, said),
        Delta::ReasoningContent(said) => (3, 0, said),
        Delta::Arguments(index, said) => (4, index, said),
        Delta::Finish(said) => (5, 0, said),
    };
    Some((kind, index, PyString::new(py, &said)))
}
