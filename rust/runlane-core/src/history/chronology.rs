//! Which calls and approvals are open, part by part.
//!
//! A call goes `Called -> Requested -> Approved | Denied -> Done`, or `Called -> Done` when nobody is asked. A record
//! is taken whole or not at all: what its parts did is undone when one of them does not fit.

use super::log::Log;
use super::names::Names;
use super::part::Word;
use super::refs::PartRef;
use super::text::to_usize;
use super::vocabulary::PartKind;

/// How far a call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Called,
    Requested,
    Approved,
    Denied,
    Done,
}

/// A part of the log by its places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) record: u32,
    pub(crate) part: u32,
}

impl At {
    pub(crate) fn find(self, log: &Log) -> Option<PartRef<'_>> {
        log.get(to_usize(self.record))?.part(to_usize(self.part))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) at: At,
    pub(crate) phase: Phase,
}

#[derive(Clone, Copy, Debug)]
struct Approval {
    at: At,
    call: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Calls without a result.
    pending: usize,
    /// Of those, the ones that hold the next round back.
    owed: usize,
    /// Calls in the first phase.
    called: usize,
    /// Whether a result of the present round has come.
    results_started: bool,
}

/// Where the chronology stood before a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    calls: usize,
    approvals: usize,
    counts: Counts,
}

/// The state between records.
#[derive(Debug, Default)]
pub(crate) struct Chronology {
    /// Whether a call that waits holds nothing back that comes after its record. Rounds are then a record's own, a late
    /// result begins none, and the id of a finished call may be used again: else one unanswered approval would keep
    /// every later call out of the history.
    own_rounds: bool,
    /// The first call that takes part in rounds.
    first: usize,
    calls: Vec<Call>,
    call_names: Names,
    approvals: Vec<Approval>,
    approval_names: Names,
    counts: Counts,
    /// What phases were before the present record.
    undo: Vec<(usize, Phase)>,
    /// Calls made or answered by the present record.
    touched: Vec<usize>,
}

impl Chronology {
    pub(crate) fn new(own_rounds: bool) -> Self {
        Self {
            own_rounds,
            ..Self::default()
        }
    }

    pub(crate) fn pending(&self) -> usize {
        self.counts.pending
    }

    /// Whether a call has neither a result nor somebody who is asked.
    pub(crate) fn has_bare_call(&self) -> bool {
        self.counts.called > 0
    }

    pub(crate) fn results_started(&self) -> bool {
        self.counts.results_started
    }

    pub(crate) fn reset(&mut self) {
        if self.calls.is_empty() && self.approvals.is_empty() {
            self.counts = Counts::default();
            return;
        }
        *self = Self::new(self.own_rounds);
    }

    /// Starts a record.
    pub(crate) fn mark(&mut self, log: &Log) -> Mark {
        self.undo.clear();
        self.touched.clear();
        if self.own_rounds {
            self.forget_done(log);
        }
        let mark = Mark {
            calls: self.calls.len(),
            approvals: self.approvals.len(),
            counts: self.counts,
        };
        if self.own_rounds {
            self.first = mark.calls;
            self.counts.owed = 0;
            self.counts.results_started = false;
        }
        mark
    }

    /// Keeps only what is open.
    fn forget_done(&mut self, log: &Log) {
        if self.calls.iter().all(|call| call.phase != Phase::Done) {
            return;
        }
        let mut kept = Self {
            counts: self.counts,
            ..Self::new(self.own_rounds)
        };
        for (index, call) in self.calls.iter().enumerate() {
            if call.phase == Phase::Done {
                continue;
            }
            let place = kept.calls.len();
            kept.calls.push(*call);
            kept.call_names
                .push(|call| call_name(&kept.calls, call, log));
            for approval in self
                .approvals
                .iter()
                .filter(|approval| approval.call == index)
            {
                kept.approvals.push(Approval {
                    at: approval.at,
                    call: place,
                });
                kept.approval_names
                    .push(|approval| approval_name(&kept.approvals, approval, log));
            }
        }
        *self = kept;
    }

    /// Undoes the record.
    pub(crate) fn back_to(&mut self, mark: Mark, log: &Log) {
        for (call, phase) in self.undo.drain(..).rev() {
            if let Some(call) = self.calls.get_mut(call) {
                call.phase = phase;
            }
        }
        let calls = &self.calls;
        self.call_names
            .truncate(mark.calls, |call| call_name(calls, call, log));
        let approvals = &self.approvals;
        self.approval_names.truncate(mark.approvals, |approval| {
            approval_name(approvals, approval, log)
        });
        self.calls.truncate(mark.calls);
        self.approvals.truncate(mark.approvals);
        self.counts = mark.counts;
    }

    /// Takes the calls that the record made or answered since this was last asked, in the order they were made.
    pub(crate) fn take_touched(&mut self) -> Vec<(usize, Call)> {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched
            .into_iter()
            .filter_map(|index| self.calls.get(index).map(|call| (index, *call)))
            .collect()
    }

    pub(crate) fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Gives a call its end without a result of its own.
    pub(crate) fn close(&mut self, call: usize) {
        self.counts.results_started |= call >= self.first;
        self.move_to(call, Phase::Done);
    }

    /// Takes a part; false if it does not fit.
    pub(crate) fn apply(&mut self, part: PartRef<'_>, at: At, log: &Log) -> bool {
        match part.kind() {
            PartKind::ToolCall => self.call(part, at, log),
            PartKind::ApprovalRequest => self.request(part, at, log),
            PartKind::ApprovalResponse => self.respond(part, log),
            PartKind::ToolResult => self.give_result(part, log),
            PartKind::Text
            | PartKind::Reasoning
            | PartKind::File
            | PartKind::Source
            | PartKind::Provider
            | PartKind::Control => true,
        }
    }

    fn find_call(&self, id: &str, log: &Log) -> Option<(usize, Phase)> {
        let found = self
            .call_names
            .find(id, |call| call_name(&self.calls, call, log))?;
        self.calls.get(found).map(|call| (found, call.phase))
    }

    fn find_approval(&self, id: &str, log: &Log) -> Option<Approval> {
        let found = self
            .approval_names
            .find(id, |approval| approval_name(&self.approvals, approval, log))?;
        self.approvals.get(found).copied()
    }

    fn call(&mut self, part: PartRef<'_>, at: At, log: &Log) -> bool {
        let owes = self.counts.results_started && self.counts.owed > 0;
        if owes || self.find_call(part.call_id(), log).is_some() {
            return false;
        }
        if self.counts.owed == 0 {
            self.counts.results_started = false;
        }
        self.touched.push(self.calls.len());
        self.calls.push(Call {
            at,
            phase: Phase::Called,
        });
        let calls = &self.calls;
        self.call_names.push(|call| call_name(calls, call, log));
        self.counts.pending = self.counts.pending.saturating_add(1);
        self.counts.owed = self.counts.owed.saturating_add(1);
        self.counts.called = self.counts.called.saturating_add(1);
        true
    }

    fn request(&mut self, part: PartRef<'_>, at: At, log: &Log) -> bool {
        let Some((call, Phase::Called)) = self.find_call(part.call_id(), log) else {
            return false;
        };
        if self.find_approval(part.approval_id(), log).is_some() {
            return false;
        }
        self.approvals.push(Approval { at, call });
        let approvals = &self.approvals;
        self.approval_names
            .push(|approval| approval_name(approvals, approval, log));
        self.move_to(call, Phase::Requested);
        true
    }

    fn respond(&mut self, part: PartRef<'_>, log: &Log) -> bool {
        let Some(approval) = self.find_approval(part.approval_id(), log) else {
            return false;
        };
        if self
            .calls
            .get(approval.call)
            .is_none_or(|call| call.phase != Phase::Requested)
        {
            return false;
        }
        let phase = if part.word() == Word::Yes {
            Phase::Approved
        } else {
            Phase::Denied
        };
        self.touched.push(approval.call);
        self.move_to(approval.call, phase);
        true
    }

    fn give_result(&mut self, part: PartRef<'_>, log: &Log) -> bool {
        let Some((call, phase)) = self.find_call(part.call_id(), log) else {
            return false;
        };
        let allowed = match phase {
            Phase::Called | Phase::Approved => true,
            Phase::Denied => part.word() != Word::Success,
            Phase::Requested | Phase::Done => false,
        };
        if !allowed || !self.is_named(call, part.tool_name(), log) {
            return false;
        }
        self.close(call);
        true
    }

    fn is_named(&self, call: usize, tool_name: &str, log: &Log) -> bool {
        self.calls
            .get(call)
            .and_then(|call| call.at.find(log))
            .is_some_and(|called| super::text::same(called.tool_name(), tool_name))
    }

    fn move_to(&mut self, index: usize, phase: Phase) {
        let Some(call) = self.calls.get_mut(index) else {
            return;
        };
        self.undo.push((index, call.phase));
        if call.phase == Phase::Called {
            self.counts.called = self.counts.called.saturating_sub(1);
        }
        if phase == Phase::Done {
            self.counts.pending = self.counts.pending.saturating_sub(1);
            if index >= self.first {
                self.counts.owed = self.counts.owed.saturating_sub(1);
            }
        }
        call.phase = phase;
    }
}

fn call_name<'l>(calls: &[Call], call: usize, log: &'l Log) -> &'l str {
    let found = calls.get(call).and_then(|call| call.at.find(log));
    found.map_or("", PartRef::call_id)
}

fn approval_name<'l>(approvals: &[Approval], approval: usize, log: &'l Log) -> &'l str {
    let found = approvals
        .get(approval)
        .and_then(|approval| approval.at.find(log));
    found.map_or("", PartRef::approval_id)
}
