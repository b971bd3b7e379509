//! What of a history fits a token budget: whole turns, the oldest removed first.
//!
//! A [`BudgetIndex`] keeps, turn by turn, sums over the counts that are known, so that a selection is a search in
//! them: its cost does not grow with the conversation.

mod counts;
mod select;

pub use counts::{Count, Counter};
pub use select::{BudgetIndex, BudgetReason, Outcome, Request, Selection};
