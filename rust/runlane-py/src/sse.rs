//! Event streams for Python: the decoder, its values, and the encoder.

mod decoder;
mod encode;
mod feed;
mod steps;
mod values;

pub(crate) use decoder::SseDecoder;
pub(crate) use encode::encode_sse;
pub(crate) use steps::event_queue;
pub(crate) use values::{IncompleteSseEvent, SseEvent};

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};

use crate::error::{invalid, misuse};

/// The largest number an option or a field takes: 2^53 - 1.
const MAX_NUMBER: u64 = (1 << 53) - 1;

/// A whole number from 0 to [`MAX_NUMBER`]; a bool is none.
fn whole_number(value: &Bound<'_, PyAny>, argument: &str) -> PyResult<u64> {
    let py = value.py();
    if value.is_instance_of::<PyBool>() || !value.is_instance_of::<PyInt>() {
        return Err(misuse(
            py,
            argument,
            &format!("must be an int, not {}", value.get_type().name()?),
        ));
    }
    match value.extract::<u64>() {
        Ok(number) if number <= MAX_NUMBER => Ok(number),
        _ => Err(invalid(py, argument, "must be from 0 to 2**53 - 1")),
    }
}

/// A str, or misuse of the argument.
fn text<'a, 'py>(
    value: &'a Bound<'py, PyAny>,
    argument: &str,
) -> PyResult<&'a Bound<'py, PyString>> {
    match value.cast::<PyString>() {
        Ok(text) => Ok(text),
        Err(_) => Err(misuse(
            value.py(),
            argument,
            &format!("must be a str, not {}", value.get_type().name()?),
        )),
    }
}
