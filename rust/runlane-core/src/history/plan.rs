//! What a projection decided: one decision per record, and the messages as places in the log.

use super::chronology::At;
use super::vocabulary::{CallEvidence, Kinds, Side};

/// Why a record is or is not among the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is.
    Projected,
    /// It is being written, or failed.
    DraftOrFailed,
    /// Nothing of it can be shown.
    Empty,
    /// It stands before any user record.
    LeadingAssistant,
    /// Its tool traffic does not add up.
    IncompleteToolTurn,
    /// It was interrupted, and such answers are left out.
    Interrupted,
    /// Another input made it void.
    Superseded,
}

impl Reason {
    /// The word in a decision.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Projected => "projected",
            Self::DraftOrFailed => "draft-or-failed",
            Self::Empty => "empty",
            Self::LeadingAssistant => "leading-assistant",
            Self::IncompleteToolTurn => "incomplete-tool-turn",
            Self::Interrupted => "interrupted",
            Self::Superseded => "superseded",
        }
    }
}

/// What became of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Why.
    pub reason: Reason,
    /// Of a projected record: the kinds of its parts that nothing in the messages stands for.
    pub omitted: Kinds,
}

impl Decision {
    pub(crate) const fn omitted(reason: Reason) -> Self {
        Self {
            reason,
            omitted: Kinds::of(&[]),
        }
    }
}

/// What one item of a message is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// The part itself.
    Part,
    /// All text parts of the record, joined with a line feed.
    JoinedText,
    /// A user's file part with resolved data.
    File,
    /// A text that names a user's file part.
    Attachment,
    /// The mark of an interrupted answer.
    InterruptedMark,
    /// The mark of a failed answer.
    FailedMark,
    /// The closing result of the call that the part is.
    Closed(CallEvidence),
    /// What stands in a request, and nowhere else, for the result of the call that the part is.
    Open {
        /// Whether the call waits for consent.
        asked: bool,
    },
}

/// One item of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Place of the record in the log.
    pub record: u32,
    /// Place of the part in the record; 0 where the item is of the whole record.
    pub part: u32,
    /// What it is.
    pub kind: ItemKind,
}

impl Item {
    pub(crate) fn new(at: At, kind: ItemKind) -> Self {
        Self {
            record: at.record,
            part: at.part,
            kind,
        }
    }
}

/// One message: items from `first` to the first of the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedMessage {
    /// Who sends it.
    pub side: Side,
    /// Whether an assistant message holds calls or approval requests.
    pub traffic: bool,
    /// Whether it holds approval requests: only then may a call of the plan be without its result.
    pub asks: bool,
    /// Its first item.
    pub first: u32,
}

/// One text for the instructions channel: the text parts of a record, joined with a line feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemText {
    /// Place of the record in the log.
    pub record: u32,
    /// Whether it is a note on an interrupted answer.
    pub note: bool,
}

/// Lengths of a plan's lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) decisions: usize,
    messages: usize,
    items: usize,
    system: usize,
}

/// What a projection decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// One per projected record, in order.
    pub decisions: Vec<Decision>,
    /// The messages, in order.
    pub messages: Vec<PlannedMessage>,
    /// The items of all messages.
    pub items: Vec<Item>,
    /// Texts for the instructions channel, in order.
    pub system: Vec<SystemText>,
}

impl Plan {
    /// The items of one message.
    pub fn items_of(&self, message: usize) -> &[Item] {
        let first = |message: usize| {
            let planned = self.messages.get(message);
            planned.map_or(self.items.len(), |planned| {
                super::text::to_usize(planned.first)
            })
        };
        let range = first(message)..first(message.saturating_add(1));
        self.items.get(range).unwrap_or_default()
    }

    /// Bytes held, capacity included.
    pub fn held_bytes(&self) -> usize {
        let sizes = [
            self.decisions
                .capacity()
                .saturating_mul(size_of::<Decision>()),
            self.messages
                .capacity()
                .saturating_mul(size_of::<PlannedMessage>()),
            self.items.capacity().saturating_mul(size_of::<Item>()),
            self.system
                .capacity()
                .saturating_mul(size_of::<SystemText>()),
        ];
        sizes.into_iter().fold(0, usize::saturating_add)
    }

    /// Gives spare room back after many records were projected at once.
    pub(crate) fn trim(&mut self) {
        let with_spare = |len: usize| len.saturating_add(len / 8);
        self.decisions.shrink_to(with_spare(self.decisions.len()));
        self.messages.shrink_to(with_spare(self.messages.len()));
        self.items.shrink_to(with_spare(self.items.len()));
    }

    pub(crate) fn lengths(&self) -> Lengths {
        Lengths {
            decisions: self.decisions.len(),
            messages: self.messages.len(),
            items: self.items.len(),
            system: self.system.len(),
        }
    }

    pub(crate) fn truncate(&mut self, to: Lengths) {
        self.decisions.truncate(to.decisions);
        self.messages.truncate(to.messages);
        self.items.truncate(to.items);
        self.system.truncate(to.system);
    }

    pub(crate) fn open(&mut self, side: Side) {
        let first = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
        self.messages.push(PlannedMessage {
            side,
            traffic: false,
            asks: false,
            first,
        });
    }
}
