//! Stored records of any bytes, one to a line: reading is total, a projection keeps its promises, going on from an
//! earlier answer changes no answer, and a selection stays within its bounds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use runlane_core::budget::{Outcome, Request};
use runlane_core::history::{
    ActiveRuns, Context, History, ItemKind, OpenAiChat, Options, PartKind, Policy, Side,
    UnresolvedFile, decoded, write_openai_chat,
};

fuzz_target!(|input: &[u8]| {
    let Some((choice, lines)) = input.split_first() else {
        return;
    };
    let options = Options {
        policy: Policy {
            failed_marked: choice & 1 != 0,
            close_dangling: choice & 2 != 0,
            drop_superseded: choice & 4 != 0,
        },
        unresolved_file: UnresolvedFile::Text,
        ..Options::default()
    };
    let mut grown = History::new(true);
    for line in lines.split(|byte| *byte == b'\n') {
        let before = (
            grown.log().len(),
            grown.log().revision(),
            grown.log().text_bytes(),
        );
        if grown.append(line).is_err() {
            let after = (
                grown.log().len(),
                grown.log().revision(),
                grown.log().text_bytes(),
            );
            assert_eq!(before, after, "a refusal changes nothing");
        } else if choice & 8 != 0 {
            let _ = grown.project(options, Context::default());
            select(&mut grown, u64::from(*choice), options.policy);
        }
    }
    let mut whole = History::new(true);
    for place in 0..grown.log().len() {
        let record = grown.log().get(place).expect("it is there");
        whole
            .append(record.text().as_bytes())
            .expect("it was taken before");
    }
    let plan = grown
        .project(options, Context::default())
        .expect("nothing is refused");
    let again = whole
        .project(options, Context::default())
        .expect("nothing is refused");
    assert_eq!(plan, again, "an answer does not depend on earlier ones");
    assert_eq!(plan.decisions.len(), whole.log().len());

    let mut known: Vec<String> = Vec::new();
    let mut newest = 0;
    for place in 0..plan.messages.len() {
        let items = plan.items_of(place);
        assert!(!items.is_empty(), "no message is empty");
        for item in items {
            if !matches!(item.kind, ItemKind::Closed(_)) {
                assert!(item.record >= newest, "order is kept");
                newest = item.record;
            }
            let part = whole
                .log()
                .get(item.record as usize)
                .and_then(|record| record.part(item.part as usize));
            match (
                item.kind,
                part.map(|part| (part.kind(), decoded(part.call_id()).into_owned())),
            ) {
                (ItemKind::Part, Some((PartKind::ToolCall, id))) => known.push(id),
                (ItemKind::Part, Some((PartKind::ToolResult, id)))
                | (ItemKind::Closed(_), Some((_, id))) => {
                    assert!(known.contains(&id), "no result without its call");
                    assert_eq!(plan.messages[place].side, Side::Tool);
                }
                _ => {}
            }
        }
    }
    let form = OpenAiChat {
        send_reasoning: true,
        piece: &|_, _| Some(&b"{}"[..]),
    };
    let mut body = b"[".to_vec();
    write_openai_chat(whole.log(), &plan, &form, false, &mut body).expect("every piece is there");
    body.push(b']');
    serde_json::from_slice::<serde_json::Value>(&body).expect("a body is JSON");

    let (small, large) = (
        select(&mut whole, 20, options.policy),
        select(&mut whole, 200, options.policy),
    );
    assert_eq!(
        small,
        select(&mut grown, 20, options.policy),
        "a selection does not depend on earlier ones"
    );
    assert!(
        small.iter().all(|place| large.contains(place)),
        "more room keeps no less"
    );
});

/// What a budget keeps, after checking what must hold of it.
fn select(history: &mut History, available: u64, policy: Policy) -> Vec<u32> {
    let active = ActiveRuns::default();
    let selection = history.select(&Request {
        available,
        keep_recent: 1,
        policy,
        active: &active,
        counter: None,
    });
    let view = |place| {
        history
            .log()
            .get(place)
            .map(|record| (record.role(), record.status()))
    };
    let kept = selection.kept(view, history.log().len());
    assert!(kept.is_sorted());
    assert_eq!(
        selection.total > available,
        selection.outcome == Outcome::Oversized
    );
    for place in 0..history.log().len() {
        let record = history.log().get(place).expect("it is there");
        let keeps = selection.reason(record, place).keeps();
        assert_eq!(
            keeps,
            kept.contains(&u32::try_from(place).expect("few records"))
        );
    }
    kept
}
