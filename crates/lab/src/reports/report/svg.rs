//! A small SVG writer: shapes with classes (colours are in the style sheet, so that light, dark and
//! print differ), text in the page's own font, scales with round steps. No text measurement or
//! rasterisation.

use std::fmt::Write;

/// Escapes text for contents and attributes of HTML and XML.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            other => safe.push(other),
        }
    }
    safe
}

/// Alignment of text at its position.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing of a fixed size in its own units; the page scales it.
pub(crate) struct Svg {
    width: f64,
    height: f64,
    description: String,
    body: String,
}

impl Svg {
    /// Creates a drawing; `description` is for screen readers.
    pub(crate) fn new(width: f64, height: f64, description: &str) -> Self {
        Self { width, height, description: escape(description), body: String::new() }
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.body.write_fmt(text).expect("writing to a string cannot fail");
        self.body.push('\n');
    }

    pub(crate) fn line(&mut self, class: &str, x1: f64, y1: f64, x2: f64, y2: f64) {
        self.push(format_args!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    /// A rectangle with a tooltip.
    pub(crate) fn bar(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64, hint: &str) {
        let (width, hint) = (width.max(0.0), escape(hint));
        self.push(format_args!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"><title>{hint}</title></rect>"#
        ));
    }

    pub(crate) fn circle(&mut self, class: &str, x: f64, y: f64, radius: f64, hint: &str) {
        let hint = escape(hint);
        self.push(format_args!(
            r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{radius:.1}"><title>{hint}</title></circle>"#
        ));
    }

    pub(crate) fn text(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        self.push(format_args!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    /// A line through points.
    pub(crate) fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let mut data = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            write!(data, "{command}{x:.1} {y:.1}").expect("writing to a string cannot fail");
        }
        self.push(format_args!(r#"<path class="{class}" d="{data}"/>"#));
    }

    pub(crate) fn finish(self) -> String {
        format!(
            "<svg viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            self.width, self.height, self.description, self.body
        )
    }
}

/// Height of the title of a separate drawing.
const TITLE_HEIGHT: f64 = 20.0;

/// A drawing as a separate file, under its title, with the page's colours for light and dark.
pub(crate) fn standalone(svg: &str, style: &str, title: &str) -> String {
    let opened = svg.replacen("<svg ", "<svg xmlns=\"http://www.w3.org/2000/svg\" ", 1);
    let Some((head, body)) = opened.split_once('>') else { return opened };
    let head = taller(head).unwrap_or_else(|| head.to_owned());
    let title = escape(title);
    let text = format!(r#"<text class="label" x="4.0" y="-6.0" text-anchor="start">{title}</text>"#);
    format!("{head}>\n<style>\n{style}</style>\n{text}{body}")
}

/// Adds room above the drawing.
fn taller(head: &str) -> Option<String> {
    let (before, rest) = head.split_once("viewBox=\"0 0 ")?;
    let (sides, after) = rest.split_once('"')?;
    let (width, height) = sides.split_once(' ')?;
    let height = height.parse::<f64>().ok()? + TITLE_HEIGHT;
    Some(format!("{before}viewBox=\"0 -{TITLE_HEIGHT:.0} {width} {height:.0}\"{after}"))
}

/// Round steps from 0 to at least `most`: the steps and the scale's end.
pub(crate) fn round_steps(most: f64, wanted_steps: f64) -> (Vec<f64>, f64) {
    let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
    let rough = most / wanted_steps;
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * magnitude)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * magnitude);
    let count = (most / step).ceil().max(1.0);
    ((0..=count as u32).map(|index| f64::from(index) * step).collect(), count * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_reach_the_top() {
        assert_eq!(round_steps(800.0, 4.0), (vec![0.0, 200.0, 400.0, 600.0, 800.0], 800.0));
        assert_eq!(round_steps(801.0, 4.0).1, 1000.0);
        assert_eq!(round_steps(0.0, 4.0).1, 1.0);
        assert_eq!(round_steps(f64::NAN, 4.0).1, 1.0);
        for most in [0.013, 3.7, 99.0, 12345.0] {
            let (steps, end) = round_steps(most, 4.0);
            assert!(end >= most && (2..=7).contains(&steps.len()), "{most}: {steps:?}");
        }
    }

    #[test]
    fn text_cannot_break_out() {
        let mut svg = Svg::new(10.0, 10.0, "a \"b\"");
        svg.text("c", 0.0, 0.0, Anchor::Start, "</text><script>");
        svg.bar("c", 0.0, 0.0, -3.0, 1.0, "<&>");
        let text = svg.finish();
        assert!(text.contains("&lt;/text&gt;&lt;script&gt;") && text.contains("a &quot;b&quot;"), "{text}");
        assert!(text.contains("width=\"0.0\"") && !text.contains("<script"), "{text}");
    }
}
