//! The board and the machine around it: who it is ([`identity`], with [`libraries`] for what a program loads),
//! which load of the driver ([`driver`]), whether
//! it may be used now ([`lock`], [`users`], [`quarantine`]), what of the environment may reach a leg ([`hygiene`]), and
//! what can be collected here at all ([`doctor`]).

pub mod doctor;
pub mod driver;
pub mod hygiene;
pub mod identity;
pub mod libraries;
pub mod lock;
pub mod quarantine;
pub mod users;
