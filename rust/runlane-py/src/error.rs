//! The one exception of the native half; the façades turn it into the types of `runlane.errors`.

use pyo3::exceptions::PyException;

pyo3::create_exception!(
    runlane._native,
    NativeError,
    PyException,
    "A refusal of the native half, with args (code, message, detail).\n\nNever seen by users: each façade translates it by its code."
);
