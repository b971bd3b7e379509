//! The handle on a conversation's records, and what is read from it.

mod build;
mod json;
mod plan;
mod selection;
mod vocabulary;

pub(crate) use plan::{ChatFragments, HistoryPlan};
pub(crate) use selection::HistorySelection;
pub(crate) use vocabulary::adopt_vocabulary;

use std::collections::{BTreeMap, BTreeSet};

use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict, PyString};
use runlane_core::budget::{Count, Request};
use runlane_core::history::{
    ActiveRuns, CallEvidence, Context, History, InterruptedAssistant, LeadingAssistant, LogRefusal,
    Options, PartKind, Policy, Refusal, Role, Stop, StopReason, UnresolvedFile, decoded,
};

use crate::error::NativeError;

/// From how many bytes on work is done without holding the interpreter.
const DETACH_BYTES: usize = 64 << 10;

/// From how many records on a projection is.
const DETACH_RECORDS: usize = 10_000;

/// The records of one conversation, parsed once each.
#[pyclass(module = "runlane._native")]
pub(crate) struct HistoryLog {
    core: History,
}

#[pymethods]
impl HistoryLog {
    #[new]
    #[pyo3(signature = (*, repeats=false))]
    fn new(repeats: bool) -> Self {
        Self {
            core: History::new(repeats),
        }
    }

    fn __len__(&self) -> usize {
        self.core.log().len()
    }

    /// Grows with every change.
    #[getter]
    fn revision(&self) -> u64 {
        self.core.log().revision()
    }

    /// Bytes of all records.
    #[getter]
    fn stored_bytes(&self) -> usize {
        self.core.log().text_bytes()
    }

    /// Bytes held, capacity included.
    #[getter]
    fn held_bytes(&self) -> usize {
        self.core.held_bytes()
    }

    /// Add the newest record and return its place.
    #[pyo3(signature = (record, /))]
    fn append(&mut self, record: &[u8]) -> PyResult<usize> {
        self.core
            .append(record)
            .map_err(|refusal| log_refused(refusal, 0))
    }

    /// Add records, all or none.
    #[pyo3(signature = (records, /))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "what holds the bytes while the interpreter is let go"
    )]
    fn extend(&mut self, py: Python<'_>, records: Vec<PyBackedBytes>) -> PyResult<()> {
        let bytes = records.iter().map(|record| record.len()).sum();
        self.core.reserve(records.len(), bytes);
        let mut append = || self.core.extend(records.iter().map(|record| &**record));
        let done = if bytes > DETACH_BYTES {
            py.detach(append)
        } else {
            append()
        };
        done.map_err(|(place, refusal)| log_refused(refusal, place))
    }

    /// Replace the record of the same message id and return its place.
    #[pyo3(signature = (record, /))]
    fn replace(&mut self, record: &[u8]) -> PyResult<usize> {
        self.core
            .replace(record)
            .map_err(|refusal| log_refused(refusal, 0))
    }

    /// Replace the record of the same message id, or add it; return its place.
    #[pyo3(signature = (record, /))]
    fn put(&mut self, record: &[u8]) -> PyResult<usize> {
        match self.core.replace(record) {
            Err(LogRefusal::Unknown) => self.append(record),
            other => other.map_err(|refusal| log_refused(refusal, 0)),
        }
    }

    /// Put a record before the one at a place.
    #[pyo3(signature = (place, record, /))]
    fn insert(&mut self, place: usize, record: &[u8]) -> PyResult<()> {
        self.core
            .insert(place, record)
            .map_err(|refusal| log_refused(refusal, 0))
    }

    /// Take records out, all or none.
    #[pyo3(signature = (message_ids, /))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a list of Python strings comes as values"
    )]
    fn remove(&mut self, message_ids: Vec<String>) -> PyResult<()> {
        let removed = self.core.remove(message_ids.iter().map(String::as_str));
        removed.map_err(|refusal| log_refused(refusal, 0))
    }

    /// The place of a record by its message id.
    #[pyo3(signature = (message_id, /))]
    fn find(&mut self, message_id: &str) -> Option<usize> {
        self.core.find(message_id)
    }

    /// The stored bytes of a record.
    #[pyo3(signature = (place, /))]
    fn record<'py>(&self, py: Python<'py>, place: usize) -> Option<Bound<'py, PyBytes>> {
        let record = self.core.log().get(place)?;
        Some(PyBytes::new(py, record.text().as_bytes()))
    }

    /// The message id of a record.
    #[pyo3(signature = (place, /))]
    fn message_id(&self, place: usize) -> Option<String> {
        let record = self.core.log().get(place)?;
        Some(decoded(record.id()).into_owned())
    }

    /// The message ids and part places of the files that users sent.
    fn files(&self) -> Vec<(usize, u32)> {
        let log = self.core.log();
        let records = (0..log.len()).filter_map(|place| Some((place, log.get(place)?)));
        let users = records.filter(|(_, record)| {
            record.role() == Role::User && record.kinds().contains(PartKind::File)
        });
        users
            .flat_map(|(place, record)| {
                let parts = (0_u32..).zip(record.parts());
                parts
                    .filter(|(_, part)| part.kind() == PartKind::File)
                    .map(move |(part, _)| (place, part))
            })
            .collect()
    }

    /// Project all records, or those that a selection kept.
    #[pyo3(signature = (options, provider, active, effects, files, selection, /))]
    fn project(
        slf: &Bound<'_, Self>,
        options: u32,
        provider: Option<String>,
        active: Vec<String>,
        effects: &Bound<'_, PyDict>,
        files: Option<Bound<'_, PyDict>>,
        selection: Option<&Bound<'_, HistorySelection>>,
    ) -> PyResult<HistoryPlan> {
        let py = slf.py();
        if selection.is_some_and(|selection| !selection.get().history.is(slf)) {
            let problem = "the selection is one of another history";
            return Err(refused("usage", problem, "selection"));
        }
        let mut this = slf.try_borrow_mut()?;
        let context = Context {
            active: ActiveRuns::new(active),
            effects: effects_of(effects)?,
            files: this.places_of(files.as_ref())?,
            provider,
        };
        let options = options_of(options);
        let chosen = selection
            .map(|selection| selection.get().chosen(this.core.log()))
            .transpose()?;
        let core = &mut this.core;
        let long = core.log().len() > DETACH_RECORDS;
        let run = || match &chosen {
            None => core.project(options, context),
            Some(chosen) => core.project_chosen(options, &context, chosen),
        };
        let plan = if long { py.detach(run) } else { run() };
        let plan = plan.map_err(|stop| this.stopped(stop))?;
        Ok(HistoryPlan {
            history: slf.clone().unbind(),
            plan,
            rewrites: this.core.log().rewrites(),
            chosen,
            files: files.map(Bound::unbind),
        })
    }

    /// A place for the counts of one tokenizer.
    #[pyo3(signature = (name, /))]
    fn counter(&mut self, name: &str) -> usize {
        self.core.counter(name)
    }

    /// Places of the records a tokenizer did not count yet.
    #[pyo3(signature = (counter, /))]
    fn uncounted(&self, counter: usize) -> Vec<u32> {
        self.core.uncounted(counter)
    }

    /// The strings that a record says to a model, and how many frames stand around them.
    #[pyo3(signature = (place, /))]
    fn said(&self, place: usize) -> (Vec<String>, usize) {
        let Some(record) = self.core.log().get(place) else {
            return (Vec::new(), 0);
        };
        let mut said = Vec::new();
        let mut frames = 1_usize;
        for part in record.parts() {
            let fields = part.said_fields();
            frames = frames.saturating_add(usize::from(fields.len() > 1));
            said.extend(fields.into_iter().map(std::borrow::Cow::into_owned));
        }
        (said, frames)
    }

    /// Say what records count: places, values, and one provenance per record.
    #[pyo3(signature = (counter, counts, /))]
    fn set_counts(&mut self, counter: usize, counts: Vec<(usize, Option<u64>, String)>) {
        let counts = counts.into_iter().map(|(place, value, provenance)| {
            let count = match (value, provenance.as_str()) {
                (Some(value), "measured") => Count::Measured(value),
                (Some(value), "computed") => Count::Computed(value),
                (Some(value), "estimated") => Count::Estimated(value),
                _ => Count::Unknown,
            };
            (place, count)
        });
        self.core.set_counts(counter, counts);
    }

    /// Select what fits a budget.
    #[pyo3(signature = (available, keep_recent, policy, active, counter, /))]
    fn select(
        slf: &Bound<'_, Self>,
        available: u64,
        keep_recent: usize,
        policy: u32,
        active: Vec<String>,
        counter: Option<usize>,
    ) -> PyResult<HistorySelection> {
        let mut this = slf.try_borrow_mut()?;
        let active = ActiveRuns::new(active);
        let selection = this.core.select(&Request {
            available,
            keep_recent,
            policy: policy_of(policy),
            active: &active,
            counter,
        });
        Ok(HistorySelection {
            history: slf.clone().unbind(),
            selection,
            counter,
            records: this.core.log().len(),
            revision: this.core.log().revision(),
            rewrites: this.core.log().rewrites(),
        })
    }

    /// Select what may be compacted: whether a summary leads, and where the replaced records end.
    #[pyo3(signature = (keep_recent, policy, active, /))]
    fn compactable(
        &mut self,
        keep_recent: usize,
        policy: u32,
        active: Vec<String>,
    ) -> (bool, usize) {
        let active = ActiveRuns::new(active);
        let found = self
            .core
            .compactable(keep_recent, policy_of(policy), &active);
        (found.leading_summary, found.end)
    }

    /// Where the turns of compaction start.
    fn compaction_turns(&self) -> Vec<u32> {
        self.core.compaction_turns()
    }

    /// Whether the records from `start` to `end` are a complete turn.
    #[pyo3(signature = (start, end, policy, active, /))]
    fn is_complete(&mut self, start: usize, end: usize, policy: u32, active: Vec<String>) -> bool {
        let active = ActiveRuns::new(active);
        self.core
            .is_complete(start, end, policy_of(policy), &active)
    }
}

impl HistoryLog {
    fn places_of(&self, files: Option<&Bound<'_, PyDict>>) -> PyResult<BTreeSet<(u32, u32)>> {
        let mut places = BTreeSet::new();
        let Some(files) = files.filter(|files| !files.is_empty()) else {
            return Ok(places);
        };
        for (place, part) in self.files() {
            let record = self.core.log().get(place);
            let id = record
                .map(|record| decoded(record.id()))
                .unwrap_or_default();
            if let (true, Ok(place)) = (files.contains((id, part))?, u32::try_from(place)) {
                places.insert((place, part));
            }
        }
        Ok(places)
    }

    fn stopped(&self, stop: Stop) -> PyErr {
        let record = usize::try_from(stop.record)
            .ok()
            .and_then(|place| self.core.log().get(place));
        let id = record
            .map(|record| decoded(record.id()).into_owned())
            .unwrap_or_default();
        let part = record.and_then(|record| record.part(usize::try_from(stop.part).ok()?));
        let (reason, problem) = match stop.reason {
            StopReason::LeadingAssistant => (
                "leading-assistant",
                "an assistant record stands before any user record".to_owned(),
            ),
            StopReason::IncompleteToolTurn => (
                "incomplete-tool-turn",
                "incomplete tool chronology".to_owned(),
            ),
            StopReason::UnresolvedFile => {
                let reference = part
                    .map(|part| decoded(part.reference()).into_owned())
                    .unwrap_or_default();
                (
                    "unresolved-file",
                    format!("the file {reference:?} has no resolved data"),
                )
            }
        };
        NativeError::new_err((
            "history.refused",
            format!("record {id:?}: {problem}"),
            (id, reason),
        ))
    }
}

fn effects_of(
    effects: &Bound<'_, PyDict>,
) -> PyResult<BTreeMap<(Option<String>, String), CallEvidence>> {
    let mut known = BTreeMap::new();
    for (call, evidence) in effects {
        let evidence = match evidence.extract::<PyBackedStr>()?.as_ref() {
            "interrupted" => CallEvidence::Interrupted,
            "not-started" => CallEvidence::NotStarted,
            "unknown" => CallEvidence::Unknown,
            other => {
                let problem = format!("must be interrupted, not-started or unknown, not {other:?}");
                return Err(refused("value.invalid", &problem, "effects"));
            }
        };
        let call = match call.cast::<PyString>() {
            Ok(id) => (None, id.extract()?),
            Err(_) => call
                .extract::<(String, String)>()
                .map_err(|_| {
                    let problem = "must be named by a call id, or by a message id and a call id";
                    refused("value.invalid", problem, "effects")
                })
                .map(|(message, id)| (Some(message), id))?,
        };
        known.insert(call, evidence);
    }
    Ok(known)
}

/// Reads a policy as its façade packs it: one bit per choice that differs from the default.
fn policy_of(bits: u32) -> Policy {
    Policy {
        failed_marked: bits & 1 != 0,
        close_dangling: bits & 2 != 0,
        drop_superseded: bits & 4 != 0,
    }
}

/// Reads options as their façade packs them: the policy, then two bits for each choice of three.
fn options_of(bits: u32) -> Options {
    Options {
        policy: policy_of(bits),
        unresolved_file: match bits >> 3 & 3 {
            1 => UnresolvedFile::Text,
            2 => UnresolvedFile::Error,
            _ => UnresolvedFile::Omit,
        },
        interrupted: match bits >> 5 & 3 {
            1 => InterruptedAssistant::SystemNote,
            2 => InterruptedAssistant::Omit,
            _ => InterruptedAssistant::Marked,
        },
        leading: match bits >> 7 & 3 {
            1 => LeadingAssistant::Allow,
            2 => LeadingAssistant::Error,
            _ => LeadingAssistant::Omit,
        },
        refuse_incomplete: bits >> 9 & 1 != 0,
    }
}

fn log_refused(refusal: LogRefusal, place: usize) -> PyErr {
    match refusal {
        LogRefusal::NotText(offset) => corrupt("it is not UTF-8", offset),
        LogRefusal::Record(Refusal::Corrupt(fault)) => corrupt(fault.problem, fault.offset),
        LogRefusal::Record(Refusal::TooNew) => refused(
            "store.record_too_new",
            "a stored message has a schema version that this program does not know",
            "record",
        ),
        LogRefusal::TooLong => refused("value.invalid", "is longer than a history holds", "record"),
        LogRefusal::Known => refused(
            "value.invalid",
            &format!("record {place} has a message id that is already there; use replace"),
            "record",
        ),
        LogRefusal::Unknown => refused(
            "value.invalid",
            "no record has this message id or index",
            "message_id",
        ),
    }
}

/// Bytes that are no stored message.
fn corrupt(problem: &str, offset: usize) -> PyErr {
    refused(
        "store.record_corrupt",
        &format!("a stored message cannot be read at byte {offset}: {problem}"),
        "record",
    )
}

fn refused(code: &'static str, message: &str, argument: &'static str) -> PyErr {
    NativeError::new_err((code, message.to_owned(), argument))
}
