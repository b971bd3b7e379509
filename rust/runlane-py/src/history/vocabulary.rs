//! The classes of the message vocabulary, handed over once, and instances of them made without their constructors.
//!
//! What is built here was checked when its record was read, so no validator runs again. An instance of a pydantic
//! model gets exactly what `model_construct` gives it, its fields where the interpreter keeps attributes, so that no
//! dict is made; one of a frozen dataclass gets its slots.

use core::ffi::c_void;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PySet, PyString, PyTuple, PyType};
use pyo3::{IntoPyObjectExt, ffi, intern};

static ADOPTED: PyOnceLock<Vocabulary> = PyOnceLock::new();

/// A pydantic model and the names every instance of it needs.
pub(super) struct Vocabulary {
    pub(super) text: Class,
    pub(super) reasoning: Class,
    pub(super) call: Class,
    pub(super) result: Class,
    pub(super) request: Class,
    pub(super) response: Class,
    pub(super) opaque: Class,
    pub(super) envelope: Class,
    pub(super) message: MessageClass,
    pub(super) calls: MessageClass,
    pub(super) results: MessageClass,
    pub(super) names: Names,
}

/// A pydantic model, and the sets of given fields its instances have.
///
/// Nobody may change the field set of a frozen record, so instances that were given the same fields share one.
pub(super) struct Class {
    model: Py<PyType>,
    fields_set: Slot,
    extra: Slot,
    private: Slot,
    sets: [PyOnceLock<Py<PySet>>; 1 << MAX_FIELDS],
}

/// More fields than a part has.
const MAX_FIELDS: usize = 7;

impl Class {
    fn new(class: Bound<'_, PyType>) -> PyResult<Self> {
        Ok(Self {
            fields_set: Slot::find(&class, "__pydantic_fields_set__")?,
            extra: Slot::find(&class, "__pydantic_extra__")?,
            private: Slot::find(&class, "__pydantic_private__")?,
            model: class.unbind(),
            sets: [const { PyOnceLock::new() }; 1 << MAX_FIELDS],
        })
    }

    /// An instance without fields.
    pub(super) fn start<'a, 'py>(&'a self, py: Python<'py>) -> PyResult<Instance<'a, 'py>> {
        Ok(Instance {
            class: self,
            object: blank(self.model.bind(py))?,
            count: 0,
            given: 0,
        })
    }

    /// The names of the given fields of an instance that has all its fields.
    fn given<'py>(&self, object: &Bound<'py, PyAny>, mask: u8) -> PyResult<&Bound<'py, PySet>> {
        let py = object.py();
        let set = self.sets.get(usize::from(mask));
        let set =
            set.ok_or_else(|| PyRuntimeError::new_err("a part has more fields than are known"))?;
        let made = set.get_or_try_init(py, || -> PyResult<Py<PySet>> {
            let fields = object.getattr(intern!(py, "__dict__"))?;
            let keys = fields.cast_into::<PyDict>()?.keys();
            let given = keys
                .iter()
                .enumerate()
                .filter(|(place, _)| mask >> place & 1 != 0)
                .map(|(_, key)| key);
            Ok(PySet::new(py, given)?.unbind())
        })?;
        Ok(made.bind(py))
    }
}

/// An instance of a pydantic model that is being given its fields, in the order of its class.
pub(super) struct Instance<'a, 'py> {
    class: &'a Class,
    object: Bound<'py, PyAny>,
    count: u8,
    /// Which fields were given: one bit each, the first field's being the lowest.
    given: u8,
}

impl<'py> Instance<'_, 'py> {
    /// The next field.
    pub(super) fn give(
        &mut self,
        name: &Py<PyString>,
        value: impl IntoPyObject<'py>,
    ) -> PyResult<()> {
        self.given |= 1 << self.count;
        self.put(name, value)
    }

    /// The next field, or its default None.
    pub(super) fn maybe(
        &mut self,
        name: &Py<PyString>,
        value: Option<impl IntoPyObject<'py>>,
    ) -> PyResult<()> {
        match value {
            Some(value) => self.give(name, value),
            None => self.put(name, self.object.py().None()),
        }
    }

    /// Another field that nobody gave has its default.
    pub(super) fn fall_back(
        &mut self,
        name: &Py<PyString>,
        value: impl IntoPyObject<'py>,
    ) -> PyResult<()> {
        self.put(name, value)
    }

    fn put(&mut self, name: &Py<PyString>, value: impl IntoPyObject<'py>) -> PyResult<()> {
        let value = value.into_bound_py_any(self.object.py())?;
        self.count += 1;
        // SAFETY: all three are live objects, and the name is a string. The generic function goes past the
        // `__setattr__` of a frozen class.
        let failed = unsafe {
            ffi::PyObject_GenericSetAttr(self.object.as_ptr(), name.as_ptr(), value.as_ptr())
        };
        raised(self.object.py(), failed)
    }

    /// The instance.
    pub(super) fn finish(self) -> PyResult<Bound<'py, PyAny>> {
        let py = self.object.py();
        let given = self.class.given(&self.object, self.given)?;
        let none = py.None();
        self.class.fields_set.put(&self.object, given.as_any())?;
        self.class.extra.put(&self.object, none.bind(py))?;
        self.class.private.put(&self.object, none.bind(py))?;
        Ok(self.object)
    }
}

/// A class of messages, which has slots for a role and items.
pub(super) struct MessageClass {
    class: Py<PyType>,
    role: Slot,
    items: Slot,
}

impl MessageClass {
    fn new(class: Bound<'_, PyType>) -> PyResult<Self> {
        Ok(Self {
            role: Slot::find(&class, "role")?,
            items: Slot::find(&class, "items")?,
            class: class.unbind(),
        })
    }

    /// An instance.
    pub(super) fn message<'py>(
        &self,
        role: &Py<PyString>,
        items: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = items.py();
        let made = blank(self.class.bind(py))?;
        self.role.put(&made, role.bind(py).as_any())?;
        self.items.put(&made, items.as_any())?;
        Ok(made)
    }
}

/// The descriptor of a slot, and the function that sets it: going there at once costs a third of going by its name.
struct Slot {
    descriptor: Py<PyAny>,
    set: ffi::descrsetfunc,
}

impl Slot {
    fn find(class: &Bound<'_, PyType>, name: &str) -> PyResult<Self> {
        let py = class.py();
        for base in class.mro() {
            let Ok(descriptor) = base.getattr(intern!(py, "__dict__"))?.get_item(name) else {
                continue;
            };
            // SAFETY: a live type and a slot of descriptors; null if it has none.
            let set = unsafe {
                ffi::PyType_GetSlot(ffi::Py_TYPE(descriptor.as_ptr()), ffi::Py_tp_descr_set)
            };
            if set.is_null() {
                break;
            }
            return Ok(Self {
                descriptor: descriptor.unbind(),
                // SAFETY: what that slot holds, if anything, is a function of this type.
                set: unsafe { core::mem::transmute::<*mut c_void, ffi::descrsetfunc>(set) },
            });
        }
        let message = format!("{} has no slot {name}", class.name()?);
        Err(PyRuntimeError::new_err(message))
    }

    #[inline]
    fn put(&self, object: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        // SAFETY: three live objects; the function is that of the descriptor, which checks the object itself.
        let failed =
            unsafe { (self.set)(self.descriptor.as_ptr(), object.as_ptr(), value.as_ptr()) };
        raised(object.py(), failed)
    }
}

fn raised(py: Python<'_>, failed: core::ffi::c_int) -> PyResult<()> {
    if failed == 0 {
        Ok(())
    } else {
        Err(PyErr::fetch(py))
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
    kind = "type",
    text = "text",
    reasoning = "reasoning",
    provider = "provider",
    envelope = "envelope",
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
    let class = |name: &str| -> PyResult<Bound<'_, PyType>> {
        let found = classes.as_any().get_item(name)?;
        Ok(found.cast_into::<PyType>()?)
    };
    let names = Names::new(py);
    let vocabulary = Vocabulary {
        text: Class::new(class("text")?)?,
        reasoning: Class::new(class("reasoning")?)?,
        call: Class::new(class("tool-call")?)?,
        result: Class::new(class("tool-result")?)?,
        request: Class::new(class("tool-approval-request")?)?,
        response: Class::new(class("tool-approval-response")?)?,
        opaque: Class::new(class("provider")?)?,
        envelope: Class::new(class("envelope")?)?,
        message: MessageClass::new(class("message")?)?,
        calls: MessageClass::new(class("calls")?)?,
        results: MessageClass::new(class("results")?)?,
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
