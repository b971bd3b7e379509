//! How a walk holds on to the objects it passes.
//!
//! [`Borrowed`] takes no references: it is for the first walk, which runs no Python code and nothing that could set
//! off the garbage collector until it ends or fails, all while attached. Its pointers are never followed after a
//! failure. [`Owned`] takes a reference to everything: it is for the second walk, which finds out where a refused
//! value is at fault, and which survives whatever finalizers do to that value meanwhile.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

/// A held object.
pub(super) trait Grip: Sized {
    /// What keeps a key alive beside its text.
    type Key;
    /// Whether a container inside itself is noticed at once, not just in time to end the walk.
    const IS_EXACT: bool;

    /// Takes hold of an object.
    fn hold(object: &Bound<'_, PyAny>) -> Self;
    /// The object, for as long as it is held.
    fn pointer(&self) -> *mut ffi::PyObject;
    /// The item of a list; nothing behind its end.
    fn list_item(&self, py: Python<'_>, index: usize) -> Option<Self>;
    /// The item of a tuple, likewise.
    fn tuple_item(&self, py: Python<'_>, index: usize) -> Option<Self>;
    /// Hands over each key and value of a dict; stops at the first error.
    fn members<E>(
        &self,
        py: Python<'_>,
        take: impl FnMut(*mut ffi::PyObject, Self::Key, Self) -> Result<(), E>,
    ) -> Result<(), E>;
}

/// A pointer without a reference; see the module.
pub(super) struct Borrowed(*mut ffi::PyObject);

impl Grip for Borrowed {
    type Key = ();
    const IS_EXACT: bool = false;

    fn hold(object: &Bound<'_, PyAny>) -> Self {
        Self(object.as_ptr())
    }

    #[inline]
    fn pointer(&self) -> *mut ffi::PyObject {
        self.0
    }

    #[inline]
    fn list_item(&self, _: Python<'_>, index: usize) -> Option<Self> {
        let index = index.cast_signed();
        // SAFETY: attached, and the walker asks this of lists only, which their container keeps alive; the size is
        // read at each step, so the index is inside.
        unsafe {
            (index < ffi::PyList_Size(self.0)).then(|| Self(ffi::PyList_GetItem(self.0, index)))
        }
    }

    #[inline]
    fn tuple_item(&self, _: Python<'_>, index: usize) -> Option<Self> {
        let index = index.cast_signed();
        // SAFETY: as above, for tuples.
        unsafe {
            (index < ffi::PyTuple_Size(self.0)).then(|| Self(ffi::PyTuple_GetItem(self.0, index)))
        }
    }

    #[inline]
    fn members<E>(
        &self,
        _: Python<'_>,
        mut take: impl FnMut(*mut ffi::PyObject, (), Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut position = 0;
        let mut key = core::ptr::null_mut();
        let mut value = core::ptr::null_mut();
        // SAFETY: attached, and the walker asks this of dicts only, which their container keeps alive; `take` runs no
        // Python code, so the dict does not change under the iteration.
        while unsafe { ffi::PyDict_Next(self.0, &raw mut position, &raw mut key, &raw mut value) }
            != 0
        {
            take(key, (), Self(value))?;
        }
        Ok(())
    }
}

/// A reference of its own.
pub(super) struct Owned(Py<PyAny>);

impl Grip for Owned {
    type Key = Self;
    const IS_EXACT: bool = true;

    fn hold(object: &Bound<'_, PyAny>) -> Self {
        Self(object.clone().unbind())
    }

    fn pointer(&self) -> *mut ffi::PyObject {
        self.0.as_ptr()
    }

    fn list_item(&self, py: Python<'_>, index: usize) -> Option<Self> {
        let item = self.0.bind(py).cast::<PyList>().ok()?.get_item(index);
        item.ok().map(|item| Self(item.unbind()))
    }

    fn tuple_item(&self, py: Python<'_>, index: usize) -> Option<Self> {
        let item = self.0.bind(py).cast::<PyTuple>().ok()?.get_item(index);
        item.ok().map(|item| Self(item.unbind()))
    }

    fn members<E>(
        &self,
        py: Python<'_>,
        mut take: impl FnMut(*mut ffi::PyObject, Self, Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let Ok(dict) = self.0.bind(py).cast::<PyDict>() else {
            return Ok(());
        };
        // One step for the interpreter, whatever another thread does meanwhile.
        for item in dict.items() {
            if let Ok((key, value)) = item.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() {
                take(key.as_ptr(), Self(key.unbind()), Self(value.unbind()))?;
            }
        }
        Ok(())
    }
}
