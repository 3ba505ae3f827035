//! Compiled text against the walk: the same bytes for the same payloads.

use super::*;
use crate::dynamic::reference;
use proptest::prelude::*;
use std::sync::Arc;

/// The text that a walk writes; `None` for a payload that it refuses or that is longer than its definition.
fn walked(plan: &TypePlan, payload: &[u8], options: &TextOptions) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let walked = plan.write_json(payload, options, &mut out).ok()?;
    (!walked.is_longer).then_some(out)
}

/// The text that is appended; `None`, with nothing appended, for a payload that is left to the walk.
fn compiled(text: &mut CompiledText, payload: &[u8]) -> Option<Vec<u8>> {
    let mut out = b"before".to_vec();
    if text.append(payload, &mut out) {
        assert!(out.starts_with(b"before"));
        return Some(out.split_off(6));
    }
    assert_eq!(out, b"before");
    None
}

proptest! {
    #[test]
    fn every_payload_is_written_as_by_a_walk(case in reference::case(), more in 0..12_usize, base64: bool) {
        let (plan, payload, _) = case;
        let plan = Arc::new(plan);
        let options = TextOptions { base64, ..TextOptions::default() };
        let mut text = CompiledText::json(&plan, &options).unwrap();
        let expected = walked(&plan, &payload, &options);
        prop_assert!(expected.is_some());
        prop_assert_eq!(compiled(&mut text, &payload), expected.clone());
        for end in 0..payload.len() {
            if let Some(found) = compiled(&mut text, &payload[..end]) {
                prop_assert_eq!(Some(found), walked(&plan, &payload[..end], &options), "cut at {}", end);
            }
        }
        // Remains of a refused message do not leak into the next one.
        prop_assert_eq!(compiled(&mut text, &payload), expected);
        let mut longer = payload;
        longer.resize(longer.len() + more, 0);
        if let Some(found) = compiled(&mut text, &longer) {
            prop_assert_eq!(Some(found), walked(&plan, &longer, &options));
        } else {
            prop_assert!(more > 7);
        }
    }

    #[test]
    fn any_bytes_are_written_as_by_a_walk_or_left_to_it(case in reference::case(), bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 0..9_u8) {
        let plan = Arc::new(case.0);
        let options = TextOptions::default();
        let mut text = CompiledText::json(&plan, &options).unwrap();
        let mut payload = vec![0, kind, 0, 0];
        payload.extend(bytes);
        if let Some(found) = compiled(&mut text, &payload) {
            prop_assert_eq!(Some(found), walked(&plan, &payload, &options));
        }
    }
}

#[test]
fn arrays_that_repeat_are_written_again_and_others_anew() {
    let plan = Arc::new(reference::plan(&[
        (
            "a/msg/A",
            "float64[4] covariance\nfloat32[4] f\nbool[3] b\nB[2] inner\nint8 i\nint64 l\nfloat32 x",
        ),
        ("a/msg/B", "float64[3] v\nE e\nE[2] none"),
        ("a/msg/E", ""),
    ]));
    let options = TextOptions::default();
    let mut text = CompiledText::json(&plan, &options).unwrap();
    let mut encode = |little: bool, first: f64, last: f32| {
        let mut out = reference::Encoder::new(little, false, 2);
        let numbers = [first, f64::NAN, f64::NEG_INFINITY, -0.0];
        numbers.iter().for_each(|number| out.u64(number.to_bits()));
        let numbers = [0.1_f32, last, 1e30, f32::INFINITY];
        numbers.iter().for_each(|number| out.u32(number.to_bits()));
        [0, 1, 2].into_iter().for_each(|byte| out.u8(byte));
        for number in [first, 1e300] {
            [number, 2.5, 1e21]
                .iter()
                .for_each(|number| out.u64(number.to_bits()));
            [0, 0, 0].into_iter().for_each(|byte| out.u8(byte));
        }
        out.u8(255);
        out.u64(u64::MAX);
        out.u32(0.1_f32.to_bits());
        let payload = out.finish();
        let expected = walked(&plan, &payload, &options);
        assert!(expected.is_some());
        assert_eq!(compiled(&mut text, &payload), expected);
    };
    // A palindrome of bytes has another value in the other byte order.
    let both = f64::from_bits(0x4059_0000_0000_5940);
    for (little, first, last) in [
        (true, 1.5, 2.0),
        (true, 1.5, 2.0),
        (true, 1.5, 2.5),
        (false, 1.5, 2.5),
        (true, both, 0.0),
        (false, both, 0.0),
        (true, -1.5, 0.0),
    ] {
        encode(little, first, last);
    }
}

#[test]
fn what_only_a_walk_can_write_is_left_to_it() {
    let plan = Arc::new(reference::plan(&[("a/msg/A", "uint8[] x\nstring s")]));
    let mut encoder = reference::Encoder::new(true, false, 2);
    encoder.u32(0);
    encoder.text("twenty characters are");
    let payload = encoder.finish();
    let bounded = TextOptions {
        bytes_max: 20,
        ..TextOptions::default()
    };
    let mut text = CompiledText::json(&plan, &bounded).unwrap();
    assert_eq!(compiled(&mut text, &payload), None);
    for options in [
        TextOptions {
            lists: false,
            ..TextOptions::default()
        },
        TextOptions {
            strings: false,
            ..TextOptions::default()
        },
        TextOptions {
            length_max: Some(2),
            ..TextOptions::default()
        },
    ] {
        assert!(CompiledText::json(&plan, &options).is_none());
    }
    // Each level doubles the number of values.
    let names: Vec<String> = (0..20).map(|level| format!("a/msg/L{level}")).collect();
    let texts: Vec<String> = (1..=20)
        .map(|level| match level {
            20 => "bool x".to_owned(),
            _ => format!("L{level} a\nL{level} b"),
        })
        .collect();
    let types: Vec<(&str, &str)> = names
        .iter()
        .map(String::as_str)
        .zip(texts.iter().map(String::as_str))
        .collect();
    let wide = Arc::new(reference::plan(&types));
    assert!(CompiledText::json(&wide, &TextOptions::default()).is_none());
    assert!(CompiledText::cells(&wide, 64, &TextOptions::default()).is_none());
}
