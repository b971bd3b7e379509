//! `SseDecoder.feed` as the interpreter calls it: one argument, taken as it is.
//!
//! A byte that only makes the open line longer is read in fewer instructions than the wrapper that `PyO3` puts around a
//! method takes to unpack one argument and to note that the thread is attached. So this one method is a function of
//! the C interface. What is more than such a byte goes on to [`SseDecoder::take`] in the usual way.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::ffi;
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyType};

use super::SseDecoder;

/// What `inspect.signature` and `help` read.
const DOC: &core::ffi::CStr =
    c"feed($self, chunk, /)\n--\n\nTake the next bytes and return the events they complete.";

/// The method, ready to be an attribute of the class.
pub(super) fn method(class: &Bound<'_, PyType>) -> PyResult<Py<PyAny>> {
    // The descriptor keeps a pointer to this, and the class lives as long as the process.
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: c"feed".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: feed },
        ml_flags: ffi::METH_O,
        ml_doc: DOC.as_ptr(),
    }));
    // SAFETY: a live class, and a definition that is never freed; the result is a new reference or an error.
    let made = unsafe {
        Bound::from_owned_ptr_or_err(
            class.py(),
            ffi::PyDescr_NewMethod(class.as_type_ptr(), definition),
        )
    };
    made.map(Bound::unbind)
}

/// Takes a chunk; a new reference to a list, or null with an exception set.
unsafe extern "C" fn feed(
    decoder: *mut ffi::PyObject,
    chunk: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached. The descriptor has seen to it that the first argument is an instance
    // of the class; both are alive until this returns.
    let (decoder, chunk) = unsafe {
        let py = Python::assume_attached();
        let decoder = Borrowed::from_ptr(py, decoder);
        (
            decoder.cast_unchecked::<SseDecoder>(),
            Borrowed::from_ptr(py, chunk),
        )
    };
    match quick(&decoder, &chunk) {
        Some(nothing) => nothing.into_ptr(),
        None => thorough(&decoder, &chunk),
    }
}

/// Takes a chunk that is one byte of the open line and no more; None if it is not, and then nothing has happened.
///
/// No reference is dropped here but to what is held elsewhere too: this thread does not count as attached yet.
#[inline]
fn quick<'py>(
    decoder: &Bound<'py, SseDecoder>,
    chunk: &Bound<'py, PyAny>,
) -> Option<Bound<'py, PyList>> {
    let [byte] = *chunk.cast_exact::<PyBytes>().ok()?.as_bytes() else {
        return None;
    };
    decoder.try_borrow_mut().ok()?.take_byte(decoder.py(), byte)
}

#[inline(never)]
fn thorough(decoder: &Bound<'_, SseDecoder>, chunk: &Bound<'_, PyAny>) -> *mut ffi::PyObject {
    Python::attach(|py| {
        let taken = catch_unwind(AssertUnwindSafe(|| decoder.try_borrow_mut()?.take(chunk)));
        let failure = match taken {
            Ok(Ok(events)) => return events.into_ptr(),
            Ok(Err(failure)) => failure,
            Err(_) => PanicException::new_err("the decoder failed"),
        };
        failure.restore(py);
        core::ptr::null_mut()
    })
}
