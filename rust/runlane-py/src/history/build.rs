//! Messages of a plan as Python objects.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PySet, PyString, PyTuple};
use runlane_core::history::{
    CallEvidence, FAILED_MARK, INTERRUPTED_MARK, Item, ItemKind, Log, NOTE_PREFIX, PartKind,
    PartRef, Plan, RecordRef, Side, SystemText, Word, decoded,
};

use super::json;
use super::vocabulary::{Class, Names, Vocabulary, message, model, vocabulary};

/// Builds objects of one plan.
pub(super) struct Builder<'py, 'p> {
    py: Python<'py>,
    words: &'p Vocabulary,
    log: &'p Log,
    plan: &'p Plan,
    files: Option<&'p Bound<'py, PyDict>>,
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
        message(class, &words.names, role, &items)
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
            ItemKind::Part | ItemKind::File | ItemKind::Attachment | ItemKind::Closed(_) => {}
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

    fn part(&self, part: PartRef<'_>) -> PyResult<Bound<'py, PyAny>> {
        match part.kind() {
            PartKind::Reasoning => self.reasoning(part),
            PartKind::ToolCall => self.call(part),
            PartKind::ToolResult => self.result(part),
            PartKind::ApprovalRequest => self.request(part),
            PartKind::ApprovalResponse => self.response(part),
            PartKind::Text
            | PartKind::File
            | PartKind::Source
            | PartKind::Provider
            | PartKind::Control => self.text(&decoded(part.said())),
        }
    }

    fn text(&self, said: &str) -> PyResult<Bound<'py, PyAny>> {
        let (py, names) = (self.py, &self.words.names);
        let fields = PyDict::new(py);
        fields.set_item(&names.kind, &names.text)?;
        fields.set_item(&names.text, PyString::new(py, said))?;
        let given = self.words.text.given(&fields, 0b11)?;
        model(&self.words.text.class, names, &fields, given)
    }

    fn reasoning(&self, part: PartRef<'_>) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut fields = self.fields(&names.reasoning)?;
        fields.give(&names.text, decoded(part.said()))?;
        self.envelope(&mut fields, part)?;
        fields.model(&self.words.reasoning, names)
    }

    fn call(&self, part: PartRef<'_>) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut fields = self.fields(&names.tool_call)?;
        fields.give(&names.call_id, decoded(part.call_id()))?;
        fields.give(&names.tool_name, decoded(part.tool_name()))?;
        fields.give(&names.arguments, decoded(part.arguments()))?;
        fields.maybe(
            &names.input,
            part.input()
                .map(|input| json::value(self.py, input))
                .transpose()?,
        )?;
        self.envelope(&mut fields, part)?;
        fields.model(&self.words.call, names)
    }

    fn result(&self, part: PartRef<'_>) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut fields = self.fields(&names.tool_result)?;
        fields.give(&names.call_id, decoded(part.call_id()))?;
        fields.give(&names.tool_name, decoded(part.tool_name()))?;
        fields.give(&names.outcome, outcome(names, part.word()))?;
        fields.maybe(
            &names.output,
            part.output()
                .map(|output| json::value(self.py, output))
                .transpose()?,
        )?;
        fields.model(&self.words.result, names)
    }

    fn closed(&self, call: PartRef<'_>, evidence: CallEvidence) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut fields = self.fields(&names.tool_result)?;
        fields.give(&names.call_id, decoded(call.call_id()))?;
        fields.give(&names.tool_name, decoded(call.tool_name()))?;
        fields.give(&names.outcome, &names.interrupted)?;
        let output = PyDict::new(self.py);
        output.set_item(&names.message, evidence.message())?;
        fields.give(&names.output, output)?;
        fields.model(&self.words.result, names)
    }

    fn request(&self, part: PartRef<'_>) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut fields = self.fields(&names.approval_request)?;
        fields.give(&names.approval_id, decoded(part.approval_id()))?;
        fields.give(&names.call_id, decoded(part.call_id()))?;
        fields.maybe(&names.is_automatic, self.boolean(part.word()))?;
        fields.maybe(&names.signature, part.signature().map(decoded))?;
        fields.model(&self.words.request, names)
    }

    fn response(&self, part: PartRef<'_>) -> PyResult<Bound<'py, PyAny>> {
        let names = &self.words.names;
        let mut fields = self.fields(&names.approval_response)?;
        fields.give(&names.approval_id, decoded(part.approval_id()))?;
        fields.maybe(&names.approved, self.boolean(part.word()))?;
        fields.maybe(&names.reason, part.reason().map(decoded))?;
        fields.model(&self.words.response, names)
    }

    fn boolean(&self, word: Word) -> Option<Bound<'py, PyBool>> {
        match word {
            Word::Yes => Some(PyBool::new(self.py, true).to_owned()),
            Word::No => Some(PyBool::new(self.py, false).to_owned()),
            Word::None | Word::Success | Word::Error | Word::Interrupted => None,
        }
    }

    fn envelope(&self, fields: &mut Fields<'py>, part: PartRef<'_>) -> PyResult<()> {
        let names = &self.words.names;
        let Some(text) = part.provider() else {
            return fields.maybe(&names.provider, None::<Bound<'py, PyAny>>);
        };
        let said = json::value(self.py, text)?.cast_into::<PyDict>()?;
        let own = PyDict::new(self.py);
        let version = said.get_item(&names.schema_version)?;
        own.set_item(
            &names.schema_version,
            version.unwrap_or(1_u32.into_pyobject(self.py)?.into_any()),
        )?;
        own.set_item(&names.provider, said.get_item(&names.provider)?)?;
        own.set_item(&names.data, said.get_item(&names.data)?)?;
        let given = PySet::new(self.py, said.keys())?;
        let made = model(&self.words.envelope, names, &own, &given)?;
        fields.give(&names.provider, made)
    }

    fn fields(&self, kind: &Py<PyString>) -> PyResult<Fields<'py>> {
        let mut fields = Fields {
            dict: PyDict::new(self.py),
            given: 0,
        };
        fields.give(&self.words.names.kind, kind)?;
        Ok(fields)
    }
}

/// The fields of a model in the order of its class, and which of them were given: one bit each, in that order.
struct Fields<'py> {
    dict: Bound<'py, PyDict>,
    given: u8,
}

impl<'py> Fields<'py> {
    fn give(&mut self, name: &Py<PyString>, value: impl IntoPyObject<'py>) -> PyResult<()> {
        self.given |= 1 << self.dict.len();
        self.dict.set_item(name, value)
    }

    fn maybe(
        &mut self,
        name: &Py<PyString>,
        value: Option<impl IntoPyObject<'py>>,
    ) -> PyResult<()> {
        match value {
            Some(value) => self.give(name, value),
            None => self.dict.set_item(name, self.dict.py().None()),
        }
    }

    fn model(&self, class: &Class, names: &Names) -> PyResult<Bound<'py, PyAny>> {
        let given = class.given(&self.dict, self.given)?;
        model(&class.class, names, &self.dict, given)
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
