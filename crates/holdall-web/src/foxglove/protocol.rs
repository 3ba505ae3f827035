//! The messages of the Foxglove WebSocket protocol, which are the same in both of its subprotocols.

use serde::Deserialize;
use serde_json::{Value, json};

/// The subprotocols that are spoken, the preferred one first.
pub(super) const SUBPROTOCOLS: [&str; 2] = ["foxglove.sdk.v1", "foxglove.websocket.v1"];

/// Most subscriptions, channels and the like in one request.
const LIST_MAX: usize = 10_000;

/// Bytes before the payload of a message: opcode, subscription, time.
pub(super) const MESSAGE_HEAD_BYTES: usize = 1 + 4 + 8;

/// Opcodes of binary messages to clients.
const MESSAGE_DATA: u8 = 1;
const TIME: u8 = 2;
const SERVICE_RESPONSE: u8 = 3;
const FETCH_ASSET_RESPONSE: u8 = 4;
const PLAYBACK_STATE: u8 = 5;

/// Opcodes of binary messages from clients.
const CLIENT_MESSAGE_DATA: u8 = 1;
const SERVICE_REQUEST: u8 = 2;
const PLAYBACK_CONTROL: u8 = 3;

/// A client's message in text form.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Request {
    /// Send messages of channels under these numbers.
    Subscribe { subscriptions: Vec<WantedChannel> },
    /// Stop sending them.
    Unsubscribe { subscription_ids: Vec<u32> },
    /// The client will publish.
    Advertise { channels: Vec<ClientChannel> },
    /// It will stop.
    Unadvertise { channel_ids: Vec<u32> },
    /// Send the publishers and subscribers of all topics.
    SubscribeConnectionGraph {},
    /// Stop sending it.
    UnsubscribeConnectionGraph {},
    /// Send the values of parameters; of all without names.
    GetParameters {
        parameter_names: Vec<String>,
        id: Option<String>,
    },
    /// Change parameters.
    SetParameters {
        parameters: Vec<GivenParameter>,
        id: Option<String>,
    },
    /// Send parameters whenever they change; all without names.
    SubscribeParameterUpdates { parameter_names: Vec<String> },
    /// Stop sending them.
    UnsubscribeParameterUpdates { parameter_names: Vec<String> },
    /// Send the content of a file.
    FetchAsset { uri: String, request_id: u32 },
    /// Anything else that the protocol has.
    #[serde(other)]
    Other,
}

/// A channel that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WantedChannel {
    pub id: u32,
    pub channel_id: u32,
}

/// A topic that a client publishes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClientChannel {
    pub id: u32,
    pub topic: String,
    pub encoding: String,
    pub schema_name: String,
}

/// A parameter's new value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct GivenParameter {
    pub name: String,
    /// None removes it.
    #[serde(default)]
    pub value: Value,
    /// `byte_array`, `float64` or `float64_array` where JSON does not show it.
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

/// A call of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceCall {
    pub service: u32,
    pub call: u32,
    pub encoding: String,
    pub payload: Vec<u8>,
}

/// A client's message in binary form.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Bytes<'a> {
    /// A message of a topic that it publishes.
    Message { channel: u32, payload: &'a [u8] },
    /// A call of a service.
    Call(ServiceCall),
    /// A command for the playback.
    Playback(PlaybackRequest),
}

/// A request of a viewer's own timeline to the playback.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaybackRequest {
    /// Play, or pause.
    pub play: bool,
    /// Speed; 1 is the recording's.
    pub speed: f32,
    /// Where to continue, in nanoseconds since 1970.
    pub seek: Option<u64>,
    /// Comes back in the answer.
    pub id: String,
}

/// The phase of a playback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PlaybackPhase {
    /// Bag time advances.
    Playing = 0,
    /// It does not.
    Paused = 1,
    /// It does not yet.
    Buffering = 2,
    /// All was played.
    Ended = 3,
}

/// The state of a playback for viewers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlaybackState {
    /// Its phase.
    pub phase: PlaybackPhase,
    /// Bag time in nanoseconds since 1970.
    pub time: u64,
    /// Speed.
    pub speed: f32,
}

/// Reads a request; the reason when it is none.
pub(super) fn parse_text(text: &str) -> Result<Request, String> {
    let request: Request = serde_json::from_str(text).map_err(|error| format!("not a request: {error}"))?;
    let len = match &request {
        Request::Subscribe { subscriptions } => subscriptions.len(),
        Request::Unsubscribe {
            subscription_ids: list,
        }
        | Request::Unadvertise { channel_ids: list } => list.len(),
        Request::Advertise { channels } => channels.len(),
        Request::GetParameters {
            parameter_names: list,
            ..
        }
        | Request::SubscribeParameterUpdates {
            parameter_names: list,
        }
        | Request::UnsubscribeParameterUpdates {
            parameter_names: list,
        } => list.len(),
        Request::SetParameters { parameters, .. } => parameters.len(),
        _ => 0,
    };
    if len > LIST_MAX {
        return Err(format!(
            "a request has at most {LIST_MAX} entries, this one {len}"
        ));
    }
    Ok(request)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Reads a binary message; the reason when it is none.
pub(super) fn parse_bytes(bytes: &[u8]) -> Result<Bytes<'_>, String> {
    let short = || "a binary message is too short".to_owned();
    match bytes.first() {
        Some(&CLIENT_MESSAGE_DATA) => Ok(Bytes::Message {
            channel: u32_at(bytes, 1).ok_or_else(short)?,
            payload: &bytes[5..],
        }),
        Some(&SERVICE_REQUEST) => parse_call(&bytes[1..]).map(Bytes::Call).ok_or_else(short),
        Some(&PLAYBACK_CONTROL) => parse_playback(&bytes[1..]).map(Bytes::Playback).ok_or_else(short),
        Some(opcode) => Err(format!("binary messages of opcode {opcode} are not answered")),
        None => Err(short()),
    }
}

fn parse_call(bytes: &[u8]) -> Option<ServiceCall> {
    let encoding_len = usize::try_from(u32_at(bytes, 8)?).ok()?;
    let (encoding, payload) = bytes.get(12..)?.split_at_checked(encoding_len)?;
    Some(ServiceCall {
        service: u32_at(bytes, 0)?,
        call: u32_at(bytes, 4)?,
        encoding: str::from_utf8(encoding).ok()?.to_owned(),
        payload: payload.to_vec(),
    })
}

fn parse_playback(bytes: &[u8]) -> Option<PlaybackRequest> {
    let time = u64::from_le_bytes(bytes.get(6..14)?.try_into().ok()?);
    let id_len = usize::try_from(u32_at(bytes, 14)?).ok()?;
    let id = bytes.get(18..18_usize.checked_add(id_len)?)?;
    Some(PlaybackRequest {
        play: bytes[0] == 0,
        speed: f32::from_le_bytes(bytes.get(1..5)?.try_into().ok()?),
        seek: (bytes[5] != 0).then_some(time),
        id: str::from_utf8(id).ok()?.to_owned(),
    })
}

/// Appends the header before a message's payload.
pub(super) fn append_message_head(to: &mut Vec<u8>, subscription: u32, log_time: u64) {
    to.push(MESSAGE_DATA);
    to.extend(subscription.to_le_bytes());
    to.extend(log_time.to_le_bytes());
}

/// The time of a server whose time is not the clock's.
pub(super) fn time(nanos: u64) -> Vec<u8> {
    let mut bytes = vec![TIME];
    bytes.extend(nanos.to_le_bytes());
    bytes
}

/// The state of the playback; `id` is the request's that it answers, or empty.
pub(super) fn playback_state(state: PlaybackState, did_seek: bool, id: &str) -> Vec<u8> {
    let mut bytes = vec![PLAYBACK_STATE, state.phase as u8];
    bytes.extend(state.time.to_le_bytes());
    bytes.extend(state.speed.to_le_bytes());
    bytes.push(u8::from(did_seek));
    bytes.extend((id.len() as u32).to_le_bytes());
    bytes.extend(id.as_bytes());
    bytes
}

/// The answer of a service.
pub(super) fn service_response(service: u32, call: u32, encoding: &str, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![SERVICE_RESPONSE];
    bytes.extend(service.to_le_bytes());
    bytes.extend(call.to_le_bytes());
    bytes.extend((encoding.len() as u32).to_le_bytes());
    bytes.extend(encoding.as_bytes());
    bytes.extend(payload);
    bytes
}

/// The content of a file, or why a client does not get it.
pub(super) fn asset(request: u32, content: Result<&[u8], &str>) -> Vec<u8> {
    let (status, reason, data) = match content {
        Ok(data) => (0, "", data),
        Err(reason) => (1, reason, &[][..]),
    };
    let mut bytes = Vec::with_capacity(10 + reason.len() + data.len());
    bytes.push(FETCH_ASSET_RESPONSE);
    bytes.extend(request.to_le_bytes());
    bytes.push(status);
    bytes.extend((reason.len() as u32).to_le_bytes());
    bytes.extend(reason.as_bytes());
    bytes.extend(data);
    bytes
}

/// A call that has no answer.
pub(super) fn service_failure(service: u32, call: u32, message: &str) -> Value {
    json!({"op": "serviceCallFailure", "serviceId": service, "callId": call, "message": message})
}

/// Values of parameters; `id` is that of the request which they answer.
pub(super) fn parameter_values<V: serde::Serialize>(values: &[V], id: Option<&str>) -> Value {
    let mut message = json!({"op": "parameterValues", "parameters": values});
    if let Some(id) = id {
        message["id"] = json!(id);
    }
    message
}

/// The first message to a client; `range` is the time of the played bag, in nanoseconds since 1970.
pub(super) fn server_info(
    name: &str,
    session: &str,
    capabilities: &[&str],
    range: Option<(u64, u64)>,
) -> Value {
    let mut info = json!({
        "op": "serverInfo",
        "name": name,
        "capabilities": capabilities,
        "metadata": {},
        "sessionId": session,
    });
    if capabilities.contains(&"clientPublish") {
        info["supportedEncodings"] = json!(["cdr"]);
    }
    if let Some((start, end)) = range {
        let time = |nanos: u64| json!({"sec": nanos / 1_000_000_000, "nsec": nanos % 1_000_000_000});
        info["dataStartTime"] = time(start);
        info["dataEndTime"] = time(end);
    }
    info
}

/// A sentence for the user of a viewer: level 0 is information, 1 a warning, 2 an error. A later one of the same id replaces it.
pub(super) fn status(level: u8, message: &str, id: Option<&str>) -> Value {
    let mut status = json!({"op": "status", "level": level, "message": message});
    if let Some(id) = id {
        status["id"] = json!(id);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_read_as_viewers_send_them() {
        let text = r#"{"op":"subscribe","subscriptions":[{"id":1,"channelId":7}]}"#;
        let subscriptions = vec![WantedChannel { id: 1, channel_id: 7 }];
        assert_eq!(parse_text(text), Ok(Request::Subscribe { subscriptions }));
        assert_eq!(
            parse_text(r#"{"op":"unsubscribe","subscriptionIds":[1,2]}"#),
            Ok(Request::Unsubscribe {
                subscription_ids: vec![1, 2]
            })
        );
        assert_eq!(
            parse_text(r#"{"op":"subscribeConnectionGraph"}"#),
            Ok(Request::SubscribeConnectionGraph {})
        );
        assert_eq!(
            parse_text(r#"{"op":"somethingNew","parameterNames":[]}"#),
            Ok(Request::Other)
        );
        assert_eq!(
            parse_text(r#"{"op":"fetchAsset","uri":"package://a/b.dae","requestId":7}"#),
            Ok(Request::FetchAsset {
                uri: "package://a/b.dae".to_owned(),
                request_id: 7
            })
        );
        for text in [
            "",
            "[]",
            "{}",
            r#"{"op":"subscribe"}"#,
            r#"{"op":"subscribe","subscriptions":[{"id":-1,"channelId":7}]}"#,
        ] {
            assert!(parse_text(text).is_err(), "{text}");
        }
        let many = vec!["1"; LIST_MAX + 1].join(",");
        assert!(
            parse_text(&format!(
                "{{\"op\":\"unsubscribe\",\"subscriptionIds\":[{many}]}}"
            ))
            .is_err()
        );
    }

    #[test]
    fn a_timelines_request_is_read_to_its_last_byte() {
        let mut bytes = vec![3, 1];
        bytes.extend(2.5_f32.to_le_bytes());
        bytes.push(1);
        bytes.extend(77_u64.to_le_bytes());
        bytes.extend(3_u32.to_le_bytes());
        bytes.extend(b"abc");
        let expected = PlaybackRequest {
            play: false,
            speed: 2.5,
            seek: Some(77),
            id: "abc".to_owned(),
        };
        assert_eq!(parse_bytes(&bytes), Ok(Bytes::Playback(expected)));
        for len in 0..bytes.len() {
            assert!(parse_bytes(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn calls_and_parameters_are_read_to_their_last_byte() {
        let mut bytes = vec![2];
        for number in [7_u32, 9, 3] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(b"cdr\x00\x01\x00\x00\x05");
        let call = ServiceCall {
            service: 7,
            call: 9,
            encoding: "cdr".to_owned(),
            payload: b"\x00\x01\x00\x00\x05".to_vec(),
        };
        assert_eq!(parse_bytes(&bytes), Ok(Bytes::Call(call)));
        for len in 0..16 {
            assert!(parse_bytes(&bytes[..len]).is_err(), "{len}");
        }
        assert_eq!(
            service_response(7, 9, "cdr", b"\x00\x01\x00\x00\x05")[1..],
            bytes[1..]
        );
        let set = parse_text(
            "{\"op\":\"setParameters\",\"parameters\":[{\"name\":\"/n.p\",\"value\":1.5,\"type\":\"float64\"},{\"name\":\"/n.q\"}],\"id\":\"x\"}",
        );
        let Ok(Request::SetParameters { parameters, id }) = set else {
            panic!("{set:?}");
        };
        assert_eq!(
            (parameters[0].kind.as_deref(), &parameters[1].value),
            (Some("float64"), &Value::Null)
        );
        assert_eq!(id.as_deref(), Some("x"));
        let get = parse_text("{\"op\":\"getParameters\",\"parameterNames\":[]}");
        assert!(matches!(get, Ok(Request::GetParameters { .. })), "{get:?}");
    }

    #[test]
    fn states_have_the_protocols_layout() {
        let state = PlaybackState {
            phase: PlaybackPhase::Paused,
            time: 12345,
            speed: 1.0,
        };
        let mut expected = vec![5, 1];
        expected.extend(12345_u64.to_le_bytes());
        expected.extend(1.0_f32.to_le_bytes());
        expected.extend([1, 2, 0, 0, 0, b'i', b'd']);
        assert_eq!(playback_state(state, true, "id"), expected);
        let info = server_info("bag", "1", &[], Some((1_500_000_000, 2_000_000_001)));
        assert_eq!(info["dataStartTime"], json!({"sec": 1, "nsec": 500_000_000}));
        assert_eq!(info["dataEndTime"], json!({"sec": 2, "nsec": 1}));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_bytes(&bytes);
            let _ = parse_text(&String::from_utf8_lossy(&bytes));
        }
    }
}
