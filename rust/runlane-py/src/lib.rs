//! `runlane._native`: conversions between Python and `runlane-core`, and no logic.

mod error;

use pyo3::prelude::*;

/// The native half of runlane; import the façades (`runlane.sse`, `runlane.canonical`, ...) instead.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::error::NativeError;
}
