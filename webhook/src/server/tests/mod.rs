//! The server as its callers see it: a real socket, honest and dishonest clients.

mod drain;
mod kit;
mod requests;

use super::*;
