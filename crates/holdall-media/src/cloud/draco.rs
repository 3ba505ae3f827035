//! Reads points in the Draco format, as `point_cloud_transport` has them: an attribute for each field of the message, in their order.

use super::{Cloud, Field, Kind};
use draco_core::{DecodeLimits, DecoderBuffer, PointAttribute, PointCloud, PointCloudDecoder, PointIndex};
use std::panic::catch_unwind;

/// The format text of messages with it.
pub const FORMAT: &str = "draco";

/// The points again, with zeros between the fields. `cloud` has everything but the points.
///
/// # Errors
/// One clause: data that is damaged, or that has other points or fields than its message.
pub fn decode(cloud: &Cloud<'_>, packed: &[u8]) -> Result<Vec<u8>, String> {
    let points = cloud.points()?;
    if cloud.is_bigendian != 0 {
        return Err("its points are big endian, which Draco does not know".to_owned());
    }
    let step = cloud.point_step as usize;
    let found = unpack(packed, points, points * step)?;
    if found.num_points() != points || usize::try_from(found.num_attributes()) != Ok(cloud.fields.len()) {
        return Err(format!(
            "its Draco data has {} points of {} fields, its message {points} of {}",
            found.num_points(),
            found.num_attributes(),
            cloud.fields.len()
        ));
    }
    let mut data = vec![0; points * step];
    let mut last = None;
    for (place, field) in (0..).zip(&cloud.fields) {
        let attribute = found.attribute(place);
        let (offset, bytes) = (field.offset as usize, bytes_of(attribute, field)?);
        if offset.saturating_add(bytes) > step {
            return Err(format!("its field {:?} ends after the point", field.name));
        }
        if last.replace(attribute.unique_id()) >= Some(attribute.unique_id()) {
            return Err("its Draco data has its fields in another order".to_owned());
        }
        let (values, stride) = (attribute.buffer().data(), attribute.byte_stride() as usize);
        for (number, point) in (0..).zip(data.chunks_exact_mut(step)) {
            let value = attribute.mapped_index(PointIndex(number)).0 as usize;
            let value = values.get(value.saturating_mul(stride)..);
            let value = value.and_then(|value| value.get(..bytes));
            let value = value.ok_or_else(|| format!("its field {:?} lacks values", field.name))?;
            point[offset..offset + bytes].copy_from_slice(value);
        }
    }
    Ok(data)
}

fn unpack(packed: &[u8], points: usize, bytes_max: usize) -> Result<PointCloud, String> {
    let limits = DecodeLimits::default()
        .with_max_points(points as u64)
        .with_max_faces(0)
        .with_max_decoded_bytes(bytes_max as u64);
    let decoded = catch_unwind(|| {
        let mut found = PointCloud::new();
        let mut buffer = DecoderBuffer::new(packed).with_limits(limits);
        let decoded = PointCloudDecoder::new().decode(&mut buffer, &mut found);
        decoded.map(|()| found)
    });
    match decoded {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(format!("its Draco data is not read: {error}")),
        Err(_) => Err("its Draco data is damaged".to_owned()),
    }
}

/// Bytes of a value, if an attribute has those of the field. Packed colours are four parts of it.
fn bytes_of(attribute: &PointAttribute, field: &Field<'_>) -> Result<usize, String> {
    let other = || format!("its field {:?} has another type in its Draco data", field.name);
    let kind = Kind::of(field.datatype).ok_or_else(other)?;
    let wanted = match field.datatype {
        7 => 9,
        8 => 10,
        whole => whole,
    };
    let count = field.count.max(1) as usize;
    let (found, parts) = (attribute.data_type(), usize::from(attribute.num_components()));
    let is_same = found as u8 == wanted && parts == count;
    let is_packed = found.is_integral() && parts == 4 * count;
    let bytes = parts * found.byte_length();
    let is_it = (is_same || is_packed) && bytes == count.saturating_mul(kind.bytes());
    is_it.then_some(bytes).ok_or_else(other)
}
