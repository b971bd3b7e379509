//! The decoder as Python sees it.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use runlane_core::sse::{Decoder, Event, Fault, Incomplete, Limits};

use super::values::{IncompleteSseEvent, SseEvent};
use super::{feed, whole_number};
use crate::error::{misuse, refusal};

/// The default of both limits: 1 MiB.
const DEFAULT_LIMIT: u64 = 1 << 20;

/// Read an event stream piece by piece; any cutting of the bytes gives the same events.
#[pyclass(module = "runlane.sse")]
pub(crate) struct SseDecoder {
    core: Decoder,
    texts: Texts,
    failure: Option<Py<PyAny>>,
    incomplete: Option<Py<IncompleteSseEvent>>,
    spare: Py<PyList>,
}

#[pymethods]
impl SseDecoder {
    #[new]
    #[pyo3(
        signature = (max_line_bytes=None, max_event_bytes=None, strict_utf8=false),
        text_signature = "(max_line_bytes=1048576, max_event_bytes=1048576, strict_utf8=False)"
    )]
    fn new(
        py: Python<'_>,
        max_line_bytes: Option<&Bound<'_, PyAny>>,
        max_event_bytes: Option<&Bound<'_, PyAny>>,
        strict_utf8: bool,
    ) -> PyResult<Self> {
        let limits = Limits {
            line: limit(max_line_bytes, "max_line_bytes")?,
            event: limit(max_event_bytes, "max_event_bytes")?,
        };
        Ok(Self {
            core: Decoder::new(limits, strict_utf8),
            texts: Texts::new(py),
            failure: None,
            incomplete: None,
            spare: PyList::empty(py).unbind(),
        })
    }

    /// Take the next bytes and return the events they complete; see [`feed`] for why it is made by hand.
    #[classattr]
    fn feed(py: Python<'_>) -> PyResult<Py<PyAny>> {
        feed::method(&py.get_type::<Self>())
    }

    /// End the stream and return what a held-back CR completes.
    fn close<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let mut found = Collector::new(py, &mut self.texts);
        self.core.close(|event| found.add(event));
        let events = found.finish()?;
        if let Some(fault) = self.core.fault() {
            return Err(self.raise(py, fault));
        }
        Ok(events.unwrap_or_else(|| PyList::empty(py)))
    }

    #[getter]
    fn incomplete(&mut self, py: Python<'_>) -> PyResult<Option<Py<IncompleteSseEvent>>> {
        if self.incomplete.is_none()
            && let Some(found) = self.core.incomplete()
        {
            self.incomplete = Some(unfinished(py, found)?);
        }
        Ok(self.incomplete.as_ref().map(|found| found.clone_ref(py)))
    }

    #[getter]
    fn last_event_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        decoded(py, self.core.last_event_id())
    }

    #[getter]
    fn retry_ms(&self) -> Option<u64> {
        self.core.retry_ms()
    }

    #[getter]
    fn failure(&mut self, py: Python<'_>) -> Option<Py<PyAny>> {
        let fault = self.core.fault()?;
        Some(self.error(py, fault).clone_ref(py))
    }
}

impl SseDecoder {
    /// Takes the next bytes and gives the events they complete.
    pub(super) fn take<'py>(&mut self, chunk: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = chunk.py();
        let Ok(chunk) = chunk.cast::<PyBytes>() else {
            let kind = chunk.get_type();
            return Err(misuse(
                py,
                "chunk",
                &format!("must be bytes, not {}", kind.name()?),
            ));
        };
        if let Some(fault) = self.core.fault() {
            return Err(self.raise(py, fault));
        }
        if self.core.is_closed() {
            return Err(misuse(
                py,
                "feed",
                "the decoder is closed; a new stream needs a new decoder",
            ));
        }
        let mut found = Collector::new(py, &mut self.texts);
        self.core.feed(chunk.as_bytes(), |event| found.add(event));
        match found.finish()? {
            Some(events) => Ok(events),
            None => Ok(self.nothing(py)),
        }
    }

    /// Takes a byte that only makes the open line longer; None if it does more, and then nothing has happened.
    #[inline]
    pub(super) fn take_byte<'py>(
        &mut self,
        py: Python<'py>,
        byte: u8,
    ) -> Option<Bound<'py, PyList>> {
        let spare = self.spare.bind(py);
        (is_free(spare) && self.core.take_byte(byte)).then(|| spare.clone())
    }

    /// An empty list that nobody else holds: the one returned last, if it is free again and still empty.
    ///
    /// A chunk of a few bytes completes nothing, and making a list would be a third of the work.
    #[inline]
    fn nothing<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyList> {
        let spare = self.spare.bind(py);
        if is_free(spare) {
            return spare.clone();
        }
        let fresh = PyList::empty(py);
        self.spare = fresh.clone().unbind();
        fresh
    }

    /// The error of the latched fault; the same object every time.
    fn error(&mut self, py: Python<'_>, fault: Fault) -> &Py<PyAny> {
        self.failure
            .get_or_insert_with(|| fault_error(py, fault).into_value(py).into_any())
    }

    fn raise(&mut self, py: Python<'_>, fault: Fault) -> PyErr {
        PyErr::from_value(self.error(py, fault).bind(py).clone())
    }
}

/// Whether a list of ours is held by nobody else, and still empty.
#[inline]
fn is_free(list: &Bound<'_, PyList>) -> bool {
    // SAFETY: a pointer of a live object, and the count is only read.
    let holders = unsafe { ffi::Py_REFCNT(list.as_ptr()) };
    holders == 1 && list.is_empty()
}

/// What becomes of events on their way to Python: the list they go to, and the first failure to make one.
struct Collector<'a, 'py> {
    py: Python<'py>,
    texts: &'a mut Texts,
    events: Option<Bound<'py, PyList>>,
    failed: Option<PyErr>,
}

impl<'a, 'py> Collector<'a, 'py> {
    fn new(py: Python<'py>, texts: &'a mut Texts) -> Self {
        Self {
            py,
            texts,
            events: None,
            failed: None,
        }
    }

    #[inline]
    fn add(&mut self, event: &Event<'_>) {
        if self.failed.is_some() {
            return;
        }
        let events = self.events.get_or_insert_with(|| PyList::empty(self.py));
        let added = self
            .texts
            .event(self.py, event)
            .and_then(|made| events.append(made));
        self.failed = added.err();
    }

    fn finish(self) -> PyResult<Option<Bound<'py, PyList>>> {
        self.failed.map_or(Ok(self.events), Err)
    }
}

/// Texts that most events of a stream repeat, kept as Python strings.
struct Texts {
    message: Py<PyString>,
    name: Repeated,
    last_event_id: Repeated,
}

impl Texts {
    fn new(py: Python<'_>) -> Self {
        Self {
            message: PyString::intern(py, "message").unbind(),
            name: Repeated::default(),
            last_event_id: Repeated::default(),
        }
    }

    #[inline]
    fn event(&mut self, py: Python<'_>, event: &Event<'_>) -> PyResult<Py<SseEvent>> {
        let last_event_id = self.last_event_id.text(py, event.last_event_id);
        let made = SseEvent {
            event: self
                .name
                .text(py, event.name)
                .unwrap_or_else(|| self.message.clone_ref(py)),
            data: decoded(py, event.data).unbind(),
            id: event.id.map(|id| match &last_event_id {
                // An id of this block is the id in force.
                Some(same) => same.clone_ref(py),
                None => decoded(py, id).unbind(),
            }),
            last_event_id,
            retry_ms: event.retry_ms,
        };
        Py::new(py, made)
    }
}

/// The last text of a kind, as bytes and as a Python string.
#[derive(Default)]
struct Repeated {
    bytes: Vec<u8>,
    text: Option<Py<PyString>>,
}

impl Repeated {
    /// The text of these bytes; None if there are none.
    #[inline]
    fn text(&mut self, py: Python<'_>, bytes: &[u8]) -> Option<Py<PyString>> {
        if bytes.is_empty() {
            return None;
        }
        if self.text.is_none() || self.bytes != bytes {
            self.bytes.clear();
            self.bytes.extend_from_slice(bytes);
            self.text = Some(decoded(py, bytes).unbind());
        }
        self.text.as_ref().map(|text| text.clone_ref(py))
    }
}

/// Text from UTF-8, with U+FFFD for what is not.
#[inline]
fn decoded<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    PyString::from_bytes(py, bytes)
        .unwrap_or_else(|_| PyString::new(py, &String::from_utf8_lossy(bytes)))
}

fn limit(value: Option<&Bound<'_, PyAny>>, argument: &str) -> PyResult<usize> {
    let bytes = value.map_or(Ok(DEFAULT_LIMIT), |value| whole_number(value, argument))?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

fn fault_error(py: Python<'_>, fault: Fault) -> PyErr {
    let facts = PyDict::new(py);
    let (code, message, filled) = match fault {
        Fault::LineTooLong(limit) => limit_passed(&facts, "line", limit),
        Fault::EventTooLong(limit) => limit_passed(&facts, "event", limit),
        Fault::NotUtf8(offset) => (
            "sse.encoding",
            "not UTF-8",
            facts.set_item("offset", offset),
        ),
    };
    filled
        .err()
        .unwrap_or_else(|| refusal(py, code, message, &facts))
}

fn limit_passed(
    facts: &Bound<'_, PyDict>,
    scope: &str,
    limit: usize,
) -> (&'static str, &'static str, PyResult<()>) {
    let filled = facts
        .set_item("scope", scope)
        .and_then(|()| facts.set_item("limit", limit));
    ("sse.limit_exceeded", "longer than allowed", filled)
}

fn unfinished(py: Python<'_>, found: &Incomplete) -> PyResult<Py<IncompleteSseEvent>> {
    let name: &[u8] = if found.name.is_empty() {
        b"message"
    } else {
        &found.name
    };
    let value = IncompleteSseEvent {
        event: decoded(py, name).unbind(),
        data: decoded(py, &found.data).unbind(),
        raw_tail: PyBytes::new(py, &found.raw_tail).unbind(),
        dropped_bytes: found.dropped_bytes,
    };
    Py::new(py, value)
}
