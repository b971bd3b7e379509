//! A projection as Python sees it: a view of a handle, read when it is asked.

use std::ptr;
use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyMemoryError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use runlane_core::history::{
    Fragments, Length, Log, OpenAiChat, PartKind, Plan, Reason, Sink, decoded, push_escaped,
    write_openai_chat,
};

use super::build::Builder;
use super::{DETACH_BYTES, HistoryLog, refused};

/// What a projection decided.
#[pyclass(module = "runlane._native", frozen)]
pub(crate) struct HistoryPlan {
    pub(super) history: Py<HistoryLog>,
    pub(super) plan: Arc<Plan>,
    pub(super) rewrites: u64,
    pub(super) chosen: Option<Vec<u32>>,
    pub(super) files: Option<Py<PyDict>>,
}

impl HistoryPlan {
    fn read<T>(&self, py: Python<'_>, read: impl FnOnce(&Log) -> PyResult<T>) -> PyResult<T> {
        let history = self.history.bind(py).try_borrow()?;
        let log = history.core.log();
        if log.rewrites() != self.rewrites {
            return Err(refused(
                "usage",
                "a record was replaced or removed since; project again",
                "projection",
            ));
        }
        read(log)
    }

    fn place(&self, position: usize) -> Option<usize> {
        match &self.chosen {
            None => Some(position),
            Some(chosen) => usize::try_from(*chosen.get(position)?).ok(),
        }
    }
}

#[pymethods]
impl HistoryPlan {
    /// How many records were projected.
    fn __len__(&self) -> usize {
        self.plan.decisions.len()
    }

    /// How many messages there are.
    #[getter]
    fn message_count(&self) -> usize {
        self.plan.messages.len()
    }

    /// The messages, as objects.
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let files = self.files.as_ref().map(|files| files.bind(py));
        self.read(py, |log| {
            Builder::new(py, log, &self.plan, files)?.messages()
        })
    }

    /// The texts for the instructions channel.
    fn system<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.read(py, |log| Builder::new(py, log, &self.plan, None)?.system())
    }

    /// What became of one record: its message id, the reason, and the part types left out.
    fn decision<'py>(
        &self,
        py: Python<'py>,
        position: usize,
    ) -> PyResult<(String, &'static str, Bound<'py, PyTuple>)> {
        let decision = self.plan.decisions.get(position).copied();
        self.read(py, |log| {
            let record = self.place(position).and_then(|place| log.get(place));
            let (Some(decision), Some(record)) = (decision, record) else {
                return Err(PyIndexError::new_err("decision index out of range"));
            };
            let mut omitted: Vec<PartKind> = Vec::new();
            if decision.reason == Reason::Projected && !decision.omitted.is_empty() {
                for part in record.parts() {
                    if decision.omitted.contains(part.kind()) && !omitted.contains(&part.kind()) {
                        omitted.push(part.kind());
                    }
                }
            }
            let omitted = PyTuple::new(py, omitted.into_iter().map(PartKind::word))?;
            Ok((
                decoded(record.id()).into_owned(),
                decision.reason.word(),
                omitted,
            ))
        })
    }

    /// A chat-completions body: `head`, the messages with commas between them, `tail`.
    #[pyo3(signature = (head, tail, *, follows, send_reasoning, pieces))]
    fn openai_chat<'py>(
        &self,
        py: Python<'py>,
        head: &[u8],
        tail: &[u8],
        follows: bool,
        send_reasoning: bool,
        pieces: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.read(py, |log| {
            let given = pieces_by_place(log, &self.plan, pieces)?;
            let piece = |record: u32, part: u32| piece_at(&given, (record, part));
            let form = OpenAiChat {
                send_reasoning,
                piece: &piece,
            };
            let mut length = Length(head.len().saturating_add(tail.len()));
            let counted = write_openai_chat(log, &self.plan, &form, follows, &mut length);
            counted.map_err(no_piece)?;
            filled(py, length.0, |body| {
                body.bytes(head);
                // Counting went well, so this does; a body that is not full is refused.
                let _written = write_openai_chat(log, &self.plan, &form, follows, body);
                body.bytes(tail);
            })
        })
    }
}

/// The messages of one handle in the form of chat completions, kept from one body to the next.
#[pyclass(module = "runlane._native")]
pub(crate) struct ChatFragments {
    fragments: Fragments,
    history: Option<Py<HistoryLog>>,
    send_reasoning: bool,
}

#[pymethods]
impl ChatFragments {
    #[new]
    #[pyo3(signature = (*, send_reasoning))]
    fn new(send_reasoning: bool) -> Self {
        Self {
            fragments: Fragments::default(),
            history: None,
            send_reasoning,
        }
    }

    /// A chat-completions body: `head`, the messages with commas between them, `tail`.
    #[pyo3(signature = (plan, head, tail, *, follows, pieces))]
    fn body<'py>(
        &mut self,
        py: Python<'py>,
        plan: &HistoryPlan,
        head: &[u8],
        tail: &[u8],
        follows: bool,
        pieces: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        if self
            .history
            .as_ref()
            .is_none_or(|history| !history.is(&plan.history))
        {
            self.fragments = Fragments::default();
            self.history = Some(plan.history.clone_ref(py));
        }
        let (fragments, send_reasoning) = (&mut self.fragments, self.send_reasoning);
        plan.read(py, |log| {
            let given = pieces_by_place(log, &plan.plan, pieces)?;
            let piece = |record: u32, part: u32| piece_at(&given, (record, part));
            let form = OpenAiChat {
                send_reasoning,
                piece: &piece,
            };
            let messages = fragments.update(log, &plan.plan, &form).map_err(no_piece)?;
            let messages = messages.get(usize::from(!follows)..).unwrap_or_default();
            let length = [head, messages, tail].iter().map(|piece| piece.len()).sum();
            filled(py, length, |body| {
                for piece in [head, messages, tail] {
                    body.write(piece);
                }
            })
        })
    }
}

/// A bytes object of `length` bytes, written once.
fn filled(
    py: Python<'_>,
    length: usize,
    write: impl FnOnce(&mut Room) + Send,
) -> PyResult<Bound<'_, PyBytes>> {
    let size = ffi::Py_ssize_t::try_from(length)
        .map_err(|_| PyMemoryError::new_err("the body is too long"))?;
    // SAFETY: asking for bytes without giving any yields a new object whose bytes are ours to write until it is
    // shared, or null with an exception set.
    let made = unsafe {
        Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(ptr::null(), size))?
    };
    let mut room = Room {
        // SAFETY: `made` is a bytes object, alive to the end of this function.
        next: unsafe { ffi::PyBytes_AsString(made.as_ptr()) }.cast::<u8>(),
        left: Some(length),
        escaped: Vec::new(),
    };
    let fill = || write(&mut room);
    if length > DETACH_BYTES {
        py.detach(fill);
    } else {
        fill();
    }
    if room.left == Some(0) {
        Ok(made.cast_into::<PyBytes>()?)
    } else {
        Err(PyRuntimeError::new_err(
            "a body is not as long as it was counted",
        ))
    }
}

/// The bytes of a new object that are still to be written.
struct Room {
    next: *mut u8,
    /// How many; None once something did not fit.
    left: Option<usize>,
    escaped: Vec<u8>,
}

impl Room {
    fn write(&mut self, piece: &[u8]) {
        self.left = self.left.and_then(|left| left.checked_sub(piece.len()));
        if self.left.is_some() {
            // SAFETY: at least the piece's bytes were left from `next` on; nobody else has seen the object, and the
            // piece belongs to somebody else.
            unsafe {
                ptr::copy_nonoverlapping(piece.as_ptr(), self.next, piece.len());
                self.next = self.next.add(piece.len());
            }
        }
    }
}

impl<'l> Sink<'l> for Room {
    fn bytes(&mut self, bytes: &'l [u8]) {
        self.write(bytes);
    }

    fn escaped(&mut self, json: &'l str) {
        let mut escaped = std::mem::take(&mut self.escaped);
        escaped.clear();
        push_escaped(&mut escaped, json);
        self.write(&escaped);
        self.escaped = escaped;
    }
}

// SAFETY: only the thread that made the object, and has shown it to nobody, writes there.
unsafe impl Send for Room {}

type Piece = ((u32, u32), Vec<u8>);

/// The piece of the part at a place.
fn piece_at(given: &[Piece], place: (u32, u32)) -> Option<&[u8]> {
    let found = given.iter().find(|(at, _)| *at == place);
    found.map(|(_, piece)| piece.as_slice())
}

/// The refusal of a body that holds a file for which nothing was given.
fn no_piece(_: (u32, u32)) -> PyErr {
    let problem = "a resolved file has no encoded content piece";
    refused("usage", problem, "pieces")
}

/// The encoded content pieces of resolved files, by where their parts stand.
fn pieces_by_place(log: &Log, plan: &Plan, pieces: &Bound<'_, PyDict>) -> PyResult<Vec<Piece>> {
    if pieces.is_empty() {
        return Ok(Vec::new());
    }
    let mut given = Vec::new();
    for item in &plan.items {
        let Some(record) = usize::try_from(item.record)
            .ok()
            .and_then(|place| log.get(place))
        else {
            continue;
        };
        if item.kind == runlane_core::history::ItemKind::File
            && let Some(piece) = pieces.get_item((decoded(record.id()), item.part))?
        {
            given.push(((item.record, item.part), piece.extract()?));
        }
    }
    Ok(given)
}
