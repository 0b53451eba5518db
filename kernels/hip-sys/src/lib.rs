//! The HIP runtime's C API as a table that is loaded at run time.
