//! Checks of `sensor_msgs/msg/PointCloud2`: whether it has points, and how many of them are not finite.

use super::{content::named, parse::Rule, sample::Sample};
use crate::dynamic::{
    Scalar, TypePlan,
    part::{Part, Place},
};
use std::sync::Arc;

/// Its type.
pub(super) const CLOUD_TYPE: &str = "sensor_msgs/msg/PointCloud2";
/// FLOAT32 among the types of a field.
const FLOAT32: u8 = 7;

/// A rule about point clouds.
#[derive(Debug)]
pub(super) struct CloudCheck {
    plan: Arc<TypePlan>,
    points: Option<u64>,
    invalid: Option<f64>,
}

/// Where the coordinates of a point are.
struct Layout {
    little_endian: bool,
    step: usize,
    offsets: Vec<usize>,
    /// Where the data begins.
    begin: usize,
}

impl CloudCheck {
    pub fn new(rule: &Rule, plan: &Arc<TypePlan>) -> Result<Self, String> {
        if plan.type_name() != CLOUD_TYPE {
            return Err(format!(
                "its type is {}, only {CLOUD_TYPE} is judged",
                plan.type_name()
            ));
        }
        Ok(Self {
            plan: Arc::clone(plan),
            points: rule.count("points"),
            invalid: rule.number("invalid"),
        })
    }

    /// What is wrong with a cloud, if anything; an error if that cannot be decided.
    pub fn check(&self, sample: &Sample) -> Result<Option<String>, String> {
        let head = &sample.head;
        let points = self
            .number(head, "width")?
            .saturating_mul(self.number(head, "height")?);
        if self.points.is_some_and(|least| points < least) {
            return Ok(Some(format!(
                "{points} points, at least {}",
                self.points.unwrap_or_default()
            )));
        }
        let Some(bound) = self.invalid.filter(|_| points > 0) else {
            return Ok(None);
        };
        let layout = self.layout(head)?;
        let (mut invalid, mut all) = (0_u64, 0_u64);
        for (at, piece) in sample.pieces(layout.begin) {
            let skipped = (layout.step - (at - layout.begin) % layout.step) % layout.step;
            for point in piece.get(skipped..).unwrap_or_default().chunks_exact(layout.step) {
                all += 1;
                let is_finite = |offset: &usize| {
                    let bytes = point
                        .get(*offset..offset + 4)
                        .and_then(|bytes| bytes.try_into().ok());
                    bytes.is_none_or(|bytes| {
                        let value = if layout.little_endian {
                            f32::from_le_bytes(bytes)
                        } else {
                            f32::from_be_bytes(bytes)
                        };
                        value.is_finite()
                    })
                };
                invalid += u64::from(!layout.offsets.iter().all(is_finite));
            }
        }
        if all == 0 {
            return Err("the points are too large for a sample".to_owned());
        }
        let share = invalid as f64 / all as f64;
        Ok((share > bound).then(|| format!("{:.0} % of the points are not finite", share * 100.0)))
    }

    fn part<'a>(&'a self, payload: &'a [u8], place: Place, name: &str) -> Result<Part<'a>, String> {
        named(&self.plan, payload, place, name)
    }

    fn root(&self, payload: &[u8]) -> Result<Place, String> {
        self.plan.place(payload).map_err(|error| error.to_string())
    }

    fn number(&self, payload: &[u8], name: &str) -> Result<u64, String> {
        number(self.part(payload, self.root(payload)?, name)?)
    }

    fn layout(&self, head: &[u8]) -> Result<Layout, String> {
        let root = self.root(head)?;
        let Part::List(fields) = self.part(head, root, "fields")? else {
            return Err("fields is not a list".to_owned());
        };
        let mut offsets = Vec::new();
        let mut failure = None;
        let mut read = |place| -> Result<(), String> {
            let Part::Scalar(Scalar::Text(name)) = self.part(head, place, "name")? else {
                return Ok(());
            };
            if matches!(name.0, b"x" | b"y" | b"z") {
                let offset = number(self.part(head, place, "offset")?)?;
                if number(self.part(head, place, "datatype")?)? == u64::from(FLOAT32) {
                    offsets.push(usize::try_from(offset).unwrap_or(usize::MAX - 4));
                }
            }
            Ok(())
        };
        let items = self.plan.items(head, fields, &mut |part| {
            if let Part::Struct(place) = part {
                failure = read(place).err();
            }
            failure.is_none()
        });
        items.map_err(|error| error.to_string())?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        if offsets.is_empty() {
            return Err("the cloud has no x, y and z of 32 bits".to_owned());
        }
        let step = usize::try_from(self.number(head, "point_step")?).unwrap_or(0);
        if step == 0 {
            return Err("point_step is 0".to_owned());
        }
        // The two numbers before the data are of four bytes each: its place is after the count.
        let before = self.number_end(head, "row_step")?;
        Ok(Layout {
            little_endian: !self.is_big_endian(head)?,
            step,
            offsets,
            begin: before + 4,
        })
    }

    fn is_big_endian(&self, head: &[u8]) -> Result<bool, String> {
        match self.part(head, self.root(head)?, "is_bigendian")? {
            Part::Scalar(Scalar::Bool(value)) => Ok(value),
            _ => Err("is_bigendian is not a bool".to_owned()),
        }
    }

    /// Where a number of four bytes ends: that far the payload can be cut so that it can still be read.
    fn number_end(&self, head: &[u8], name: &str) -> Result<usize, String> {
        let is_read = |len: usize| {
            head.get(..len)
                .is_some_and(|head| self.number(head, name).is_ok())
        };
        let (mut low, mut high) = (0, head.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_read(middle) {
                high = middle
            } else {
                low = middle + 1
            }
        }
        is_read(low)
            .then_some(low)
            .ok_or_else(|| format!("{name} cannot be read"))
    }
}

fn number(part: Part<'_>) -> Result<u64, String> {
    match part {
        Part::Scalar(Scalar::U32(value)) => Ok(value.into()),
        Part::Scalar(Scalar::U8(value)) => Ok(value.into()),
        _ => Err("a field of the cloud is not a number".to_owned()),
    }
}
