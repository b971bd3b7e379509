//! The walk through a Python value, in the order of its text.
//!
//! It calls nothing that an object could override: texts and integers are read from their storage, also of
//! subclasses, and any other subclass is refused. It does not recurse.

use std::collections::BTreeSet;

use pyo3::exceptions::PyUnicodeEncodeError;
use pyo3::ffi;
use pyo3::prelude::*;
use runlane_core::canon::{Drain, Form, Pointer, Problem, Writer, number, order};

use super::grip::Grip;

/// A depth from which on cycles are looked for, at each power of two.
const FIRST_CYCLE_DEPTH: usize = 8;

enum Kind {
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

/// A key as it is put in order, with the value that goes with it.
struct Member<G: Grip> {
    prefix: u64,
    text: *const u8,
    length: usize,
    value: Option<G>,
    _key: G::Key,
}

impl<G: Grip> Member<G> {
    fn key(&self) -> &str {
        // SAFETY: `text` came from `utf8` with this length, and the key is alive: held by `_key`, or by its dict.
        unsafe { str::from_utf8_unchecked(core::slice::from_raw_parts(self.text, self.length)) }
    }

    fn is_before(&self, other: &Self) -> bool {
        self.compare(other).is_lt()
    }

    fn compare(&self, other: &Self) -> core::cmp::Ordering {
        let whole = || order::compare(self.key().as_bytes(), other.key().as_bytes());
        self.prefix.cmp(&other.prefix).then_with(whole)
    }
}

/// A container of which a part has been written.
enum Frame<G> {
    List { list: G, next: usize },
    Tuple { tuple: G, next: usize },
    Dict { dict: G, first: usize, next: usize },
}

impl<G: Grip> Frame<G> {
    fn pointer(&self) -> *mut ffi::PyObject {
        match self {
            Self::List {
                list: container, ..
            }
            | Self::Tuple {
                tuple: container, ..
            }
            | Self::Dict {
                dict: container, ..
            } => container.pointer(),
        }
    }
}

/// See the module.
pub(super) struct Walker<'py, G: Grip, D> {
    py: Python<'py>,
    writer: Writer<D>,
    frames: Vec<Frame<G>>,
    members: Vec<Member<G>>,
    open: BTreeSet<usize>,
    culprit: Option<String>,
    failure: Option<PyErr>,
}

impl<'py, G: Grip, D: Drain> Walker<'py, G, D> {
    pub(super) fn new(py: Python<'py>, writer: Writer<D>) -> Self {
        Self {
            py,
            writer,
            frames: Vec::with_capacity(8),
            members: Vec::with_capacity(16),
            open: BTreeSet::new(),
            culprit: None,
            failure: None,
        }
    }

    /// Writes the whole value.
    pub(super) fn walk(&mut self, root: &Bound<'py, PyAny>) -> Result<(), Problem> {
        self.value(G::hold(root))?;
        while let Some(value) = self.next()? {
            self.value(value)?;
        }
        Ok(())
    }

    pub(super) fn into_writer(self) -> Writer<D> {
        self.writer
    }

    /// What Python raised, if that is what ended the walk.
    pub(super) const fn take_failure(&mut self) -> Option<PyErr> {
        self.failure.take()
    }

    /// The name of the type that was refused.
    pub(super) const fn take_culprit(&mut self) -> Option<String> {
        self.culprit.take()
    }

    /// The path to the value at hand; only for a walk that owns what it holds.
    pub(super) fn path(&self) -> String {
        let mut pointer = Pointer::default();
        for frame in &self.frames {
            match frame {
                Frame::List { next, .. } | Frame::Tuple { next, .. } => {
                    if let Some(index) = next.checked_sub(1) {
                        pointer.index(index);
                    }
                }
                Frame::Dict { first, next, .. } if next > first => {
                    if let Some(member) = self.members.get(next - 1) {
                        pointer.key(member.key());
                    }
                }
                Frame::Dict { .. } => {}
            }
        }
        pointer.finish()
    }

    /// The next value, after what stands before it has been written.
    #[inline]
    fn next(&mut self) -> Result<Option<G>, Problem> {
        while let Some(frame) = self.frames.last_mut() {
            match frame {
                Frame::List { list, next } => {
                    if let Some(item) = list.list_item(self.py, *next) {
                        self.writer.part(*next == 0);
                        *next += 1;
                        return Ok(Some(item));
                    }
                    self.leave();
                    self.writer.close_array()?;
                }
                Frame::Tuple { tuple, next } => {
                    if let Some(item) = tuple.tuple_item(self.py, *next) {
                        self.writer.part(*next == 0);
                        *next += 1;
                        return Ok(Some(item));
                    }
                    self.leave();
                    self.writer.close_array()?;
                }
                Frame::Dict { first, next, .. } => {
                    if let Some(member) = self.members.get_mut(*next) {
                        let is_first = *next == *first;
                        *next += 1;
                        self.writer.key(member.key(), is_first)?;
                        if let Some(value) = member.value.take() {
                            return Ok(Some(value));
                        }
                    } else {
                        let first = *first;
                        self.members.truncate(first);
                        self.leave();
                        self.writer.close_object()?;
                    }
                }
            }
        }
        Ok(None)
    }

    #[inline]
    fn value(&mut self, value: G) -> Result<(), Problem> {
        self.writer.enter(self.frames.len())?;
        let object = value.pointer();
        match kind(object, self.writer.form()) {
            Kind::Text => {
                let (text, length) = self.utf8(object).ok_or(Problem::LoneSurrogate)?;
                // SAFETY: UTF-8 by the contract of `utf8`; `value` keeps it alive, or its container does.
                let text =
                    unsafe { str::from_utf8_unchecked(core::slice::from_raw_parts(text, length)) };
                self.writer.string(text)
            }
            Kind::Integer => self.integer(object),
            // SAFETY: attached; a float, whose reading cannot fail.
            Kind::Double => self.writer.double(unsafe { ffi::PyFloat_AsDouble(object) }),
            // SAFETY: a comparison of addresses.
            Kind::Boolean => self.writer.boolean(object == unsafe { ffi::Py_True() }),
            Kind::Null => self.writer.null(),
            Kind::Dict => self.dict(value),
            Kind::List => {
                self.enter(object)?;
                self.writer.open_array();
                self.frames.push(Frame::List {
                    list: value,
                    next: 0,
                });
                Ok(())
            }
            Kind::Tuple => {
                self.enter(object)?;
                self.writer.open_array();
                self.frames.push(Frame::Tuple {
                    tuple: value,
                    next: 0,
                });
                Ok(())
            }
            Kind::Other => {
                self.culprit = type_name(self.py, object);
                Err(Problem::ValueType)
            }
        }
    }

    fn dict(&mut self, dict: G) -> Result<(), Problem> {
        self.enter(dict.pointer())?;
        let first = self.members.len();
        let py = self.py;
        let is_sorted = self.writer.form() != Form::Lossless;
        let mut in_order = true;
        let is_exact = self.writer.form() == Form::Lossless;
        let mut members = core::mem::take(&mut self.members);
        let gathered = dict.members(py, |key, held, value| {
            if !is_text(key, is_exact) {
                self.culprit = type_name(py, key);
                return Err(Problem::KeyType);
            }
            let (text, length) = self.utf8(key).ok_or(Problem::LoneSurrogateInKey)?;
            // SAFETY: UTF-8 by the contract of `utf8`, alive while its dict is.
            let prefix = order::prefix(unsafe { core::slice::from_raw_parts(text, length) });
            let member = Member {
                prefix,
                text,
                length,
                value: Some(value),
                _key: held,
            };
            if let Some(last) = members.get(first..).and_then(<[Member<G>]>::last) {
                in_order = in_order && last.is_before(&member);
            }
            members.push(member);
            Ok(())
        });
        self.members = members;
        self.writer.open_object();
        self.frames.push(Frame::Dict {
            dict,
            first,
            next: first,
        });
        gathered?;
        if is_sorted && !in_order {
            self.sort(first)
        } else {
            Ok(())
        }
    }

    /// Puts the members of the innermost dict in order. Keys that are no plain `str` may be equal as text.
    fn sort(&mut self, first: usize) -> Result<(), Problem> {
        let members = self.members.get_mut(first..).unwrap_or_default();
        members.sort_unstable_by(Member::compare);
        let twin = members
            .windows(2)
            .position(|pair| matches!(pair, [a, b] if a.compare(b).is_eq()));
        match (twin, self.frames.last_mut()) {
            (Some(twin), Some(Frame::Dict { next, .. })) => {
                *next = first + twin + 2;
                Err(Problem::DuplicateKey)
            }
            _ => Ok(()),
        }
    }

    fn integer(&mut self, object: *mut ffi::PyObject) -> Result<(), Problem> {
        let mut overflow = 0;
        // SAFETY: attached; an integer, so nothing is called and only overflow is possible, which is told apart.
        let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(object, &raw mut overflow) };
        if overflow == 0 {
            self.writer.integer(value)
        } else {
            self.big_integer(object)
        }
    }

    #[cold]
    fn big_integer(&mut self, object: *mut ffi::PyObject) -> Result<(), Problem> {
        self.writer.expect_digits(0)?;
        // Base 16 is exempt from the interpreter's limit on the digits of integers, and takes linear time.
        // SAFETY: attached; an integer, so its own storage is read. The result is a new reference or an error.
        let hex =
            unsafe { Bound::from_owned_ptr_or_err(self.py, ffi::PyNumber_ToBase(object, 16)) };
        let hex = hex.map_err(|error| self.fail(error))?;
        let (text, length) = self.utf8(hex.as_ptr()).ok_or(Problem::Changed)?;
        // A hexadecimal digit is worth 1.204 decimal ones.
        self.writer
            .expect_digits(length.saturating_sub(3) / 5 * 6)?;
        // SAFETY: UTF-8 by the contract of `utf8`, kept alive by `hex`.
        let hex_digits =
            unsafe { str::from_utf8_unchecked(core::slice::from_raw_parts(text, length)) };
        let digits = number::decimal_from_hex(hex_digits).ok_or(Problem::Changed)?;
        self.writer.digits(&digits)
    }

    /// The UTF-8 of a `str`, valid as long as it lives; nothing if it has none.
    #[inline]
    fn utf8(&mut self, text: *mut ffi::PyObject) -> Option<(*const u8, usize)> {
        let mut length = 0;
        // SAFETY: attached; a str or a subclass, whose own storage is read.
        let bytes = unsafe { ffi::PyUnicode_AsUTF8AndSize(text, &raw mut length) };
        if bytes.is_null() {
            let error = PyErr::fetch(self.py);
            if !error.is_instance_of::<PyUnicodeEncodeError>(self.py) {
                self.fail(error);
            }
            return None;
        }
        Some((bytes.cast(), length.cast_unsigned()))
    }

    #[cold]
    fn fail(&mut self, error: PyErr) -> Problem {
        self.failure = Some(error);
        Problem::Changed
    }

    /// Looks for a cycle before a container is entered: always exactly, or at some depths, which ends any cycle.
    fn enter(&mut self, object: *mut ffi::PyObject) -> Result<(), Problem> {
        if G::IS_EXACT {
            return if self.open.insert(object.addr()) {
                Ok(())
            } else {
                Err(Problem::Cycle)
            };
        }
        let depth = self.frames.len();
        if depth >= FIRST_CYCLE_DEPTH && depth.is_power_of_two() {
            let is_open = self.frames.iter().any(|frame| frame.pointer() == object);
            return if is_open { Err(Problem::Cycle) } else { Ok(()) };
        }
        Ok(())
    }

    #[inline]
    fn leave(&mut self) {
        if let Some(frame) = self.frames.pop().filter(|_| G::IS_EXACT) {
            self.open.remove(&frame.pointer().addr());
        }
    }
}

/// What a value is written as. The lossless form takes nothing but the plain types.
#[inline]
fn kind(object: *mut ffi::PyObject, form: Form) -> Kind {
    // SAFETY: attached, and the walker holds the object; only its type pointer is read.
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
    // SAFETY: a comparison of addresses.
    } else if object == unsafe { ffi::Py_None() } {
        Kind::Null
    } else if form == Form::Lossless {
        Kind::Other
    } else if class == &raw mut ffi::PyTuple_Type {
        Kind::Tuple
    // SAFETY: as above; the flags of the type are read.
    } else if unsafe { ffi::PyUnicode_Check(object) } != 0 {
        Kind::Text
    // SAFETY: likewise.
    } else if unsafe { ffi::PyLong_Check(object) } != 0 {
        Kind::Integer
    } else {
        Kind::Other
    }
}

#[inline]
fn is_text(object: *mut ffi::PyObject, is_exact: bool) -> bool {
    // SAFETY: attached, and the key is alive; its type and the flags of its type are read.
    unsafe {
        ffi::PyUnicode_CheckExact(object) != 0 || !is_exact && ffi::PyUnicode_Check(object) != 0
    }
}

#[cold]
fn type_name(py: Python<'_>, object: *mut ffi::PyObject) -> Option<String> {
    // SAFETY: attached, and the object is alive; the name is read from the type itself, and is a new reference.
    let name = unsafe {
        Bound::from_owned_ptr_or_opt(py, ffi::PyType_GetQualName(ffi::Py_TYPE(object)).cast())
    };
    name.and_then(|name| name.cast_into::<pyo3::types::PyString>().ok())
        .map(|name| name.to_string_lossy().into_owned())
}
