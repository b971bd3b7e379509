//! Canonical JSON of Python values and of documents.

mod grip;
mod limits;
mod read;
mod scalar;
mod shape;
mod walk;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use runlane_core::canon::{self, Count, Drain, Form, Hash, Keep, Limits, Refusal, Writer};

use self::grip::Owned;
use self::limits::{max_bytes, max_depth, max_nodes};
use self::walk::Walker;
use crate::error;

/// How the first walk holds on to what it passes: without a global lock, others may change the value meanwhile.
#[cfg(not(Py_GIL_DISABLED))]
type First = grip::Borrowed;
#[cfg(Py_GIL_DISABLED)]
type First = grip::Owned;

/// From how many bytes on a document is read without holding the interpreter.
const DETACH_FROM: usize = 64 << 10;

/// Write a value in the interchange form, as UTF-8.
#[pyfunction]
#[pyo3(signature = (value, /, *, max_depth=128, max_nodes=1_000_000, max_bytes=67_108_864))]
pub(crate) fn canonical_json<'py>(
    value: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = max_depth)] max_depth: usize,
    #[pyo3(from_py_with = max_nodes)] max_nodes: u64,
    #[pyo3(from_py_with = max_bytes)] max_bytes: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    text_of(
        value,
        Form::Interchange,
        Limits {
            max_depth,
            max_nodes,
            max_bytes,
        },
    )
}

/// Write a value in the record form, as UTF-8: integers of any size keep their digits.
#[pyfunction]
#[pyo3(signature = (value, /, *, max_depth=512, max_nodes=2_147_483_647, max_bytes=2_147_483_647))]
pub(crate) fn canonical_record_json<'py>(
    value: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = max_depth)] max_depth: usize,
    #[pyo3(from_py_with = max_nodes)] max_nodes: u64,
    #[pyo3(from_py_with = max_bytes)] max_bytes: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    text_of(
        value,
        Form::Record,
        Limits {
            max_depth,
            max_nodes,
            max_bytes,
        },
    )
}

/// Write a value so that `decode_lossless` gives back the same, or refuse it.
#[pyfunction]
#[pyo3(signature = (value, /, *, max_depth=100, max_nodes=1_000_000, max_bytes=67_108_864))]
pub(crate) fn encode_lossless<'py>(
    value: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = max_depth)] max_depth: usize,
    #[pyo3(from_py_with = max_nodes)] max_nodes: u64,
    #[pyo3(from_py_with = max_bytes)] max_bytes: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    text_of(
        value,
        Form::Lossless,
        Limits {
            max_depth,
            max_nodes,
            max_bytes,
        },
    )
}

/// Hash a value: the SHA-256 of its interchange form, as 64 lower-case hexadecimal digits.
#[pyfunction]
#[pyo3(signature = (value, /, *, max_depth=128, max_nodes=1_000_000, max_bytes=67_108_864))]
pub(crate) fn canonical_hash<'py>(
    value: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = max_depth)] max_depth: usize,
    #[pyo3(from_py_with = max_nodes)] max_nodes: u64,
    #[pyo3(from_py_with = max_bytes)] max_bytes: usize,
) -> PyResult<Bound<'py, PyString>> {
    hash_of(
        value,
        Form::Interchange,
        Limits {
            max_depth,
            max_nodes,
            max_bytes,
        },
    )
}

/// Hash a value: the SHA-256 of its record form, as 64 lower-case hexadecimal digits.
#[pyfunction]
#[pyo3(signature = (value, /, *, max_depth=512, max_nodes=2_147_483_647, max_bytes=2_147_483_647))]
pub(crate) fn canonical_record_hash<'py>(
    value: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = max_depth)] max_depth: usize,
    #[pyo3(from_py_with = max_nodes)] max_nodes: u64,
    #[pyo3(from_py_with = max_bytes)] max_bytes: usize,
) -> PyResult<Bound<'py, PyString>> {
    hash_of(
        value,
        Form::Record,
        Limits {
            max_depth,
            max_nodes,
            max_bytes,
        },
    )
}

/// Rewrite a JSON document in the interchange form.
#[pyfunction]
#[pyo3(signature = (document, /, *, max_depth=128, max_nodes=1_000_000, max_bytes=67_108_864))]
pub(crate) fn canonicalize<'py>(
    document: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = max_depth)] max_depth: usize,
    #[pyo3(from_py_with = max_nodes)] max_nodes: u64,
    #[pyo3(from_py_with = max_bytes)] max_bytes: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    rewritten(
        document,
        Form::Interchange,
        Limits {
            max_depth,
            max_nodes,
            max_bytes,
        },
    )
}

/// Rewrite a JSON document in the record form: integer literals keep their digits.
#[pyfunction]
#[pyo3(signature = (document, /, *, max_depth=512, max_nodes=2_147_483_647, max_bytes=2_147_483_647))]
pub(crate) fn canonicalize_record<'py>(
    document: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = max_depth)] max_depth: usize,
    #[pyo3(from_py_with = max_nodes)] max_nodes: u64,
    #[pyo3(from_py_with = max_bytes)] max_bytes: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    rewritten(
        document,
        Form::Record,
        Limits {
            max_depth,
            max_nodes,
            max_bytes,
        },
    )
}

/// Hash a JSON document: the SHA-256 of its interchange form, as lower-case hexadecimal digits.
#[pyfunction]
#[pyo3(signature = (document, /, *, max_depth=128, max_nodes=1_000_000, max_bytes=67_108_864))]
pub(crate) fn canonical_document_hash<'py>(
    document: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = max_depth)] max_depth: usize,
    #[pyo3(from_py_with = max_nodes)] max_nodes: u64,
    #[pyo3(from_py_with = max_bytes)] max_bytes: usize,
) -> PyResult<Bound<'py, PyString>> {
    document_hash(
        document,
        Form::Interchange,
        Limits {
            max_depth,
            max_nodes,
            max_bytes,
        },
    )
}

/// Hash a JSON document: the SHA-256 of its record form, as lower-case hexadecimal digits.
#[pyfunction]
#[pyo3(signature = (document, /, *, max_depth=512, max_nodes=2_147_483_647, max_bytes=2_147_483_647))]
pub(crate) fn canonical_record_document_hash<'py>(
    document: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = max_depth)] max_depth: usize,
    #[pyo3(from_py_with = max_nodes)] max_nodes: u64,
    #[pyo3(from_py_with = max_bytes)] max_bytes: usize,
) -> PyResult<Bound<'py, PyString>> {
    document_hash(
        document,
        Form::Record,
        Limits {
            max_depth,
            max_nodes,
            max_bytes,
        },
    )
}

/// Read what `encode_lossless` wrote: a value of its own at each call.
#[pyfunction]
#[pyo3(signature = (document, /, *, max_depth=100, max_nodes=1_000_000, max_bytes=67_108_864))]
pub(crate) fn decode_lossless<'py>(
    document: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = max_depth)] max_depth: usize,
    #[pyo3(from_py_with = max_nodes)] max_nodes: u64,
    #[pyo3(from_py_with = max_bytes)] max_bytes: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let limits = Limits {
        max_depth,
        max_nodes,
        max_bytes,
    };
    let document = bytes_of(document)?;
    let tape = detached(document, |bytes| {
        canon::parse(bytes, Form::Lossless, limits)
    })?;
    read::value(document.py(), &tape)
}

fn text_of<'py>(
    value: &Bound<'py, PyAny>,
    form: Form,
    limits: Limits,
) -> PyResult<Bound<'py, PyBytes>> {
    let writer: Writer<Keep> = walk(value, form, limits)?;
    Ok(PyBytes::new(value.py(), writer.text()))
}

fn hash_of<'py>(
    value: &Bound<'py, PyAny>,
    form: Form,
    limits: Limits,
) -> PyResult<Bound<'py, PyString>> {
    let writer: Writer<Hash> = walk(value, form, limits)?;
    Ok(PyString::new(value.py(), writer.into_hex().as_str()))
}

fn rewritten<'py>(
    document: &Bound<'py, PyAny>,
    form: Form,
    limits: Limits,
) -> PyResult<Bound<'py, PyBytes>> {
    let text = detached(bytes_of(document)?, |bytes| {
        canon::canonicalize(bytes, form, limits)
    })?;
    Ok(PyBytes::new(document.py(), &text))
}

fn document_hash<'py>(
    document: &Bound<'py, PyAny>,
    form: Form,
    limits: Limits,
) -> PyResult<Bound<'py, PyString>> {
    let hex = detached(bytes_of(document)?, |bytes| {
        canon::digest(bytes, form, limits)
    })?;
    Ok(PyString::new(document.py(), hex.as_str()))
}

/// Only `bytes` are read while detached, because nothing can change them.
fn bytes_of<'a, 'py>(document: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyBytes>> {
    document
        .cast()
        .map_err(|_| error::misuse(document.py(), "document", "a document is bytes"))
}

fn detached<'b, T: Send>(
    document: &'b Bound<'_, PyBytes>,
    work: impl FnOnce(&'b [u8]) -> Result<T, Refusal> + Send,
) -> PyResult<T> {
    let bytes = document.as_bytes();
    let done = if bytes.len() < DETACH_FROM {
        work(bytes)
    } else {
        document.py().detach(|| work(bytes))
    };
    done.map_err(|refusal| refused(document.py(), &refusal))
}

/// Walks fast, and a second time with care if that was refused, to find out where.
fn walk<D: Drain + Default>(
    value: &Bound<'_, PyAny>,
    form: Form,
    limits: Limits,
) -> PyResult<Writer<D>> {
    let mut walker = Walker::<First, D>::new(value.py(), Writer::new(form, limits));
    match walker.walk(value) {
        Ok(()) => Ok(walker.into_writer()),
        Err(_) => Err(diagnose(value, form, limits)),
    }
}

#[cold]
fn diagnose(value: &Bound<'_, PyAny>, form: Form, limits: Limits) -> PyErr {
    let mut walker = Walker::<Owned, Count>::new(value.py(), Writer::new(form, limits));
    // A value that passes now has been changed meanwhile, by a finalizer.
    let _ = walker.walk(value);
    if let Some(failure) = walker.take_failure() {
        return failure;
    }
    let (problem, type_name) = (walker.problem(), walker.take_culprit());
    refused(
        value.py(),
        &Refusal {
            problem,
            pointer: walker.path(),
            offset: None,
            type_name,
        },
    )
}

#[cold]
fn refused(py: Python<'_>, refusal: &Refusal) -> PyErr {
    let problem = refusal.to_string();
    let facts = PyDict::new(py);
    let filled = facts
        .set_item("path", &refusal.pointer)
        .and_then(|()| facts.set_item("problem", &problem));
    filled.map_or_else(
        |error| error,
        |()| error::refusal(py, "canonical.refused", &problem, &facts),
    )
}
