//! Just enough of HTTP/1.1: one request per connection, whole in memory within limits, and its answer.

mod exchange;
mod guard;
mod request;
mod response;

pub(crate) use exchange::{exchange, json_body, page, send, send_stream};
pub(crate) use guard::{Guard, ViewerRequest, link};
pub use guard::{OriginError, ViewerOrigin};
pub(crate) use request::{Method, Request, percent_decoded, read_request};
pub(crate) use response::{Refusal, Response, begin_events};
