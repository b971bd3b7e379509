//! `async for` over events at hand, without a coroutine for each of them.
//!
//! A class with `async def __anext__` makes, runs and frees a coroutine for every event, which takes as long as
//! decoding it. Here a step is an object whose awaiting ends at once, with the event, and which serves again for the
//! next one. Two types of the C interface make this up, because a `PyO3` class cannot fill the slot by which an
//! awaitable gives its result without raising `StopIteration`:
//!
//! * [`Queue`], the base of the reader: events at hand. Its `__anext__` gives
//! * a [`Step`]. Awaited, it takes the next event there is then; if there is none, or a token must be asked first, it
//!   awaits the coroutine of the reader's `_advance` instead. A step that nobody awaits costs no event.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::ptr::null_mut;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// The events a reader has at hand.
#[repr(C)]
struct Queue {
    base: ffi::PyObject,
    /// The list of them: a `list`, or null before the first.
    events: *mut ffi::PyObject,
    /// The place of the next one in it.
    next: ffi::Py_ssize_t,
    /// None, or a token: then every step asks the reader, which asks the token.
    token: *mut ffi::PyObject,
    /// The step given last; it serves again once nobody holds it.
    spare: *mut ffi::PyObject,
}

/// One step of an iteration.
#[repr(C)]
struct Step {
    base: ffi::PyObject,
    /// Whose event it gives; null once it has.
    queue: *mut ffi::PyObject,
}

static STEP: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The base class of readers.
pub(crate) fn event_queue(py: Python<'_>) -> PyResult<Py<PyType>> {
    STEP.get_or_try_init(py, || step_type(py))?;
    let mut members = [
        member(c"_events", ffi::Py_T_OBJECT_EX, offset_of!(Queue, events)),
        member(c"_next", ffi::Py_T_PYSSIZET, offset_of!(Queue, next)),
        member(c"_token", ffi::Py_T_OBJECT_EX, offset_of!(Queue, token)),
        ffi::PyMemberDef::default(),
    ];
    let mut slots = [
        slot(ffi::Py_tp_dealloc, dealloc::<Queue> as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse::<Queue> as *mut c_void),
        slot(ffi::Py_tp_clear, clear::<Queue> as *mut c_void),
        slot(ffi::Py_tp_members, (&raw mut members).cast()),
        slot(ffi::Py_am_anext, anext as *mut c_void),
        ffi::PyType_Slot::default(),
    ];
    let flags = ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_BASETYPE;
    let flags = core::ffi::c_uint::try_from(flags)?;
    make::<Queue>(py, c"runlane._native.EventQueue", flags, &mut slots)
}

fn step_type(py: Python<'_>) -> PyResult<Py<PyType>> {
    let mut slots = [
        slot(ffi::Py_tp_dealloc, dealloc::<Step> as *mut c_void),
        slot(ffi::Py_tp_traverse, traverse::<Step> as *mut c_void),
        slot(ffi::Py_tp_clear, clear::<Step> as *mut c_void),
        slot(ffi::Py_am_await, begin as *mut c_void),
        slot(ffi::Py_am_send, send as *mut c_void),
        slot(ffi::Py_tp_iter, own as *mut c_void),
        slot(ffi::Py_tp_iternext, finish as *mut c_void),
        ffi::PyType_Slot::default(),
    ];
    let flags = core::ffi::c_uint::try_from(ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC)?;
    make::<Step>(py, c"runlane._native.EventStep", flags, &mut slots)
}

const fn slot(slot: c_int, pfunc: *mut c_void) -> ffi::PyType_Slot {
    ffi::PyType_Slot { slot, pfunc }
}

fn member(name: &'static core::ffi::CStr, type_code: c_int, offset: usize) -> ffi::PyMemberDef {
    ffi::PyMemberDef {
        name: name.as_ptr(),
        type_code,
        offset: offset.cast_signed(),
        flags: 0,
        doc: core::ptr::null(),
    }
}

fn make<T>(
    py: Python<'_>,
    name: &'static core::ffi::CStr,
    flags: core::ffi::c_uint,
    slots: &mut [ffi::PyType_Slot],
) -> PyResult<Py<PyType>> {
    let mut spec = ffi::PyType_Spec {
        name: name.as_ptr(),
        basicsize: c_int::try_from(size_of::<T>())?,
        itemsize: 0,
        flags,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: attached; the slots end with an empty one, and their functions have the types their numbers ask for. The
    // interpreter copies slots and members; the result is a new reference or an error.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec)) }?;
    Ok(made.cast_into::<PyType>()?.unbind())
}

/// The fields of an instance that hold references.
trait Fields {
    /// Their places.
    ///
    /// # Safety
    /// `object` is an instance of the type.
    unsafe fn fields(object: *mut ffi::PyObject) -> [*mut *mut ffi::PyObject; 3];
}

impl Fields for Queue {
    unsafe fn fields(object: *mut ffi::PyObject) -> [*mut *mut ffi::PyObject; 3] {
        let queue = object.cast::<Self>();
        // SAFETY: the caller's promise; only places are taken.
        unsafe {
            [
                &raw mut (*queue).events,
                &raw mut (*queue).token,
                &raw mut (*queue).spare,
            ]
        }
    }
}

impl Fields for Step {
    unsafe fn fields(object: *mut ffi::PyObject) -> [*mut *mut ffi::PyObject; 3] {
        let step = object.cast::<Self>();
        // SAFETY: the caller's promise; only a place is taken.
        unsafe { [&raw mut (*step).queue, null_mut(), null_mut()] }
    }
}

/// Lets go of what a field holds.
///
/// # Safety
/// Attached; the field is one of a live object, or null.
unsafe fn release(field: *mut *mut ffi::PyObject) {
    // SAFETY: the caller's promise. The field is empty before anything can run that looks at it.
    unsafe {
        if !field.is_null() {
            let held = field.replace(null_mut());
            ffi::Py_XDECREF(held);
        }
    }
}

unsafe extern "C" fn clear<T: Fields>(object: *mut ffi::PyObject) -> c_int {
    // SAFETY: the interpreter calls this attached, with an instance.
    unsafe {
        for field in T::fields(object) {
            release(field);
        }
    }
    0
}

unsafe extern "C" fn traverse<T: Fields>(
    object: *mut ffi::PyObject,
    visit: ffi::visitproc,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the garbage collector calls this with an instance and its own visitor; an instance of a type made at run
    // time holds that type.
    unsafe {
        let class = ffi::Py_TYPE(object).cast::<ffi::PyObject>();
        let fields = T::fields(object).map(|field| {
            if field.is_null() {
                null_mut()
            } else {
                field.read()
            }
        });
        for held in fields.into_iter().chain([class]) {
            if !held.is_null() {
                let stop = visit(held, argument);
                if stop != 0 {
                    return stop;
                }
            }
        }
    }
    0
}

unsafe extern "C" fn dealloc<T: Fields>(object: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this once, attached, for an instance that nobody holds. Its memory goes back to
    // the allocator of its type, whose reference it held.
    unsafe {
        ffi::PyObject_GC_UnTrack(object.cast());
        clear::<T>(object);
        let class = ffi::Py_TYPE(object);
        let free = ffi::PyType_GetSlot(class, ffi::Py_tp_free);
        if !free.is_null() {
            let free = core::mem::transmute::<*mut c_void, ffi::freefunc>(free);
            free(object.cast());
        }
        ffi::Py_DECREF(class.cast());
    }
}

/// `__anext__` of a queue: a step.
unsafe extern "C" fn anext(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    let queue = object.cast::<Queue>();
    // SAFETY: the interpreter calls this attached, with an instance. A spare step is always one of this queue.
    unsafe {
        let spare = (*queue).spare;
        // Where there is no global lock, a count says nothing about other threads.
        let is_free = !cfg!(Py_GIL_DISABLED) && !spare.is_null() && ffi::Py_REFCNT(spare) == 1;
        let step = if is_free {
            spare
        } else {
            let Some(class) = STEP.get(Python::assume_attached()) else {
                return null_mut();
            };
            let made = ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0);
            if made.is_null() {
                return null_mut();
            }
            release(&raw mut (*queue).spare);
            (*queue).spare = made;
            made
        };
        if (*step.cast::<Step>()).queue.is_null() {
            ffi::Py_INCREF(object);
            (*step.cast::<Step>()).queue = object;
        }
        ffi::Py_INCREF(step);
        step
    }
}

/// `__await__` of a step: itself if an event can be had, else the iterator of the reader's coroutine.
unsafe extern "C" fn begin(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an instance, whose queue is one if there is any.
    unsafe {
        let queue = (*object.cast::<Step>()).queue;
        if !queue.is_null() && is_ready(queue.cast()) {
            ffi::Py_INCREF(object);
            return object;
        }
        Python::attach(|py| {
            let waiting = match Bound::from_borrowed_ptr_or_opt(py, queue) {
                Some(reader) => wait(&reader),
                None => Err(PyRuntimeError::new_err("a step is awaited once only")),
            };
            release(&raw mut (*object.cast::<Step>()).queue);
            match waiting {
                Ok(waiting) => waiting.into_ptr(),
                Err(error) => {
                    error.restore(py);
                    null_mut()
                }
            }
        })
    }
}

/// The iterator of the coroutine that waits for an event.
fn wait<'py>(reader: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = reader.py();
    reader
        .call_method0(intern!(py, "_advance"))?
        .call_method0(intern!(py, "__await__"))
}

/// Whether there is an event that may be taken.
///
/// # Safety
/// Attached; `queue` is a live queue.
unsafe fn is_ready(queue: *mut Queue) -> bool {
    // SAFETY: the caller's promise; None is one object.
    unsafe { !peek(queue).is_null() && (*queue).token == ffi::Py_None() }
}

/// The next event, borrowed; null if there is none.
///
/// # Safety
/// Attached; `queue` is a live queue.
unsafe fn peek(queue: *mut Queue) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise; of a list an item is asked for that it has. Without a global lock another thread
    // might take the list away meanwhile, so there everything goes the way of the coroutine.
    unsafe {
        let (events, next) = ((*queue).events, (*queue).next);
        let is_list = !cfg!(Py_GIL_DISABLED)
            && !events.is_null()
            && ffi::Py_TYPE(events) == &raw mut ffi::PyList_Type;
        if is_list && (0..ffi::PyList_Size(events)).contains(&next) {
            ffi::PyList_GetItem(events, next)
        } else {
            null_mut()
        }
    }
}

/// Takes the event a step is for; a new reference, or null if there is none any more.
///
/// # Safety
/// Attached; `object` is a live step.
unsafe fn take(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller's promise. The event is held before anything is let go of.
    unsafe {
        let step = object.cast::<Step>();
        let queue = (*step).queue.cast::<Queue>();
        let event = if queue.is_null() {
            null_mut()
        } else {
            peek(queue)
        };
        if !event.is_null() {
            ffi::Py_INCREF(event);
            (*queue).next += 1;
            release(&raw mut (*step).queue);
        }
        event
    }
}

/// What an awaiting coroutine gets of a step.
unsafe extern "C" fn send(
    object: *mut ffi::PyObject,
    _value: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> c_int {
    // SAFETY: the interpreter calls this attached, with an instance and a place for the result.
    unsafe {
        let event = take(object);
        result.write(event);
        if event.is_null() {
            gone();
            return ffi::PySendResult::PYGEN_ERROR as c_int;
        }
        ffi::PySendResult::PYGEN_RETURN as c_int
    }
}

/// The same for an interpreter that does not know of that: the event is what `StopIteration` holds.
unsafe extern "C" fn finish(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with an instance. An event is neither a tuple nor an exception,
    // which alone would be taken for more than a value.
    unsafe {
        let event = take(object);
        if event.is_null() {
            gone();
        } else {
            ffi::PyErr_SetObject(ffi::PyExc_StopIteration, event);
            ffi::Py_DECREF(event);
        }
    }
    null_mut()
}

/// Only who iterates by hand gets here: between `__await__` and this the event was taken by another step.
#[cold]
fn gone() {
    Python::attach(|py| {
        PyRuntimeError::new_err("the event of this step was taken by another; await a new one")
            .restore(py);
    });
}

unsafe extern "C" fn own(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls this attached, with a live object.
    unsafe { ffi::Py_INCREF(object) };
    object
}
