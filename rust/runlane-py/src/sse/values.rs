//! What a stream gives: events, and what it left unfinished.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use super::{text, whole_number};

/// One event of an event stream; immutable, comparable and hashable.
#[pyclass(frozen, module = "runlane.sse")]
pub(crate) struct SseEvent {
    // Every field is a Python object, so that Python reads it without a call.
    #[pyo3(get)]
    pub(super) event: Py<PyString>,
    #[pyo3(get)]
    pub(super) data: Py<PyString>,
    #[pyo3(get)]
    pub(super) id: Py<PyAny>,
    #[pyo3(get)]
    pub(super) last_event_id: Py<PyString>,
    #[pyo3(get)]
    pub(super) retry_ms: Py<PyAny>,
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
                Some(id) => text(id, "id")?.clone().unbind().into_any(),
                None => py.None(),
            },
            last_event_id: match last_event_id {
                Some(id) => text(id, "last_event_id")?.clone().unbind(),
                None => PyString::intern(py, "").unbind(),
            },
            retry_ms: match retry_ms {
                Some(retry_ms) => whole_number(retry_ms, "retry_ms")?
                    .into_pyobject(py)?
                    .into_any()
                    .unbind(),
                None => py.None(),
            },
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
            "SseEvent(event={}, data={}, id={}, last_event_id={}, retry_ms={})",
            self.event.bind(py).repr()?,
            self.data.bind(py).repr()?,
            self.id.bind(py).repr()?,
            self.last_event_id.bind(py).repr()?,
            self.retry_ms.bind(py).repr()?,
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
        named.set_item("last_event_id", &self.last_event_id)?;
        named.set_item("retry_ms", &self.retry_ms)?;
        Ok((PyTuple::empty(py), named))
    }
}

impl SseEvent {
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (
            &self.event,
            &self.data,
            &self.id,
            &self.last_event_id,
            &self.retry_ms,
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
