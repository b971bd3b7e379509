//! The selection itself: an index over turns, and a search in it.

use std::sync::Arc;

use super::counts::{Count, Counter};
use crate::history::{ActiveRuns, Assistants, Policy, RecordRef, Role, Status, View, judge, short};

/// What a selection is asked.
#[derive(Clone, Debug)]
pub struct Request<'r> {
    /// Tokens there are.
    pub available: u64,
    /// How many of the newest complete turns are never removed.
    pub keep_recent: usize,
    /// What counts as evidence.
    pub policy: Policy,
    /// Runs that have not ended.
    pub active: &'r ActiveRuns,
    /// Whose counts; None for the byte bound.
    pub counter: Option<usize>,
}

/// How a selection came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything fits.
    Fits,
    /// Turns were removed, and the rest fits.
    Truncated,
    /// What may not be removed is still too much.
    Oversized,
    /// A count is not known.
    Unavailable,
}

impl Outcome {
    /// The word in a result.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::Truncated => "truncated",
            Self::Oversized => "oversized",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Why a record is kept or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetReason {
    /// Removed: another input made the answer void.
    Superseded,
    /// Removed: an answer that is no evidence.
    NotEvidence,
    /// Removed with its turn.
    OldestEligibleTurn,
    /// Kept: instructions and summaries always are.
    ProtectedSystem,
    /// Kept: its turn is not complete.
    ProtectedIncompleteTurn,
    /// Kept: its turn is one of the newest.
    ProtectedRecentTurn,
    /// Kept: it fits.
    WithinBudget,
    /// Kept: nothing is removed where a count is not known.
    TokenCountUnavailable,
}

impl BudgetReason {
    /// The word in a decision.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Superseded => "superseded",
            Self::NotEvidence => "not-evidence",
            Self::OldestEligibleTurn => "oldest-eligible-turn",
            Self::ProtectedSystem => "protected-system",
            Self::ProtectedIncompleteTurn => "protected-incomplete-turn",
            Self::ProtectedRecentTurn => "protected-recent-turn",
            Self::WithinBudget => "within-budget",
            Self::TokenCountUnavailable => "token-count-unavailable",
        }
    }

    /// Whether the record stays.
    pub const fn keeps(self) -> bool {
        !matches!(
            self,
            Self::Superseded | Self::NotEvidence | Self::OldestEligibleTurn
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnKind {
    /// Answers that are no evidence, before anything that is said.
    Unspoken,
    System,
    Complete,
    Incomplete,
}

/// A turn, with sums over what stands before it.
#[derive(Clone, Copy, Debug)]
struct Turn {
    start: u32,
    kind: TurnKind,
    tokens: u64,
    before: Sums,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    tokens: u64,
    /// Of complete turns.
    eligible: u64,
    complete: u32,
    estimated: u32,
}

/// Turns and sums over the records of one history.
#[derive(Clone, Debug, Default)]
pub struct BudgetIndex {
    policy: Policy,
    counter: Option<usize>,
    active: ActiveRuns,
    turns: Vec<Turn>,
    /// Places in `turns` of the complete ones.
    complete: Vec<u32>,
    /// Places in `turns` of the others.
    others: Vec<u32>,
    /// Places in `turns` of those whose completeness depends on which runs are active.
    depending: Vec<u32>,
    total: Sums,
    upto: usize,
    /// The first spoken record whose count is not known.
    unknown: Option<usize>,
}

fn to_usize(short: u32) -> usize {
    usize::try_from(short).unwrap_or(usize::MAX)
}

fn is_spoken(record: RecordRef<'_>, policy: Policy) -> bool {
    record.role() != Role::Assistant || policy.is_evidence(record.status())
}

impl BudgetIndex {
    pub(crate) fn held_bytes(&self) -> usize {
        let turns = self.turns.capacity().saturating_mul(size_of::<Turn>());
        let places = self
            .complete
            .capacity()
            .saturating_add(self.others.capacity());
        turns.saturating_add(places.saturating_mul(size_of::<u32>()))
    }

    /// Brings the index up to the records of the view, of which those before `changed` are as they were.
    pub(crate) fn update(
        &mut self,
        view: View<'_>,
        request: &Request<'_>,
        counter: Option<&Counter>,
        changed: usize,
    ) {
        let same = self.policy == request.policy && self.counter == request.counter;
        let base = if same { changed.min(self.upto) } else { 0 };
        let base = base
            .min(self.first_to_depend(view, request.active))
            .min(self.unknown.unwrap_or(base));
        self.rewind(view, base);
        self.policy = request.policy;
        self.counter = request.counter;
        self.active = request.active.clone();
        self.extend(view, counter);
    }

    /// The first record of a turn that is judged otherwise now.
    fn first_to_depend(&self, view: View<'_>, active: &ActiveRuns) -> usize {
        let turn_at = |place: usize| self.turns.get(place);
        let judged = self
            .depending
            .iter()
            .map(|place| to_usize(*place))
            .find_map(|place| {
                let turn = turn_at(place)?;
                let start = to_usize(turn.start);
                let end =
                    turn_at(place.saturating_add(1)).map_or(self.upto, |next| to_usize(next.start));
                let verdict = judge(view, start..end, self.policy, active, Assistants::Spoken);
                (verdict.complete != (turn.kind == TurnKind::Complete)).then_some(start)
            });
        let placed = active
            .beyond(&self.active)
            .filter_map(|run| view.log.place_of_run(run))
            .min();
        judged.into_iter().chain(placed).min().unwrap_or(usize::MAX)
    }

    /// Forgets the turns that reach to `base` or beyond, and those judged by the same runs.
    fn rewind(&mut self, view: View<'_>, base: usize) {
        // What is new may go on with the turn that holds the record before it, which is not always the turn of a
        // projection: that one also ends where the conversation changes.
        let from = base.checked_sub(1).map_or(0, |last| {
            let last = last.min(view.len().saturating_sub(1));
            view.opening(last).min(self.start_of_turn(last))
        });
        let kept = self
            .turns
            .partition_point(|turn| to_usize(turn.start) < from);
        if let Some(turn) = self.turns.get(kept).copied() {
            self.total = turn.before;
            self.upto = to_usize(turn.start);
            self.turns.truncate(kept);
            let forget = |places: &mut Vec<u32>| {
                let left = places.partition_point(|place| to_usize(*place) < kept);
                places.truncate(left);
            };
            forget(&mut self.complete);
            forget(&mut self.others);
            forget(&mut self.depending);
        }
        self.unknown = None;
    }

    /// Where the known turn starts that holds a record.
    fn start_of_turn(&self, place: usize) -> usize {
        let behind = self
            .turns
            .partition_point(|turn| to_usize(turn.start) <= place);
        let turn = behind.checked_sub(1).and_then(|turn| self.turns.get(turn));
        turn.map_or(0, |turn| to_usize(turn.start))
    }

    fn extend(&mut self, view: View<'_>, counter: Option<&Counter>) {
        let mut start = self.upto;
        while start < view.len() {
            let end = self.turn_end(view, start);
            if !self.add(view, start, end, counter) {
                return;
            }
            start = end;
            self.upto = end;
        }
    }

    /// Where the turn that starts here ends.
    fn turn_end(&self, view: View<'_>, start: usize) -> usize {
        let alone = matches!(view.role(start), Some(Role::System | Role::Summary));
        let mut spoken = false;
        for position in start..view.len() {
            let Some(record) = view.get(position) else {
                return position;
            };
            let here = is_spoken(record, self.policy);
            let opens = match record.role() {
                Role::System | Role::Summary => true,
                Role::User => !view.continues(position),
                Role::Assistant | Role::Tool => here && (alone || !spoken),
            };
            if position > start && opens {
                return position;
            }
            spoken |= here;
        }
        view.len()
    }

    /// Adds a turn; false if a count in it is not known.
    fn add(&mut self, view: View<'_>, start: usize, end: usize, counter: Option<&Counter>) -> bool {
        let mut sums = self.total;
        let mut spoken = false;
        for position in start..end {
            let Some(record) = view
                .get(position)
                .filter(|record| is_spoken(*record, self.policy))
            else {
                continue;
            };
            spoken = true;
            let count = count_of(record, position, counter);
            let Some(value) = count.value() else {
                self.unknown = Some(position);
                return false;
            };
            sums.tokens = sums.tokens.saturating_add(value);
            sums.estimated = sums
                .estimated
                .saturating_add(u32::from(matches!(count, Count::Estimated(_))));
        }
        let alone = matches!(view.role(start), Some(Role::System | Role::Summary));
        let (kind, depends) = match (spoken, alone) {
            (false, _) => (TurnKind::Unspoken, false),
            (true, true) => (TurnKind::System, false),
            (true, false) => {
                let verdict = judge(
                    view,
                    start..end,
                    self.policy,
                    &self.active,
                    Assistants::Spoken,
                );
                let kind = if verdict.complete {
                    TurnKind::Complete
                } else {
                    TurnKind::Incomplete
                };
                (kind, verdict.active || verdict.ended.is_some())
            }
        };
        let tokens = sums.tokens.saturating_sub(self.total.tokens);
        let place = short(self.turns.len());
        self.turns.push(Turn {
            start: short(start),
            kind,
            tokens,
            before: self.total,
        });
        if depends {
            self.depending.push(place);
        }
        if kind == TurnKind::Complete {
            self.complete.push(place);
            sums.eligible = sums.eligible.saturating_add(tokens);
            sums.complete = sums.complete.saturating_add(1);
        } else {
            self.others.push(place);
        }
        self.total = sums;
        true
    }

    /// How many of the oldest complete turns must go, at most `most`, and the tokens they free.
    fn evicted(&self, excess: u64, most: usize) -> (usize, u64) {
        if excess == 0 {
            return (0, 0);
        }
        let through = |place: &u32| {
            let turn = self.turns.get(to_usize(*place));
            turn.map_or(0, |turn| turn.before.eligible.saturating_add(turn.tokens))
        };
        let eligible = self.complete.get(..most).unwrap_or_default();
        let enough = eligible.partition_point(|place| through(place) < excess);
        let count = enough.saturating_add(1).min(most);
        let last = count.checked_sub(1).and_then(|last| eligible.get(last));
        (count, last.map_or(0, through))
    }
}

fn count_of(record: RecordRef<'_>, place: usize, counter: Option<&Counter>) -> Count {
    counter.map_or_else(|| Count::bound(record), |counter| counter.get(place))
}

/// Which records a budget keeps.
#[derive(Clone, Debug)]
pub struct Selection {
    index: Arc<BudgetIndex>,
    /// How it came out.
    pub outcome: Outcome,
    /// Tokens of what is kept; 0 where a count is not known.
    pub total: u64,
    /// Whether a counted record was estimated.
    pub estimated: bool,
    evicted: usize,
    recent_from: usize,
}

impl Selection {
    pub(crate) fn new(index: Arc<BudgetIndex>, request: &Request<'_>) -> Self {
        let complete = index.complete.len();
        let recent_from = complete.saturating_sub(request.keep_recent);
        let sums = index.total;
        let excess = sums.tokens.saturating_sub(request.available);
        let (evicted, freed) = index.evicted(excess, recent_from);
        let total = sums.tokens.saturating_sub(freed);
        let outcome = if index.unknown.is_some() {
            Outcome::Unavailable
        } else if total > request.available {
            Outcome::Oversized
        } else if evicted > 0 {
            Outcome::Truncated
        } else {
            Outcome::Fits
        };
        let known = outcome != Outcome::Unavailable;
        Self {
            index,
            outcome,
            total: if known { total } else { 0 },
            estimated: sums.estimated > 0,
            evicted: if known { evicted } else { 0 },
            recent_from,
        }
    }

    /// The first spoken record whose count is not known.
    pub fn unknown(&self) -> Option<usize> {
        self.index.unknown
    }

    /// Why the record at this place of the history is kept or removed.
    pub fn reason(&self, record: RecordRef<'_>, place: usize) -> BudgetReason {
        if !is_spoken(record, self.index.policy) {
            return if record.status() == Status::Superseded {
                BudgetReason::Superseded
            } else {
                BudgetReason::NotEvidence
            };
        }
        if self.outcome == Outcome::Unavailable {
            return BudgetReason::TokenCountUnavailable;
        }
        let behind = self
            .index
            .turns
            .partition_point(|turn| to_usize(turn.start) <= place);
        let turn = behind
            .checked_sub(1)
            .and_then(|turn| self.index.turns.get(turn));
        let Some(turn) = turn else {
            return BudgetReason::WithinBudget;
        };
        let rank = to_usize(turn.before.complete);
        match turn.kind {
            TurnKind::System | TurnKind::Unspoken => BudgetReason::ProtectedSystem,
            TurnKind::Incomplete => BudgetReason::ProtectedIncompleteTurn,
            TurnKind::Complete if rank < self.evicted => BudgetReason::OldestEligibleTurn,
            TurnKind::Complete if rank >= self.recent_from => BudgetReason::ProtectedRecentTurn,
            TurnKind::Complete => BudgetReason::WithinBudget,
        }
    }

    /// What the record at this place counts, as far as it was counted.
    pub fn tokens(
        &self,
        record: RecordRef<'_>,
        place: usize,
        counter: Option<&Counter>,
    ) -> Option<Count> {
        let is_counted = is_spoken(record, self.index.policy)
            && self.index.unknown.is_none_or(|unknown| place < unknown);
        is_counted
            .then(|| count_of(record, place, counter))
            .filter(|count| count.value().is_some())
    }

    /// The places of the kept records among the first `len`, ascending; the cost is that of what is kept.
    pub fn kept(&self, view: impl Fn(usize) -> Option<(Role, Status)>, len: usize) -> Vec<u32> {
        let index = &self.index;
        let policy = index.policy;
        let spoken = |place: &usize| {
            view(*place)
                .is_some_and(|(role, status)| role != Role::Assistant || policy.is_evidence(status))
        };
        let last_gone = self
            .evicted
            .checked_sub(1)
            .and_then(|rank| index.complete.get(rank))
            .copied();
        let mut kept = Vec::new();
        let behind = last_gone.map_or(0, |gone| {
            let others = index.others.partition_point(|place| *place < gone);
            for place in index.others.get(..others).unwrap_or_default() {
                let (start, end) = self.bounds(to_usize(*place), len);
                kept.extend((start..end).filter(spoken).map(short));
            }
            self.bounds(to_usize(gone), len).1
        });
        kept.extend((behind..len).filter(spoken).map(short));
        kept
    }

    fn bounds(&self, turn: usize, len: usize) -> (usize, usize) {
        let start = |turn: usize| {
            self.index
                .turns
                .get(turn)
                .map_or(len, |turn| to_usize(turn.start))
        };
        (start(turn), start(turn.saturating_add(1)))
    }
}
