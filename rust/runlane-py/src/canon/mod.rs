//! Canonical JSON of Python values and of documents.

mod grip;
mod read;
mod walk;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use runlane_core::canon::{self, Count, Drain, Form, Hash, Keep, Limits, Problem, Refusal, Writer};

use self::grip::{Borrowed, Owned};
use self::walk::Walker;
use crate::error::NativeError;

/// From how many bytes on a document is read without holding the interpreter.
const DETACH_FROM: usize = 64 << 10;

/// The canonical text of a value.
#[pyfunction]
#[pyo3(signature = (value, form, max_depth, max_nodes, max_bytes, /))]
pub(crate) fn canonical_text<'py>(
    value: &Bound<'py, PyAny>,
    form: u8,
    max_depth: usize,
    max_nodes: u64,
    max_bytes: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let limits = Limits {
        max_depth,
        max_nodes,
        max_bytes,
    };
    let writer: Writer<Keep> = walk(value, form_of(form)?, limits)?;
    Ok(PyBytes::new(value.py(), &writer.into_text()))
}

/// The SHA-256 of the canonical text of a value, without the text.
#[pyfunction]
#[pyo3(signature = (value, form, max_depth, max_nodes, max_bytes, /))]
pub(crate) fn canonical_digest(
    value: &Bound<'_, PyAny>,
    form: u8,
    max_depth: usize,
    max_nodes: u64,
    max_bytes: usize,
) -> PyResult<String> {
    let limits = Limits {
        max_depth,
        max_nodes,
        max_bytes,
    };
    let writer: Writer<Hash> = walk(value, form_of(form)?, limits)?;
    Ok(writer.into_hex())
}

/// The canonical text of a document.
#[pyfunction]
#[pyo3(signature = (document, form, max_depth, max_nodes, max_bytes, /))]
pub(crate) fn document_text<'py>(
    document: &Bound<'py, PyBytes>,
    form: u8,
    max_depth: usize,
    max_nodes: u64,
    max_bytes: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let limits = Limits {
        max_depth,
        max_nodes,
        max_bytes,
    };
    let form = form_of(form)?;
    let text = detached(document, |bytes| canon::canonicalize(bytes, form, limits))?;
    Ok(PyBytes::new(document.py(), &text))
}

/// The SHA-256 of the canonical text of a document, without the text.
#[pyfunction]
#[pyo3(signature = (document, form, max_depth, max_nodes, max_bytes, /))]
pub(crate) fn document_digest(
    document: &Bound<'_, PyBytes>,
    form: u8,
    max_depth: usize,
    max_nodes: u64,
    max_bytes: usize,
) -> PyResult<String> {
    let limits = Limits {
        max_depth,
        max_nodes,
        max_bytes,
    };
    let form = form_of(form)?;
    detached(document, |bytes| canon::digest(bytes, form, limits))
}

/// The value that a lossless text stands for.
#[pyfunction]
#[pyo3(signature = (document, max_depth, max_nodes, max_bytes, /))]
pub(crate) fn lossless_value<'py>(
    document: &Bound<'py, PyBytes>,
    max_depth: usize,
    max_nodes: u64,
    max_bytes: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let limits = Limits {
        max_depth,
        max_nodes,
        max_bytes,
    };
    let tape = detached(document, |bytes| {
        canon::parse(bytes, Form::Lossless, limits)
    })?;
    read::value(document.py(), &tape)
}

fn form_of(number: u8) -> PyResult<Form> {
    match number {
        0 => Ok(Form::Interchange),
        1 => Ok(Form::Record),
        2 => Ok(Form::Lossless),
        _ => Err(PyValueError::new_err("the form is 0, 1 or 2")),
    }
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
    done.map_err(|refusal| refused(&refusal))
}

/// Walks fast, and a second time with care if that was refused, to find out where.
fn walk<D: Drain + Default>(
    value: &Bound<'_, PyAny>,
    form: Form,
    limits: Limits,
) -> PyResult<Writer<D>> {
    let mut walker = Walker::<Borrowed, D>::new(value.py(), Writer::new(form, limits));
    match walker.walk(value) {
        Ok(()) => Ok(walker.into_writer()),
        Err(_) => Err(diagnose(value, form, limits)),
    }
}

#[cold]
fn diagnose(value: &Bound<'_, PyAny>, form: Form, limits: Limits) -> PyErr {
    let mut walker = Walker::<Owned, Count>::new(value.py(), Writer::new(form, limits));
    let problem = walker.walk(value).err().unwrap_or(Problem::Changed);
    if let Some(failure) = walker.take_failure() {
        return failure;
    }
    let type_name = walker.take_culprit();
    refused(&Refusal {
        problem,
        pointer: walker.path(),
        offset: None,
        type_name,
    })
}

#[cold]
fn refused(refusal: &Refusal) -> PyErr {
    NativeError::new_err((
        "canonical.refused",
        refusal.to_string(),
        refusal.pointer.clone(),
    ))
}
