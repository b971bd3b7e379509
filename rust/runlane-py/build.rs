//! Makes the interpreter's features known to `cfg`: some code must differ where there is no global lock.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
