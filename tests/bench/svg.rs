//! The picture: a bar from quartile to quartile and a dot at the median for each row, a line at each target.

use std::fmt::Write as _;

use crate::report::Row;

const LEFT: f64 = 470.0;
const WIDTH: f64 = 480.0;
const LINE: f64 = 24.0;
const TOP: f64 = 48.0;
/// The axis ends here: 2 × the target.
const END: f64 = 2.0;

/// Draws the rows that have a target, each on a scale of its own: 1 is the target.
pub(crate) fn draw(rows: &[Row]) -> String {
    let rows: Vec<_> = rows.iter().filter_map(|row| Some((row, row.target?))).collect();
    let height = TOP + LINE * (rows.len() as f64 + 1.5);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"22\" font-size=\"15\">Value over target: bars are quartiles, dots medians, the line is the target; left is better</text>\n",
        LEFT + WIDTH + 90.0
    );
    for tenths in [0, 5, 10, 15, 20] {
        let value = f64::from(tenths) / 10.0;
        let (x, colour) = (place(value), if tenths == 10 { "#b00020" } else { "#ddd" });
        let bottom = height - LINE;
        let _ =
            writeln!(svg, "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP:.0}\" y2=\"{bottom:.0}\" stroke=\"{colour}\"/>");
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{value}</text>", bottom + 16.0);
    }
    for ((row, target), index) in rows.into_iter().zip(0_u32..) {
        let middle = TOP + LINE * (f64::from(index) + 0.7);
        let (from, to, dot) = (place(row.q1 / target), place(row.q3 / target), place(row.value / target));
        let colour = if row.met == Some(true) { "#1b7f4b" } else { "#b00020" };
        let name = escaped(&format!("{}  {} against {}", row.metric, row.what, row.reference));
        let _ = writeln!(svg, "<text x=\"12\" y=\"{:.1}\">{name}</text>", middle + 4.0);
        let _ = writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"10\" fill=\"{colour}\" fill-opacity=\"0.35\"/>",
            middle - 5.0,
            (to - from).max(1.0)
        );
        let _ = writeln!(svg, "<circle cx=\"{dot:.1}\" cy=\"{middle:.1}\" r=\"4\" fill=\"{colour}\"/>");
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\">{:.2} ≤ {target:.2}</text>",
            LEFT + WIDTH + 10.0,
            middle + 4.0,
            row.value
        );
    }
    svg + "</svg>\n"
}

fn place(value: f64) -> f64 {
    LEFT + WIDTH * (value / END).clamp(0.0, 1.0)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Spread;

    #[test]
    fn a_median_at_its_target_stands_on_the_line_and_a_far_one_stays_inside() {
        let row = |median| Row::new("1", "a<b", "direct", Spread { q1: 1.0, median, q3: 1.2 }, 1.1);
        let svg = draw(&[row(1.1), row(50.0)]);
        let line = "x1=\"710.0\"";
        assert!(svg.contains(line) && svg.contains("cx=\"710.0\""), "{svg}");
        assert!(svg.contains("cx=\"950.0\""), "{svg}");
        assert!(svg.contains("a&lt;b"), "{svg}");
    }
}
