//! Some records of a log in order, and the turns they form.

use std::collections::BTreeSet;
use std::ops::Range;

use super::log::Log;
use super::refs::RecordRef;
use super::text::{decoded, to_usize};
use super::vocabulary::Role;

/// All records of a log, or some of them, ascending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'l> {
    pub(crate) log: &'l Log,
    pub(crate) chosen: Option<&'l [u32]>,
}

impl<'l> View<'l> {
    pub(crate) fn all(log: &'l Log) -> Self {
        Self { log, chosen: None }
    }

    pub(crate) fn len(self) -> usize {
        self.chosen.map_or(self.log.len(), <[u32]>::len)
    }

    /// The place in the log of the record at this position of the view.
    pub(crate) fn place(self, position: usize) -> Option<usize> {
        match self.chosen {
            None => Some(position),
            Some(chosen) => chosen.get(position).map(|place| to_usize(*place)),
        }
    }

    pub(crate) fn get(self, position: usize) -> Option<RecordRef<'l>> {
        self.log.get(self.place(position)?)
    }

    pub(crate) fn role(self, position: usize) -> Option<Role> {
        self.get(position).map(RecordRef::role)
    }

    /// Whether the record is of another conversation than the one before it.
    pub(crate) fn changes_conversation(self, position: usize) -> bool {
        let before = position.checked_sub(1).and_then(|before| self.get(before));
        let number = RecordRef::conversation_number;
        match (before.map(number), self.get(position).map(number)) {
            (Some(before), Some(here)) => before != here,
            _ => false,
        }
    }

    /// Whether a user record strictly follows another of its conversation, and so joins its turn.
    pub(crate) fn continues(self, position: usize) -> bool {
        position
            .checked_sub(1)
            .is_some_and(|before| self.role(before) == Some(Role::User))
            && self.role(position) == Some(Role::User)
            && !self.changes_conversation(position)
    }

    /// Where the turn that holds the record at `position` ends: at the next user record or conversation.
    pub(crate) fn turn_end(self, position: usize) -> usize {
        (position.saturating_add(1)..self.len())
            .find(|next| self.role(*next) == Some(Role::User) || self.changes_conversation(*next))
            .unwrap_or(self.len())
    }

    /// Where that turn starts: at its newest user record.
    pub(crate) fn turn_start(self, position: usize) -> usize {
        (0..=position)
            .rev()
            .find(|start| {
                self.role(*start) == Some(Role::User) || self.changes_conversation(*start)
            })
            .unwrap_or(0)
    }

    /// Where the user records start that open the turn holding the record at `position`.
    pub(crate) fn opening(self, position: usize) -> usize {
        let mut start = self.turn_start(position);
        while self.continues(start) {
            start = start.saturating_sub(1);
        }
        start
    }

    /// The records from `position` on in which a call of that record may still get its result: the rest of its turn,
    /// and the turn after it.
    pub(crate) fn window(self, position: usize) -> Range<usize> {
        let end = self.turn_end(position);
        if self.role(end).is_none() || self.changes_conversation(end) {
            return position..end;
        }
        let mut opening = end;
        while self.continues(opening.saturating_add(1)) {
            opening = opening.saturating_add(1);
        }
        position..self.turn_end(opening)
    }
}

/// The runs that have not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActiveRuns(BTreeSet<String>);

impl ActiveRuns {
    /// Takes the ids as plain text.
    pub fn new(ids: impl IntoIterator<Item = String>) -> Self {
        Self(ids.into_iter().collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn holds(&self, record: RecordRef<'_>) -> bool {
        !self.0.is_empty()
            && record.role() == Role::Assistant
            && record
                .run()
                .is_some_and(|run| self.0.contains(&*decoded(run)))
    }

    /// Whether a run of one of these records is active.
    pub(crate) fn any_in(&self, view: View<'_>, positions: Range<usize>) -> bool {
        !self.0.is_empty()
            && positions
                .into_iter()
                .filter_map(|position| view.get(position))
                .any(|record| self.holds(record))
    }

    /// Whether every run of the turn that holds this record has ended.
    ///
    /// An active run with no assistant record yet belongs to the inputs behind the last assistant record.
    pub(crate) fn have_ended(&self, view: View<'_>, position: usize) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let end = view.turn_end(position);
        if self.any_in(view, view.turn_start(position)..end) {
            return false;
        }
        !(end > answered(view) && self.any_unplaced(view.log))
    }

    /// Whether the run of the record at this place of the log has ended: an assistant's own, and of any other record
    /// the one whose inputs it is among, which answers next.
    ///
    /// An active run with no assistant record yet belongs to the inputs behind the last assistant record.
    pub(crate) fn has_ended(&self, log: &Log, place: usize) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let view = View::all(log);
        let next = (place..view.len())
            .take_while(|here| *here == place || !view.changes_conversation(*here))
            .filter_map(|here| view.get(here))
            .find(|record| record.role() == Role::Assistant);
        match next {
            Some(record) => !self.holds(record),
            None => !self.any_unplaced(log),
        }
    }

    /// The active runs that other does not have.
    pub(crate) fn beyond<'r>(&'r self, other: &'r Self) -> impl Iterator<Item = &'r str> {
        self.0.difference(&other.0).map(String::as_str)
    }

    /// Whether a run is active that has no assistant record.
    fn any_unplaced(&self, log: &Log) -> bool {
        self.0.iter().any(|run| log.place_of_run(run).is_none())
    }
}

/// Behind which position only inputs stand.
fn answered(view: View<'_>) -> usize {
    (0..view.len())
        .rev()
        .find(|position| view.role(*position) == Some(Role::Assistant))
        .map_or(0, |last| last.saturating_add(1))
}
