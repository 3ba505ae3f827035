//! A picture as SVG: a lane for each topic with its losses, its periods and its sizes, then a panel for each value.

use super::{
    Picture,
    columns::{Lane, Line},
};
use holdall_model::{
    contract::Violation,
    text::Outside,
    units::{counted, format_bytes},
};
use std::fmt::Write;

/// Columns of a picture of fixed size.
const COLUMNS: usize = 1024;

/// The parts from left to right: names, columns, figures.
const GUTTER: f64 = 260.0;
const WIDTH: f64 = GUTTER + COLUMNS as f64 + 130.0;

/// Heights: of the head, of a lane and of its parts, of a panel, of the axis.
const HEAD: f64 = 52.0;
const DENSITY: f64 = 16.0;
const CURVE: f64 = 22.0;
const LANE: f64 = DENSITY + 2.0 * CURVE + 16.0;
const PANEL: f64 = 110.0;
const AXIS: f64 = 30.0;

/// Letters of a name; longer ones are cut at their beginning.
const NAME_LETTERS: usize = 36;

/// Marks along the axis.
const MARKS: u32 = 8;

/// A browser in the dark shows the other colours; other programs do not read this.
const STYLE: &str = "<style>@media (prefers-color-scheme:dark){.paper{fill:#15181c}.ink{fill:#e4e7eb}.faint{fill:#98a1ab}.grid{stroke:#333a42}\
    .cells{fill:#4c9be8}.period{stroke:#e0a030}.size{stroke:#3fb68b}.value{fill:#4c9be8;stroke:#4c9be8}.loss{fill:#ff6b5e}}</style>";

impl Picture {
    /// The picture as SVG, for pages and documents; without scripts.
    pub fn svg(&self) -> String {
        self.styled(STYLE)
    }

    /// The picture as PNG, in light colours.
    ///
    /// # Errors
    /// Only by a defect of this program.
    #[cfg(feature = "pictures")]
    pub fn png(&self) -> Result<Vec<u8>, super::PaintError> {
        super::Painter::new().png(&self.styled(""))
    }

    fn styled(&self, style: &str) -> String {
        if self.columns > COLUMNS {
            return self.clone().halved().styled(style);
        }
        let lanes = LANE * self.lanes.len() as f64;
        let body = lanes + PANEL * self.lines.len() as f64;
        let height = HEAD + body + AXIS + if self.left_out > 0 { 18.0 } else { 0.0 };
        let mut svg = String::new();
        put(
            &mut svg,
            format_args!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"sans-serif\" font-size=\"12\">{style}<rect class=\"paper\" width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>"
            ),
        );
        self.head(&mut svg);
        self.axis(&mut svg, HEAD + body);
        for (at, lane) in self.lanes.iter().enumerate() {
            self.lane(&mut svg, lane, HEAD + LANE * at as f64);
        }
        for (at, line) in self.lines.iter().enumerate() {
            self.panel(&mut svg, line, HEAD + lanes + PANEL * at as f64);
        }
        if self.left_out > 0 {
            let text = format!("and {} topics more, with fewer messages", self.left_out);
            text_at(&mut svg, (10.0, height - 8.0), "faint", "#606970", &text, "start");
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn head(&self, svg: &mut String) {
        put(
            svg,
            format_args!(
                "<text x=\"10\" y=\"20\" font-size=\"15\" font-weight=\"bold\" class=\"ink\" fill=\"#16191d\">{}</text>",
                escaped(&self.title)
            ),
        );
        let lost: u64 = self.lanes.iter().map(|lane| lane.lost).sum();
        let mut text = format!(
            "{} of {} in {}, {} lost",
            counted(self.messages, "message"),
            counted((self.lanes.len() + self.left_out) as u64, "topic"),
            span(self.span as f64 / 1e9),
            lost
        );
        if !self.violations.is_empty() {
            text += &format!(
                ", contract broken {}",
                counted(self.violations.len() as u64, "time")
            );
        }
        text_at(svg, (10.0, 40.0), "faint", "#606970", &text, "start");
        let keys = [
            ("#0072b2", "messages"),
            ("#c43b2e", "lost"),
            ("#b36b00", "longest period"),
            ("#00795a", "largest message"),
        ];
        for ((colour, name), at) in keys.iter().zip(0_u32..) {
            let x = GUTTER + 420.0 + f64::from(at) * 150.0;
            put(
                svg,
                format_args!("<rect x=\"{x}\" y=\"31\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"),
            );
            text_at(svg, (x + 15.0, 40.0), "ink", "#16191d", name, "start");
        }
    }

    fn axis(&self, svg: &mut String, bottom: f64) {
        let seconds = self.span as f64 / 1e9;
        let step = round_step(seconds / f64::from(MARKS));
        let mut at = 0.0;
        while at <= seconds {
            let x = GUTTER + at / seconds * COLUMNS as f64;
            put(
                svg,
                format_args!(
                    "<path class=\"grid\" d=\"M{x:.1} {HEAD}V{bottom}\" stroke=\"#dddddd\" stroke-width=\"1\" fill=\"none\"/>"
                ),
            );
            text_at(svg, (x, bottom + 18.0), "faint", "#606970", &span(at), "middle");
            at += step;
        }
        for time in &self.splits {
            let x = GUTTER + self.place(*time) * COLUMNS as f64;
            put(
                svg,
                format_args!(
                    "<path class=\"grid\" d=\"M{x:.1} {HEAD}V{bottom}\" stroke=\"#999999\" stroke-dasharray=\"2 3\" fill=\"none\"><title>a further file of the bag</title></path>"
                ),
            );
        }
        self.violations(svg, None, HEAD, bottom - HEAD);
        for marker in &self.markers {
            let x = GUTTER + self.place(marker.time.as_nanos()) * COLUMNS as f64;
            put(
                svg,
                format_args!(
                    "<path d=\"M{x:.1} {bottom}V{top}l-5 -8h10l-5 8\" stroke=\"#8a3fd1\" fill=\"#8a3fd1\" fill-opacity=\"0.9\" stroke-width=\"1\"><title>{}</title></path>",
                    escaped(&marker.name),
                    top = HEAD
                ),
            );
        }
    }

    fn lane(&self, svg: &mut String, lane: &Lane, top: f64) {
        let middle = top + 12.0;
        put(
            svg,
            format_args!(
                "<g><title>{} [{}]</title>",
                escaped(&lane.name),
                escaped(&lane.type_name)
            ),
        );
        text_at(
            svg,
            (GUTTER - 10.0, middle),
            "ink",
            "#16191d",
            &end_of(&lane.name),
            "end",
        );
        let figures = format!(
            "{}, {}",
            counted(lane.messages, "message"),
            format_bytes(lane.bytes)
        );
        text_at(
            svg,
            (GUTTER - 10.0, middle + 16.0),
            "faint",
            "#606970",
            &figures,
            "end",
        );
        if lane.lost > 0 {
            text_at(
                svg,
                (GUTTER - 10.0, middle + 32.0),
                "loss",
                "#c43b2e",
                &format!("{} lost", lane.lost),
                "end",
            );
        }
        density(svg, lane, top);
        self.losses(svg, lane, top);
        self.violations(svg, Some(&lane.name), top, DENSITY + 2.0 * CURVE);
        let gap = |at: usize| lane.cells[at].gap_max as f64;
        let most = curve(
            svg,
            lane.cells.len(),
            &gap,
            top + DENSITY + 3.0,
            "period",
            "#b36b00",
        );
        figure(svg, top + DENSITY + 18.0, &span(most / 1e9));
        let size = |at: usize| lane.cells[at].bytes_max as f64;
        let most = curve(
            svg,
            lane.cells.len(),
            &size,
            top + DENSITY + CURVE + 5.0,
            "size",
            "#00795a",
        );
        figure(svg, top + DENSITY + CURVE + 20.0, &format_bytes(most as u64));
        svg.push_str("</g>");
    }

    /// Where the contract found a topic wrong, or the whole bag.
    fn violations(&self, svg: &mut String, topic: Option<&str>, top: f64, height: f64) {
        let of_topic = |violation: &&Violation| violation.topic.as_deref() == topic;
        for violation in self.violations.iter().filter(of_topic) {
            let at = |time: i64| GUTTER + self.place(time) * COLUMNS as f64;
            let from = at(violation.since.as_nanos());
            let until = violation
                .until
                .map_or(GUTTER + COLUMNS as f64, |until| at(until.as_nanos()));
            put(
                svg,
                format_args!(
                    "<rect class=\"broken\" x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{height}\" fill=\"#c43b2e\" fill-opacity=\"0.18\"><title>contract: {}</title></rect>",
                    (until - from).max(3.0),
                    escaped(&violation.text)
                ),
            );
        }
    }

    fn losses(&self, svg: &mut String, lane: &Lane, top: f64) {
        for loss in &lane.losses {
            let (from, until) = (
                self.place(loss.from.as_nanos()) * COLUMNS as f64,
                self.place(loss.until.as_nanos()) * COLUMNS as f64,
            );
            put(
                svg,
                format_args!(
                    "<rect class=\"loss\" x=\"{:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{DENSITY}\" fill=\"#c43b2e\"><title>{} lost ({})</title></rect>",
                    GUTTER + from,
                    (until - from).max(2.0),
                    loss.count,
                    loss.stage.as_str()
                ),
            );
        }
    }

    fn panel(&self, svg: &mut String, line: &Line, top: f64) {
        let height = PANEL - 20.0;
        text_at(
            svg,
            (GUTTER - 10.0, top + 12.0),
            "ink",
            "#16191d",
            &end_of(&line.name),
            "end",
        );
        text_at(
            svg,
            (GUTTER - 10.0, top + 28.0),
            "faint",
            "#606970",
            &format!("{} values", line.values),
            "end",
        );
        if line.undecoded > 0 {
            let text = format!("{} not decoded", line.undecoded);
            text_at(svg, (GUTTER - 10.0, top + 44.0), "loss", "#c43b2e", &text, "end");
        }
        let Some((low, high)) = line.range() else { return };
        let scale = if high > low { height / (high - low) } else { 0.0 };
        let y = |value: f64| {
            if high > low {
                top + (high - value) * scale
            } else {
                top + height / 2.0
            }
        };
        let mut path = String::new();
        let mut before: Option<usize> = None;
        let width = COLUMNS as f64 / line.cells.len().max(1) as f64;
        for (at, cell) in line.cells.iter().enumerate() {
            let Some(cell) = cell else { continue };
            let x = GUTTER + (at as f64 + 0.5) * width;
            // From the column before, through both ends of this one; a long pause interrupts the line.
            let command = if before.is_some_and(|before| at - before <= line.cells.len() / 8) {
                'L'
            } else {
                'M'
            };
            put(
                &mut path,
                format_args!("{command}{x:.1} {:.1}V{:.1}", y(cell.max), y(cell.min)),
            );
            before = Some(at);
        }
        put(
            svg,
            format_args!(
                "<path class=\"value\" d=\"{path}\" fill=\"none\" stroke=\"#0072b2\" stroke-width=\"1.2\" stroke-linejoin=\"round\" style=\"fill:none\"/>"
            ),
        );
        figure(svg, top + 10.0, &short(high));
        figure(svg, top + height, &short(low));
    }
}

/// Cells in four shades, all of one shade in one path.
fn density(svg: &mut String, lane: &Lane, top: f64) {
    let shades = lane.shades();
    let width = COLUMNS as f64 / lane.cells.len().max(1) as f64;
    for shade in 1..=4_u32 {
        let has = |at: usize| shades.get(at) == Some(&shade);
        let mut path = String::new();
        let mut at = 0;
        while at < lane.cells.len() {
            let begin = at;
            while has(at) {
                at += 1;
            }
            if at > begin {
                let (x, length) = (GUTTER + begin as f64 * width, (at - begin) as f64 * width);
                put(
                    &mut path,
                    format_args!("M{x:.1} {top}h{length:.1}v{DENSITY}h-{length:.1}z"),
                );
            }
            at = at.max(begin + 1);
        }
        if !path.is_empty() {
            let opacity = 0.25 * f64::from(shade);
            put(
                svg,
                format_args!(
                    "<path class=\"cells\" d=\"{path}\" fill=\"#0072b2\" fill-opacity=\"{opacity}\"/>"
                ),
            );
        }
    }
}

/// The values of columns above a base line; columns without one are left out. Returns the largest.
fn curve(
    svg: &mut String,
    columns: usize,
    value: &dyn Fn(usize) -> f64,
    top: f64,
    class: &str,
    colour: &str,
) -> f64 {
    let most = (0..columns).map(value).fold(0.0, f64::max);
    if most <= 0.0 {
        return most;
    }
    let width = COLUMNS as f64 / columns as f64;
    let height = CURVE - 4.0;
    let mut path = String::new();
    let mut before = 0.0;
    for at in (0..columns).filter(|at| value(*at) > 0.0) {
        let x = GUTTER + at as f64 * width;
        let y = top + height - value(at) / most * height;
        put(&mut path, format_args!("M{x:.1} {y:.1}h{:.1}", width.max(1.0)));
        // A column that is much higher than the one before has a stroke down to the base, so that it is seen alone.
        if before < value(at) * 0.7 {
            put(&mut path, format_args!("M{x:.1} {:.1}V{y:.1}", top + height));
        }
        before = value(at);
    }
    put(
        svg,
        format_args!(
            "<path class=\"{class}\" d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.2\"/>"
        ),
    );
    most
}

/// A figure at the right.
fn figure(svg: &mut String, y: f64, text: &str) {
    text_at(
        svg,
        (GUTTER + COLUMNS as f64 + 8.0, y),
        "faint",
        "#606970",
        text,
        "start",
    );
}

fn text_at(svg: &mut String, (x, y): (f64, f64), class: &str, colour: &str, text: &str, anchor: &str) {
    put(
        svg,
        format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" fill=\"{colour}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(text)
        ),
    );
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing into a text does not fail.
    let _never_fails = text.write_fmt(arguments).is_ok();
}

/// Text that cannot be taken for markup, or for anything but letters.
pub(super) fn escaped(text: &str) -> String {
    let text = Outside(text).to_string();
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The end of a name.
fn end_of(name: &str) -> String {
    let length = name.chars().count();
    if length <= NAME_LETTERS {
        return name.to_owned();
    }
    format!(
        "…{}",
        name.chars().skip(length + 1 - NAME_LETTERS).collect::<String>()
    )
}

/// A step of the axis that people count in: 1, 2 or 5 times a power of ten, or minutes and hours.
fn round_step(least: f64) -> f64 {
    const LONG: [f64; 8] = [60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21_600.0];
    if least > 20.0 {
        let long = LONG.into_iter().find(|step| *step >= least);
        return long.unwrap_or_else(|| (least / 86_400.0).ceil() * 86_400.0);
    }
    let power = 10.0_f64.powf(least.max(1e-9).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    steps
        .into_iter()
        .find(|step| *step >= least * 0.999)
        .unwrap_or(power * 10.0)
}

/// Seconds as people read them.
pub(super) fn span(seconds: f64) -> String {
    match seconds {
        0.0 => "0 s".to_owned(),
        s if s < 1e-3 => format!("{} µs", short(s * 1e6)),
        s if s < 1.0 => format!("{} ms", short(s * 1e3)),
        s if s < 120.0 => format!("{} s", short(s)),
        s if s < 7200.0 => format!("{} min", short(s / 60.0)),
        s if s < 172_800.0 => format!("{} h", short(s / 3600.0)),
        s => format!("{} days", short(s / 86_400.0)),
    }
}

/// Three or four digits.
fn short(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e6).contains(&size) {
        return format!("{value:.2e}");
    }
    let digits = match size {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 4,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_bag::reader::LossSpan;
    use holdall_model::{loss::LossStage, marker::Marker, time::Timestamp};

    pub(in crate::plot) fn picture() -> Picture {
        let mut lane = Lane::new(
            "/robot/with/a/name/that/is/longer/than/its/place/<b>&",
            "a/msg/B",
            2048,
        );
        for at in 0..2048 {
            lane.add(at, at as i64 * 1_000_000, if at == 77 { 5000 } else { 100 });
        }
        lane.lost = 9;
        lane.losses.push(LossSpan {
            from: Timestamp::from_nanos(500_000_000),
            until: Timestamp::from_nanos(500_000_000),
            count: 9,
            stage: LossStage::Cache,
        });
        let mut line = Line::new("/imu.z", 2048);
        (0..2048)
            .filter(|at| *at != 1000)
            .for_each(|at| line.add(at, if at == 99 { -3.5 } else { 1.0 }));
        Picture {
            title: "lab <1>".to_owned(),
            start: 0,
            span: 2_048_000_000,
            columns: 2048,
            messages: 2048,
            lanes: vec![lane],
            left_out: 3,
            lines: vec![line],
            markers: vec![Marker::new(Timestamp::from_nanos(1_000_000_000), "\"door\" open").unwrap()],
            violations: vec![Violation {
                rule: 0,
                topic: Some("/robot/with/a/name/that/is/longer/than/its/place/<b>&".to_owned()),
                since: Timestamp::from_nanos(700_000_000),
                until: None,
                text: "4.9 Hz <b>".to_owned(),
            }],
            splits: vec![1_500_000_000],
            notices: Vec::new(),
            remarks: Vec::new(),
        }
    }

    #[test]
    fn the_picture_names_what_it_shows_and_is_no_markup_of_others() {
        let svg = picture().svg();
        for part in [
            "lab &lt;1&gt;",
            "name/that/is/longer",
            "&lt;b&gt;&amp;",
            "9 lost (cache)",
            "2048 messages of 4 topics in 2.05 s, 9 lost",
            "&quot;door&quot; open",
            "contract: 4.9 Hz &lt;b&gt;",
            "a further file of the bag",
            "4.9 KiB",
            "-3.5",
            "and 3 topics more",
        ] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
        assert!(!svg.contains("<b>") && !svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn nothing_but_a_moment_is_drawn_too() {
        let mut lane = Lane::new("/a", "t", 2048);
        lane.add(0, 5, 0);
        let one = Picture {
            start: 5,
            span: 1,
            columns: 2048,
            lanes: vec![lane],
            ..Picture::default()
        };
        let svg = one.svg();
        assert!(svg.contains("1 message,") && !svg.contains("NaN"), "{svg}");
        assert!(
            Picture {
                span: 1,
                columns: 2048,
                ..Picture::default()
            }
            .svg()
            .ends_with("</svg>\n")
        );
    }

    #[test]
    fn figures_are_short() {
        let spans = [0.0, 2.5e-5, 0.0123, 3.0, 75.0, 600.0, 36_000.0, 1e6].map(span);
        assert_eq!(
            spans,
            [
                "0 s",
                "25 µs",
                "12.3 ms",
                "3 s",
                "75 s",
                "10 min",
                "10 h",
                "11.6 days"
            ]
        );
        assert_eq!(
            [0.3, 7.0, 25.0, 4000.0, 200_000.0].map(round_step),
            [0.5, 10.0, 60.0, 7200.0, 259_200.0]
        );
        assert_eq!(
            [0.0, -9.806, 1e9, 1e-5].map(short),
            ["0", "-9.81", "1.00e9", "1.00e-5"]
        );
    }
}
