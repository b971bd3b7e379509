//! The common chunk of an `OpenAI` chat completion, read without building it.
//!
//! Nearly every chunk of a stream says one thing: a little more text, a little more reasoning, a call or a little more
//! of its arguments, a finish reason, or nothing. [`scan`] recognises exactly those and reads the one text in them.
//! Whatever else a chunk carries (usage, an error, two things at once, a shape of some dialect) makes it answer `None`,
//! and the general decoder reads the chunk; so this module decides nothing, and may answer `None` at any time.
//!
//! Invariant: a chunk that is answered is a whole JSON text, and the general decoder would give the same.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// What a common chunk adds to the answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    /// Nothing.
    Nothing,
    /// Visible text, not empty.
    Text(Cow<'a, str>),
    /// Reasoning in the field `reasoning`, not empty.
    Reasoning(Cow<'a, str>),
    /// Reasoning in the field `reasoning_content`, not empty.
    ReasoningContent(Cow<'a, str>),
    /// More of the arguments of the call with this index.
    Arguments(u32, Cow<'a, str>),
    /// A finish reason, not empty, and nothing else.
    Finish(Cow<'a, str>),
    /// A call with its id and name, neither empty, and what there is of its arguments.
    Call(Named<'a>),
}

/// A fragment that names a call.
#[derive(Debug, PartialEq, Eq)]
pub struct Named<'a> {
    /// The provider's index of the call.
    pub index: u32,
    /// Its id.
    pub id: Cow<'a, str>,
    /// The name of its function.
    pub name: Cow<'a, str>,
    /// The arguments so far; may be empty.
    pub arguments: Cow<'a, str>,
}

/// Reads a chunk of the common shape; `None` for any other, and for what is no JSON.
pub fn scan(chunk: &str) -> Option<Delta<'_>> {
    let Object(chunk): Object<Chunk<'_>> = serde_json::from_str(chunk).ok()?;
    let [Object(choice)] = chunk.choices;
    if !matches!(choice.index, None | Some(0)) || chunk.object.is_some_and(|kind| kind.0 == "error")
    {
        return None;
    }
    let delta = choice.delta.0.read()?;
    match (filled(choice.finish_reason), delta) {
        (None, delta) => Some(delta),
        (Some(reason), Delta::Nothing) => Some(Delta::Finish(reason)),
        (Some(_), _) => None,
    }
}

/// A text, borrowed from the chunk where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A JSON object. A derived `Deserialize` would also take a list with the fields in order.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
    }
}

/// A list without elements.
type Empty = [IgnoredAny; 0];

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: [Object<Choice<'a>>; 1],
    #[serde(borrow, default)]
    object: Option<Text<'a>>,
    #[serde(default, rename = "error")]
    _error: (),
    #[serde(default, rename = "usage")]
    _usage: (),
    #[serde(default, rename = "x_groq")]
    _x_groq: (),
    #[serde(default, rename = "citations")]
    _citations: (),
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Object<Fields<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Text<'a>>,
    #[serde(default, rename = "error")]
    _error: (),
    #[serde(default, rename = "usage")]
    _usage: (),
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, default)]
    content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow, default)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow, default)]
    refusal: Option<Text<'a>>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<Object<Call<'a>>>>,
    #[serde(default, rename = "reasoning_details")]
    _reasoning_details: Option<Empty>,
    #[serde(default, rename = "annotations")]
    _annotations: Option<Empty>,
    #[serde(default, rename = "images")]
    _images: Option<Empty>,
    #[serde(default, rename = "function_call")]
    _function_call: (),
}

/// A fragment of a call, with id and name or with neither; one that carries more is not common.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call<'a> {
    index: u32,
    #[serde(borrow)]
    function: Object<Function<'a>>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(default, rename = "type")]
    _type: IgnoredAny,
}

impl<'a> Call<'a> {
    fn read(self) -> Option<Delta<'a>> {
        let function = self.function.0;
        let arguments = function.arguments.0;
        match (filled(self.id), filled(function.name)) {
            (None, None) => Some(Delta::Arguments(self.index, arguments)),
            (Some(id), Some(name)) => Some(Delta::Call(Named {
                index: self.index,
                id,
                name,
                arguments,
            })),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    arguments: Text<'a>,
    #[serde(borrow, default)]
    name: Option<Text<'a>>,
}

impl<'a> Fields<'a> {
    /// The one thing said, if it is one.
    fn read(self) -> Option<Delta<'a>> {
        let refusal = filled(self.refusal);
        let calls = self.tool_calls.unwrap_or_default();
        if refusal.is_some() || calls.len() > 1 {
            return None;
        }
        let call = calls.into_iter().next();
        let said = (
            filled(self.content),
            filled(self.reasoning_content),
            filled(self.reasoning),
            call,
        );
        match said {
            (None, None, None, None) => Some(Delta::Nothing),
            (Some(text), None, None, None) => Some(Delta::Text(text)),
            (None, Some(text), None, None) => Some(Delta::ReasoningContent(text)),
            (None, None, Some(text), None) => Some(Delta::Reasoning(text)),
            (None, None, None, Some(Object(call))) => call.read(),
            _ => None,
        }
    }
}

/// A text that is there and not empty.
fn filled(text: Option<Text<'_>>) -> Option<Cow<'_, str>> {
    text.map(|text| text.0).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(delta: &str) -> String {
        format!(
            r#"{{"id":"c","object":"chat.completion.chunk","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}],"usage":null}}"#
        )
    }

    #[test]
    fn the_common_chunks_are_read() {
        let cases = [
            ("{}", Delta::Nothing),
            (r#"{"role":"assistant","content":""}"#, Delta::Nothing),
            (r#"{"content":"Hi"}"#, Delta::Text("Hi".into())),
            (
                r#"{"content":"a\n\ud83d\ude00"}"#,
                Delta::Text("a\n😀".into()),
            ),
            (
                r#"{"content":null,"reasoning_content":"so"}"#,
                Delta::ReasoningContent("so".into()),
            ),
            (
                r#"{"reasoning":"so","channel":"analysis"}"#,
                Delta::Reasoning("so".into()),
            ),
            (
                r#"{"tool_calls":[{"index":2,"function":{"arguments":"{\""}}]}"#,
                Delta::Arguments(2, "{\"".into()),
            ),
            (
                r#"{"tool_calls":[{"index":2,"id":"","function":{"name":"","arguments":"}"}}]}"#,
                Delta::Arguments(2, "}".into()),
            ),
            (
                r#"{"content":null,"tool_calls":[{"index":1,"id":"c","type":"function","function":{"name":"f","arguments":""}}]}"#,
                Delta::Call(Named {
                    index: 1,
                    id: "c".into(),
                    name: "f".into(),
                    arguments: "".into(),
                }),
            ),
        ];
        for (delta, expected) in cases {
            assert_eq!(scan(&chunk(delta)), Some(expected), "{delta}");
        }
    }

    #[test]
    fn a_finish_reason_alone_is_read() {
        let chunk = r#"{"choices":[{"delta":{"content":""},"finish_reason":"stop"}]}"#;
        assert_eq!(scan(chunk), Some(Delta::Finish("stop".into())));
    }

    #[test]
    fn whatever_carries_more_is_left_to_the_general_decoder() {
        let deltas = [
            r#"{"content":"a","reasoning":"b"}"#,
            r#"{"content":["a"]}"#,
            r#"{"content":"\ud83d"}"#,
            r#"{"content":"a","content":"b"}"#,
            r#"{"refusal":"no"}"#,
            r#"{"reasoning_details":[{}]}"#,
            r#"{"tool_calls":[{"index":0,"id":"c","function":{"arguments":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"extra_content":{},"function":{"arguments":""}}]}"#,
            r#"{"function_call":{"arguments":""}}"#,
            "[]",
            r#"{"tool_calls":[[0,["a"]]]}"#,
        ];
        for delta in deltas {
            assert_eq!(scan(&chunk(delta)), None, "{delta}");
        }
        let chunks = [
            "",
            "[DONE]",
            "{",
            r#"{"choices":[]}"#,
            r#"{"choices":[{"index":1,"delta":{}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":1}]}"#,
            r#"{"choices":[{"delta":{}}],"usage":{}}"#,
            r#"{"choices":[{"delta":{}}],"error":"no"}"#,
            r#"{"choices":[{"delta":{}}],"object":"error"}"#,
            r#"{"choices":[{"delta":{}}]} {"#,
        ];
        for chunk in chunks {
            assert_eq!(scan(chunk), None, "{chunk}");
        }
    }
}
