//! `runlane._native`: conversions between Python and `runlane-core`, and no logic.

mod canon;
mod error;
mod history;
mod openai_chat;
mod sse;

use pyo3::prelude::*;

/// The native half of runlane; import the façades (`runlane.sse`, `runlane.canonical`, ...) instead.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::canon::{
        canonical_document_hash, canonical_hash, canonical_json, canonical_record_document_hash,
        canonical_record_hash, canonical_record_json, canonicalize, canonicalize_record,
        decode_lossless, encode_lossless,
    };
    #[pymodule_export]
    use crate::error::{NativeError, adopt_errors};
    #[pymodule_export]
    use crate::history::{
        ChatFragments, HistoryLog, HistoryPlan, HistorySelection, adopt_vocabulary,
    };
    #[pymodule_export]
    use crate::openai_chat::scan_chat_chunk;
    #[pymodule_export]
    use crate::sse::{IncompleteSseEvent, SseDecoder, SseEvent, encode_sse};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("EventQueue", crate::sse::event_queue(module.py())?)
    }
}
