//! The server as its callers see it: a real socket, honest and dishonest clients. Numbers in names are
//! those of the checklist in docs/security.md.

mod drain;
mod floods;
mod handshakes;
mod kit;
mod plain;
mod requests;

use super::*;
