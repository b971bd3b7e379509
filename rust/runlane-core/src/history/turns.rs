//! Turns, whole or not: the unit in which a budget removes and a compaction replaces.

use std::ops::Range;

use super::chronology::At;
use super::names::Names;
use super::refs::{PartRef, RecordRef};
use super::view::{ActiveRuns, View};
use super::vocabulary::{PartKind, Policy, Role, Status};

/// Whether a turn is complete, and what of the context that depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) complete: bool,
    /// Whether a run of the turn is active.
    pub(crate) active: bool,
    /// Whether its runs had ended, if that was asked.
    pub(crate) ended: Option<bool>,
}

/// Which assistant records of a turn are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assistants {
    /// All; one that is no evidence spoils the turn.
    All,
    /// Those that are evidence; the others are not there.
    Spoken,
}

/// Whether the turn can stand or leave as a whole.
pub(crate) fn judge(
    view: View<'_>,
    turn: Range<usize>,
    policy: Policy,
    active: &ActiveRuns,
    assistants: Assistants,
) -> Verdict {
    let mut verdict = Verdict::default();
    if view.role(turn.start) != Some(Role::User) {
        return verdict;
    }
    let mut ledger = Ledger::new(view, policy.close_dangling);
    let mut answered = false;
    let mut last = turn.start;
    for position in turn {
        let Some(record) = view.get(position) else {
            return verdict;
        };
        if record.role() == Role::Assistant {
            let evidence = policy.is_evidence(record.status());
            let dropped = policy.drop_superseded && record.status() == Status::Superseded;
            answered |= evidence || dropped;
            if assistants == Assistants::Spoken && !evidence {
                continue;
            }
            verdict.active |= active.holds(record);
            if dropped {
                last = position;
                continue;
            }
            if !evidence {
                return verdict;
            }
        }
        last = position;
        if !ledger.take(record, view.place(position)) {
            return verdict;
        }
    }
    if verdict.active || !answered || ledger.unanswered > 0 {
        return verdict;
    }
    if ledger.open == 0 {
        verdict.complete = true;
    } else if policy.close_dangling {
        let ended = active.have_ended(view, last);
        verdict.ended = Some(ended);
        verdict.complete = ended;
    }
    verdict
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Called,
    Requested,
    Answered,
    Done,
}

/// Calls and approvals of one turn.
struct Ledger<'l> {
    view: View<'l>,
    /// Whether a later record may use the id of a call again that is finished or will never get a result.
    reuse: bool,
    calls: Vec<(At, State)>,
    call_names: Names,
    approvals: Vec<(At, usize)>,
    approval_names: Names,
    open: usize,
    unanswered: usize,
}

impl<'l> Ledger<'l> {
    fn new(view: View<'l>, reuse: bool) -> Self {
        Self {
            view,
            reuse,
            calls: Vec::new(),
            call_names: Names::default(),
            approvals: Vec::new(),
            approval_names: Names::default(),
            open: 0,
            unanswered: 0,
        }
    }

    fn take(&mut self, record: RecordRef<'l>, place: Option<usize>) -> bool {
        let Some(record_place) = place.and_then(|place| u32::try_from(place).ok()) else {
            return false;
        };
        (0_u32..).zip(record.parts()).all(|(part_place, part)| {
            let at = At {
                record: record_place,
                part: part_place,
            };
            self.part(part, at)
        })
    }

    fn part(&mut self, part: PartRef<'l>, at: At) -> bool {
        match part.kind() {
            PartKind::ToolCall => self.call(part, at),
            PartKind::ApprovalRequest => self.request(part, at),
            PartKind::ApprovalResponse => self.respond(part),
            PartKind::ToolResult => self.result(part),
            PartKind::Text
            | PartKind::Reasoning
            | PartKind::File
            | PartKind::Source
            | PartKind::Provider
            | PartKind::Control => true,
        }
    }

    fn find(&self, call_id: &str) -> Option<usize> {
        let (calls, log) = (&self.calls, self.view.log);
        self.call_names.find(call_id, |call| {
            let found = calls.get(call).and_then(|(at, _)| at.find(log));
            found.map_or("", PartRef::call_id)
        })
    }

    fn find_approval(&self, approval_id: &str) -> Option<usize> {
        let (approvals, log) = (&self.approvals, self.view.log);
        let found = self.approval_names.find(approval_id, |approval| {
            let found = approvals.get(approval).and_then(|(at, _)| at.find(log));
            found.map_or("", PartRef::approval_id)
        })?;
        self.approvals.get(found).map(|(_, call)| *call)
    }

    fn state(&mut self, call: usize) -> Option<&mut State> {
        self.calls.get_mut(call).map(|(_, state)| state)
    }

    fn call(&mut self, part: PartRef<'l>, at: At) -> bool {
        let known = self.find(part.call_id());
        if let Some(known) = known.and_then(|known| self.calls.get_mut(known)) {
            let is_over = matches!(known.1, State::Called | State::Done);
            if !self.reuse || !is_over || known.0.record == at.record {
                return false;
            }
            *known = (at, State::Called);
            self.open = self.open.saturating_add(1);
            return true;
        }
        self.calls.push((at, State::Called));
        let (calls, log) = (&self.calls, self.view.log);
        self.call_names.push(|call| {
            let found = calls.get(call).and_then(|(at, _)| at.find(log));
            found.map_or("", PartRef::call_id)
        });
        self.open = self.open.saturating_add(1);
        true
    }

    fn request(&mut self, part: PartRef<'l>, at: At) -> bool {
        let Some(call) = self.find(part.call_id()) else {
            return false;
        };
        if self.find_approval(part.approval_id()).is_some() {
            return false;
        }
        match self.state(call) {
            Some(state) if *state == State::Called => *state = State::Requested,
            _ => return false,
        }
        self.approvals.push((at, call));
        let (approvals, log) = (&self.approvals, self.view.log);
        self.approval_names.push(|approval| {
            let found = approvals.get(approval).and_then(|(at, _)| at.find(log));
            found.map_or("", PartRef::approval_id)
        });
        self.unanswered = self.unanswered.saturating_add(1);
        true
    }

    fn respond(&mut self, part: PartRef<'l>) -> bool {
        let Some(call) = self.find_approval(part.approval_id()) else {
            return false;
        };
        match self.state(call) {
            Some(state) if *state == State::Requested => *state = State::Answered,
            _ => return false,
        }
        self.unanswered = self.unanswered.saturating_sub(1);
        true
    }

    fn result(&mut self, part: PartRef<'l>) -> bool {
        let Some(call) = self.find(part.call_id()) else {
            return false;
        };
        match self.state(call) {
            Some(state) if matches!(*state, State::Called | State::Answered) => {
                *state = State::Done;
            }
            _ => return false,
        }
        self.open = self.open.saturating_sub(1);
        true
    }
}

/// What may be replaced by a summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compactable {
    /// Whether the first record is a summary, which is replaced with the rest.
    pub leading_summary: bool,
    /// Where the replaced records end; they start behind the leading summary.
    pub end: usize,
}

/// Selects the oldest complete turns but the newest `keep_recent` of them, up to the first that is not complete.
pub(crate) fn compactable(
    view: View<'_>,
    keep_recent: usize,
    policy: Policy,
    active: &ActiveRuns,
) -> Compactable {
    let leading_summary = view.role(0) == Some(Role::Summary);
    let first = usize::from(leading_summary);
    let mut ends = Vec::new();
    let mut start = first;
    while start < view.len() {
        let end = (start.saturating_add(1)..view.len())
            .find(|next| view.role(*next) == Some(Role::User) && !view.continues(*next))
            .unwrap_or(view.len());
        if !judge(view, start..end, policy, active, Assistants::All).complete {
            break;
        }
        ends.push(end);
        start = end;
    }
    let eligible = ends.len().saturating_sub(keep_recent);
    let end = eligible
        .checked_sub(1)
        .and_then(|last| ends.get(last).copied());
    Compactable {
        leading_summary,
        end: end.unwrap_or(first),
    }
}

/// The turns as compaction sees them: where each starts.
pub(crate) fn compaction_turns(view: View<'_>) -> Vec<u32> {
    let first = usize::from(view.role(0) == Some(Role::Summary));
    (first..view.len())
        .filter(|start| {
            *start == first || (view.role(*start) == Some(Role::User) && !view.continues(*start))
        })
        .filter_map(|start| u32::try_from(start).ok())
        .collect()
}

/// A place as the lists of a plan keep it.
pub(crate) fn short(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
