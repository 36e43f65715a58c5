//! GF(2^8) modulo 0x11d, P+Q+R and the solving of linear equations over it: slow, small, and
//! written from the definition alone, so that it can judge the plans without sharing anything with
//! what they are made for.

/// A product, bit by bit.
pub fn multiply(mut one: u8, mut other: u8) -> u8 {
    let mut product = 0;
    while other != 0 {
        if other & 1 != 0 {
            product ^= one;
        }
        let carry = one & 0x80 != 0;
        one <<= 1;
        if carry {
            one ^= 0x1d;
        }
        other >>= 1;
    }
    product
}

pub fn power(base: u8, exponent: usize) -> u8 {
    (0..exponent).fold(1, |product, _| multiply(product, base))
}

fn inverse(number: u8) -> u8 {
    // The group of the field has 255 elements, so that x^254 is 1/x.
    power(number, 254)
}

/// Coefficient of data unit `unit` in parity 0, 1, 2 (P, Q, R): 1, 2^unit, 4^unit.
pub fn coefficient(parity: usize, unit: usize) -> u8 {
    power(1 << parity, unit)
}

/// Unit of a stripe with `data_units` as a combination of the data: a row of the generator matrix.
pub fn unit_row(data_units: usize, unit: usize) -> Vec<u8> {
    if unit < data_units {
        (0..data_units).map(|data| u8::from(data == unit)).collect()
    } else {
        (0..data_units).map(|data| coefficient(unit - data_units, data)).collect()
    }
}

pub fn encode(parity: usize, data: &[u8]) -> u8 {
    data.iter().enumerate().fold(0, |sum, (unit, &byte)| sum ^ multiply(coefficient(parity, unit), byte))
}

/// Brings the rows to echelon form; the rank is the number of rows left.
fn eliminate(mut rows: Vec<Vec<u8>>, columns: usize) -> Vec<Vec<u8>> {
    let mut rank = 0;
    for column in 0..columns {
        let Some(pivot) = (rank..rows.len()).find(|&row| rows[row][column] != 0) else { continue };
        rows.swap(rank, pivot);
        let scale = inverse(rows[rank][column]);
        rows[rank].iter_mut().for_each(|entry| *entry = multiply(*entry, scale));
        let pivot_row = rows[rank].clone();
        for (index, row) in rows.iter_mut().enumerate() {
            let factor = row[column];
            if index != rank && factor != 0 {
                for (entry, &pivot_entry) in row.iter_mut().zip(&pivot_row) {
                    *entry ^= multiply(factor, pivot_entry);
                }
            }
        }
        rank += 1;
    }
    rows.truncate(rank);
    rows
}

pub fn rank(rows: Vec<Vec<u8>>) -> usize {
    let columns = rows.first().map_or(0, Vec::len);
    eliminate(rows, columns).len()
}

/// The data units, from as many units (number and byte).
pub fn solve(data_units: usize, known: &[(usize, u8)]) -> Vec<u8> {
    let equations = known.iter().map(|&(unit, byte)| {
        let mut row = unit_row(data_units, unit);
        row.push(byte);
        row
    });
    let solved = eliminate(equations.collect(), data_units);
    assert_eq!(solved.len(), data_units, "units {known:?} do not determine the data");
    solved.iter().map(|row| row[data_units]).collect()
}
