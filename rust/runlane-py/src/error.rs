//! How the native half says no.
//!
//! A façade written in Python catches [`NativeError`] and raises its own type. Where a native class or function *is*
//! the public one, because a Python layer around it would cost more than its work, its façade hands the error classes
//! over once, at import, as data: a dict from code to class. The native half then raises those and still imports
//! nothing. Without that dict it raises [`NativeError`].

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PyDict};

pyo3::create_exception!(
    runlane._native,
    NativeError,
    PyException,
    "A refusal of the native half, with args (code, message, detail).\n\nNever seen by users: each façade translates it by its code."
);

static ADOPTED: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

/// Take over the error classes that native classes and functions raise, by code.
#[pyfunction]
#[pyo3(signature = (classes, /))]
pub(crate) fn adopt_errors(py: Python<'_>, classes: &Bound<'_, PyDict>) -> PyResult<()> {
    let adopted = ADOPTED.get_or_init(py, || PyDict::new(py).unbind());
    adopted.bind(py).update(classes.as_mapping())
}

/// Misuse: the program calls something in a way it does not offer.
#[cold]
pub(crate) fn misuse(py: Python<'_>, argument: &str, message: &str) -> PyErr {
    about_argument(py, "usage", argument, message)
}

/// A value outside what its argument accepts.
#[cold]
pub(crate) fn invalid(py: Python<'_>, argument: &str, message: &str) -> PyErr {
    about_argument(py, "value.invalid", argument, message)
}

fn about_argument(py: Python<'_>, code: &str, argument: &str, message: &str) -> PyErr {
    let Some(class) = adopted(py, code) else {
        return NativeError::new_err((code.to_owned(), message.to_owned(), argument.to_owned()));
    };
    let named = [("argument", argument)].into_py_dict(py);
    raised(named.and_then(|named| class.call((message,), Some(&named))))
}

/// A refusal with facts, which are the keyword arguments of its class.
#[cold]
pub(crate) fn refusal(
    py: Python<'_>,
    code: &str,
    message: &str,
    facts: &Bound<'_, PyDict>,
) -> PyErr {
    match adopted(py, code) {
        Some(class) => raised(class.call((), Some(facts))),
        None => NativeError::new_err((code.to_owned(), message.to_owned(), facts.clone().unbind())),
    }
}

/// The class that a façade handed over for this code.
fn adopted<'py>(py: Python<'py>, code: &str) -> Option<Bound<'py, PyAny>> {
    ADOPTED.get(py)?.bind(py).get_item(code).ok()?
}

fn raised(made: PyResult<Bound<'_, PyAny>>) -> PyErr {
    made.map_or_else(|error| error, PyErr::from_value)
}
