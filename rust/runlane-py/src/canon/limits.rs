//! Limits as Python gives them: whole numbers from 0 to 2^63 - 1, and no booleans.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt};
use runlane_core::canon::number;

use crate::error;

pub(super) fn max_depth(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    size(value, "max_depth")
}

pub(super) fn max_nodes(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    whole(value, "max_nodes")
}

pub(super) fn max_bytes(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    size(value, "max_bytes")
}

pub(super) fn max_digits(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    size(value, "max_digits").map(|digits| digits.min(number::MAX_DIGITS))
}

fn size(value: &Bound<'_, PyAny>, name: &str) -> PyResult<usize> {
    let out_of_range = |_| error::invalid(value.py(), name, "beyond what this machine can count");
    whole(value, name)?.try_into().map_err(out_of_range)
}

fn whole(value: &Bound<'_, PyAny>, name: &str) -> PyResult<u64> {
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        return Err(error::misuse(value.py(), name, "a limit is a whole number"));
    }
    let limit = value
        .extract::<i64>()
        .ok()
        .and_then(|limit| u64::try_from(limit).ok());
    limit.ok_or_else(|| error::invalid(value.py(), name, "a limit lies between 0 and 2**63 - 1"))
}
