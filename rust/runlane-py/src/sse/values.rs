//! What a stream gives: events, and what it left unfinished.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use super::{text, whole_number};

/// One event of an event stream; immutable, comparable and hashable.
#[pyclass(frozen, module = "runlane.sse")]
pub(crate) struct SseEvent {
    // Python objects are read by Python without a call; what most events do not have costs nothing to make.
    #[pyo3(get)]
    pub(super) event: Py<PyString>,
    #[pyo3(get)]
    pub(super) data: Py<PyString>,
    #[pyo3(get)]
    pub(super) id: Option<Py<PyString>>,
    /// None is the empty id.
    pub(super) last_event_id: Option<Py<PyString>>,
    #[pyo3(get)]
    pub(super) retry_ms: Option<u64>,
}

#[pymethods]
impl SseEvent {
    #[classattr]
    #[expect(non_upper_case_globals, reason = "the name Python reads")]
    const __match_args__: (
        &'static str,
        &'static str,
        &'static str,
        &'static str,
        &'static str,
    ) = ("event", "data", "id", "last_event_id", "retry_ms");

    #[new]
    #[pyo3(
        signature = (*, data, event=None, id=None, last_event_id=None, retry_ms=None),
        text_signature = "(*, data, event='message', id=None, last_event_id='', retry_ms=None)"
    )]
    fn new(
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        event: Option<&Bound<'_, PyAny>>,
        id: Option<&Bound<'_, PyAny>>,
        last_event_id: Option<&Bound<'_, PyAny>>,
        retry_ms: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            event: match event {
                Some(event) => text(event, "event")?.clone().unbind(),
                None => PyString::intern(py, "message").unbind(),
            },
            data: text(data, "data")?.clone().unbind(),
            id: match id {
                Some(id) => Some(text(id, "id")?.clone().unbind()),
                None => None,
            },
            last_event_id: match last_event_id {
                Some(id) => Some(text(id, "last_event_id")?.clone().unbind()),
                None => None,
            },
            retry_ms: retry_ms
                .map(|value| whole_number(value, "retry_ms"))
                .transpose()?,
        })
    }

    #[getter]
    fn last_event_id(&self, py: Python<'_>) -> Py<PyString> {
        match &self.last_event_id {
            Some(id) => id.clone_ref(py),
            None => PyString::intern(py, "").unbind(),
        }
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, Self>) -> PyResult<bool> {
        self.fields(py)?.as_any().eq(other.get().fields(py)?)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.fields(py)?.hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (event, data, id, last_event_id, retry_ms): Shown<'_> = self.fields(py)?.extract()?;
        Ok(format!(
            "SseEvent(event={}, data={}, id={}, last_event_id={}, retry_ms={})",
            event.repr()?,
            data.repr()?,
            id.repr()?,
            last_event_id.repr()?,
            retry_ms.repr()?,
        ))
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let named = PyDict::new(py);
        named.set_item("event", &self.event)?;
        named.set_item("data", &self.data)?;
        named.set_item("id", &self.id)?;
        named.set_item("last_event_id", self.last_event_id(py))?;
        named.set_item("retry_ms", self.retry_ms)?;
        Ok((PyTuple::empty(py), named))
    }
}

/// The fields of an event, ready to be shown.
type Shown<'py> = (
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
);

impl SseEvent {
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (
            &self.event,
            &self.data,
            &self.id,
            self.last_event_id(py),
            self.retry_ms,
        )
            .into_pyobject(py)
    }
}

/// What a body left without a blank line when it ended: it was cut, and nothing of it was dispatched.
#[pyclass(frozen, module = "runlane.sse")]
pub(crate) struct IncompleteSseEvent {
    #[pyo3(get)]
    pub(super) event: Py<PyString>,
    #[pyo3(get)]
    pub(super) data: Py<PyString>,
    #[pyo3(get)]
    pub(super) raw_tail: Py<PyBytes>,
    #[pyo3(get)]
    pub(super) dropped_bytes: u64,
}

#[pymethods]
impl IncompleteSseEvent {
    #[classattr]
    #[expect(non_upper_case_globals, reason = "the name Python reads")]
    const __match_args__: (&'static str, &'static str, &'static str, &'static str) =
        ("data", "event", "raw_tail", "dropped_bytes");

    #[new]
    #[pyo3(
        signature = (*, data, event=None, raw_tail, dropped_bytes=None),
        text_signature = "(*, data, event='message', raw_tail, dropped_bytes=0)"
    )]
    fn new(
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        event: Option<&Bound<'_, PyAny>>,
        raw_tail: &Bound<'_, PyBytes>,
        dropped_bytes: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            event: match event {
                Some(event) => text(event, "event")?.clone().unbind(),
                None => PyString::intern(py, "message").unbind(),
            },
            data: text(data, "data")?.clone().unbind(),
            raw_tail: raw_tail.clone().unbind(),
            dropped_bytes: dropped_bytes
                .map_or(Ok(0), |count| whole_number(count, "dropped_bytes"))?,
        })
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, Self>) -> PyResult<bool> {
        self.fields(py)?.as_any().eq(other.get().fields(py)?)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.fields(py)?.hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "IncompleteSseEvent(data={}, event={}, raw_tail={}, dropped_bytes={})",
            self.data.bind(py).repr()?,
            self.event.bind(py).repr()?,
            self.raw_tail.bind(py).repr()?,
            self.dropped_bytes,
        ))
    }

    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let named = PyDict::new(py);
        named.set_item("data", &self.data)?;
        named.set_item("event", &self.event)?;
        named.set_item("raw_tail", &self.raw_tail)?;
        named.set_item("dropped_bytes", self.dropped_bytes)?;
        Ok((PyTuple::empty(py), named))
    }
}

impl IncompleteSseEvent {
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (&self.data, &self.event, &self.raw_tail, self.dropped_bytes).into_pyobject(py)
    }
}
