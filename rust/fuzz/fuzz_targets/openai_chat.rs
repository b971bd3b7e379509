//! The fast scan of chat-completion chunks: total, and what it reads is what a slow reader finds in the same place.

#![no_main]

use libfuzzer_sys::fuzz_target;
use runlane_core::openai_chat::{Delta, scan};
use serde_json::Value;

fuzz_target!(|chunk: &str| {
    let Some(delta) = scan(chunk) else { return };
    // A chunk may hold a number that the slow reader refuses, where nobody looks at it.
    let Ok(tree) = serde_json::from_str::<Value>(chunk) else {
        return;
    };
    let choice = &tree["choices"][0];
    let fields = &choice["delta"];
    let (found, expected) = match &delta {
        Delta::Nothing => ("", &Value::Null),
        Delta::Text(text) => (text.as_ref(), &fields["content"]),
        Delta::Reasoning(text) => (text.as_ref(), &fields["reasoning"]),
        Delta::ReasoningContent(text) => (text.as_ref(), &fields["reasoning_content"]),
        Delta::Arguments(index, text) => {
            let call = &fields["tool_calls"][0];
            assert_eq!(call["index"], *index);
            (text.as_ref(), &call["function"]["arguments"])
        }
        Delta::Call(named) => {
            let call = &fields["tool_calls"][0];
            assert_eq!(call["index"], named.index);
            assert_eq!(call["id"], *named.id);
            assert_eq!(call["function"]["name"], *named.name);
            (named.arguments.as_ref(), &call["function"]["arguments"])
        }
        Delta::Finish(reason) => (reason.as_ref(), &choice["finish_reason"]),
    };
    assert_eq!(expected.as_str().unwrap_or_default(), found);
    assert!(tree["error"].is_null() && tree["usage"].is_null());
    if !matches!(delta, Delta::Finish(_)) {
        let unfinished = &choice["finish_reason"];
        assert!(unfinished.is_null() || unfinished == "");
    }
});
