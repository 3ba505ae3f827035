//! Point clouds from above, and occupancy grids, as pixels.

use super::scale;
use crate::export::each_point;
use holdall_media::pixels::Pixels;
use holdall_model::dynamic::{FieldPlan, Primitives, Scalar, StructPlan, TypePlan, Visitor};
use serde_json::{Value, json};

/// Points of a cloud that are drawn.
const POINTS_MAX: usize = 300_000;

/// Pixels of a side where the wish names none.
const SIDE: u32 = 720;

/// Most cells of a grid.
const CELLS_MAX: usize = 1 << 26;

/// The ground that is seen where a cloud has no point, and where nothing is known of a grid.
const GROUND: [u8; 3] = [12, 13, 16];
const UNKNOWN: u8 = 120;

/// A cloud from above: x to the right, y upwards, with the colour of its intensity or height.
pub(super) fn from_above(
    plan: &TypePlan,
    payload: &[u8],
    side_max: Option<u32>,
    by: Option<&str>,
) -> Result<(Pixels, Value), String> {
    let mut points = Vec::new();
    let names = ["x", "y", "z", "intensity"];
    let (has, all) = each_point(plan, payload, names, POINTS_MAX, |point| {
        if point[0].is_finite() && point[1].is_finite() {
            points.push(point);
        }
    })?;
    if !(has[0] && has[1]) {
        return Err("a cloud without x and y cannot be drawn from above".to_owned());
    }
    let coloured = match by {
        Some("z") => 2,
        Some(_) if has[3] => 3,
        Some(_) => 2,
        None if has[3] => 3,
        None => 2,
    };
    let side = side_max.unwrap_or(SIDE).clamp(16, SIDE);
    let of = |place: usize| points.iter().map(|point| point[place]).collect::<Vec<f64>>();
    let (xs, ys) = (scale::range(of(0)), scale::range(of(1)));
    let range = scale::range(of(coloured)).unwrap_or((0.0, 0.0));
    let mut bytes = GROUND.repeat(side as usize * side as usize);
    let ((x_low, x_high), (y_low, y_high)) = (xs.unwrap_or_default(), ys.unwrap_or_default());
    // Both axes have the same scale, and some room around.
    let metres = (x_high - x_low).max(y_high - y_low).max(1e-3) * 1.05;
    let (left, top) = ((x_low + x_high - metres) / 2.0, (y_low + y_high + metres) / 2.0);
    points.sort_by(|a, b| a[2].total_cmp(&b[2]));
    // Few points are drawn larger.
    let dot = match points.len() {
        0..20_000 => 3,
        20_000..100_000 => 2,
        _ => 1,
    };
    for point in &points {
        let column = (point[0] - left) / metres * f64::from(side);
        let row = (top - point[1]) / metres * f64::from(side);
        let is_inside = |at: f64| at >= 0.0 && at < f64::from(side - dot);
        if !(is_inside(column) && is_inside(row)) {
            continue;
        }
        let colour = scale::colour(point[coloured], range);
        for (y, x) in (0..dot).flat_map(|y| (0..dot).map(move |x| (y, x))) {
            let at = ((row as usize + y as usize) * side as usize + column as usize + x as usize) * 3;
            bytes[at..at + 3].copy_from_slice(&colour);
        }
    }
    let about = json!({
        "kind": "cloud", "points": all, "by": names[coloured], "low": range.0, "high": range.1, "legend": scale::legend(),
        "left": left, "top": top, "side": metres,
    });
    Ok((rgb(side, side, bytes), about))
}

pub(super) fn rgb(width: u32, height: u32, bytes: Vec<u8>) -> Pixels {
    Pixels {
        width,
        height,
        channels: 3,
        is_deep: false,
        bytes,
    }
}

/// A `nav_msgs/msg/OccupancyGrid`: free cells are white, occupied ones black, its first row is the lowest.
pub(super) fn grid(plan: &TypePlan, payload: &[u8]) -> Result<(Pixels, Value), String> {
    let mut fields = GridFields::default();
    plan.walk(payload, &mut fields)
        .map_err(|error| error.to_string())?;
    let (width, height) = (fields.width as usize, fields.height as usize);
    let cells = width.checked_mul(height).filter(|cells| *cells <= CELLS_MAX);
    if cells.is_none_or(|cells| cells == 0 || cells != fields.data.len()) {
        let found = fields.data.len();
        return Err(format!(
            "a grid of {width} x {height} cells does not fit its {found} values"
        ));
    }
    let shade = |value: &u8| match *value {
        free @ 0..=100 => (255 - u32::from(free) * 255 / 100) as u8,
        _ => UNKNOWN,
    };
    let rows = fields.data.chunks_exact(width).rev();
    let bytes = rows.flat_map(|row| row.iter().map(shade)).collect();
    let known = fields.data.iter().filter(|value| **value <= 100).count();
    let about = json!({
        "kind": "grid", "cells": fields.data.len(), "known": known, "metres_per_cell": fields.resolution,
        "left": fields.x, "bottom": fields.y,
    });
    let pixels = Pixels {
        width: fields.width,
        height: fields.height,
        channels: 1,
        is_deep: false,
        bytes,
    };
    Ok((pixels, about))
}

#[derive(Default)]
struct GridFields<'a> {
    field: String,
    within: Vec<String>,
    width: u32,
    height: u32,
    resolution: f32,
    x: f64,
    y: f64,
    data: &'a [u8],
}

impl<'a> Visitor<'a> for GridFields<'a> {
    fn wants_field(&mut self, field: &FieldPlan) -> bool {
        self.field.clone_from(&field.name);
        true
    }

    fn scalar(&mut self, value: Scalar<'a>) {
        let within = self.within.last().map_or("", String::as_str);
        match (within, self.field.as_str(), value) {
            ("info", "width", Scalar::U32(value)) => self.width = value,
            ("info", "height", Scalar::U32(value)) => self.height = value,
            ("info", "resolution", Scalar::F32(value)) => self.resolution = value,
            ("position", "x", Scalar::F64(value)) => self.x = value,
            ("position", "y", Scalar::F64(value)) => self.y = value,
            _ => {}
        }
    }

    fn primitives(&mut self, field: &FieldPlan, values: Primitives<'a>) {
        if field.name == "data" {
            self.data = values.bytes();
        }
    }

    fn begin_struct(&mut self, _: &StructPlan) {
        self.within.push(std::mem::take(&mut self.field));
    }

    fn end_struct(&mut self, _: &StructPlan) {
        self.within.pop();
    }

    fn begin_list(&mut self, _: &FieldPlan, _: u64) {}

    fn end_list(&mut self, _: &FieldPlan, _: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::interface::bundle::Bundle;

    fn plan(name: &str) -> TypePlan {
        TypePlan::compile(&Bundle::embedded().define(name).unwrap()).unwrap()
    }

    #[test]
    fn the_first_row_of_a_grid_is_the_lowest() {
        let mut payload = vec![0, 1, 0, 0];
        payload.extend([0; 8]);
        payload.extend(1_u32.to_le_bytes());
        payload.extend([0; 4]);
        // Loaded, resolution, width, height, padding to 8.
        payload.extend([0; 8]);
        payload.extend(0.5_f32.to_le_bytes());
        payload.extend(2_u32.to_le_bytes());
        payload.extend(2_u32.to_le_bytes());
        while !(payload.len() - 4).is_multiple_of(8) {
            payload.push(0);
        }
        for value in [-3.0_f64, 4.0, 0.0, 0.0, 0.0, 0.0, 1.0] {
            payload.extend(value.to_le_bytes());
        }
        payload.extend(4_u32.to_le_bytes());
        payload.extend([0, 100, 0xff, 50]);
        let (pixels, about) = grid(&plan("nav_msgs/msg/OccupancyGrid"), &payload).unwrap();
        assert_eq!(pixels.bytes, [120, 128, 255, 0]);
        assert_eq!(
            (&about["left"], &about["metres_per_cell"], &about["known"]),
            (&json!(-3.0), &json!(0.5), &json!(3))
        );
        let last = payload.len() - 1;
        let short = payload[..last].to_vec();
        assert!(grid(&plan("nav_msgs/msg/OccupancyGrid"), &short).is_err());
    }
}
