//! Python objects that hold no others, and what they are written as.
//!
//! Nothing here calls what an object could override: texts and integers are read from their storage, also of
//! subclasses. Everywhere the caller is attached and keeps the object alive.

use pyo3::exceptions::PyUnicodeEncodeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use runlane_core::canon::{Drain, Form, Problem, Stop, Writer, number};

/// The kinds of JSON values, arrays by their Python type.
#[derive(PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Boolean,
    Integer,
    Double,
    Text,
    List,
    Tuple,
    Dict,
    Other,
}

/// What an object is written as. The lossless form takes nothing but the plain types.
#[inline]
pub(super) fn kind(object: *mut ffi::PyObject, form: Form) -> Kind {
    // SAFETY: see the module; only the type pointer is read.
    let class = unsafe { ffi::Py_TYPE(object) };
    if class == &raw mut ffi::PyUnicode_Type {
        Kind::Text
    } else if class == &raw mut ffi::PyLong_Type {
        Kind::Integer
    } else if class == &raw mut ffi::PyDict_Type {
        Kind::Dict
    } else if class == &raw mut ffi::PyList_Type {
        Kind::List
    } else if class == &raw mut ffi::PyFloat_Type {
        Kind::Double
    } else if class == &raw mut ffi::PyBool_Type {
        Kind::Boolean
    } else {
        rare(object, form)
    }
}

fn rare(object: *mut ffi::PyObject, form: Form) -> Kind {
    // SAFETY: see the module; an address, the type pointer and the flags of the type are read.
    unsafe {
        if object == ffi::Py_None() {
            Kind::Null
        } else if form == Form::Lossless {
            Kind::Other
        } else if ffi::PyTuple_CheckExact(object) != 0 {
            Kind::Tuple
        } else if ffi::PyUnicode_Check(object) != 0 {
            Kind::Text
        } else if ffi::PyLong_Check(object) != 0 {
            Kind::Integer
        } else {
            Kind::Other
        }
    }
}

/// Whether an object can be a key.
#[inline]
pub(super) fn is_key(object: *mut ffi::PyObject, form: Form) -> bool {
    // SAFETY: see the module; the type pointer and the flags of the type are read.
    unsafe {
        ffi::PyUnicode_CheckExact(object) != 0
            || form != Form::Lossless && ffi::PyUnicode_Check(object) != 0
    }
}

/// The UTF-8 of a `str`, valid as long as it lives; without one, an exception is set.
#[inline]
pub(super) fn utf8(text: *mut ffi::PyObject) -> Option<(*const u8, usize)> {
    let mut length = 0;
    // SAFETY: see the module; a str or a subclass, whose own storage is read.
    let bytes = unsafe { ffi::PyUnicode_AsUTF8AndSize(text, &raw mut length) };
    (!bytes.is_null()).then_some((bytes.cast(), length.cast_unsigned()))
}

/// A text that `utf8` gave.
///
/// # Safety
/// The object is still alive.
#[inline]
pub(super) unsafe fn as_text<'a>(text: *const u8, length: usize) -> &'a str {
    // SAFETY: UTF-8 of this length by the contract of `utf8`, alive by the caller's promise.
    unsafe { str::from_utf8_unchecked(core::slice::from_raw_parts(text, length)) }
}

/// Writes an object that holds no others; false if it is another.
#[expect(
    clippy::inline_always,
    reason = "measured: the loops of the walk are made of this"
)]
#[inline(always)]
pub(super) fn write<D: Drain>(
    py: Python<'_>,
    writer: &mut Writer<D>,
    failure: &mut Option<PyErr>,
    object: *mut ffi::PyObject,
) -> Result<bool, Stop> {
    match kind(object, writer.form()) {
        Kind::Text => match utf8(object) {
            // SAFETY: the caller keeps the object alive.
            Some((text, length)) => writer.string(unsafe { as_text(text, length) })?,
            None => return Err(no_utf8(py, writer, failure, Problem::LoneSurrogate)),
        },
        Kind::Integer => {
            let mut overflow = 0;
            // SAFETY: see the module; an integer, so only overflow is possible, which is told apart.
            let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(object, &raw mut overflow) };
            if overflow == 0 {
                writer.integer(value)?;
            } else {
                big_integer(py, writer, failure, object)?;
            }
        }
        // SAFETY: see the module; a float, whose reading cannot fail.
        Kind::Double => writer.double(unsafe { ffi::PyFloat_AsDouble(object) })?,
        // SAFETY: a comparison of addresses.
        Kind::Boolean => writer.boolean(object == unsafe { ffi::Py_True() })?,
        Kind::Null => writer.null()?,
        Kind::Dict | Kind::List | Kind::Tuple | Kind::Other => return Ok(false),
    }
    Ok(true)
}

/// Writes an integer beyond 64 bits. Base 16 is exempt from the interpreter's limit on digits, and takes linear time.
#[cold]
fn big_integer<D: Drain>(
    py: Python<'_>,
    writer: &mut Writer<D>,
    failure: &mut Option<PyErr>,
    object: *mut ffi::PyObject,
) -> Result<(), Stop> {
    writer.expect_digits(0)?;
    // SAFETY: see the module; an integer, so its own storage is read. The result is a new reference or an error.
    let hex = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyNumber_ToBase(object, 16)) };
    let hex = match hex {
        Ok(hex) => hex,
        Err(error) => {
            *failure = Some(error);
            return Err(writer.refuse(Problem::Changed));
        }
    };
    let Some((text, length)) = utf8(hex.as_ptr()) else {
        return Err(no_utf8(py, writer, failure, Problem::Changed));
    };
    // A hexadecimal digit is worth 1.204 decimal ones.
    writer.expect_digits(length.saturating_sub(3) / 5 * 6)?;
    // SAFETY: `hex` is alive.
    let digits = number::decimal_from_hex(unsafe { as_text(text, length) });
    match digits {
        Some(digits) => writer.digits(&digits),
        None => Err(writer.refuse(Problem::Changed)),
    }
}

/// Takes the exception of a text without UTF-8; one of another kind is what ends the walk.
#[cold]
pub(super) fn no_utf8<D: Drain>(
    py: Python<'_>,
    writer: &mut Writer<D>,
    failure: &mut Option<PyErr>,
    problem: Problem,
) -> Stop {
    let error = PyErr::fetch(py);
    if !error.is_instance_of::<PyUnicodeEncodeError>(py) {
        *failure = Some(error);
    }
    writer.refuse(problem)
}

/// The name of the type of an object.
#[cold]
pub(super) fn type_name(py: Python<'_>, object: *mut ffi::PyObject) -> Option<String> {
    // SAFETY: see the module; the name is read from the type itself, and is a new reference.
    let name =
        unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyType_GetQualName(ffi::Py_TYPE(object))) };
    let name = name.and_then(|name| name.cast_into::<PyString>().ok());
    name.map(|name| name.to_string_lossy().into_owned())
}
