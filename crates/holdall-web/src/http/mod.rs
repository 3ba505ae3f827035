//! Just enough of HTTP/1.1: one request per connection, whole in memory within limits, and its answer.

mod guard;
mod request;
mod response;

pub(crate) use guard::{Guard, Token, ViewerRequest, link};
pub(crate) use request::{Method, Request, read_request};
pub(crate) use response::{Refusal, Response, begin_events};
