//! Completes ROS 1 definitions that lack a type which ROS 2 has as well; the md5 sum of the connection shows whether it is the same one.

use super::{Ros1Definition, definition::DELIMITER, ros2_type_name};
use crate::interface::{InterfaceError, SourceFormat, TYPES_MAX, bundle::Bundle};

impl Ros1Definition {
    /// As [`Ros1Definition::parse`]; types missing from the text are taken from ROS 2, provided that the whole then has one of
    /// these md5 sums.
    pub fn parse_or_complete<'s>(
        type_name: &str,
        text: &str,
        sums: impl IntoIterator<Item = &'s str>,
    ) -> Result<Self, InterfaceError> {
        let first = match Self::parse(type_name, text) {
            Ok(whole) => return Ok(whole),
            Err(error) => error,
        };
        match Self::completed(type_name, text.to_owned(), &first) {
            Some(found) if sums.into_iter().any(|sum| sum == found.md5sum()) => Ok(found),
            _ => Err(first),
        }
    }

    fn completed(type_name: &str, mut text: String, error: &InterfaceError) -> Option<Self> {
        let mut missing = missing_type(error)?;
        for _ in 0..TYPES_MAX {
            text.push_str(&format!(
                "\n{DELIMITER}\nMSG: {missing}\n{}",
                ros1_text(&missing)?
            ));
            match Self::parse(type_name, &text) {
                Ok(found) => return Some(found),
                Err(error) => {
                    let next = missing_type(&error)?;
                    if next == missing {
                        return None;
                    }
                    missing = next;
                }
            }
        }
        None
    }
}

fn missing_type(error: &InterfaceError) -> Option<String> {
    match error {
        InterfaceError::NotFound {
            type_name,
            needed_by: Some(_),
        } => Some(type_name.clone()),
        _ => None,
    }
}

/// The text of ROS 2's type of this name in the terms of ROS 1.
fn ros1_text(type_name: &str) -> Option<String> {
    let source = Bundle::embedded().get(&ros2_type_name(type_name))?;
    if source.format != SourceFormat::Msg {
        return None;
    }
    let lines = source.text.lines().map(|line| {
        let code = line.split('#').next().unwrap_or_default().trim();
        if code.contains('=') {
            return code.to_owned();
        }
        // A default value follows, which ROS 1 does not have.
        let mut words = code.split_ascii_whitespace();
        let (kind, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let kind = kind
            .replace("builtin_interfaces/Time", "time")
            .replace("builtin_interfaces/Duration", "duration");
        format!("{kind} {name}").trim().to_owned()
    });
    Some(lines.collect::<Vec<_>>().join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The md5 sum of `sensor_msgs/Imu` in ROS 1, as `rosmsg md5` prints it.
    const IMU_MD5: &str = "6a62c6daae103f4ff57a132d6f95cec2";

    #[test]
    fn a_type_that_the_text_lacks_is_the_one_of_ros_2_with_the_same_sum() {
        let text = "sensor_msgs/Imu imu\nfloat64 speed\n";
        assert!(Ros1Definition::parse("lab/State", text).is_err());
        let imu = Ros1Definition::completed(
            "lab/State",
            text.to_owned(),
            &Ros1Definition::parse("lab/State", text).unwrap_err(),
        )
        .unwrap();
        // The sum of a message is that of its fields' sums.
        let whole = Ros1Definition::parse("lab/Same", &format!("{text}{}", parts())).unwrap();
        let sum = whole.md5sum();
        assert_eq!(imu.md5sum(), sum);
        assert!(Ros1Definition::parse_or_complete("lab/State", text, [sum.as_str()]).is_ok());
        for sums in [&["*"][..], &[], &["0123456789abcdef0123456789abcdef"]] {
            assert!(Ros1Definition::parse_or_complete("lab/State", text, sums.iter().copied()).is_err());
        }
        let alone = ros1_text("sensor_msgs/Imu").unwrap();
        let alone = Ros1Definition::parse_or_complete("sensor_msgs/Imu", &alone, [IMU_MD5]).unwrap();
        assert_eq!(alone.md5sum(), IMU_MD5);
    }

    #[test]
    fn a_type_that_nothing_has_is_named() {
        let error = Ros1Definition::parse_or_complete("lab/State", "lab/Own own\n", ["*"]).unwrap_err();
        assert!(error.to_string().contains("lab/Own"), "{error}");
    }

    /// The texts of Imu and all that it needs, as ROS 1 has them.
    fn parts() -> String {
        let text = |name: &str, text: &str| format!("\n{DELIMITER}\nMSG: {name}\n{text}");
        [
            text(
                "sensor_msgs/Imu",
                "Header header\ngeometry_msgs/Quaternion orientation\nfloat64[9] orientation_covariance\n\
                 geometry_msgs/Vector3 angular_velocity\nfloat64[9] angular_velocity_covariance\n\
                 geometry_msgs/Vector3 linear_acceleration\nfloat64[9] linear_acceleration_covariance\n",
            ),
            text("std_msgs/Header", "uint32 seq\ntime stamp\nstring frame_id\n"),
            text(
                "geometry_msgs/Quaternion",
                "float64 x\nfloat64 y\nfloat64 z\nfloat64 w\n",
            ),
            text("geometry_msgs/Vector3", "float64 x\nfloat64 y\nfloat64 z\n"),
        ]
        .concat()
    }
}
