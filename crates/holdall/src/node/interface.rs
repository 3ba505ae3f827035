//! The types of services: requests and replies as JSON values, by the definitions that holdall carries with it.

use holdall_model::{
    dynamic::{TypePlan, text::TextOptions},
    interface::bundle::Bundle,
};
use serde_json::{Map, Value, json};

/// What the answer of a service that could not do what was asked says where it has a code.
const FAILED: i64 = 1;

/// Zeros that stand for what a request of an older definition does not have yet.
const LATER_FIELDS_BYTES: usize = 64;

/// Types whose requests were shorter in older distributions; what is left out then means "now", or "as before".
const GROWN: [&str; 3] = [
    "rosbag2_interfaces/srv/Record",
    "rosbag2_interfaces/srv/Resume",
    "rosbag2_interfaces/srv/SplitBagfile",
];

/// A service's type, ready to read requests and to write replies.
pub(super) struct ServiceInterface {
    type_name: String,
    type_hash: Option<String>,
    request: TypePlan,
    response: TypePlan,
}

impl ServiceInterface {
    /// A type of the embedded definitions.
    ///
    /// # Errors
    /// One sentence, when it is not there.
    pub fn of(type_name: &str) -> Result<Self, String> {
        let bundle = Bundle::embedded();
        let plan = |part: &str| {
            let name = format!("{type_name}_{part}");
            let definition = bundle.define(&name).map_err(|error| error.to_string())?;
            TypePlan::compile(&definition).map_err(|error| error.to_string())
        };
        Ok(Self {
            type_name: type_name.to_owned(),
            type_hash: bundle.type_hash(type_name).map(str::to_owned),
            request: plan("Request")?,
            response: plan("Response")?,
        })
    }

    /// RIHS01 hash of the type.
    pub fn type_hash(&self) -> Option<&str> {
        self.type_hash.as_deref()
    }

    /// A request as JSON.
    ///
    /// # Errors
    /// One sentence, when it does not fit the type.
    pub fn read(&self, payload: &[u8]) -> Result<Value, String> {
        // Whatever is in the byte of an empty request, it means nothing.
        if self.request.root().is_empty {
            return Ok(json!({}));
        }
        read(&self.request, payload).or_else(|error| {
            if !GROWN.contains(&self.type_name.as_str()) {
                return Err(error);
            }
            let padded = [payload, &[0; LATER_FIELDS_BYTES]].concat();
            read(&self.request, &padded).map_err(|_| error)
        })
    }

    /// A serialized reply; fields that are left out are zero or empty.
    ///
    /// # Errors
    /// One sentence, when it does not fit the type.
    pub fn write(&self, reply: &Value) -> Result<Vec<u8>, String> {
        self.response
            .encode_json(&reply.to_string())
            .map_err(|error| error.to_string())
    }

    /// The reply that says no: fields for success, a code and a reason, as far as the type has them.
    pub fn refusal(&self, reason: &str) -> Value {
        let mut reply = Map::new();
        for field in &self.response.root().fields {
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
        ServiceInterface::of(&format!("rosbag2_interfaces/srv/{name}")).unwrap()
    }

    #[test]
    fn empty_requests_are_read_whatever_is_in_them() {
        for payload in [
            &[0, 1, 0, 0][..],
            &[0, 1, 0, 0, 7],
            b"\0\x01\0\0rubbish of another type",
        ] {
            assert_eq!(interface("Pause").read(payload), Ok(json!({})));
        }
    }

    #[test]
    fn requests_of_older_distributions_mean_now() {
        let now =
            json!({"resume_time": {"sec": 0, "nanosec": 0}, "resume_mode": 0, "tracking_topic_name": ""});
        for payload in [&[0, 1, 0, 0][..], &[0, 1, 0, 0, 0], &[0, 1, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(interface("Resume").read(payload), Ok(now.clone()));
        }
        // A bag's name without the time.
        let record = interface("Record").read(b"\0\x01\0\0\x04\0\0\0bag\0").unwrap();
        assert_eq!(
            record,
            json!({"uri": "bag", "start_time": {"sec": 0, "nanosec": 0}})
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        let error = interface("Seek").read(&[0, 1, 0, 0, 1, 0, 0, 0]).unwrap_err();
        assert!(error.contains("rosbag2_interfaces/srv/Seek_Request"), "{error}");
        assert!(
            interface("Record")
                .read(b"\0\x01\0\0\xff\xff\xff\x7fbag")
                .is_err()
        );
        let parameters = ServiceInterface::of("rcl_interfaces/srv/SetParameters").unwrap();
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
        assert_eq!(
            interface("IsPaused").write(&json!({"paused": true})).unwrap()[4],
            1
        );
        let stop = interface("Stop").write(&json!({"error_string": "x"})).unwrap();
        assert_eq!(stop[4..14], [0, 0, 0, 0, 2, 0, 0, 0, b'x', 0]);
        // One byte without meaning.
        assert_eq!(interface("Pause").write(&json!({})).unwrap().len(), 5);
        assert!(
            interface("Pause")
                .type_hash()
                .is_some_and(|hash| hash.starts_with("RIHS01_"))
        );
    }
}
