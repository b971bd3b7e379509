//! What a model sees of a conversation.
//!
//! A [`History`] holds stored records, each read once, and answers three questions: what is a model told
//! ([`History::project`]), what of it fits a token budget ([`History::select`]), and what may be compacted
//! ([`History::compactable`]). Projection and selection go on from what they found the last time; whatever may have
//! changed since (the newest two turns, rewritten records, turns that depend on which runs are active) is worked out
//! anew, so that an answer never depends on what was asked before.

mod chronology;
mod field;
mod fragment;
mod log;
mod names;
mod part;
mod plan;
mod project;
mod record;
mod refs;
mod scan;
mod settle;
mod text;
mod turns;
mod view;
mod vocabulary;

use std::sync::Arc;

pub use fragment::{Fragments, Length, OpenAiChat, Sink, write_openai_chat};
pub use log::{Log, LogRefusal, MAX_RECORD};
pub use part::Word;
pub use plan::{Decision, Item, ItemKind, Plan, PlannedMessage, Reason, SystemText};
pub use project::{Context, Stop, StopReason};
pub use record::Refusal;
pub use refs::{PartRef, RecordRef};
pub use scan::{Cursor, Fault};
pub use text::{Span, decoded, push_escaped};
pub use turns::Compactable;
pub use view::ActiveRuns;
pub use vocabulary::{
    CallEvidence, FAILED_MARK, INTERRUPTED_MARK, InterruptedAssistant, Kinds, LeadingAssistant,
    NOTE_PREFIX, Options, PartKind, Policy, Role, Side, Status, UnresolvedFile,
};

use crate::budget::{BudgetIndex, Count, Counter, Request, Selection};
use project::{Projector, Resume, Watch};
pub(crate) use turns::{Assistants, compactable, compaction_turns, judge, short};
pub(crate) use view::View;

/// The last projection of all records.
#[derive(Debug)]
struct Projected {
    options: Options,
    context: Context,
    plan: Arc<Plan>,
    resumes: Vec<Resume>,
    watches: Vec<Watch>,
}

/// The records of one conversation, with what was last worked out of them.
#[derive(Debug, Default)]
pub struct History {
    log: Log,
    projected: Option<Projected>,
    /// From here on the records changed since the last projection.
    unprojected: usize,
    counters: Vec<Counter>,
    budget: Option<Arc<BudgetIndex>>,
    /// From here on the records or counts changed since the last selection.
    unbudgeted: usize,
}

impl History {
    /// An empty history. With `repeats`, records of one message id may stand beside each other.
    pub fn new(repeats: bool) -> Self {
        Self {
            log: Log::new(repeats),
            ..Self::default()
        }
    }

    /// The records.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Makes room.
    pub fn reserve(&mut self, records: usize, bytes: usize) {
        self.log.reserve(records, bytes);
    }

    /// The place of the record with this message id.
    pub fn find(&mut self, id: &str) -> Option<usize> {
        self.log.find(id)
    }

    /// Adds the newest record and gives its place.
    ///
    /// # Errors
    /// See [`Log::append`]; nothing changed.
    pub fn append(&mut self, record: &[u8]) -> Result<usize, LogRefusal> {
        self.log.append(record)
    }

    /// Adds records, oldest first, all or none.
    ///
    /// # Errors
    /// The place of the first refused record among those given, and why.
    pub fn extend<'r>(
        &mut self,
        records: impl Iterator<Item = &'r [u8]>,
    ) -> Result<(), (usize, LogRefusal)> {
        let (len, revision) = (self.log.len(), self.log.revision());
        for (place, record) in records.enumerate() {
            if let Err(refusal) = self.log.append(record) {
                self.log.take_back(len, revision);
                return Err((place, refusal));
            }
        }
        if self.log.len() / 2 >= len {
            self.log.trim();
        }
        Ok(())
    }

    /// Puts a newer version in the place of the record with the same message id, and gives the place.
    ///
    /// # Errors
    /// See [`Log::replace`]; nothing changed.
    pub fn replace(&mut self, record: &[u8]) -> Result<usize, LogRefusal> {
        let place = self.log.replace(record)?;
        self.changed_from(place);
        for counter in &mut self.counters {
            counter.forget(place);
        }
        Ok(place)
    }

    /// Puts a record before the one at `place`.
    ///
    /// # Errors
    /// See [`Log::insert`]; nothing changed.
    pub fn insert(&mut self, place: usize, record: &[u8]) -> Result<(), LogRefusal> {
        self.log.insert(place, record)?;
        self.changed_from(place);
        for counter in &mut self.counters {
            counter.insert(place);
        }
        Ok(())
    }

    /// Takes records out by message id.
    ///
    /// # Errors
    /// No record has one of the ids; nothing changed.
    pub fn remove<'i>(&mut self, ids: impl Iterator<Item = &'i str>) -> Result<(), LogRefusal> {
        let places = self.log.remove(ids)?;
        if let Some(first) = places.first() {
            self.changed_from(*first);
        }
        for counter in &mut self.counters {
            counter.remove(&places);
        }
        Ok(())
    }

    /// Makes runs easy to find, if any will be looked for.
    fn index_runs(&mut self, active: &ActiveRuns) {
        if !active.is_empty() {
            self.log.index_runs();
        }
    }

    fn changed_from(&mut self, place: usize) {
        self.unprojected = self.unprojected.min(place);
        self.unbudgeted = self.unbudgeted.min(place);
    }

    /// Projects all records.
    ///
    /// # Errors
    /// The options say that a record must stop the projection.
    pub fn project(&mut self, options: Options, context: Context) -> Result<Arc<Plan>, Stop> {
        self.index_runs(&context.active);
        let mut last = self
            .projected
            .take()
            .filter(|last| last.options == options && last.context.provider == context.provider);
        let view = View::all(&self.log);
        let (mut plan, resumes, watches) = match last.take() {
            Some(last) => rewound(view, last, &context, self.unprojected),
            None => Default::default(),
        };
        let whole = plan.decisions.is_empty();
        let started = Arc::make_mut(&mut plan);
        let mut projector = Projector::new(view, options, &context, started);
        projector.resumes = resumes;
        projector.watches = watches;
        projector.run()?;
        let (resumes, watches) = (projector.resumes, projector.watches);
        if whole {
            Arc::make_mut(&mut plan).trim();
        }
        self.unprojected = self.log.len();
        self.projected = Some(Projected {
            options,
            context,
            plan: Arc::clone(&plan),
            resumes,
            watches,
        });
        Ok(plan)
    }

    /// Projects some of the records, given by their places, ascending.
    ///
    /// # Errors
    /// The options say that a record must stop the projection.
    pub fn project_chosen(
        &mut self,
        options: Options,
        context: &Context,
        chosen: &[u32],
    ) -> Result<Arc<Plan>, Stop> {
        self.index_runs(&context.active);
        let view = View {
            log: &self.log,
            chosen: Some(chosen),
        };
        let mut plan = Plan::default();
        Projector::new(view, options, context, &mut plan).run()?;
        Ok(Arc::new(plan))
    }

    /// Selects what may be compacted.
    pub fn compactable(
        &mut self,
        keep_recent: usize,
        policy: Policy,
        active: &ActiveRuns,
    ) -> Compactable {
        self.index_runs(active);
        compactable(View::all(&self.log), keep_recent, policy, active)
    }

    /// Where the turns of compaction start.
    pub fn compaction_turns(&self) -> Vec<u32> {
        compaction_turns(View::all(&self.log))
    }

    /// Places of the records that a tokenizer did not count yet.
    pub fn uncounted(&self, counter: usize) -> Vec<u32> {
        let counter = self.counters.get(counter);
        counter
            .map(|counter| counter.uncounted(self.log.len()))
            .unwrap_or_default()
    }

    /// Whether the records from `start` to `end` are a complete turn.
    pub fn is_complete(
        &mut self,
        start: usize,
        end: usize,
        policy: Policy,
        active: &ActiveRuns,
    ) -> bool {
        self.index_runs(active);
        judge(
            View::all(&self.log),
            start..end,
            policy,
            active,
            Assistants::All,
        )
        .complete
    }

    /// A place for the counts of one tokenizer; the same name gives the same place.
    pub fn counter(&mut self, name: &str) -> usize {
        let known = self
            .counters
            .iter()
            .position(|counter| counter.name() == name);
        known.unwrap_or_else(|| {
            self.counters.push(Counter::new(name));
            self.counters.len().saturating_sub(1)
        })
    }

    /// The counts of one tokenizer.
    pub fn counts(&self, counter: usize) -> Option<&Counter> {
        self.counters.get(counter)
    }

    /// Says what records count with one tokenizer, by their places.
    pub fn set_counts(&mut self, counter: usize, counts: impl IntoIterator<Item = (usize, Count)>) {
        let len = self.log.len();
        let Some(counter) = self.counters.get_mut(counter) else {
            return;
        };
        for (place, count) in counts.into_iter().filter(|(place, _)| *place < len) {
            counter.set(place, count);
            self.unbudgeted = self.unbudgeted.min(place);
        }
        counter.settle();
    }

    /// Selects what fits a budget.
    pub fn select(&mut self, request: &Request<'_>) -> Selection {
        self.index_runs(request.active);
        let view = View::all(&self.log);
        let counter = request
            .counter
            .and_then(|counter| self.counters.get(counter));
        let mut index = self.budget.take().unwrap_or_default();
        Arc::make_mut(&mut index).update(view, request, counter, self.unbudgeted);
        self.unbudgeted = self.log.len();
        let selection = Selection::new(Arc::clone(&index), request);
        self.budget = Some(index);
        selection
    }

    /// Bytes held by the records and what was worked out of them, capacity included.
    pub fn held_bytes(&self) -> usize {
        let plan = self
            .projected
            .as_ref()
            .map_or(0, |projected| projected.plan.held_bytes());
        let counts = self
            .counters
            .iter()
            .map(Counter::held_bytes)
            .fold(0, usize::saturating_add);
        let budget = self.budget.as_ref().map_or(0, |budget| budget.held_bytes());
        [self.log.held_bytes(), plan, counts, budget]
            .into_iter()
            .fold(0, usize::saturating_add)
    }
}

/// Takes the last projection back to where nothing changed since.
fn rewound(
    view: View<'_>,
    mut last: Projected,
    context: &Context,
    changed: usize,
) -> (Arc<Plan>, Vec<Resume>, Vec<Watch>) {
    let mut base = changed.min(last.plan.decisions.len());
    if let Some((record, _)) = last
        .context
        .files
        .symmetric_difference(&context.files)
        .next()
    {
        base = base.min(usize::try_from(*record).unwrap_or(usize::MAX));
    }
    let mut first_changed = base;
    if last.options.policy.close_dangling {
        let stale = last
            .watches
            .iter()
            .find(|watch| watch.position >= base || watch.is_stale(view, context));
        base = stale.map_or(base, |watch| base.min(watch.position));
        first_changed = base;
        base = base.saturating_sub(1);
        // What a record owes to later ones ends with the turn after its own.
        let opening = view.opening(base);
        base = opening
            .checked_sub(1)
            .map_or(0, |before| view.opening(before));
    }
    // A user record starts over; what stands at the first changed place need not be one any more.
    let holds = |resume: &Resume| {
        resume.lengths.decisions <= base && resume.lengths.decisions < first_changed
    };
    let kept = last.resumes.partition_point(holds).saturating_sub(1);
    let from = last
        .resumes
        .get(kept)
        .copied()
        .filter(|resume| holds(resume));
    let from = from.unwrap_or_default();
    Arc::make_mut(&mut last.plan).truncate(from.lengths);
    last.resumes.truncate(kept);
    last.watches.truncate(from.watches);
    (last.plan, last.resumes, last.watches)
}
