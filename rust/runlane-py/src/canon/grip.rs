//! How a walk holds on to the objects it passes.
//!
//! [`Borrowed`] takes no references: it is for the first walk, which runs no Python code and nothing that could set
//! off the garbage collector until it ends or fails, all while attached to an interpreter with a global lock. Its
//! pointers are never followed after a failure. [`Owned`] takes a reference to everything: it is for the second walk,
//! which finds out where a refused value is at fault, and which survives whatever finalizers do to that value
//! meanwhile; and for both where there is no global lock.

#[cfg(not(Py_GIL_DISABLED))]
use core::ptr::NonNull;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

/// A held object.
pub(super) trait Grip: Sized {
    /// What keeps a key alive beside its text.
    type Key;
    /// Whether nothing is held. Then nothing changes during a walk either, so much is read once.
    const IS_BORROWED: bool;

    /// Takes hold of an object.
    fn hold(object: &Bound<'_, PyAny>) -> Self;
    /// The object, for as long as it is held.
    fn pointer(&self) -> *mut ffi::PyObject;
    /// The length of a list.
    fn list_length(&self, py: Python<'_>) -> usize;
    /// The length of a tuple.
    fn tuple_length(&self, py: Python<'_>) -> usize;
    /// The item of a list; nothing behind its end.
    fn list_item(&self, py: Python<'_>, index: usize) -> Option<Self>;
    /// The item of a tuple, likewise.
    fn tuple_item(&self, py: Python<'_>, index: usize) -> Option<Self>;
    /// Takes the keys and values of a dict, in its order.
    fn members(&self, py: Python<'_>, take: impl FnMut(Pair<Self>));
}

/// A key and its value.
pub(super) struct Pair<G: Grip> {
    pub(super) key: *mut ffi::PyObject,
    pub(super) _held: G::Key,
    pub(super) value: Option<G>,
}

/// A pointer without a reference; see the module.
#[cfg(not(Py_GIL_DISABLED))]
pub(super) struct Borrowed(NonNull<ffi::PyObject>);

#[cfg(not(Py_GIL_DISABLED))]
impl Grip for Borrowed {
    type Key = ();
    const IS_BORROWED: bool = true;

    #[inline]
    fn hold(object: &Bound<'_, PyAny>) -> Self {
        // SAFETY: a bound object is not null.
        Self(unsafe { NonNull::new_unchecked(object.as_ptr()) })
    }

    #[inline]
    fn pointer(&self) -> *mut ffi::PyObject {
        self.0.as_ptr()
    }

    #[inline]
    fn list_length(&self, _: Python<'_>) -> usize {
        // SAFETY: attached, and the walker asks this of lists only, which their container keeps alive.
        unsafe { ffi::PyList_Size(self.pointer()) }.cast_unsigned()
    }

    #[inline]
    fn tuple_length(&self, _: Python<'_>) -> usize {
        // SAFETY: as above, for tuples.
        unsafe { ffi::PyTuple_Size(self.pointer()) }.cast_unsigned()
    }

    #[inline]
    fn list_item(&self, _: Python<'_>, index: usize) -> Option<Self> {
        // SAFETY: as above; the walker asks for items up to the length, which cannot change before the walk ends.
        NonNull::new(unsafe { ffi::PyList_GetItem(self.pointer(), index.cast_signed()) }).map(Self)
    }

    #[inline]
    fn tuple_item(&self, _: Python<'_>, index: usize) -> Option<Self> {
        // SAFETY: as above, for tuples.
        NonNull::new(unsafe { ffi::PyTuple_GetItem(self.pointer(), index.cast_signed()) }).map(Self)
    }

    #[inline]
    fn members(&self, _: Python<'_>, mut take: impl FnMut(Pair<Self>)) {
        let mut position = 0;
        let mut key = core::ptr::null_mut();
        let mut value = core::ptr::null_mut();
        // SAFETY: attached, and the walker asks this of dicts only, which their container keeps alive; `take` runs no
        // Python code, so the dict does not change under the iteration.
        while unsafe {
            ffi::PyDict_Next(
                self.pointer(),
                &raw mut position,
                &raw mut key,
                &raw mut value,
            )
        } != 0
        {
            take(Pair {
                key,
                _held: (),
                value: NonNull::new(value).map(Self),
            });
        }
    }
}

/// A reference of its own.
pub(super) struct Owned(Py<PyAny>);

impl Grip for Owned {
    type Key = Option<Py<PyAny>>;
    const IS_BORROWED: bool = false;

    fn hold(object: &Bound<'_, PyAny>) -> Self {
        Self(object.clone().unbind())
    }

    fn pointer(&self) -> *mut ffi::PyObject {
        self.0.as_ptr()
    }

    fn list_length(&self, py: Python<'_>) -> usize {
        self.0
            .bind(py)
            .cast::<PyList>()
            .map_or(0, PyListMethods::len)
    }

    fn tuple_length(&self, py: Python<'_>) -> usize {
        self.0
            .bind(py)
            .cast::<PyTuple>()
            .map_or(0, PyTupleMethods::len)
    }

    fn list_item(&self, py: Python<'_>, index: usize) -> Option<Self> {
        let list = self.0.bind(py).cast::<PyList>().ok()?;
        list.get_item(index).ok().map(|item| Self(item.unbind()))
    }

    fn tuple_item(&self, py: Python<'_>, index: usize) -> Option<Self> {
        let tuple = self.0.bind(py).cast::<PyTuple>().ok()?;
        tuple.get_item(index).ok().map(|item| Self(item.unbind()))
    }

    fn members(&self, py: Python<'_>, mut take: impl FnMut(Pair<Self>)) {
        let Ok(dict) = self.0.bind(py).cast::<PyDict>() else {
            return;
        };
        // One step for the interpreter, whatever another thread does meanwhile.
        for item in dict.items() {
            if let Ok((key, value)) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() {
                let value = Some(Self(value.unbind()));
                take(Pair {
                    key: key.as_ptr(),
                    _held: Some(key.unbind()),
                    value,
                });
            }
        }
    }
}
