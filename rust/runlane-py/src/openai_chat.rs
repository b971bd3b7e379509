//! The common chunk of an `OpenAI` chat completion, for Python.

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use runlane_core::openai_chat::{Delta, scan};

/// Read a chunk of the common shape; None for any other.
#[pyfunction]
#[pyo3(signature = (chunk, /))]
pub(crate) fn scan_chat_chunk<'py>(
    chunk: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let py = chunk.py();
    // A text with lone surrogates has no UTF-8 form: the general decoder reads it.
    let Some(delta) = chunk.to_str().ok().and_then(scan) else {
        return Ok(None);
    };
    let said = |kind: u8, index: u32, text: &str| (kind, index, text).into_pyobject(py);
    let tuple = match delta {
        Delta::Nothing => said(0, 0, ""),
        Delta::Text(text) => said(1, 0, &text),
        Delta::Reasoning(text) => said(2, 0, &text),
        Delta::ReasoningContent(text) => said(3, 0, &text),
        Delta::Arguments(index, text) => said(4, index, &text),
        Delta::Finish(reason) => said(5, 0, &reason),
        Delta::Call(call) => {
            (6_u8, call.index, &*call.arguments, &*call.id, &*call.name).into_pyobject(py)
        }
    };
    tuple.map(Some)
}
