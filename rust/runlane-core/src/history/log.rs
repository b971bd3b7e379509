//! The records of one conversation, in order: texts in one buffer, positions in another.
//!
//! A record is read once, when it comes. Appending touches nothing that is there; replacing the newest record (a draft
//! that grows) takes its place; any other rewriting leaves a hole, and the buffers are packed when half of them is
//! holes.

use std::borrow::Cow;

use super::names::Names;
use super::part::Part;
use super::record::{self, Refusal};
use super::refs::{RecordRef, within};
use super::text::{Span, to_usize};
use super::vocabulary::Role;

/// The longest record, in bytes.
pub const MAX_RECORD: usize = 1 << 30;

/// What the handle keeps of one record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) text_start: usize,
    pub(super) text_len: u32,
    parts_start: u32,
    parts_len: u32,
    /// Which conversation, by its place in [`Log::conversations`].
    pub(super) conversation: u32,
    /// The revision at which the record came to stand here.
    pub(super) since: u64,
    pub(super) head: record::Head,
}

/// Why the log did not take a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRefusal {
    /// The bytes are not UTF-8 from this offset on.
    NotText(usize),
    /// The text is not a message this program reads.
    Record(Refusal),
    /// The record, or all of them together, are longer than a handle holds.
    TooLong,
    /// Another record has the same message id.
    Known,
    /// No record has the message id, or the place does not exist.
    Unknown,
}

/// The records of one conversation.
#[derive(Debug, Default)]
pub struct Log {
    text: String,
    parts: Vec<Part>,
    entries: Vec<Entry>,
    conversations: Vec<Box<str>>,
    conversation_names: Names,
    ids: Names,
    /// Whether `ids` matches `entries`; rewriting in the middle makes it stale.
    indexed: bool,
    /// Whether one message id may stand twice, as in a list that is not a handle.
    repeats: bool,
    held_text: usize,
    held_parts: usize,
    revision: u64,
    rewrites: u64,
    runs: RunIndex,
}

/// The oldest assistant record of each run, as far as `upto`.
#[derive(Debug, Default)]
struct RunIndex {
    names: Names,
    places: Vec<u32>,
    upto: usize,
}

impl Log {
    /// An empty log. With `repeats`, records of one id may stand beside each other, and none is found by its id.
    pub fn new(repeats: bool) -> Self {
        Self {
            repeats,
            indexed: true,
            ..Self::default()
        }
    }

    /// How many records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Grows with every change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Grows with every change but an append.
    pub fn rewrites(&self) -> u64 {
        self.rewrites
    }

    /// Bytes held: texts, positions and the index, capacity included.
    pub fn held_bytes(&self) -> usize {
        let parts = self.parts.capacity().saturating_mul(size_of::<Part>());
        let entries = self.entries.capacity().saturating_mul(size_of::<Entry>());
        let index = self.entries.len().saturating_mul(8);
        [self.text.capacity(), parts, entries, index]
            .into_iter()
            .fold(0, usize::saturating_add)
    }

    /// Bytes of all records.
    pub fn text_bytes(&self) -> usize {
        self.held_text
    }

    /// Makes room for records of so many bytes.
    pub fn reserve(&mut self, records: usize, bytes: usize) {
        self.entries.reserve_exact(records);
        self.text.reserve_exact(bytes);
        self.parts.reserve(records);
        let (entries, text) = (&self.entries, &self.text);
        if !self.repeats {
            self.ids
                .reserve(records, |place| id_of(entries, text, place));
        }
    }

    /// Gives spare room back after many records came at once.
    pub(crate) fn trim(&mut self) {
        let parts = self.parts.len();
        self.parts.shrink_to(parts.saturating_add(parts / 8));
    }

    /// Adds the newest record.
    ///
    /// # Errors
    /// The bytes are no record this program reads, or the message id is there already.
    pub fn append(&mut self, bytes: &[u8]) -> Result<usize, LogRefusal> {
        let entry = self.read(bytes)?;
        if !self.repeats {
            self.index();
            if self.find_entry(&entry).is_some() {
                self.drop_tail(&entry);
                return Err(LogRefusal::Known);
            }
        }
        let place = self.entries.len();
        self.entries.push(entry);
        if !self.repeats {
            let (entries, text) = (&self.entries, &self.text);
            self.ids.push(|place| id_of(entries, text, place));
        }
        self.changed();
        Ok(place)
    }

    /// Takes back the records from `len` on, as if they had not come.
    pub fn take_back(&mut self, len: usize, revision: u64) {
        if !self.repeats {
            let (entries, text) = (&self.entries, &self.text);
            self.ids.truncate(len, |place| id_of(entries, text, place));
        }
        if self.runs.upto > len {
            self.runs = RunIndex::default();
        }
        while self.entries.len() > len {
            if let Some(entry) = self.entries.pop() {
                self.drop_tail(&entry);
            }
        }
        self.revision = revision;
    }

    /// Puts a newer version in the place of the record with the same message id.
    ///
    /// # Errors
    /// The bytes are no record this program reads, or no record has its message id.
    pub fn replace(&mut self, bytes: &[u8]) -> Result<usize, LogRefusal> {
        let entry = self.read(bytes)?;
        let Some(place) = self.newest(&entry) else {
            self.drop_tail(&entry);
            return Err(LogRefusal::Unknown);
        };
        let Some(old) = self.entries.get(place).copied() else {
            return Err(LogRefusal::Unknown);
        };
        let (text_len, parts_len) = (self.held_text, self.held_parts);
        let follows = old.text_start.saturating_add(to_usize(old.text_len)) == entry.text_start
            && old.parts_start.saturating_add(old.parts_len) == entry.parts_start;
        if self.text_of(&old, old.head.run) != self.text_of(&entry, entry.head.run)
            || old.head.role != entry.head.role
        {
            self.runs = RunIndex::default();
        }
        let new = if follows {
            self.take_place(&old, &entry)
        } else {
            entry
        };
        if let Some(there) = self.entries.get_mut(place) {
            *there = new;
        }
        self.held_text = text_len.saturating_sub(to_usize(old.text_len));
        self.held_parts = parts_len.saturating_sub(to_usize(old.parts_len));
        self.rewritten();
        Ok(place)
    }

    /// Puts a record before the one at `place`.
    ///
    /// # Errors
    /// The bytes are no record this program reads, the message id is there already, or the place does not exist.
    pub fn insert(&mut self, place: usize, bytes: &[u8]) -> Result<(), LogRefusal> {
        if place > self.entries.len() {
            return Err(LogRefusal::Unknown);
        }
        let entry = self.read(bytes)?;
        self.index();
        if !self.repeats && self.find_entry(&entry).is_some() {
            self.drop_tail(&entry);
            return Err(LogRefusal::Known);
        }
        self.entries.insert(place, entry);
        self.moved(place);
        self.indexed = false;
        self.runs = RunIndex::default();
        self.rewritten();
        Ok(())
    }

    /// Takes records out by message id and gives their places, ascending.
    ///
    /// # Errors
    /// No record has one of the ids; then nothing is taken out.
    pub fn remove<'i>(
        &mut self,
        ids: impl Iterator<Item = &'i str>,
    ) -> Result<Vec<usize>, LogRefusal> {
        self.index();
        let mut places = Vec::new();
        for id in ids {
            places.push(self.find(id).ok_or(LogRefusal::Unknown)?);
        }
        places.sort_unstable();
        places.dedup();
        let mut gone = places.iter().copied().peekable();
        let (mut text, mut parts, mut place) = (0_usize, 0_usize, 0_usize);
        self.entries.retain(|entry| {
            let keep = gone.next_if_eq(&place).is_none();
            place = place.saturating_add(1);
            if !keep {
                text = text.saturating_add(to_usize(entry.text_len));
                parts = parts.saturating_add(to_usize(entry.parts_len));
            }
            keep
        });
        self.held_text = self.held_text.saturating_sub(text);
        self.held_parts = self.held_parts.saturating_sub(parts);
        if let Some(first) = places.first() {
            self.moved(*first);
            self.indexed = false;
            self.runs = RunIndex::default();
            self.rewritten();
        }
        Ok(places)
    }

    /// The place of the record with this message id, given as plain text.
    pub fn find(&mut self, id: &str) -> Option<usize> {
        self.index();
        let raw = as_written(id);
        self.ids
            .find(&raw, |place| id_of(&self.entries, &self.text, place))
    }

    /// Reads ahead so that [`Self::place_of_run`] answers for every record.
    pub(crate) fn index_runs(&mut self) {
        let mut index = std::mem::take(&mut self.runs);
        for place in index.upto..self.entries.len() {
            let Some((Role::Assistant, Some(run))) =
                self.get(place).map(|record| (record.role(), record.run()))
            else {
                continue;
            };
            let known = index
                .names
                .find(run, |entry| self.run_at(&index.places, entry));
            if known.is_none() {
                index.places.push(u32::try_from(place).unwrap_or(u32::MAX));
                index.names.push(|entry| self.run_at(&index.places, entry));
            }
        }
        index.upto = self.entries.len();
        self.runs = index;
    }

    /// The place of the oldest assistant record of a run, given as plain text.
    pub(crate) fn place_of_run(&self, run: &str) -> Option<usize> {
        let raw = as_written(run);
        let found = self
            .runs
            .names
            .find(&raw, |entry| self.run_at(&self.runs.places, entry))?;
        self.runs.places.get(found).map(|place| to_usize(*place))
    }

    fn run_at(&self, places: &[u32], entry: usize) -> &str {
        let place = places.get(entry).copied().map(to_usize);
        place
            .and_then(|place| self.get(place)?.run())
            .unwrap_or_default()
    }

    /// One record.
    pub fn get(&self, place: usize) -> Option<RecordRef<'_>> {
        let entry = self.entries.get(place)?;
        let parts = parts_of(&self.parts, entry);
        Some(RecordRef::new(&self.text, parts, entry))
    }

    fn read(&mut self, bytes: &[u8]) -> Result<Entry, LogRefusal> {
        let text =
            str::from_utf8(bytes).map_err(|error| LogRefusal::NotText(error.valid_up_to()))?;
        let text_len = u32::try_from(text.len())
            .ok()
            .filter(|_| text.len() <= MAX_RECORD);
        let parts_start = u32::try_from(self.parts.len());
        let (Some(text_len), Ok(parts_start)) = (text_len, parts_start) else {
            return Err(LogRefusal::TooLong);
        };
        let head = record::read(text, &mut self.parts).map_err(LogRefusal::Record)?;
        let parts_len = u32::try_from(self.parts.len()).map(|len| len.saturating_sub(parts_start));
        let Ok(parts_len) = parts_len else {
            self.parts.truncate(to_usize(parts_start));
            return Err(LogRefusal::TooLong);
        };
        let conversation = self.intern(head.conversation.of(text));
        let entry = Entry {
            text_start: self.text.len(),
            text_len,
            parts_start,
            parts_len,
            conversation,
            since: self.revision.wrapping_add(1),
            head,
        };
        grow(&mut self.text, text.len());
        self.text.push_str(text);
        self.held_text = self.held_text.saturating_add(text.len());
        self.held_parts = self.held_parts.saturating_add(to_usize(parts_len));
        Ok(entry)
    }

    fn intern(&mut self, conversation: &str) -> u32 {
        let known = &self.conversations;
        let found = self.conversation_names.find(conversation, |place| {
            known.get(place).map_or("", |name| name)
        });
        let place = found.unwrap_or_else(|| {
            self.conversations.push(conversation.into());
            let known = &self.conversations;
            self.conversation_names
                .push(|place| known.get(place).map_or("", |name| name));
            known.len().saturating_sub(1)
        });
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    /// Undoes [`Self::read`] of the newest entry.
    fn drop_tail(&mut self, entry: &Entry) {
        if entry.text_start.saturating_add(to_usize(entry.text_len)) == self.text.len() {
            self.text.truncate(entry.text_start);
            self.parts.truncate(to_usize(entry.parts_start));
        }
        self.held_text = self.held_text.saturating_sub(to_usize(entry.text_len));
        self.held_parts = self.held_parts.saturating_sub(to_usize(entry.parts_len));
    }

    /// Moves what was just read over what it replaces, right before it.
    fn take_place(&mut self, old: &Entry, new: &Entry) -> Entry {
        self.text.replace_range(old.text_start..new.text_start, "");
        self.parts
            .drain(to_usize(old.parts_start)..to_usize(new.parts_start));
        Entry {
            text_start: old.text_start,
            parts_start: old.parts_start,
            ..*new
        }
    }

    /// The place of the record with the id of a freshly read one; looks at the newest few first.
    fn newest(&mut self, entry: &Entry) -> Option<usize> {
        let id = self.text_of(entry, entry.head.id);
        let first = self.entries.len().saturating_sub(4);
        let near = (first..self.entries.len())
            .rev()
            .find(|place| super::text::same(id_of(&self.entries, &self.text, *place), id));
        if near.is_some() {
            return near;
        }
        self.index();
        self.find_entry(entry)
    }

    fn find_entry(&self, entry: &Entry) -> Option<usize> {
        let id = self.text_of(entry, entry.head.id);
        self.ids
            .find(id, |place| id_of(&self.entries, &self.text, place))
    }

    fn text_of(&self, entry: &Entry, span: Span) -> &str {
        within(&self.text, entry.text_start, span)
    }

    fn index(&mut self) {
        if self.indexed {
            return;
        }
        self.ids.clear();
        let (entries, text) = (&self.entries, &self.text);
        for _ in entries {
            self.ids.push(|place| id_of(entries, text, place));
        }
        self.indexed = true;
    }

    /// Notes that the records from here on stand at other places than before.
    fn moved(&mut self, place: usize) {
        let since = self.revision.wrapping_add(1);
        for entry in self.entries.iter_mut().skip(place) {
            entry.since = since;
        }
    }

    fn changed(&mut self) {
        self.revision = self.revision.wrapping_add(1);
    }

    fn rewritten(&mut self) {
        self.changed();
        self.rewrites = self.rewrites.wrapping_add(1);
        if self.held_text < self.text.len() / 2 || self.held_parts < self.parts.len() / 2 {
            self.pack();
        }
    }

    /// Closes the holes.
    fn pack(&mut self) {
        let mut text = String::with_capacity(self.held_text);
        let mut parts = Vec::with_capacity(self.held_parts);
        for entry in &mut self.entries {
            let end = entry.text_start.saturating_add(to_usize(entry.text_len));
            let text_start = text.len();
            text.push_str(self.text.get(entry.text_start..end).unwrap_or_default());
            let parts_start = u32::try_from(parts.len()).unwrap_or(u32::MAX);
            parts.extend_from_slice(parts_of(&self.parts, entry));
            entry.text_start = text_start;
            entry.parts_start = parts_start;
        }
        self.text = text;
        self.parts = parts;
    }
}

/// Plain text as it stands between quotes.
fn as_written(text: &str) -> Cow<'_, str> {
    if !text
        .bytes()
        .any(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1F))
    {
        return Cow::Borrowed(text);
    }
    let mut raw = Vec::new();
    super::text::push_escaped(&mut raw, text);
    Cow::Owned(String::from_utf8(raw).unwrap_or_default())
}

/// Grows by a quarter where doubling would hold twice the bytes of a long conversation.
fn grow(text: &mut String, by: usize) {
    const SMALL: usize = 1 << 20;
    let (len, capacity) = (text.len(), text.capacity());
    if capacity > SMALL && capacity.saturating_sub(len) < by {
        text.reserve_exact(by.max(capacity / 4));
    }
}

fn parts_of<'p>(parts: &'p [Part], entry: &Entry) -> &'p [Part] {
    let start = to_usize(entry.parts_start);
    let end = start.saturating_add(to_usize(entry.parts_len));
    parts.get(start..end).unwrap_or_default()
}

fn id_of<'t>(entries: &[Entry], text: &'t str, place: usize) -> &'t str {
    entries
        .get(place)
        .map_or("", |entry| within(text, entry.text_start, entry.head.id))
}
