//! The words of the records, and what policy and options say of them.

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Whoever is served.
    User,
    /// A model.
    Assistant,
    /// Answers to approvals.
    Tool,
    /// Instructions.
    System,
    /// What stands for compacted history.
    Summary,
}

impl Role {
    pub(crate) fn read(word: &str) -> Option<Self> {
        Some(match word {
            "user" => Self::User,
            "assistant" => Self::Assistant,
            "tool" => Self::Tool,
            "system" => Self::System,
            "summary" => Self::Summary,
            _ => return None,
        })
    }
}

/// How far a message got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Said and stored.
    Committed,
    /// Being written.
    Streaming,
    /// A whole answer.
    Completed,
    /// An answer that was cut off.
    Interrupted,
    /// An answer that another input made void.
    Superseded,
    /// An answer of a run that failed.
    Failed,
}

impl Status {
    pub(crate) fn read(word: &str) -> Option<Self> {
        Some(match word {
            "committed" => Self::Committed,
            "streaming" => Self::Streaming,
            "completed" => Self::Completed,
            "interrupted" => Self::Interrupted,
            "superseded" => Self::Superseded,
            "failed" => Self::Failed,
            _ => return None,
        })
    }
}

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PartKind {
    /// Visible text.
    Text,
    /// What a model wrote while thinking.
    Reasoning,
    /// A file by reference.
    File,
    /// A source the model cites.
    Source,
    /// A call.
    ToolCall,
    /// What a call gave.
    ToolResult,
    /// A call waits for consent.
    ApprovalRequest,
    /// The consent or its refusal.
    ApprovalResponse,
    /// Structured output of a provider.
    Provider,
    /// A mark of the runtime.
    Control,
}

impl PartKind {
    /// All kinds, in the order of their bits in a [`Kinds`].
    pub const ALL: [Self; 10] = [
        Self::Text,
        Self::Reasoning,
        Self::File,
        Self::Source,
        Self::ToolCall,
        Self::ToolResult,
        Self::ApprovalRequest,
        Self::ApprovalResponse,
        Self::Provider,
        Self::Control,
    ];

    pub(crate) fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }

    /// The word in the record's `type`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Reasoning => "reasoning",
            Self::File => "file",
            Self::Source => "source",
            Self::ToolCall => "tool-call",
            Self::ToolResult => "tool-result",
            Self::ApprovalRequest => "tool-approval-request",
            Self::ApprovalResponse => "tool-approval-response",
            Self::Provider => "provider",
            Self::Control => "control",
        }
    }

    /// Which side of an exchange sends it; None for what is never sent back.
    pub(crate) const fn side(self) -> Option<Side> {
        match self {
            Self::Text | Self::Reasoning | Self::ToolCall | Self::ApprovalRequest => {
                Some(Side::Assistant)
            }
            Self::ToolResult | Self::ApprovalResponse => Some(Side::Tool),
            Self::File | Self::Source | Self::Provider | Self::Control => None,
        }
    }
}

/// A set of part kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kinds(u16);

impl Kinds {
    /// What is sent back of an assistant or tool record.
    pub(crate) const SENT: Self = Self::of(&[
        PartKind::Text,
        PartKind::Reasoning,
        PartKind::ToolCall,
        PartKind::ToolResult,
        PartKind::ApprovalRequest,
        PartKind::ApprovalResponse,
    ]);
    /// What takes part in the tool chronology.
    pub(crate) const TRAFFIC: Self = Self::of(&[
        PartKind::ToolCall,
        PartKind::ToolResult,
        PartKind::ApprovalRequest,
        PartKind::ApprovalResponse,
    ]);

    pub(crate) const fn of(kinds: &[PartKind]) -> Self {
        let mut bits = 0_u16;
        let mut rest = kinds;
        while let [kind, others @ ..] = rest {
            bits |= 1 << (*kind as u16);
            rest = others;
        }
        Self(bits)
    }

    /// Adds a kind.
    pub fn insert(&mut self, kind: PartKind) {
        self.0 |= Self::of(&[kind]).0;
    }

    /// Whether the kind is in the set.
    pub fn contains(self, kind: PartKind) -> bool {
        self.intersects(Self::of(&[kind]))
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// The two sides of an exchange with a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The user's.
    User,
    /// The model's.
    Assistant,
    /// The tools'.
    Tool,
}

/// How failures, crashes and superseded answers stand in the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Failed answers are shown, with a mark.
    pub failed_marked: bool,
    /// Calls that never got a result are closed once every run of their turn has ended.
    pub close_dangling: bool,
    /// A superseded answer makes no barrier of its turn.
    pub drop_superseded: bool,
}

impl Policy {
    /// Whether an assistant message of this status is part of the history a model may see.
    pub fn is_evidence(self, status: Status) -> bool {
        match status {
            Status::Completed | Status::Interrupted | Status::Committed => true,
            Status::Failed => self.failed_marked,
            Status::Streaming | Status::Superseded => false,
        }
    }
}

/// What becomes of a user's file without resolved data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnresolvedFile {
    /// Left out.
    #[default]
    Omit,
    /// Named in a text.
    Text,
    /// Refused.
    Error,
}

/// What becomes of an interrupted answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InterruptedAssistant {
    /// Shown with a mark at its end.
    #[default]
    Marked,
    /// Moved as a note into the system texts.
    SystemNote,
    /// Left out.
    Omit,
}

/// What becomes of an answer before any user record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeadingAssistant {
    /// Left out.
    #[default]
    Omit,
    /// Shown.
    Allow,
    /// Refused.
    Error,
}

/// How records become messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What counts as evidence.
    pub policy: Policy,
    /// A user's file without resolved data.
    pub unresolved_file: UnresolvedFile,
    /// An interrupted answer.
    pub interrupted: InterruptedAssistant,
    /// An answer before any user record.
    pub leading: LeadingAssistant,
    /// Whether a record whose tool traffic does not add up is refused rather than left out.
    pub refuse_incomplete: bool,
}

/// What is known of a call that never got a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEvidence {
    /// It was cut off.
    Interrupted,
    /// It never began.
    NotStarted,
    /// It may have run.
    Unknown,
}

impl CallEvidence {
    /// What the closing result says.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::NotStarted => "not started",
            Self::Unknown => "unknown: may have run",
        }
    }
}

/// The mark at the end of an interrupted answer.
pub const INTERRUPTED_MARK: &str = "[interrupted: this turn was cut off before it finished]";
/// The mark at the end of a failed answer.
pub const FAILED_MARK: &str =
    "[failed: partial evidence from a run that did not complete successfully]";
/// What a note on an interrupted answer starts with.
pub const NOTE_PREFIX: &str = "[interrupted] partial response: ";
