//! Canonical JSON of Python values and of documents.

mod grip;
mod limits;
mod read;
mod scalar;
mod shape;
mod walk;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use runlane_core::canon::{self, Count, Drain, Form, Hash, Keep, Limits, Refusal, Writer, number};

use self::grip::Owned;
use self::limits::{max_bytes, max_depth, max_digits, max_nodes};
use self::walk::Walker;
use crate::error;

/// How the first walk holds on to what it passes: without a global lock, others may change the value meanwhile.
#[cfg(not(Py_GIL_DISABLED))]
type First = grip::Borrowed;
#[cfg(Py_GIL_DISABLED)]
type First = grip::Owned;

/// From how many bytes on a document is read without holding the interpreter.
const DETACH_FROM: usize = 64 << 10;

/// Functions of one value or document, whose limits have defaults of their own.
macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $name:ident($input:ident) -> $output:ident =
            $work:ident($form:ident, $depth:tt, $nodes:tt, $bytes:tt);
    )*) => { $(
        $(#[$doc])*
        #[pyfunction]
        #[pyo3(signature = ($input, /, *, max_depth=$depth, max_nodes=$nodes, max_bytes=$bytes))]
        pub(crate) fn $name<'py>(
            $input: &Bound<'py, PyAny>,
            #[pyo3(from_py_with = max_depth)] max_depth: usize,
            #[pyo3(from_py_with = max_nodes)] max_nodes: u64,
            #[pyo3(from_py_with = max_bytes)] max_bytes: usize,
        ) -> PyResult<Bound<'py, $output>> {
            let limits = Limits {
                max_depth,
                max_nodes,
                max_bytes,
                max_digits: number::MAX_DIGITS,
            };
            $work($input, Form::$form, limits)
        }
    )* };
}

functions! {
    /// Write a value in the interchange form, as UTF-8.
    canonical_json(value) -> PyBytes = text_of(Interchange, 128, 1_000_000, 67_108_864);

    /// Write a value so that `decode_lossless` gives back the same, or refuse it.
    encode_lossless(value) -> PyBytes = text_of(Lossless, 100, 1_000_000, 67_108_864);

    /// Hash a value: the SHA-256 of its interchange form, as 64 lower-case hexadecimal digits.
    canonical_hash(value) -> PyString = hash_of(Interchange, 128, 1_000_000, 67_108_864);

    /// Hash a value: the SHA-256 of its record form, as 64 lower-case hexadecimal digits.
    canonical_record_hash(value) -> PyString = hash_of(Record, 512, 2_147_483_647, 2_147_483_647);

    /// Rewrite a JSON document in the interchange form.
    canonicalize(document) -> PyBytes = rewritten(Interchange, 128, 1_000_000, 67_108_864);

    /// Rewrite a JSON document in the record form: integer literals keep their digits.
    canonicalize_record(document) -> PyBytes = rewritten(Record, 512, 2_147_483_647, 2_147_483_647);

    /// Hash a JSON document: the SHA-256 of its interchange form, as lower-case hexadecimal digits.
    canonical_document_hash(document) -> PyString =
        document_hash(Interchange, 128, 1_000_000, 67_108_864);

    /// Hash a JSON document: the SHA-256 of its record form, as lower-case hexadecimal digits.
    canonical_record_document_hash(document) -> PyString =
        document_hash(Record, 512, 2_147_483_647, 2_147_483_647);

    /// Read what `encode_lossless` wrote: a value of its own at each call.
    decode_lossless(document) -> PyAny = read_back(Lossless, 100, 1_000_000, 67_108_864);
}

/// Write a value in the record form, as UTF-8: integers keep their digits.
#[pyfunction]
#[pyo3(signature = (value, /, *, max_depth=512, max_nodes=2_147_483_647, max_bytes=2_147_483_647, max_digits=100_000))]
pub(crate) fn canonical_record_json<'py>(
    value: &Bound<'py, PyAny>,
    #[pyo3(from_py_with = max_depth)] max_depth: usize,
    #[pyo3(from_py_with = max_nodes)] max_nodes: u64,
    #[pyo3(from_py_with = max_bytes)] max_bytes: usize,
    #[pyo3(from_py_with = max_digits)] max_digits: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let limits = Limits {
        max_depth,
        max_nodes,
        max_bytes,
        max_digits,
    };
    text_of(value, Form::Record, limits)
}

fn read_back<'py>(
    document: &Bound<'py, PyAny>,
    form: Form,
    limits: Limits,
) -> PyResult<Bound<'py, PyAny>> {
    let document = bytes_of(document)?;
    let tape = detached(document, |bytes| canon::parse(bytes, form, limits))?;
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
