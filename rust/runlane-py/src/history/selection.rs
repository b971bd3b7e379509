//! A budget selection as Python sees it: a view of a handle, read when it is asked.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use runlane_core::budget::{Count, Selection};
use runlane_core::history::{Log, decoded};

use super::{HistoryLog, refused};

/// Which records a budget keeps.
#[pyclass(module = "runlane._native", frozen)]
pub(crate) struct HistorySelection {
    pub(super) history: Py<HistoryLog>,
    pub(super) selection: Selection,
    pub(super) counter: Option<usize>,
    pub(super) records: usize,
    pub(super) revision: u64,
    pub(super) rewrites: u64,
}

impl HistorySelection {
    /// Places of the kept records, if the handle is as it was.
    pub(super) fn chosen(&self, log: &Log) -> PyResult<Vec<u32>> {
        if log.revision() != self.revision {
            return Err(refused(
                "usage",
                "the history changed since; select again",
                "selection",
            ));
        }
        Ok(self.kept_in(log))
    }

    fn kept_in(&self, log: &Log) -> Vec<u32> {
        self.selection.kept(
            |place| {
                log.get(place)
                    .map(|record| (record.role(), record.status()))
            },
            self.records,
        )
    }

    fn read<T>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&HistoryLog) -> PyResult<T>,
    ) -> PyResult<T> {
        let history = self.history.bind(py).try_borrow()?;
        if history.core.log().rewrites() != self.rewrites {
            return Err(refused(
                "usage",
                "a record was replaced or removed since; select again",
                "selection",
            ));
        }
        read(&history)
    }
}

#[pymethods]
impl HistorySelection {
    /// How many records were looked at.
    fn __len__(&self) -> usize {
        self.records
    }

    /// `fits`, `truncated`, `oversized` or `unavailable`.
    #[getter]
    fn outcome(&self) -> &'static str {
        self.selection.outcome.word()
    }

    /// Tokens of what is kept.
    #[getter]
    fn total(&self) -> u64 {
        self.selection.total
    }

    /// Whether a counted record was estimated.
    #[getter]
    fn estimated(&self) -> bool {
        self.selection.estimated
    }

    /// Places of the kept records, ascending.
    fn kept(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        self.read(py, |history| Ok(self.kept_in(history.core.log())))
    }

    /// What became of one record: its message id, whether it stays, the reason, its tokens and their provenance.
    fn decision(
        &self,
        py: Python<'_>,
        place: usize,
    ) -> PyResult<(String, bool, &'static str, Option<u64>, &'static str)> {
        self.read(py, |history| {
            let record = history
                .core
                .log()
                .get(place)
                .filter(|_| place < self.records);
            let Some(record) = record else {
                return Err(PyIndexError::new_err("decision index out of range"));
            };
            let reason = self.selection.reason(record, place);
            let counter = self
                .counter
                .and_then(|counter| history.core.counts(counter));
            let tokens = self.selection.tokens(record, place, counter);
            let provenance = match tokens {
                Some(Count::Measured(_)) => "measured",
                Some(Count::Computed(_)) => "computed",
                Some(Count::Estimated(_)) => "estimated",
                Some(Count::Missing | Count::Unknown) | None => "unavailable",
            };
            let id = decoded(record.id()).into_owned();
            Ok((
                id,
                reason.keeps(),
                reason.word(),
                tokens.and_then(Count::value),
                provenance,
            ))
        })
    }
}
