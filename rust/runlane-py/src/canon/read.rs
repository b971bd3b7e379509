//! A parsed document as a Python value of its own.

use std::ffi::CString;

use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};
use runlane_core::canon::{Pointer, Problem, Refusal, Tape, Token, number};

use super::refused;

/// A container that is being filled, and the place behind its last token.
enum Frame<'py> {
    List {
        list: Bound<'py, PyList>,
        end: usize,
    },
    Dict {
        dict: Bound<'py, PyDict>,
        key: Option<Bound<'py, PyString>>,
        end: usize,
    },
}

/// The value of a tape. A container is put into its parent empty and filled there, so nothing recurses.
pub(super) fn value<'py>(py: Python<'py>, tape: &Tape<'_>) -> PyResult<Bound<'py, PyAny>> {
    let root = single(py, tape, 0)?;
    let mut frames: Vec<Frame<'py>> = open(&root, tape, 0).into_iter().collect();
    let mut at = 1;
    while let Some(frame) = frames.last_mut() {
        let (Frame::List { end, .. } | Frame::Dict { end, .. }) = frame;
        if at == *end {
            frames.pop();
            continue;
        }
        if let Frame::Dict {
            key: key @ None, ..
        } = frame
        {
            *key = Some(PyString::new(py, tape.key(at)));
            at += 1;
            continue;
        }
        let value = single(py, tape, at)?;
        let child = open(&value, tape, at);
        if !put(frame, value)? {
            return Err(duplicate(py, &frames));
        }
        frames.extend(child);
        at += 1;
    }
    Ok(root)
}

/// The value at a place; a container comes empty.
fn single<'py>(py: Python<'py>, tape: &Tape<'_>, at: usize) -> PyResult<Bound<'py, PyAny>> {
    Ok(match tape.token(at) {
        Some(Token::Null) | None => py.None().into_bound(py),
        Some(Token::Boolean(value)) => PyBool::new(py, value).to_owned().into_any(),
        Some(Token::Integer(value)) => PyInt::new(py, value).into_any(),
        Some(Token::Double(value)) => PyFloat::new(py, value).into_any(),
        Some(Token::Digits(span)) => integer(py, tape.text(span))?,
        Some(Token::Text(span)) => PyString::new(py, tape.text(span)).into_any(),
        Some(Token::Array(_)) => PyList::empty(py).into_any(),
        Some(Token::Object(_)) => PyDict::new(py).into_any(),
    })
}

fn open<'py>(value: &Bound<'py, PyAny>, tape: &Tape<'_>, at: usize) -> Option<Frame<'py>> {
    let end = tape.after(at);
    if let Ok(list) = value.cast_exact::<PyList>() {
        Some(Frame::List {
            list: list.clone(),
            end,
        })
    } else if let Ok(dict) = value.cast_exact::<PyDict>() {
        Some(Frame::Dict {
            dict: dict.clone(),
            key: None,
            end,
        })
    } else {
        None
    }
}

/// Puts a value into its container; false if its key is there already.
fn put<'py>(frame: &mut Frame<'py>, value: Bound<'py, PyAny>) -> PyResult<bool> {
    match frame {
        Frame::List { list, .. } => list.append(value).map(|()| true),
        Frame::Dict { dict, key, .. } => {
            let Some(name) = key.clone() else {
                return Ok(false);
            };
            if dict.contains(&name)? {
                return Ok(false);
            }
            *key = None;
            dict.set_item(name, value).map(|()| true)
        }
    }
}

/// An integer of any size; by way of base 16, which the interpreter's limit on digits does not concern.
fn integer<'py>(py: Python<'py>, digits: &str) -> PyResult<Bound<'py, PyAny>> {
    let hex = number::hex_from_decimal(digits).and_then(|hex| CString::new(hex).ok());
    let hex = hex.ok_or_else(|| PyValueError::new_err("no digits"))?;
    // SAFETY: attached; the text ends with a NUL; the result is a new reference or an error.
    unsafe {
        Bound::from_owned_ptr_or_err(
            py,
            ffi::PyLong_FromString(hex.as_ptr(), core::ptr::null_mut(), 16),
        )
    }
}

fn duplicate(py: Python<'_>, frames: &[Frame<'_>]) -> PyErr {
    let mut pointer = Pointer::default();
    for (depth, frame) in frames.iter().enumerate() {
        let is_last = depth + 1 == frames.len();
        match frame {
            Frame::List { list, .. } => pointer.index(list.len().saturating_sub(1)),
            Frame::Dict { key: Some(key), .. } if is_last => pointer.key(&key.to_string_lossy()),
            Frame::Dict { dict, .. } => {
                let newest = dict.keys().iter().last();
                let newest = newest.and_then(|key| key.cast_into::<PyString>().ok());
                pointer.key(
                    &newest.map_or_else(String::new, |key| key.to_string_lossy().into_owned()),
                );
            }
        }
    }
    let problem = Problem::DuplicateKey;
    refused(
        py,
        &Refusal {
            problem,
            pointer: pointer.finish(),
            offset: None,
            type_name: None,
        },
    )
}
