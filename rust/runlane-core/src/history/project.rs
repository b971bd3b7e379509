//! Records to messages: the order of the checks on each record is part of the promise.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use super::chronology::{At, Call, Chronology, Phase};
use super::fragment::envelope_of;
use super::plan::{Decision, Item, ItemKind, Lengths, Plan, Reason, SystemText};
use super::refs::{PartRef, RecordRef};
use super::text::{decoded, to_usize};
use super::view::{ActiveRuns, View};
use super::vocabulary::{
    CallEvidence, InterruptedAssistant, Kinds, LeadingAssistant, Options, PartKind, Role, Side,
    Status, UnresolvedFile,
};

/// What a caller knows that the records do not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Runs that have not ended.
    pub active: ActiveRuns,
    /// What is known of calls that never got a result, by the message id of the record that made them (None for any)
    /// and their call id.
    pub effects: BTreeMap<(Option<String>, String), CallEvidence>,
    /// Files with resolved data: place of the record in the log, and of the part in the record.
    pub files: BTreeSet<(u32, u32)>,
    /// Whose opaque output is shown: the name in its envelopes.
    pub provider: Option<String>,
}

impl Context {
    /// Which side of an exchange sends a part; None for what is not sent back.
    fn side(&self, part: PartRef<'_>) -> Option<Side> {
        if part.kind() != PartKind::Provider {
            return part.kind().side();
        }
        let wanted = self.provider.as_deref()?;
        let own = envelope_of(part).is_some_and(|(provider, _)| decoded(provider) == wanted);
        own.then_some(Side::Assistant)
    }
}

/// A record that must stop the projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Place of the record in the log.
    pub record: u32,
    /// Place of the part, of an unresolved file.
    pub part: u32,
    /// Why.
    pub reason: StopReason,
}

/// Why a record must stop the projection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It stands before any user record.
    LeadingAssistant,
    /// Its tool traffic does not add up.
    IncompleteToolTurn,
    /// A file has no resolved data.
    UnresolvedFile,
}

/// A place from which a projection can go on: before a user record that starts the chronology over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resume {
    pub(crate) lengths: Lengths,
    pub(crate) watches: usize,
}

/// A record whose projection depends on the context.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) position: usize,
    /// Whether the run that could have given results had ended.
    pub(crate) ended: bool,
    /// Calls that were closed, and what was known of them.
    pub(crate) calls: Vec<(At, Option<CallEvidence>)>,
}

impl Watch {
    /// Whether the context now says something else of this record.
    pub(crate) fn is_stale(&self, view: View<'_>, context: &Context) -> bool {
        self.ended != context.active.has_ended(view.log, self.position)
            || self
                .calls
                .iter()
                .any(|(call, known)| *known != known_of(*call, view, context))
    }
}

fn known_of(call: At, view: View<'_>, context: &Context) -> Option<CallEvidence> {
    if context.effects.is_empty() {
        return None;
    }
    let record = view.log.get(to_usize(call.record))?;
    let id = decoded(record.part(to_usize(call.part))?.call_id()).into_owned();
    let own = (Some(decoded(record.id()).into_owned()), id);
    let known = context.effects.get(&own);
    known
        .or_else(|| context.effects.get(&(None, own.1)))
        .copied()
}

/// Walks records and extends a plan.
#[derive(Debug)]
pub(crate) struct Projector<'c> {
    view: View<'c>,
    options: Options,
    context: &'c Context,
    plan: &'c mut Plan,
    pub(crate) resumes: Vec<Resume>,
    pub(crate) watches: Vec<Watch>,
    state: Chronology,
    user_seen: bool,
}

impl<'c> Projector<'c> {
    pub(crate) fn new(
        view: View<'c>,
        options: Options,
        context: &'c Context,
        plan: &'c mut Plan,
    ) -> Self {
        Self {
            view,
            options,
            context,
            plan,
            resumes: Vec::new(),
            watches: Vec::new(),
            state: Chronology::new(options.policy.close_dangling),
            user_seen: false,
        }
    }

    /// Goes on from where the plan ends, which is at its start or at a [`Resume`].
    pub(crate) fn run(&mut self) -> Result<(), Stop> {
        for position in self.plan.decisions.len()..self.view.len() {
            let (Some(record), Some(place)) = (self.view.get(position), self.view.place(position))
            else {
                return Ok(());
            };
            let record_place = u32::try_from(place).unwrap_or(u32::MAX);
            let decision = self.decide(position, record_place, record)?;
            self.plan.decisions.push(decision);
        }
        Ok(())
    }

    fn decide(
        &mut self,
        position: usize,
        place: u32,
        record: RecordRef<'c>,
    ) -> Result<Decision, Stop> {
        if self.view.changes_conversation(position) {
            self.state.reset();
            self.user_seen = false;
        }
        let status = record.status();
        if !self.options.policy.is_evidence(status) && !may_stand(record) {
            let superseded = status == Status::Superseded;
            return Ok(Decision::omitted(if superseded {
                Reason::Superseded
            } else {
                Reason::DraftOrFailed
            }));
        }
        match record.role() {
            Role::User => self.user(place, record),
            Role::System | Role::Summary => Ok(self.system(place, record)),
            Role::Assistant | Role::Tool => self.answer(position, place, record),
        }
    }

    fn user(&mut self, place: u32, record: RecordRef<'c>) -> Result<Decision, Stop> {
        if self.state.pending() == 0 {
            self.state.reset();
            self.resumes.push(Resume {
                lengths: self.plan.lengths(),
                watches: self.watches.len(),
            });
        }
        self.user_seen = true;
        let before = self.plan.lengths();
        self.plan.open(Side::User);
        let mut shown = Kinds::default();
        if let Some(item) = text_item(place, record) {
            self.plan.items.push(item);
            shown.insert(PartKind::Text);
        }
        if record.kinds().contains(PartKind::File) {
            self.files(place, record, &mut shown)?;
        }
        if shown.is_empty() {
            self.plan.truncate(before);
            return Ok(Decision::omitted(Reason::Empty));
        }
        Ok(projected(record, shown))
    }

    fn files(&mut self, place: u32, record: RecordRef<'c>, shown: &mut Kinds) -> Result<(), Stop> {
        for (part_place, part) in (0_u32..).zip(record.parts()) {
            if part.kind() != PartKind::File {
                continue;
            }
            let resolved = self.context.files.contains(&(place, part_place));
            let kind = match (resolved, self.options.unresolved_file) {
                (true, _) => ItemKind::File,
                (false, UnresolvedFile::Text) => ItemKind::Attachment,
                (false, UnresolvedFile::Omit) => continue,
                (false, UnresolvedFile::Error) => {
                    return Err(Stop {
                        record: place,
                        part: part_place,
                        reason: StopReason::UnresolvedFile,
                    });
                }
            };
            let at = At {
                record: place,
                part: part_place,
            };
            self.plan.items.push(Item::new(at, kind));
            shown.insert(PartKind::File);
        }
        Ok(())
    }

    fn system(&mut self, place: u32, record: RecordRef<'c>) -> Decision {
        if text_item(place, record).is_none() {
            return Decision::omitted(Reason::Empty);
        }
        self.plan.system.push(SystemText {
            record: place,
            note: false,
        });
        projected(record, Kinds::of(&[PartKind::Text]))
    }

    fn answer(
        &mut self,
        position: usize,
        place: u32,
        record: RecordRef<'c>,
    ) -> Result<Decision, Stop> {
        if !self.user_seen {
            match self.options.leading {
                LeadingAssistant::Omit => return Ok(Decision::omitted(Reason::LeadingAssistant)),
                LeadingAssistant::Error => return Err(stop(place, StopReason::LeadingAssistant)),
                LeadingAssistant::Allow => {}
            }
        }
        if record.status() == Status::Interrupted {
            match self.options.interrupted {
                InterruptedAssistant::Marked => {}
                InterruptedAssistant::Omit => return Ok(Decision::omitted(Reason::Interrupted)),
                InterruptedAssistant::SystemNote => return Ok(self.note(place, record)),
            }
        }
        self.exchange(position, place, record)
    }

    fn note(&mut self, place: u32, record: RecordRef<'c>) -> Decision {
        if text_item(place, record).is_none() {
            return Decision::omitted(Reason::Empty);
        }
        self.plan.system.push(SystemText {
            record: place,
            note: true,
        });
        projected(record, Kinds::of(&[PartKind::Text, PartKind::Control]))
    }

    fn exchange(
        &mut self,
        position: usize,
        place: u32,
        record: RecordRef<'c>,
    ) -> Result<Decision, Stop> {
        let before = self.plan.lengths();
        let mut side = None;
        let mut shown = Kinds::SENT;
        if record.kinds().intersects(Kinds::TRAFFIC) {
            let mark = self.state.mark(self.view.log);
            if !self.traffic(position, place, record, &mut side) {
                self.state.back_to(mark, self.view.log);
                self.plan.truncate(before);
                if self.options.refuse_incomplete {
                    return Err(stop(place, StopReason::IncompleteToolTurn));
                }
                return Ok(Decision::omitted(Reason::IncompleteToolTurn));
            }
        } else {
            self.words(place, record, &mut side);
        }
        if record.kinds().contains(PartKind::Provider)
            && record
                .parts()
                .any(|part| part.kind() == PartKind::Provider && self.context.side(part).is_some())
        {
            shown.insert(PartKind::Provider);
        }
        let mark = match record.status() {
            Status::Failed => Some(ItemKind::FailedMark),
            Status::Interrupted if side.is_some() => Some(ItemKind::InterruptedMark),
            Status::Interrupted
            | Status::Committed
            | Status::Streaming
            | Status::Completed
            | Status::Superseded => None,
        };
        if let Some(mark) = mark {
            shown.insert(PartKind::Control);
            let at = At {
                record: place,
                part: 0,
            };
            self.emit(&mut side, Side::Assistant, Item::new(at, mark));
        }
        if side.is_none() {
            return Ok(Decision::omitted(Reason::Empty));
        }
        Ok(projected(record, shown))
    }

    /// Shows the parts of a record without tool traffic.
    fn words(&mut self, place: u32, record: RecordRef<'c>, side: &mut Option<Side>) {
        for (part_place, part) in (0_u32..).zip(record.parts()) {
            if self.context.side(part).is_some() {
                let at = At {
                    record: place,
                    part: part_place,
                };
                self.emit(side, Side::Assistant, Item::new(at, ItemKind::Part));
            }
        }
    }

    /// Shows the parts of a record with tool traffic; false if they do not add up.
    fn traffic(
        &mut self,
        position: usize,
        place: u32,
        record: RecordRef<'c>,
        side: &mut Option<Side>,
    ) -> bool {
        let dead = Dead {
            view: self.view,
            options: self.options,
            context: self.context,
            position,
            place,
            ended: OnceCell::new(),
            answered: OnceCell::new(),
            requested: OnceCell::new(),
            asked: RefCell::default(),
        };
        for (part_place, part) in (0_u32..).zip(record.parts()) {
            let Some(part_side) = self.context.side(part) else {
                continue;
            };
            if part_side == Side::Assistant && self.state.results_started() {
                self.close(&dead, record, side);
            }
            let at = At {
                record: place,
                part: part_place,
            };
            if !self.state.apply(part, at, self.view.log) {
                self.watch(position, dead);
                return false;
            }
            self.emit(side, part_side, Item::new(at, ItemKind::Part));
            if matches!(part.kind(), PartKind::ToolCall | PartKind::ApprovalRequest)
                && let Some(message) = self.plan.messages.last_mut()
            {
                message.traffic = true;
                message.asks = message.asks || part.kind() == PartKind::ApprovalRequest;
            }
        }
        self.close(&dead, record, side);
        self.watch(position, dead);
        !self.state.has_bare_call()
    }

    /// Shows a closing result for each call of this record that will never get one.
    fn close(&mut self, dead: &Dead<'c>, record: RecordRef<'c>, side: &mut Option<Side>) {
        if !self.options.policy.close_dangling
            || self.state.pending() == 0
            || !self.state.has_touched()
        {
            return;
        }
        for (index, call) in self.state.take_touched() {
            if !dead.holds(call, record) {
                continue;
            }
            let known = dead.known(call);
            let evidence = known.unwrap_or(match (call.phase, record.status()) {
                (Phase::Denied, _) => CallEvidence::NotStarted,
                (_, Status::Interrupted) => CallEvidence::Interrupted,
                _ => CallEvidence::Unknown,
            });
            self.state.close(index);
            self.emit(
                side,
                Side::Tool,
                Item::new(call.at, ItemKind::Closed(evidence)),
            );
        }
    }

    fn watch(&mut self, position: usize, dead: Dead<'c>) {
        if let Some(ended) = dead.ended.get() {
            self.watches.push(Watch {
                position,
                ended: *ended,
                calls: dead.asked.into_inner(),
            });
        }
    }

    /// Adds an item to the open message of the record, or to a new one where the side changes.
    fn emit(&mut self, open: &mut Option<Side>, side: Side, item: Item) {
        if *open != Some(side) {
            self.plan.open(side);
            *open = Some(side);
        }
        self.plan.items.push(item);
    }
}

/// Whether a record that is no evidence stands all the same: a user's or the tools', unless it is a draft or failed.
fn may_stand(record: RecordRef<'_>) -> bool {
    record.role() != Role::Assistant && record.status() == Status::Superseded
}

fn stop(record: u32, reason: StopReason) -> Stop {
    Stop {
        record,
        part: 0,
        reason,
    }
}

fn projected(record: RecordRef<'_>, shown: Kinds) -> Decision {
    Decision {
        reason: Reason::Projected,
        omitted: record.kinds().without(shown),
    }
}

/// The item for all text of a record, None if there is none: the only text part itself, or all of them joined.
fn text_item(place: u32, record: RecordRef<'_>) -> Option<Item> {
    let mut texts = (0_u32..)
        .zip(record.parts())
        .filter(|(_, part)| part.kind() == PartKind::Text);
    let (part, first) = texts.next()?;
    let at = At {
        record: place,
        part,
    };
    if texts.next().is_some() {
        return Some(Item::new(at, ItemKind::JoinedText));
    }
    (!first.says_nothing()).then(|| Item::new(at, ItemKind::Part))
}

/// Which calls that a record made or answered will never get a result; asked only when something is open, and worked
/// out once.
///
/// A call gets its result from the run that made it, or, once somebody was asked, from the run that the answer began:
/// the run of the record at hand in both cases. What other runs of the turn do is nothing to it.
#[derive(Debug)]
struct Dead<'c> {
    view: View<'c>,
    options: Options,
    context: &'c Context,
    position: usize,
    place: u32,
    ended: OnceCell<bool>,
    answered: OnceCell<BTreeSet<String>>,
    requested: OnceCell<BTreeSet<String>>,
    asked: RefCell<Vec<(At, Option<CallEvidence>)>>,
}

impl<'c> Dead<'c> {
    fn holds(&self, call: Call, record: RecordRef<'c>) -> bool {
        let Some(part) = call.at.find(self.view.log) else {
            return false;
        };
        let id = decoded(part.call_id());
        match call.phase {
            Phase::Requested | Phase::Done => return false,
            Phase::Called => {
                let requested = self
                    .requested
                    .get_or_init(|| ids(record.parts(), PartKind::ApprovalRequest));
                if requested.contains(&*id) {
                    return false;
                }
            }
            Phase::Approved | Phase::Denied => {}
        }
        !self.answered.get_or_init(|| self.results()).contains(&*id) && self.has_ended()
    }

    fn has_ended(&self) -> bool {
        let active = &self.context.active;
        *self
            .ended
            .get_or_init(|| active.has_ended(self.view.log, to_usize(self.place)))
    }

    fn known(&self, call: Call) -> Option<CallEvidence> {
        let known = known_of(call.at, self.view, self.context);
        self.asked.borrow_mut().push((call.at, known));
        known
    }

    /// Every call that gets a result while one could still come; not those whose id another call has by then.
    fn results(&self) -> BTreeSet<String> {
        let (mut given, mut called_again) = (BTreeSet::new(), BTreeSet::new());
        for position in self.view.window(self.position) {
            let Some(record) = self.view.get(position) else {
                break;
            };
            let counts = match record.role() {
                Role::Assistant => self.options.policy.is_evidence(record.status()),
                Role::Tool => true,
                Role::User | Role::System | Role::Summary => false,
            };
            for part in record.parts().filter(|_| counts) {
                let id = || decoded(part.call_id()).into_owned();
                if part.kind() == PartKind::ToolCall && position != self.position {
                    called_again.insert(id());
                }
                if part.kind() == PartKind::ToolResult
                    && !called_again.contains(&*decoded(part.call_id()))
                {
                    given.insert(id());
                }
            }
        }
        given
    }
}

fn ids<'l>(parts: impl Iterator<Item = PartRef<'l>>, kind: PartKind) -> BTreeSet<String> {
    parts
        .filter(|part| part.kind() == kind)
        .map(|part| decoded(part.call_id()).into_owned())
        .collect()
}
