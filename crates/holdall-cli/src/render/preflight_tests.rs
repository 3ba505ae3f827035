//! Reports of a forecast at the widths that people have.

use super::*;
use holdall::preflight::{DiskFigures, MachineFigures, RecorderFigures, TotalFigures, forecast};

fn measured() -> Measured {
    let topic = |name: &str, type_name: &str, hz: f64, bytes: u64, lost: u64| TopicFigures {
        name: name.to_owned(),
        type_name: type_name.to_owned(),
        publishers: 1,
        messages: (hz * 10.0) as u64,
        bytes: (hz * 10.0) as u64 * bytes,
        lost,
        hz,
        bytes_per_s: hz * bytes as f64,
        bytes_max: bytes,
        period_deviation_s: 0.001_23,
        period_max_s: 0.2,
        burst_bytes: bytes * 2,
        is_reliable: true,
        depth: Some(5),
        ..TopicFigures::default()
    };
    Measured {
        span_s: 10.0,
        topics: vec![
            topic("/imu/data", "sensor_msgs/msg/Imu", 400.0, 320, 0),
            topic(
                "/robots/warehouse_7/front_left/camera/image_raw",
                "sensor_msgs/msg/Image",
                30.0,
                6_220_800,
                3,
            ),
            topic("/tf", "tf2_msgs/msg/TFMessage", 50.0, 700, 0),
        ],
        total: TotalFigures {
            hz: 480.0,
            bytes_per_s: 186.8e6,
            burst_bytes: 12_000_000,
            lost_in_transit: 3,
            lost_after_arrival: 0,
        },
        recorder: RecorderFigures {
            processors: 0.62,
            receiving_thread: 0.4,
            writing_thread: 0.12,
            written_bytes_per_s: 187e6,
            cache_bytes_max: 512 << 20,
            cache_bytes_peak: 20 << 20,
            ..RecorderFigures::default()
        },
        disk: DiskFigures {
            folder: "/data".into(),
            available_bytes: 240 << 30,
            write_bytes_per_s: vec![530e6, 580e6, 490e6],
            probe_bytes: 256 << 20,
            direct_refused: None,
        },
        machine: MachineFigures {
            processors: 4,
            own_processors: 4,
            busy_processors: 2.1,
            yielding_processors: 0.5,
            governors: vec!["powersave".to_owned()],
            available_memory_bytes: 5 << 30,
            receive_buffer_bytes_max: Some(212_992),
            dropped_packets: 7,
            wake_late_max_s: 0.0042,
            clock_is_synchronised: Some(false),
            ..MachineFigures::default()
        },
        services_without_introspection: vec!["/camera/set_parameters".to_owned()],
        undefined_topics: vec![("/odd".to_owned(), "my_msgs/msg/Odd".to_owned())],
        ..Measured::default()
    }
}

fn text(planned: Option<Duration>, columns: Option<usize>) -> String {
    let measured = measured();
    let found = forecast(&measured, planned.map(|span| span.as_secs_f64()));
    report(&measured, &found, planned, Paint::Plain, columns)
}

#[test]
fn the_report_fits_a_page_of_eighty_columns() {
    insta::assert_snapshot!(text(Some(Duration::from_secs(7200)), None));
}

#[test]
fn every_line_fits_the_terminal_but_commands() {
    for columns in [40, 80, 200] {
        let text = text(None, Some(columns));
        let too_wide: Vec<&str> = text
            .lines()
            .filter(|line| line.chars().count() >= columns && !line.contains("sudo "))
            .collect();
        assert!(too_wide.is_empty(), "{columns}: {too_wide:?}\n{text}");
        assert!(text.contains("Messages will be missing"), "{text}");
    }
}

#[test]
fn silence_has_a_report_too() {
    let measured = Measured::default();
    let found = forecast(&measured, None);
    let text = report(&measured, &found, None, Paint::Plain, Some(80));
    assert!(
        text.contains("no message came") && text.ends_with("Messages will be missing."),
        "{text}"
    );
}

#[test]
fn programs_get_the_answer_and_what_it_was_made_of() {
    let measured = measured();
    let found = forecast(&measured, Some(60.0));
    let object = json(&measured, &found, Some(Duration::from_secs(60)));
    assert_eq!(object["fits"], false);
    assert_eq!(object["answer"], "loses");
    assert_eq!(object["limits"][0]["kind"], "processors");
    assert_eq!(object["measured"]["topics"][0]["name"], "/imu/data");
    let again: Measured = serde_json::from_value(object["measured"].clone()).unwrap();
    assert_eq!(again, measured);
}

#[test]
fn spans_are_read_at_a_glance() {
    let spans = [0.5, 12.0, 900.0, 7300.0, 200_000.0, 1e12].map(long_span);
    assert_eq!(
        spans,
        [
            "500 ms",
            "12.0 s",
            "15 min",
            "2.0 h",
            "2.3 days",
            "more than 1000 days"
        ]
    );
}
