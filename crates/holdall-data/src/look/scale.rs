//! Numbers as colours: the range that they have, and a scale from dark blue to light yellow.

/// The scale, from its low end: brightness grows steadily, so that it is read without colours too. Pages draw the same one as a legend.
const STOPS: [[f64; 3]; 6] = [
    [50.0, 46.0, 125.0],
    [40.0, 88.0, 170.0],
    [30.0, 140.0, 145.0],
    [80.0, 185.0, 90.0],
    [220.0, 200.0, 60.0],
    [255.0, 250.0, 200.0],
];

/// Parts of the values that the range leaves out at both ends, one of so many: single wrong values do not decide it.
const LEFT_OUT: usize = 100;

/// The range of values, without the outermost ones; `None` without a finite value.
pub(super) fn range(mut values: Vec<f64>) -> Option<(f64, f64)> {
    values.retain(|value| value.is_finite());
    if values.is_empty() {
        return None;
    }
    let cut = values.len() / LEFT_OUT;
    let last = values.len() - 1 - cut;
    let low = *values.select_nth_unstable_by(cut, f64::total_cmp).1;
    let high = *values.select_nth_unstable_by(last, f64::total_cmp).1;
    Some((low, high))
}

/// The colour of a value within a range.
pub(super) fn colour(value: f64, (low, high): (f64, f64)) -> [u8; 3] {
    let part = if high > low {
        ((value - low) / (high - low)).clamp(0.0, 1.0)
    } else {
        0.5
    };
    let at = part * (STOPS.len() - 1) as f64;
    let first = (at as usize).min(STOPS.len() - 2);
    let (from, to, rest) = (STOPS[first], STOPS[first + 1], at - first as f64);
    [0, 1, 2].map(|channel: usize| (from[channel] + (to[channel] - from[channel]) * rest).round() as u8)
}

/// The ends of the scale's parts for a page: `rgb(...)` each.
pub(super) fn legend() -> Vec<String> {
    let text = |[red, green, blue]: &[f64; 3]| format!("rgb({red} {green} {blue})");
    STOPS.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_brighter_and_single_values_do_not_decide_the_range() {
        let mut values: Vec<f64> = (0..1000).map(f64::from).collect();
        values.extend([f64::NAN, 1e9]);
        let (low, high) = range(values).unwrap();
        assert!(low >= 5.0 && high <= 1000.0, "{low} {high}");
        let brightness = |value: f64| -> u32 { colour(value, (0.0, 1.0)).map(u32::from).iter().sum() };
        for step in 0..50 {
            let value = f64::from(step) / 50.0;
            assert!(brightness(value) <= brightness(value + 0.02), "{value}");
        }
        assert_eq!(colour(-5.0, (0.0, 1.0)), [50, 46, 125]);
    }
}
