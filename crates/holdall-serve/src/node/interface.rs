//! The types of services: requests and replies as JSON values, by the definitions that holdall carries with it, in each layout that a
//! type has had.

use super::layouts::{Distribution, FORMER_LAYOUTS};
use holdall_model::{
    dynamic::{TypePlan, text::TextOptions},
    interface::{Definition, InterfaceError, bundle::Bundle},
};
use holdall_transport::{LayoutReplies, LayoutReply};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Code in the reply of a service that failed, if the type has a code.
const FAILED: i64 = 1;

/// Most bytes of a request without fields: the encapsulation header and, depending on the middleware, up to four without meaning.
const EMPTY_BYTES_MAX: usize = 8;

/// A type in one layout.
struct Layout {
    request: TypePlan,
    response: TypePlan,
    /// Hashes of the service's type, its request and its reply.
    hashes: Arc<[String]>,
    /// The last distribution that has it; `None` for the newest layout, and for one that no distribution had.
    until: Option<Distribution>,
}

impl Layout {
    fn of(
        type_name: &str,
        until: Option<Distribution>,
        define: impl Fn(&str) -> Result<Definition, InterfaceError>,
    ) -> Result<Self, String> {
        let part = |part: &str| {
            let definition = define(&format!("{type_name}{part}")).map_err(|error| error.to_string())?;
            let hash = definition.type_hash();
            Ok::<_, String>((definition, hash))
        };
        let plan = |definition: &Definition| TypePlan::compile(definition).map_err(|error| error.to_string());
        let (service, request, response) = (part("")?, part("_Request")?, part("_Response")?);
        Ok(Self {
            request: plan(&request.0)?,
            response: plan(&response.0)?,
            hashes: [service.1, request.1, response.1].into(),
            until,
        })
    }

    /// A serialized reply with those of these fields that the layout has.
    fn write(&self, reply: &Value) -> Result<Vec<u8>, String> {
        let fields = &self.response.root().fields;
        let known: Map<String, Value> = reply
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| fields.iter().any(|field| field.name == **name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        self.response
            .encode_json(&Value::Object(known).to_string())
            .map_err(|error| error.to_string())
    }
}

/// Which layout a request is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestLayout(usize);

/// A service's type, ready to read requests and to write replies.
pub(super) struct ServiceInterface {
    /// The newest first.
    layouts: Vec<Layout>,
    /// The distribution of the system that the node is in, if known.
    distribution: Option<Distribution>,
}

impl ServiceInterface {
    /// A type of the embedded definitions. Clients that announce no layout are taken for those of the `distribution`.
    ///
    /// # Errors
    /// One sentence if it does not exist.
    pub fn of(type_name: &str, distribution: Option<Distribution>) -> Result<Self, String> {
        let mut layouts = vec![Layout::of(type_name, None, |name| {
            Bundle::embedded().define(name)
        })?];
        for former in FORMER_LAYOUTS {
            if former.type_name == type_name {
                layouts.push(Layout::of(type_name, former.until, |name| former.define(name))?);
            }
        }
        Ok(Self {
            layouts,
            distribution,
        })
    }

    /// RIHS01 hash of the newest layout of the type.
    pub fn type_hash(&self) -> Option<&str> {
        self.layouts[0].hashes.first().map(String::as_str)
    }

    /// A request as JSON, and its layout; fields that an older layout does not have are missing.
    ///
    /// # Errors
    /// One sentence, when it fits no layout.
    pub fn read(&self, payload: &[u8]) -> Result<(RequestLayout, Value), String> {
        let mut newest_error = None;
        for (index, layout) in self.layouts.iter().enumerate() {
            let found = if !layout.request.root().is_empty {
                read(&layout.request, payload)
            } else if index == 0 || payload.len() <= EMPTY_BYTES_MAX {
                // Whatever is in the byte of an empty request, it means nothing.
                Ok(json!({}))
            } else {
                continue;
            };
            match found {
                Ok(request) => return Ok((RequestLayout(index), request)),
                Err(error) => newest_error = newest_error.or(Some(error)),
            }
        }
        Err(newest_error.unwrap_or_else(|| "it is of another type".to_owned()))
    }

    /// A serialized reply for every layout; fields that are left out are zero or empty.
    ///
    /// # Errors
    /// One sentence, when it does not fit the type.
    pub fn write(&self, request: RequestLayout, reply: &Value) -> Result<LayoutReplies, String> {
        let mut layouts = Vec::with_capacity(self.layouts.len());
        for layout in &self.layouts {
            layouts.push(LayoutReply {
                hashes: Arc::clone(&layout.hashes),
                payload: layout.write(reply)?,
            });
        }
        let default = layouts[self.likely(request)].payload.clone();
        Ok(LayoutReplies { default, layouts })
    }

    /// The layout of a client that announces none: one with the client's request; of the system's distribution, else of a distribution.
    fn likely(&self, request: RequestLayout) -> usize {
        let request_hash = |layout: &Layout| layout.hashes[1].clone();
        let asked = request_hash(&self.layouts[request.0]);
        let fits = |index: &usize| request_hash(&self.layouts[*index]) == asked;
        let released = || (0..self.layouts.len()).filter(|index| self.layouts[*index].until.is_some());
        let of_distribution = match self.distribution {
            Some(distribution) => released()
                .find(|index| self.layouts[*index].until >= Some(distribution))
                .unwrap_or(0),
            None => 0,
        };
        Some(of_distribution)
            .filter(fits)
            .or_else(|| Some(0).filter(fits))
            .or_else(|| released().find(fits))
            .unwrap_or(request.0)
    }

    /// The reply for a refusal: fields for success, a code and a reason, if the type has them.
    pub fn refusal(&self, reason: &str) -> Value {
        let mut reply = Map::new();
        for field in &self.layouts[0].response.root().fields {
            let value = match field.name.as_str() {
                "success" | "successful" => json!(false),
                "return_code" => json!(FAILED),
                "error_string" | "message" | "failure_reason" => json!(reason),
                _ => continue,
            };
            reply.insert(field.name.clone(), value);
        }
        Value::Object(reply)
    }
}

fn read(plan: &TypePlan, payload: &[u8]) -> Result<Value, String> {
    let mut text = Vec::new();
    plan.write_json(payload, &TextOptions::default(), &mut text)
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str) -> ServiceInterface {
        ServiceInterface::of(&format!("rosbag2_interfaces/srv/{name}"), None).unwrap()
    }

    fn request(name: &str, payload: &[u8]) -> Result<Value, String> {
        interface(name).read(payload).map(|(_, request)| request)
    }

    #[test]
    fn empty_requests_are_read_whatever_is_in_them() {
        for payload in [
            &[0, 1, 0, 0][..],
            &[0, 1, 0, 0, 7],
            b"\0\x01\0\0rubbish of another type",
        ] {
            assert_eq!(request("Pause", payload), Ok(json!({})));
        }
    }

    #[test]
    fn requests_of_older_distributions_are_read() {
        for payload in [&[0, 1, 0, 0][..], &[0, 1, 0, 0, 7], &[0, 1, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(request("Resume", payload), Ok(json!({})));
            assert_eq!(request("SplitBagfile", payload), Ok(json!({})));
        }
        // A bag's name without the time, and a time without a mode.
        assert_eq!(
            request("Record", b"\0\x01\0\0\x04\0\0\0bag\0"),
            Ok(json!({"uri": "bag"}))
        );
        assert_eq!(
            request("Resume", &[0, 1, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]),
            Ok(json!({"resume_time": {"sec": 1, "nanosec": 2}}))
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        let error = request("Seek", &[0, 1, 0, 0, 1, 0, 0, 0]).unwrap_err();
        assert!(error.contains("rosbag2_interfaces/srv/Seek_Request"), "{error}");
        assert!(request("Record", b"\0\x01\0\0\xff\xff\xff\x7fbag").is_err());
        // Cut off after its first bytes.
        assert!(request("SplitBagfile", &[0, 1, 0, 0, 1, 0, 0, 0, 2]).is_err());
        let parameters = ServiceInterface::of("rcl_interfaces/srv/SetParameters", None).unwrap();
        assert!(parameters.read(&[0, 1, 0, 0, 255, 255, 255, 255]).is_err());
        let refusal = interface("Stop").refusal("not recording");
        assert_eq!(
            refusal,
            json!({"return_code": 1, "error_string": "not recording"})
        );
        assert_eq!(interface("IsPaused").refusal("no"), json!({}));
        assert_eq!(interface("Seek").refusal("no"), json!({"success": false}));
    }

    #[test]
    fn replies_are_encoded_as_ros_does() {
        let written = |name: &str, reply: &Value| {
            let replies = interface(name).write(RequestLayout(0), reply);
            replies.unwrap().default
        };
        assert_eq!(written("IsPaused", &json!({"paused": true}))[4], 1);
        let stop = written("Stop", &json!({"error_string": "x"}));
        assert_eq!(stop[4..14], [0, 0, 0, 0, 2, 0, 0, 0, b'x', 0]);
        // One byte without meaning.
        assert_eq!(written("Pause", &json!({})).len(), 5);
        assert!(
            interface("Pause")
                .type_hash()
                .is_some_and(|hash| hash.starts_with("RIHS01_"))
        );
    }

    #[test]
    fn a_client_that_announces_nothing_is_answered_by_its_request_and_the_distribution() {
        let empty = &[0, 1, 0, 0, 0][..];
        let newest_resume = [&[0, 1, 0, 0][..], &[0; 12], &[1, 0, 0, 0, 0]].concat();
        let uri = &b"\0\x01\0\0\x02\0\0\0b\0"[..];
        // A code of four bytes and an empty text, or one byte without meaning.
        let (code, nothing) = (13, 5);
        for (name, payload, distribution, expected) in [
            ("Resume", empty, None, nothing),
            ("Resume", empty, Some("rolling"), nothing),
            ("Resume", empty, Some("humble"), nothing),
            ("Resume", &newest_resume, Some("jazzy"), code),
            ("SplitBagfile", empty, None, nothing),
            ("Stop", empty, None, code),
            ("Stop", empty, Some("rolling"), code),
            ("Stop", empty, Some("iron"), nothing),
            ("Stop", empty, Some("kilted"), nothing),
            ("Record", uri, Some("jazzy"), code),
            ("StopDiscovery", empty, Some("jazzy"), code),
        ] {
            let distribution = distribution.map(Distribution::from_name);
            let interface = ServiceInterface::of(&format!("rosbag2_interfaces/srv/{name}"), distribution);
            let interface = interface.unwrap();
            let (layout, _) = interface.read(payload).unwrap();
            let replies = interface.write(layout, &json!({"return_code": 0, "error_string": ""}));
            let replies = replies.unwrap();
            assert_eq!(replies.default.len(), expected, "{name} {distribution:?}");
        }
    }
}
