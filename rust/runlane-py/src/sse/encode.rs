//! The encoder as Python sees it.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use runlane_core::sse::{Frame, Refusal};

use super::{text, whole_number};
use crate::error::{invalid, misuse};

/// Write the fields of one event as the bytes of an event stream.
#[pyfunction]
#[pyo3(signature = (data=None, *, event=None, id=None, retry_ms=None, comment=None))]
pub(crate) fn encode_sse<'py>(
    py: Python<'py>,
    data: Option<&Bound<'py, PyAny>>,
    event: Option<&Bound<'py, PyAny>>,
    id: Option<&Bound<'py, PyAny>>,
    retry_ms: Option<&Bound<'py, PyAny>>,
    comment: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let frame = Frame {
        comment: comment.map(|value| utf8(value, "comment")).transpose()?,
        name: event.map(|value| utf8(value, "event")).transpose()?,
        id: id.map(|value| utf8(value, "id")).transpose()?,
        retry_ms: retry_ms
            .map(|value| whole_number(value, "retry_ms"))
            .transpose()?,
        data: data.map(data_bytes).transpose()?,
    };
    frame.check().map_err(|refusal| match refusal {
        Refusal::Name => invalid(py, "event", "must not hold CR, LF or NUL"),
        Refusal::Id => invalid(py, "id", "must not hold CR, LF or NUL"),
        Refusal::Empty => misuse(
            py,
            "data",
            "give data or another field; an empty frame says nothing",
        ),
    })?;
    let measured = frame.measure();
    PyBytes::new_with(py, measured.len(), |buffer| {
        measured.write(buffer);
        Ok(())
    })
}

/// Data may be text, or bytes that are UTF-8 text already.
fn data_bytes<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<&'a [u8]> {
    if value.is_instance_of::<PyString>() {
        return utf8(value, "data");
    }
    let Ok(bytes) = value.cast::<PyBytes>() else {
        let kind = value.get_type();
        let message = format!("must be a str or bytes, not {}", kind.name()?);
        return Err(misuse(value.py(), "data", &message));
    };
    if std::str::from_utf8(bytes.as_bytes()).is_err() {
        return Err(invalid(value.py(), "data", "must be UTF-8"));
    }
    Ok(bytes.as_bytes())
}

fn utf8<'a>(value: &'a Bound<'_, PyAny>, argument: &str) -> PyResult<&'a [u8]> {
    match text(value, argument)?.to_str() {
        Ok(text) => Ok(text.as_bytes()),
        Err(_) => Err(invalid(
            value.py(),
            argument,
            "must not hold a lone surrogate",
        )),
    }
}
