//! Canonical JSON of arbitrary bytes: total, a fixed point, and what a slow reader makes of the same document.

#![no_main]

use libfuzzer_sys::fuzz_target;
use runlane_core::canon::{Form, Limits, canonicalize, digest, parse};
use serde_json::Value;

const LIMITS: Limits = Limits {
    max_depth: 100,
    max_nodes: 100_000,
    max_bytes: 1 << 20,
    max_digits: 100_000,
};

fuzz_target!(|document: &[u8]| {
    let interchange = checked(document, Form::Interchange);
    let record = checked(document, Form::Record);
    let _ = parse(document, Form::Lossless, LIMITS);

    let tree = serde_json::from_slice::<Value>(document);
    match (&interchange, tree) {
        (Some(text), Ok(tree)) => {
            let mut expected = String::new();
            write(&tree, &mut expected);
            assert_eq!(text, expected.as_bytes());
            assert_eq!(
                record.as_ref(),
                Some(text),
                "what both forms have is the same text"
            );
        }
        (Some(_), Err(error)) => panic!("accepted what is no JSON: {error}"),
        (None, _) => {}
    }
});

/// The canonical text, if there is one, after checking what must hold of it; else a refusal with a place.
fn checked(document: &[u8], form: Form) -> Option<Vec<u8>> {
    match canonicalize(document, form, LIMITS) {
        Ok(text) => {
            assert_eq!(
                canonicalize(&text, form, LIMITS).as_ref(),
                Ok(&text),
                "a fixed point"
            );
            let (first, second) = (digest(document, form, LIMITS), digest(&text, form, LIMITS));
            let digests = (first.ok(), second.ok());
            assert!(matches!(&digests, (Some(a), Some(b)) if a.as_str() == b.as_str()));
            Some(text)
        }
        Err(refusal) => {
            assert!(refusal.pointer.is_empty() || refusal.pointer.starts_with('/'));
            assert!(refusal.offset.is_none_or(|offset| offset <= document.len()));
            assert!(
                digest(document, form, LIMITS).is_err(),
                "the digest refuses the same"
            );
            None
        }
    }
}

/// RFC 8785, slow and obvious.
fn write(tree: &Value, out: &mut String) {
    match tree {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => {
            let double = number.as_f64().unwrap_or(f64::NAN);
            let mut buffer = ryu_js::Buffer::new();
            out.push_str(if double == 0.0 {
                "0"
            } else {
                buffer.format(double)
            });
        }
        Value::String(text) => string(text, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| key.encode_utf16().collect::<Vec<_>>());
            out.push('{');
            for (index, (key, value)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                string(key, out);
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
    }
}

fn string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => out.push(character),
        }
    }
    out.push('"');
}
