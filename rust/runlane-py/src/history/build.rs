//! Messages of a plan as Python objects.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple};
use runlane_core::history::{
    CallEvidence, FAILED_MARK, INTERRUPTED_MARK, Item, ItemKind, Log, NOTE_PREFIX, PartKind,
    PartRef, Plan, RecordRef, Side, SystemText, Word, decoded,
};

use super::json::{self, Texts};
use super::vocabulary::{Class, Instance, Names, Vocabulary, vocabulary};

/// Builds objects of one plan.
pub(super) struct Builder<'py, 'p> {
    py: Python<'py>,
    words: &'p Vocabulary,
    log: &'p Log,
    plan: &'p Plan,
    files: Option<&'p Bound<'py, PyDict>>,
    /// Names that records repeat.
    texts: RefCell<Texts<'p>>,
}

impl<'py, 'p> Builder<'py, 'p> {
    pub(super) fn new(
        py: Python<'py>,
        log: &'p Log,
        plan: &'p Plan,
        files: Option<&'p Bound<'py, PyDict>>,
    ) -> PyResult<Self>
    where
        'py: 'p,
    {
        Ok(Self {
            py,
            words: vocabulary(py)?,
            log,
            plan,
            files,
            texts: RefCell::default(),
        })
    }

    /// All messages.
    pub(super) fn messages(&self) -> PyResult<Bound<'py, PyTuple>> {
        let built = (0..self.plan.messages.len())
            .map(|place| self.message(place))
            .collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(self.py, built)
    }

    fn message(&self, place: usize) -> PyResult<Bound<'py, PyAny>> {
        let words = self.words;
        let items = self.plan.items_of(place);
        let items = match items {
            [item] => PyTuple::new(self.py, [self.item(*item)?])?,
            several => {
                let built = several
                    .iter()
                    .map(|item| self.item(*item))
                    .collect::<PyResult<Vec<_>>>()?;
                PyTuple::new(self.py, built)?
            }
        };
        let planned = self.plan.messages.get(place);
        let (class, role) = match planned.map(|planned| (planned.side, planned.traffic)) {
            Some((Side::User, _)) | None => (&words.message, &words.names.user),
            Some((Side::Assistant, false)) => (&words.message, &words.names.assistant),
            Some((Side::Assistant, true)) => (&words.calls, &words.names.assistant),
            Some((Side::Tool, _)) => (&words.results, &words.names.tool),
        };
        class.message(role, &items)
    }

    /// The texts for the instructions channel.
    pub(super) fn system(&self) -> PyResult<Bound<'py, PyTuple>> {
        let texts = self.plan.system.iter().map(|text| self.system_text(*text));
        PyTuple::new(self.py, texts.collect::<Vec<_>>())
    }

    fn system_text(&self, text: SystemText) -> String {
        let said = self.record(text.record).map(joined).unwrap_or_default();
        if text.note {
            format!("{NOTE_PREFIX}{said}")
        } else {
            said
        }
    }

    fn record(&self, place: u32) -> Option<RecordRef<'p>> {
        self.log.get(usize::try_from(place).ok()?)
    }

    fn item(&self, item: Item) -> PyResult<Bound<'py, PyAny>> {
        match item.kind {
            ItemKind::InterruptedMark => return self.text(INTERRUPTED_MARK),
            ItemKind::FailedMark => return self.text(FAILED_MARK),
            ItemKind::JoinedText => {
                return self.text(&self.record(item.record).map(joined).unwrap_or_default());
            }
            ItemKind::Part
            | ItemKind::File
            | ItemKind::Attachment
            | ItemKind::Closed(_)
            | ItemKind::Open { .. } => {}
        }
        let record = self.record(item.record);
        let part = record.and_then(|record| record.part(usize::try_from(item.part).ok()?));
        let (Some(record), Some(part)) = (record, part) else {
            return self.text("");
        };
        match item.kind {
            ItemKind::Closed(evidence) => self.closed(part, evidence),
            ItemKind::File => self.file(record, item.part),
            ItemKind::Attachment => {
                let name = decoded(part.filename().unwrap_or_else(|| part.media_type()));
                self.text(&format!("[attachment: {name}]"))
            }
            ItemKind::Part
            | ItemKind::Open { .. }
            | ItemKind::JoinedText
            | ItemKind::InterruptedMark
            | ItemKind::FailedMark => self.part(part),
        }
    }

    fn file(&self, record: RecordRef<'_>, part: u32) -> PyResult<Bound<'py, PyAny>> {
        let resolved = self
            .files
            .map(|files| files.get_item((decoded(record.id()), part)));
        match resolved.transpose()?.flatten() {
            Some(resolved) => Ok(resolved),
            None => self.text(""),
        }
    }

    fn part(&self, part: PartRef<'p>) -> PyResult<Bound<'py, PyAny>> {
        match part.kind() {
            PartKind::Reasoning => self.reasoning(part),
            PartKind::ToolCall => self.call(part),
            PartKind::ToolResult => self.result(part),
            PartKind::ApprovalRequest => self.request(part),
            PartKind::ApprovalResponse => self.response(part),
            PartKind::Provider => self.opaque(part),
            PartKind::Text | PartKind::File | PartKind::Source | PartKind::Control => {
                self.text(&decoded(part.said()))
            }
        }
    }

    fn text(&self, said: &str) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut made = self.start(&self.words.text, &names.text)?;
        made.give(&names.text, PyString::new(self.py, said))?;
        made.finish()
    }

    fn reasoning(&self, part: PartRef<'p>) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut made = self.start(&self.words.reasoning, &names.reasoning)?;
        made.give(&names.text, decoded(part.said()))?;
        self.envelope(&mut made, part)?;
        made.finish()
    }

    fn call(&self, part: PartRef<'p>) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut fields = self.start(&self.words.call, &names.tool_call)?;
        fields.give(&names.call_id, decoded(part.call_id()))?;
        fields.give(&names.tool_name, self.repeated(part.tool_name()))?;
        fields.give(&names.arguments, decoded(part.arguments()))?;
        fields.maybe(
            &names.input,
            part.input().map(|input| self.json(input)).transpose()?,
        )?;
        self.envelope(&mut fields, part)?;
        fields.finish()
    }

    fn result(&self, part: PartRef<'p>) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut fields = self.start(&self.words.result, &names.tool_result)?;
        fields.give(&names.call_id, decoded(part.call_id()))?;
        fields.give(&names.tool_name, self.repeated(part.tool_name()))?;
        fields.give(&names.outcome, outcome(names, part.word()))?;
        fields.maybe(
            &names.output,
            part.output().map(|output| self.json(output)).transpose()?,
        )?;
        fields.finish()
    }

    fn closed(&self, call: PartRef<'p>, evidence: CallEvidence) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut fields = self.start(&self.words.result, &names.tool_result)?;
        fields.give(&names.call_id, decoded(call.call_id()))?;
        fields.give(&names.tool_name, self.repeated(call.tool_name()))?;
        fields.give(&names.outcome, &names.interrupted)?;
        let output = PyDict::new(self.py);
        output.set_item(&names.message, evidence.message())?;
        fields.give(&names.output, output)?;
        fields.finish()
    }

    fn request(&self, part: PartRef<'p>) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut fields = self.start(&self.words.request, &names.approval_request)?;
        fields.give(&names.approval_id, decoded(part.approval_id()))?;
        fields.give(&names.call_id, decoded(part.call_id()))?;
        fields.maybe(&names.is_automatic, self.boolean(part.word()))?;
        fields.maybe(&names.signature, part.signature().map(decoded))?;
        fields.finish()
    }

    fn response(&self, part: PartRef<'p>) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut fields = self.start(&self.words.response, &names.approval_response)?;
        fields.give(&names.approval_id, decoded(part.approval_id()))?;
        fields.maybe(&names.approved, self.boolean(part.word()))?;
        fields.maybe(&names.reason, part.reason().map(decoded))?;
        fields.finish()
    }

    fn boolean(&self, word: Word) -> Option<Bound<'py, PyBool>> {
        match word {
            Word::Yes => Some(PyBool::new(self.py, true).to_owned()),
            Word::No => Some(PyBool::new(self.py, false).to_owned()),
            Word::None | Word::Success | Word::Error | Word::Interrupted => None,
        }
    }

    fn opaque(&self, part: PartRef<'p>) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut made = self.start(&self.words.opaque, &names.provider)?;
        made.give(
            &names.envelope,
            self.enveloped(part.provider().unwrap_or("{}"))?,
        )?;
        made.finish()
    }

    fn envelope(&self, made: &mut Instance<'_, 'py>, part: PartRef<'p>) -> PyResult<()> {
        let names = &self.words.names;
        let enveloped = part.provider().map(|text| self.enveloped(text));
        made.maybe(&names.provider, enveloped.transpose()?)
    }

    fn enveloped(&self, text: &'p str) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let said = self.json(text)?.cast_into::<PyDict>()?;
        let mut own = self.words.envelope.start(self.py)?;
        match said.get_item(&names.schema_version)? {
            Some(version) => own.give(&names.schema_version, version)?,
            None => own.fall_back(&names.schema_version, 1)?,
        }
        own.give(&names.provider, said.get_item(&names.provider)?)?;
        own.give(&names.data, said.get_item(&names.data)?)?;
        own.finish()
    }

    /// JSON of a record as a value.
    fn json(&self, text: &'p str) -> PyResult<Bound<'py, PyAny>> {
        json::value(self.py, text, &mut self.texts.borrow_mut())
    }

    /// A name that other parts are likely to have too.
    fn repeated(&self, raw: &'p str) -> Bound<'py, PyString> {
        self.texts.borrow_mut().text(self.py, raw)
    }

    /// An instance of a part, so far with its type.
    fn start<'a>(&self, class: &'a Class, kind: &Py<PyString>) -> PyResult<Instance<'a, 'py>> {
        let mut made = class.start(self.py)?;
        made.give(&self.words.names.kind, kind)?;
        Ok(made)
    }
}

fn outcome(names: &Names, word: Word) -> &Py<PyString> {
    match word {
        Word::Success => &names.success,
        Word::Interrupted => &names.interrupted,
        Word::Error | Word::None | Word::Yes | Word::No => &names.error,
    }
}

/// All text of a record, joined with a line feed.
pub(super) fn joined(record: RecordRef<'_>) -> String {
    let texts = record.parts().filter(|part| part.kind() == PartKind::Text);
    texts
        .map(|part| decoded(part.said()))
        .collect::<Vec<_>>()
        .join("\n")
}
