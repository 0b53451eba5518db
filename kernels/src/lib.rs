//! Every operation of a GLM-DSA forward: its meaning, its implementations, and the devices they run on.

pub mod blocks;
