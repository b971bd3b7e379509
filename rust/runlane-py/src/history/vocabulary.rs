//! The classes of the message vocabulary, handed over once, and instances of them made without their constructors.
//!
//! What is built here was checked when its record was read, so no validator runs again. An instance of a pydantic
//! model gets exactly what `model_construct` gives it; one of a frozen dataclass gets its slots.

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PySet, PyString, PyTuple, PyType};

static ADOPTED: PyOnceLock<Vocabulary> = PyOnceLock::new();

/// A pydantic model and the names every instance of it needs.
pub(super) struct Vocabulary {
    pub(super) text: Class,
    pub(super) reasoning: Class,
    pub(super) call: Class,
    pub(super) result: Class,
    pub(super) request: Class,
    pub(super) response: Class,
    pub(super) envelope: Py<PyType>,
    pub(super) message: Py<PyType>,
    pub(super) calls: Py<PyType>,
    pub(super) results: Py<PyType>,
    pub(super) names: Names,
}

/// A pydantic model, and the sets of given fields its instances have.
///
/// Nobody may change the field set of a frozen record, so instances that were given the same fields share one.
pub(super) struct Class {
    pub(super) class: Py<PyType>,
    sets: [PyOnceLock<Py<PySet>>; 1 << MAX_FIELDS],
}

/// More fields than a part has.
const MAX_FIELDS: usize = 7;

impl Class {
    fn new(class: Py<PyType>) -> Self {
        Self {
            class,
            sets: [const { PyOnceLock::new() }; 1 << MAX_FIELDS],
        }
    }

    /// The set of those keys of `fields` whose bit is set, the first key's bit being the lowest.
    pub(super) fn given<'a, 'py>(
        &'a self,
        fields: &Bound<'py, PyDict>,
        mask: u8,
    ) -> PyResult<&'a Bound<'py, PySet>> {
        let py = fields.py();
        let set = self.sets.get(usize::from(mask));
        let set =
            set.ok_or_else(|| PyRuntimeError::new_err("a part has more fields than are known"))?;
        let made = set.get_or_try_init(py, || -> PyResult<Py<PySet>> {
            let keys = fields.keys().into_iter().enumerate();
            let given = keys
                .filter(|(place, _)| mask >> place & 1 != 0)
                .map(|(_, key)| key);
            Ok(PySet::new(py, given)?.unbind())
        })?;
        Ok(made.bind(py))
    }
}

macro_rules! names {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// Strings used as names and words, made once.
        pub(super) struct Names { $(pub(super) $name: Py<PyString>),* }

        impl Names {
            fn new(py: Python<'_>) -> Self {
                Self { $($name: PyString::intern(py, $text).unbind()),* }
            }
        }
    };
}

names! {
    dict = "__dict__",
    fields_set = "__pydantic_fields_set__",
    extra = "__pydantic_extra__",
    private = "__pydantic_private__",
    kind = "type",
    text = "text",
    reasoning = "reasoning",
    provider = "provider",
    schema_version = "schema_version",
    data = "data",
    call_id = "call_id",
    tool_name = "tool_name",
    arguments = "arguments",
    input = "input",
    outcome = "outcome",
    output = "output",
    approval_id = "approval_id",
    is_automatic = "is_automatic",
    signature = "signature",
    approved = "approved",
    reason = "reason",
    role = "role",
    items = "items",
    user = "user",
    assistant = "assistant",
    tool = "tool",
    message = "message",
    success = "success",
    error = "error",
    interrupted = "interrupted",
    tool_call = "tool-call",
    tool_result = "tool-result",
    approval_request = "tool-approval-request",
    approval_response = "tool-approval-response",
}

/// Take over the classes that messages are made of, by name.
#[pyfunction]
#[pyo3(signature = (classes, /))]
pub(crate) fn adopt_vocabulary(py: Python<'_>, classes: &Bound<'_, PyDict>) -> PyResult<()> {
    let class = |name: &str| -> PyResult<Py<PyType>> {
        let found = classes.as_any().get_item(name)?;
        Ok(found.cast_into::<PyType>()?.unbind())
    };
    let names = Names::new(py);
    let vocabulary = Vocabulary {
        text: Class::new(class("text")?),
        reasoning: Class::new(class("reasoning")?),
        call: Class::new(class("tool-call")?),
        result: Class::new(class("tool-result")?),
        request: Class::new(class("tool-approval-request")?),
        response: Class::new(class("tool-approval-response")?),
        envelope: class("envelope")?,
        message: class("message")?,
        calls: class("calls")?,
        results: class("results")?,
        names,
    };
    // A second import hands over the same classes.
    let _kept = ADOPTED.set(py, vocabulary);
    Ok(())
}

/// The vocabulary that the façade handed over.
pub(super) fn vocabulary(py: Python<'_>) -> PyResult<&Vocabulary> {
    ADOPTED.get(py).ok_or_else(|| {
        PyRuntimeError::new_err("import runlane.history, which hands the vocabulary over")
    })
}

/// A new instance, its constructor not called.
fn blank<'py>(class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    let py = class.py();
    // SAFETY: `class` is a live type made in Python, whose allocator is the generic one; the result is a new
    // reference or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class.as_type_ptr(), 0)) }
}

/// Sets an attribute past the `__setattr__` of a frozen class.
fn put(object: &Bound<'_, PyAny>, name: &Py<PyString>, value: &Bound<'_, PyAny>) -> PyResult<()> {
    // SAFETY: all three are live objects, and the name is a string.
    let failed =
        unsafe { ffi::PyObject_GenericSetAttr(object.as_ptr(), name.as_ptr(), value.as_ptr()) };
    if failed == 0 {
        Ok(())
    } else {
        Err(PyErr::fetch(object.py()))
    }
}

/// An instance of a pydantic model with these fields.
pub(super) fn model<'py>(
    class: &Py<PyType>,
    names: &Names,
    fields: &Bound<'py, PyDict>,
    given: &Bound<'py, PySet>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = fields.py();
    let made = blank(class.bind(py))?;
    let none = py.None();
    put(&made, &names.dict, fields.as_any())?;
    put(&made, &names.fields_set, given.as_any())?;
    put(&made, &names.extra, none.bind(py))?;
    put(&made, &names.private, none.bind(py))?;
    Ok(made)
}

/// An instance of a message class.
pub(super) fn message<'py>(
    class: &Py<PyType>,
    names: &Names,
    role: &Py<PyString>,
    items: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = items.py();
    let made = blank(class.bind(py))?;
    put(&made, &names.role, role.bind(py).as_any())?;
    put(&made, &names.items, items.as_any())?;
    Ok(made)
}
