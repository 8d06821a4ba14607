//! Azure's Resource Manager. Numbers are those of the list of behaviours in docs/simulators.md.

mod operations;
mod reads;
mod writes;
