//! Calls and their results in the order that providers ask for: a round's results directly behind its calls.
//!
//! A projection leaves a call without its result only where somebody was asked to approve it. A result that came late is
//! moved to its call, and a call without one is given something that says so. Every other plan is settled as it is.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::chronology::At;
use super::log::Log;
use super::plan::{Item, ItemKind, Plan};
use super::refs::PartRef;
use super::text::decoded;
use super::vocabulary::{PartKind, Side};

/// The messages of a plan, settled; decisions and system texts are left out where it is another one.
pub(crate) fn settled<'p>(log: &Log, plan: &'p Plan) -> Cow<'p, Plan> {
    if plan.messages.iter().any(|message| message.asks) {
        Cow::Owned(settle(log, plan))
    } else {
        Cow::Borrowed(plan)
    }
}

/// The calls of one message, and what stands behind them.
struct Round<'l> {
    calls: Vec<(Item, Cow<'l, str>)>,
    asked: Vec<Cow<'l, str>>,
    results: Vec<(Item, Cow<'l, str>)>,
}

impl<'l> Round<'l> {
    fn read(log: &'l Log, items: &[Item]) -> Option<Self> {
        let ids = |kind| -> Vec<_> {
            let of_kind = items.iter().filter_map(|item| {
                let part = part_of(log, *item).filter(|part| part.kind() == kind)?;
                Some((*item, decoded(part.call_id())))
            });
            of_kind.collect()
        };
        let calls = ids(PartKind::ToolCall);
        let asked = ids(PartKind::ApprovalRequest);
        (!calls.is_empty()).then(|| Self {
            calls,
            asked: asked.into_iter().map(|(_, id)| id).collect(),
            results: Vec::new(),
        })
    }

    /// The results that came, then one for each call without.
    fn close(self) -> Vec<Item> {
        let has = |id: &str| self.results.iter().any(|(_, known)| known == id);
        let missing = self.calls.iter().filter(|(_, id)| !has(id));
        let open = missing.map(|(call, id)| Item {
            kind: ItemKind::Open {
                asked: self.asked.contains(id),
            },
            ..*call
        });
        let came = self.results.iter().map(|(item, _)| *item);
        came.chain(open).collect()
    }
}

enum Piece<'l> {
    Message(usize),
    Round(Round<'l>),
    /// Results whose call is unknown.
    Rest(Vec<Item>),
}

fn settle(log: &Log, plan: &Plan) -> Plan {
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    let mut waiting: BTreeMap<Cow<'_, str>, usize> = BTreeMap::new();
    for (place, message) in plan.messages.iter().enumerate() {
        let items = plan.items_of(place);
        if message.side == Side::Tool {
            let rest = deliver(log, items, &mut pieces, &mut waiting);
            if !rest.is_empty() {
                pieces.push(Piece::Rest(rest));
            }
            continue;
        }
        pieces.push(Piece::Message(place));
        if let Some(round) = message.traffic.then(|| Round::read(log, items)).flatten() {
            let at = pieces.len();
            waiting.extend(round.calls.iter().map(|(_, id)| (id.clone(), at)));
            pieces.push(Piece::Round(round));
        }
    }
    let mut done = Plan::default();
    for piece in pieces {
        match piece {
            Piece::Message(place) => {
                if let Some(message) = plan.messages.get(place) {
                    done.open(message.side);
                    if let Some(copy) = done.messages.last_mut() {
                        (copy.traffic, copy.asks) = (message.traffic, message.asks);
                    }
                    done.items.extend_from_slice(plan.items_of(place));
                }
            }
            Piece::Round(round) => {
                done.open(Side::Tool);
                done.items.extend(round.close());
            }
            Piece::Rest(items) => {
                done.open(Side::Tool);
                done.items.extend(items);
            }
        }
    }
    done
}

/// Brings results to the rounds of their calls, and gives back those whose call is unknown.
fn deliver<'l>(
    log: &'l Log,
    items: &[Item],
    pieces: &mut [Piece<'l>],
    waiting: &mut BTreeMap<Cow<'l, str>, usize>,
) -> Vec<Item> {
    let mut rest = Vec::new();
    for item in items {
        let Some(part) = part_of(log, *item) else {
            continue;
        };
        if part.kind() == PartKind::ApprovalResponse {
            continue;
        }
        let id = decoded(part.call_id());
        let round = waiting.remove(&id).and_then(|at| pieces.get_mut(at));
        if let Some(Piece::Round(round)) = round {
            round.results.push((*item, id));
        } else {
            rest.push(*item);
        }
    }
    rest
}

/// The part that an item of a call or a result is made from.
fn part_of(log: &Log, item: Item) -> Option<PartRef<'_>> {
    match item.kind {
        ItemKind::Part | ItemKind::Closed(_) | ItemKind::Open { .. } => At {
            record: item.record,
            part: item.part,
        }
        .find(log),
        ItemKind::JoinedText
        | ItemKind::File
        | ItemKind::Attachment
        | ItemKind::InterruptedMark
        | ItemKind::FailedMark => None,
    }
}
