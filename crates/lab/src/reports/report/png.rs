//! Rasterises charts as PNG, for papers and slides that accept no SVG: only our own drawings, in
//! the colours of print.
//!
//! Draws the output of [`super::svg`] (lines, bars, circles, paths, text) at twice its size;
//! colours come from the style sheet. Characters that the font lacks are replaced by similar ones.

use std::io::Write;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::STYLE;

/// Pixels per unit of a drawing.
const SCALE: f64 = 2.0;
/// About 11.5 units, the size on the page.
const LETTERS: RasterHeight = RasterHeight::Size20;
/// Distance from a letter's top to its baseline.
const ASCENT: f64 = 15.0;
/// Maximum width and height of a chart in pixels.
const MOST_PIXELS: f64 = 20_000.0;

type Colour = [u8; 3];

/// Renders a PNG of one of our drawings; `None` for other text.
pub(crate) fn png_of(svg: &str) -> Option<Vec<u8>> {
    let mut reader = Reader::from_str(svg);
    let mut canvas: Option<Canvas> = None;
    let mut text: Option<Label> = None;
    loop {
        match reader.read_event().ok()? {
            Event::Eof => break,
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == b"svg" => {
                canvas = Some(Canvas::of(&attribute(&tag, "viewBox")?)?);
            }
            Event::Start(tag) if tag.name().as_ref() == b"text" => {
                let anchor = attribute(&tag, "text-anchor").unwrap_or_default();
                let at = (number(&tag, "x")?, number(&tag, "y")?);
                text = Some(Label { ink: Ink::of(&tag), at, anchor, letters: String::new() });
            }
            Event::Text(words) => {
                if let Some(text) = &mut text {
                    text.letters += &words.decode().ok()?;
                }
            }
            Event::GeneralRef(name) => {
                if let Some(text) = &mut text {
                    text.letters += entity(&name.decode().ok()?);
                }
            }
            Event::End(_) => {
                if let Some(text) = text.take() {
                    canvas.as_mut()?.text(&text);
                }
            }
            Event::Start(tag) | Event::Empty(tag) => shape(canvas.as_mut()?, &tag)?,
            _ => {}
        }
    }
    canvas.map(Canvas::encoded)
}

/// A line of text being collected.
struct Label {
    ink: Ink,
    at: (f64, f64),
    anchor: String,
    letters: String,
}

/// Characters of the entities that [`super::svg::escape`] uses.
fn entity(name: &str) -> &'static str {
    match name {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        _ => "'",
    }
}

fn shape(canvas: &mut Canvas, tag: &BytesStart<'_>) -> Option<()> {
    let ink = Ink::of(tag);
    match tag.name().as_ref() {
        b"line" => {
            let from = (number(tag, "x1")?, number(tag, "y1")?);
            canvas.line(&ink, from, (number(tag, "x2")?, number(tag, "y2")?));
        }
        b"rect" => {
            let (x, y) = (number(tag, "x")?, number(tag, "y")?);
            canvas.rectangle(&ink, (x, y), (x + number(tag, "width")?, y + number(tag, "height")?));
        }
        b"circle" => canvas.circle(&ink, (number(tag, "cx")?, number(tag, "cy")?), number(tag, "r")?),
        b"path" => {
            let data = attribute(tag, "d")?;
            let mut points = Vec::new();
            for point in data.split(['M', 'L']).filter(|point| !point.is_empty()) {
                let (x, y) = point.split_once(' ')?;
                points.push((x.trim().parse().ok()?, y.trim().parse().ok()?));
            }
            points.windows(2).for_each(|pair| canvas.line(&ink, pair[0], pair[1]));
        }
        _ => {}
    }
    Some(())
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let found = tag.try_get_attribute(name).ok()??;
    found.unescape_value().ok().map(|value| value.into_owned())
}

fn number(tag: &BytesStart<'_>, name: &str) -> Option<f64> {
    attribute(tag, name)?.parse().ok()
}

/// Stroke and fill of a shape: the style sheet's rules for its class, in numbers.
struct Ink {
    colour: Colour,
    width: f64,
    /// Lengths drawn and left out, in turns.
    dash: Option<(f64, f64)>,
    opacity: f64,
}

impl Ink {
    fn of(tag: &BytesStart<'_>) -> Self {
        let classes = attribute(tag, "class").unwrap_or_default();
        let has = |class: &str| classes.split(' ').any(|one| one == class);
        let first = |names: &[&str]| names.iter().any(|name| has(name));
        let (name, width, dash) = match () {
            () if has("s0") => ("normal", 2.0, None),
            () if has("s1") => ("degraded", 2.0, None),
            () if has("s2") => ("rebuilding", 2.0, None),
            () if has("s3") => ("good", 2.0, None),
            () if has("s4") => ("bad", 2.0, None),
            () if has("s5") => ("progress", 2.0, None),
            () if has("curve") && has("load") => ("normal", 2.0, None),
            () if has("curve") => ("rebuilding", 2.0, None),
            () if has("grid") => ("line", 1.0, None),
            () if first(&["axis", "tick"]) => ("soft", 1.0, None),
            () if has("reference") => ("ink", 1.2, Some((3.0, 3.0))),
            () if has("marker") => ("bad", 1.3, Some((4.0, 3.0))),
            () if has("progress") => ("progress", 1.5, Some((5.0, 3.0))),
            () if has("median") => ("paper", 1.5, None),
            () if has("published") => ("progress", 1.0, None),
            () if first(&["other", "degraded"]) => ("degraded", 1.5, None),
            () if has("rebuilding") => ("rebuilding", 1.5, None),
            () if has("band") => ("band", 1.0, None),
            () if first(&["line", "dot", "here", "normal"]) => ("normal", 1.5, None),
            () => ("ink", 1.3, None),
        };
        Self { colour: colour(name), width, dash, opacity: if has("fine") { 0.35 } else { 1.0 } }
    }
}

/// A colour of the style sheet's first block, which is the light theme.
fn colour(name: &str) -> Colour {
    let digits = STYLE.split_once(&format!("--{name}: #")).map_or("000000", |(_, rest)| &rest[..6]);
    let part = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap_or(0);
    [part(0), part(2), part(4)]
}

struct Canvas {
    /// Coordinates of the first pixel.
    origin: (f64, f64),
    width: usize,
    height: usize,
    pixels: Vec<Colour>,
}

impl Canvas {
    fn of(view: &str) -> Option<Self> {
        let sides: Vec<f64> = view.split(' ').filter_map(|side| side.parse().ok()).collect();
        let [left, top, width, height] = sides.as_slice() else { return None };
        let pixels =
            |side: f64| (1.0..=MOST_PIXELS).contains(&(side * SCALE)).then_some((side * SCALE) as usize);
        let (width, height) = (pixels(*width)?, pixels(*height)?);
        Some(Self { origin: (*left, *top), width, height, pixels: vec![colour("paper"); width * height] })
    }

    /// Position of a point in pixels.
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        ((x - self.origin.0) * SCALE, (y - self.origin.1) * SCALE)
    }

    /// Blends a colour into a partly covered pixel.
    fn blend(&mut self, x: usize, y: usize, colour: Colour, share: f64) {
        let Some(pixel) = self.pixels.get_mut(y * self.width + x).filter(|_| x < self.width) else { return };
        for (below, above) in pixel.iter_mut().zip(colour) {
            let mixed = f64::from(*below) + (f64::from(above) - f64::from(*below)) * share.clamp(0.0, 1.0);
            *below = mixed.round() as u8;
        }
    }

    /// Draws every pixel between two corners; `covered` returns the covered share from the pixel's
    /// middle.
    fn each(
        &mut self,
        ink: &Ink,
        (left, top): (f64, f64),
        (right, bottom): (f64, f64),
        covered: impl Fn(f64, f64) -> f64,
    ) {
        let upto = |side: f64, most: usize| (side.ceil().max(0.0) as usize).min(most);
        for y in top.floor().max(0.0) as usize..upto(bottom, self.height) {
            for x in left.floor().max(0.0) as usize..upto(right, self.width) {
                let share = covered(x as f64 + 0.5, y as f64 + 0.5);
                if share > 0.0 {
                    self.blend(x, y, ink.colour, share * ink.opacity);
                }
            }
        }
    }

    fn line(&mut self, ink: &Ink, from: (f64, f64), to: (f64, f64)) {
        let (from, to) = (self.at(from), self.at(to));
        let half = ink.width * SCALE / 2.0;
        let (across, down) = (to.0 - from.0, to.1 - from.1);
        let length = across.hypot(down).max(1e-9);
        let margin = half + 1.0;
        let corner = (from.0.min(to.0) - margin, from.1.min(to.1) - margin);
        let other = (from.0.max(to.0) + margin, from.1.max(to.1) + margin);
        self.each(ink, corner, other, |x, y| {
            let along = ((x - from.0) * across + (y - from.1) * down) / length;
            let at = along.clamp(0.0, length) / length;
            if ink.dash.is_some_and(|(drawn, gap)| along.max(0.0) % ((drawn + gap) * SCALE) > drawn * SCALE) {
                return 0.0;
            }
            half + 0.5 - (x - from.0 - across * at).hypot(y - from.1 - down * at)
        });
    }

    fn rectangle(&mut self, ink: &Ink, from: (f64, f64), to: (f64, f64)) {
        let (from, to) = (self.at(from), self.at(to));
        let inside = |middle: f64, low: f64, high: f64| (middle + 0.5).min(high) - (middle - 0.5).max(low);
        self.each(ink, from, to, |x, y| {
            inside(x, from.0, to.0).clamp(0.0, 1.0) * inside(y, from.1, to.1).clamp(0.0, 1.0)
        });
    }

    fn circle(&mut self, ink: &Ink, middle: (f64, f64), radius: f64) {
        let ((x, y), radius) = (self.at(middle), radius * SCALE);
        let reach = radius + 1.0;
        self.each(ink, (x - reach, y - reach), (x + reach, y + reach), |to_x, to_y| {
            radius + 0.5 - (to_x - x).hypot(to_y - y)
        });
    }

    fn text(&mut self, text: &Label) {
        let ((x, y), ink, words) = (self.at(text.at), &text.ink, plain(&text.letters));
        let step = get_raster_width(FontWeight::Regular, LETTERS);
        let length = (words.len() * step) as f64;
        let left = x - match text.anchor.as_str() {
            "end" => length,
            "middle" => length / 2.0,
            _ => 0.0,
        };
        let (left, top) = (left.round(), (y - ASCENT).round());
        for (at, letter) in words.chars().enumerate() {
            let Some(raster) = get_raster(letter, FontWeight::Regular, LETTERS) else { continue };
            for (row, line) in raster.rows().enumerate() {
                for (column, share) in line.iter().enumerate() {
                    let (x, y) = (left + (at * step + column) as f64, top + row as f64);
                    if *share > 0 && x >= 0.0 && y >= 0.0 {
                        self.blend(x as usize, y as usize, ink.colour, f64::from(*share) / 255.0);
                    }
                }
            }
        }
    }

    fn encoded(self) -> Vec<u8> {
        let mut rows = ZlibEncoder::new(Vec::new(), Compression::default());
        for row in self.pixels.chunks(self.width) {
            // Each row begins with the number of its filter: none.
            rows.write_all(&[0]).expect("memory takes every byte");
            rows.write_all(row.as_flattened()).expect("memory takes every byte");
        }
        let rows = rows.finish().expect("memory takes every byte");
        let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
        let mut head = Vec::new();
        head.extend((self.width as u32).to_be_bytes());
        head.extend((self.height as u32).to_be_bytes());
        // Eight bits each of red, green and blue; the only defined methods; not interlaced.
        head.extend([8, 2, 0, 0, 0]);
        for (kind, data) in [(b"IHDR", head), (b"IDAT", rows), (b"IEND", Vec::new())] {
            file.extend((data.len() as u32).to_be_bytes());
            let mut sum = Crc::new();
            sum.update(kind);
            sum.update(&data);
            file.extend(kind);
            file.extend(data);
            file.extend(sum.sum().to_be_bytes());
        }
        file
    }
}

/// Replaces characters that the font lacks.
fn plain(words: &str) -> String {
    let mut plain = String::new();
    for letter in words.chars() {
        match letter {
            ' '..='~' => plain.push(letter),
            '…' => plain.push_str("..."),
            '–' | '−' => plain.push('-'),
            'µ' => plain.push('u'),
            '×' => plain.push('x'),
            _ => plain.push('?'),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;

    use super::super::svg::{Anchor, Svg};
    use super::*;

    /// Width and pixels of one of our files; checksums are verified.
    fn decoded(file: &[u8]) -> (usize, Vec<u8>) {
        assert!(file.starts_with(b"\x89PNG\r\n\x1a\n"));
        let (mut at, mut width, mut rows) = (8, 0, Vec::new());
        while at < file.len() {
            let word = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().expect("four bytes"));
            let length = word(at) as usize;
            let (kind, data) = (&file[at + 4..at + 8], &file[at + 8..at + 8 + length]);
            let mut sum = Crc::new();
            sum.update(kind);
            sum.update(data);
            assert_eq!(sum.sum(), word(at + 8 + length));
            match kind {
                b"IHDR" => width = word(at + 8) as usize,
                b"IDAT" => drop(ZlibDecoder::new(data).read_to_end(&mut rows).expect("zlib")),
                _ => assert_eq!(kind, b"IEND"),
            }
            at += 12 + length;
        }
        let pixels = rows.chunks(1 + 3 * width).flat_map(|row| row[1..].to_vec()).collect();
        (width, pixels)
    }

    #[test]
    fn shapes_are_rendered_at_their_position() {
        let mut svg = Svg::new(100.0, 50.0, "a \"chart\" & more");
        svg.bar("here", 10.0, 10.0, 30.0, 9.0, "a hint <&>");
        svg.line("grid", 0.0, 40.5, 100.0, 40.5);
        svg.circle("dot", 80.0, 20.0, 4.0, "");
        svg.path("line", &[(50.0, 5.0), (60.0, 5.0)]);
        svg.text("tick", 20.0, 34.0, Anchor::Start, "a – b &");
        let (width, pixels) = decoded(&png_of(&svg.finish()).expect("a chart"));
        assert_eq!((width, pixels.len()), (200, 3 * 200 * 100));
        let at = |x: usize, y: usize| -> Colour {
            pixels[3 * (2 * y * width + 2 * x)..][..3].try_into().expect("a pixel")
        };
        assert_eq!(at(0, 0), [255, 255, 255]);
        assert_eq!(
            (at(20, 15), at(80, 20), at(55, 5)),
            (colour("normal"), colour("normal"), colour("normal"))
        );
        assert_eq!((at(45, 15), at(20, 22), at(70, 5)), ([255; 3], [255; 3], [255; 3]));
        assert_eq!(at(50, 40), colour("line"));
        let letters = (20..60).flat_map(|x| (26..36).map(move |y| (x, y)));
        assert!(letters.filter(|(x, y)| at(*x, *y) != [255; 3]).count() > 10, "the text is drawn");
    }

    #[test]
    fn text_without_a_chart_gives_no_image() {
        for text in ["", "<p>no</p>", "<svg viewBox=\"0 0 9e9 1\"></svg>", "<svg viewBox=\"0 0 x\"></svg>"] {
            assert!(png_of(text).is_none(), "{text}");
        }
    }
}
