//! The hot paths of runlane as pure functions: bytes in, plan out.
//!
//! Nothing here knows Python, does I/O, reads a clock, starts a thread or keeps state outside the values it
//! returns. Every function is total: hostile input ends in a typed error, never in a panic.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod budget;
pub mod canon;
pub mod history;
pub mod openai_chat;
pub mod sse;
