//! The published cost model of RAID levels (study 002, table 2), derived from the plans alone: how
//! many requests to the disks a small or large request becomes, what throughput is left of RAID 0's
//! at the same cost, and how much of the space is usable.
//!
//! The table uses its D in two meanings. For `throughput_per_cost` and `storage_efficacy` it is the
//! number of disks in the array, as its legend says. For `internal_requests` of large accesses it
//! has to be the number of strips of data that the request carries, one to a disk that holds data:
//! the printed D + 1 of RAID 5 would be more requests than the array has disks otherwise, while
//! (D-1)/D of the same row is only true of D disks in all; and 2D for the mirrors is twice the
//! disks they have. RAID 0 is where both meanings agree. The tests hold the table to this reading,
//! and show that the other one is wrong.

use std::fmt;
use std::ops::{Add, Div, Mul, Sub};

use crate::kit::geometry;
use stripewise_layout::{Geometry, Level, MemberSet, UnitRange, plan_read, plan_write};

/// A fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fraction {
    numerator: i64,
    denominator: i64,
}

fn fraction(numerator: i64, denominator: i64) -> Fraction {
    fn divisor(one: i64, other: i64) -> i64 {
        if other == 0 { one } else { divisor(other, one % other) }
    }
    let common = divisor(numerator, denominator);
    Fraction { numerator: numerator / common, denominator: denominator / common }
}

fn whole(number: i64) -> Fraction {
    fraction(number, 1)
}

impl Add for Fraction {
    type Output = Fraction;
    fn add(self, other: Fraction) -> Fraction {
        let numerator = self.numerator * other.denominator + other.numerator * self.denominator;
        fraction(numerator, self.denominator * other.denominator)
    }
}

impl Sub for Fraction {
    type Output = Fraction;
    fn sub(self, other: Fraction) -> Fraction {
        self + whole(-1) * other
    }
}

impl Mul for Fraction {
    type Output = Fraction;
    fn mul(self, other: Fraction) -> Fraction {
        fraction(self.numerator * other.numerator, self.denominator * other.denominator)
    }
}

impl Div for Fraction {
    type Output = Fraction;
    fn div(self, other: Fraction) -> Fraction {
        fraction(self.numerator * other.denominator, self.denominator * other.numerator)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.numerator, self.denominator)
    }
}

/// Evaluates what the table prints: numbers, D, `2D`, `+`, `-`, `/` and brackets.
fn evaluate(expression: &str, d: i64) -> Fraction {
    let mut symbols: Vec<char> = expression.chars().rev().collect();
    let value = sum(&mut symbols, d);
    assert!(symbols.is_empty(), "{expression}: what is {symbols:?}?");
    value
}

fn sum(symbols: &mut Vec<char>, d: i64) -> Fraction {
    let mut value = product(symbols, d);
    while let Some(&operator) = symbols.last().filter(|symbol| matches!(symbol, '+' | '-')) {
        symbols.pop();
        let next = product(symbols, d);
        value = if operator == '+' { value + next } else { value - next };
    }
    value
}

fn product(symbols: &mut Vec<char>, d: i64) -> Fraction {
    let mut value = atom(symbols, d);
    loop {
        match symbols.last() {
            Some('/') => {
                symbols.pop();
                value = value / atom(symbols, d);
            }
            // `2D` is twice D.
            Some('D') => value = value * atom(symbols, d),
            _ => return value,
        }
    }
}

fn atom(symbols: &mut Vec<char>, d: i64) -> Fraction {
    match symbols.pop() {
        Some('D') => whole(d),
        Some('(') => {
            let value = sum(symbols, d);
            assert_eq!(symbols.pop(), Some(')'));
            value
        }
        Some(digit) if digit.is_ascii_digit() => {
            let mut number = i64::from(digit.to_digit(10).unwrap());
            while let Some(next) = symbols.last().and_then(|symbol| symbol.to_digit(10)) {
                symbols.pop();
                number = 10 * number + i64::from(next);
            }
            whole(number)
        }
        other => panic!("a number was expected, not {other:?}"),
    }
}

struct Row {
    level: Level,
    access: String,
    quantity: String,
    expression: String,
    notes: String,
}

fn table() -> Vec<Row> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/002-table-2-cost-model.csv");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut lines = text.lines();
    let header = "study,table,level,access_pattern,quantity,expression,unit,notes";
    assert_eq!(lines.next(), Some(header), "{path} has other columns than this test reads");
    let rows = lines.map(|line| {
        let fields = fields_of(line);
        let [_, _, level, access, quantity, expression, _, notes] = fields.try_into().expect("eight fields");
        Row { level: level.parse().unwrap(), access, quantity, expression, notes }
    });
    rows.collect()
}

/// The fields of a line of CSV, of which some are in quotes.
fn fields_of(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    for symbol in line.chars() {
        match symbol {
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            other => fields.last_mut().unwrap().push(other),
        }
    }
    fields
}

/// An array of about `width` disks; the table's RAID 1 is one mirrored pair.
fn array(level: Level, width: usize) -> Geometry {
    let width = if level == Level::Raid1 { 2 } else { width };
    geometry(level, width, None, 2 * width as u64)
}

/// Requests to the disks, and how they spread over the members.
#[derive(Clone, Debug, Default)]
struct Requests {
    strips_of_data: i64,
    by_member: Vec<i64>,
}

impl Requests {
    fn total(&self) -> i64 {
        self.by_member.iter().sum()
    }

    /// Strips of data moved per disk, while the busiest disk serves one request.
    fn throughput_per_disk(&self) -> Fraction {
        let busiest = *self.by_member.iter().max().unwrap();
        fraction(self.strips_of_data, busiest * self.by_member.len() as i64)
    }
}

/// Carries requests of `strips` strips each over the whole volume, one after the other, and counts
/// what the plans send to the disks; of a mirror's copies the one that has served least is read.
fn requests(geometry: &Geometry, strips: u64, is_write: bool) -> Requests {
    let interleave = geometry.interleave_bytes();
    let mut requests = Requests { strips_of_data: 0, by_member: vec![0; geometry.width()] };
    let mut from = 0;
    while from + strips * interleave <= geometry.capacity_bytes() {
        count_request(geometry, from, strips * interleave, is_write, &mut requests);
        from += strips * interleave;
    }
    requests
}

fn count_request(geometry: &Geometry, from: u64, length: u64, is_write: bool, requests: &mut Requests) {
    for segment in geometry.segments(from, length) {
        let stripe = geometry.stripe(segment.stripe);
        let mut ios: Vec<UnitRange> = Vec::new();
        if is_write {
            let written: Vec<UnitRange> = geometry.data_ranges(segment.from, segment.to).collect();
            let plan = plan_write(geometry, &stripe, &written, &MemberSet::EMPTY).unwrap();
            ios.extend(plan.reads);
            ios.extend(plan.writes);
        } else {
            let by_member = &requests.by_member;
            let least_busy = |members: &[usize]| {
                (0..members.len()).min_by_key(|&index| by_member[members[index]]).unwrap()
            };
            let plan = plan_read(geometry, &stripe, segment.from, segment.to, &MemberSet::EMPTY, least_busy)
                .unwrap();
            ios.extend(plan.reads);
        }
        ios.iter().for_each(|io| requests.by_member[stripe.units[io.unit].member] += 1);
    }
    requests.strips_of_data += (length / geometry.interleave_bytes()) as i64;
}

/// Strips of data that one large request carries: one to every disk that holds data.
fn large_request_strips(geometry: &Geometry) -> u64 {
    let strips_per_stripe = geometry.units() as u64;
    geometry.width() as u64 * geometry.data_units() as u64 / strips_per_stripe
}

fn strips_of(access: &str, geometry: &Geometry) -> u64 {
    if access.starts_with("small") { 1 } else { large_request_strips(geometry) }
}

/// From four disks on: on three, RAID 5 has a cheaper small write than the table's (see below).
const WIDTHS: [usize; 5] = [4, 6, 8, 12, 24];

#[test]
fn plans_reproduce_the_internal_requests_table() {
    let mut compared = 0;
    for row in table().iter().filter(|row| row.quantity == "internal_requests") {
        for width in WIDTHS {
            let geometry = array(row.level, width);
            let strips = strips_of(&row.access, &geometry);
            let mut requests = Requests { by_member: vec![0; geometry.width()], ..Requests::default() };
            count_request(
                &geometry,
                0,
                strips * geometry.interleave_bytes(),
                row.access.ends_with("write"),
                &mut requests,
            );
            let printed = evaluate(&row.expression, strips as i64);
            assert_eq!(whole(requests.total()), printed, "{} {} on {width} disks", row.level, row.access);
            compared += 1;
        }
    }
    assert_eq!(compared, 16 * WIDTHS.len());
}

#[test]
fn plans_reproduce_the_throughput_per_cost_table() {
    let mut compared = 0;
    for row in table().iter().filter(|row| row.quantity == "throughput_per_cost") {
        for width in WIDTHS {
            let is_write = row.access.ends_with("write");
            let (geometry, striped) = (array(row.level, width), array(Level::Raid0, width));
            let own = requests(&geometry, strips_of(&row.access, &geometry), is_write).throughput_per_disk();
            let of_raid0 =
                requests(&striped, strips_of(&row.access, &striped), is_write).throughput_per_disk();
            let printed = evaluate(&row.expression, geometry.width() as i64);
            assert_eq!(own / of_raid0, printed, "{} {} on {width} disks", row.level, row.access);
            compared += 1;
        }
    }
    assert_eq!(compared, 16 * WIDTHS.len());
}

#[test]
fn geometry_reproduces_the_storage_efficacy_table() {
    let mut compared = 0;
    for row in table().iter().filter(|row| row.quantity == "storage_efficacy") {
        for width in WIDTHS {
            let geometry = array(row.level, width);
            let raw_bytes = geometry.member_bytes() * geometry.width() as u64;
            let usable = fraction(geometry.capacity_bytes() as i64, raw_bytes as i64);
            assert_eq!(
                usable,
                evaluate(&row.expression, geometry.width() as i64),
                "{} on {width} disks",
                row.level
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 4 * WIDTHS.len());
}

/// With D as the number of disks in the array, as the legend has it, the counts of large requests
/// are right for RAID 0 only; the note of the table names the row of RAID 5, where one cell
/// contradicts the other.
#[test]
fn the_table_legend_fails_for_large_requests() {
    for row in
        table().iter().filter(|row| row.quantity == "internal_requests" && row.access.starts_with("large"))
    {
        let is_noted = row.notes.contains("inconsistent use of D");
        assert_eq!(is_noted, row.level == Level::Raid5 && row.access.ends_with("write"));
        let geometry = array(row.level, 8);
        let mut requests = Requests { by_member: vec![0; geometry.width()], ..Requests::default() };
        let length = large_request_strips(&geometry) * geometry.interleave_bytes();
        count_request(&geometry, 0, length, row.access.ends_with("write"), &mut requests);
        let by_the_legend = evaluate(&row.expression, geometry.width() as i64);
        let holds = whole(requests.total()) == by_the_legend;
        assert_eq!(holds, row.level == Level::Raid0, "{} {}", row.level, row.access);
        if is_noted {
            // D + 1 requests that write every disk once are more than there are disks.
            assert_eq!(by_the_legend, whole(9));
            assert_eq!(requests.by_member, [1; 8]);
        }
    }
}

/// On three disks the other data strip is read instead of the old data and the old parity: 3
/// requests, not 4.
#[test]
fn three_disks_write_cheaper_than_the_table_says() {
    let geometry = geometry(Level::Raid5, 3, None, 3);
    let mut requests = Requests { by_member: vec![0; 3], ..Requests::default() };
    count_request(&geometry, 0, 4096, true, &mut requests);
    assert_eq!(requests.total(), 3);
}

#[test]
fn expressions_are_read_as_printed() {
    for (expression, value) in [
        ("1", whole(1)),
        ("1/2", fraction(1, 2)),
        ("D", whole(6)),
        ("2D", whole(12)),
        ("D+1", whole(7)),
        ("(D-1)/D", fraction(5, 6)),
        ("12", whole(12)),
    ] {
        assert_eq!(evaluate(expression, 6), value, "{expression} is {value}");
    }
}
