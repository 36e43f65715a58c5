//! The field GF(2^8) with polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), in which 2 generates all
//! 255 non-zero elements.
//!
//! Scalar arithmetic and its tables, all computed by the compiler. The kernels do the same on
//! vectors; this module is used for coefficients (a few per request) and as the reference that the
//! kernels are tested against. Division by zero is a caller's bug and panics.

/// The polynomial without its x^8: what an overflowing bit turns into.
pub(crate) const POLYNOMIAL: u8 = 0x1d;

/// Maximum data units of a stripe: beyond it the coefficients 2^i repeat.
pub const MAXIMUM_DATA_UNITS: usize = 255;

/// `EXPONENTIAL[i]` = 2^i; written twice over, so that a sum of two logarithms needs no modulo.
const EXPONENTIAL: [u8; 510] = {
    let mut table = [0; 510];
    let mut power = 1;
    let mut i = 0;
    while i < 255 {
        table[i] = power;
        table[i + 255] = power;
        power = double(power);
        i += 1;
    }
    table
};

/// `LOGARITHM[2^i]` = i; the entry of zero is meaningless.
const LOGARITHM: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 255 {
        table[EXPONENTIAL[i] as usize] = i as u8;
        i += 1;
    }
    table
};

const fn double(x: u8) -> u8 {
    (x << 1) ^ (if x & 0x80 != 0 { POLYNOMIAL } else { 0 })
}

/// 2^exponent.
pub(crate) const fn power_of_two(exponent: usize) -> u8 {
    EXPONENTIAL[exponent % 255]
}

/// The i in 0..255 for which x = 2^i.
pub(crate) fn logarithm(x: u8) -> usize {
    assert!(x != 0, "zero has no logarithm");
    LOGARITHM[x as usize] as usize
}

/// a · b.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXPONENTIAL[LOGARITHM[a as usize] as usize + LOGARITHM[b as usize] as usize]
}

/// 1 / a.
pub(crate) fn invert(a: u8) -> u8 {
    EXPONENTIAL[255 - logarithm(a)]
}

/// Coefficient of unit `unit` in parity row `row` (0, 1, 2 = P, Q, R): 1, 2^unit, 4^unit.
pub(crate) fn coefficient(row: usize, unit: usize) -> u8 {
    power_of_two(row * unit)
}

/// Products of each constant with the 16 values of the low and of the high half of a byte.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) static HALF_PRODUCTS: [[[u8; 16]; 2]; 256] = {
    let mut tables = [[[0; 16]; 2]; 256];
    let mut constant = 0;
    while constant < 256 {
        let mut half = 0;
        while half < 16 {
            tables[constant][0][half] = multiply(constant as u8, half as u8);
            tables[constant][1][half] = multiply(constant as u8, (half as u8) << 4);
            half += 1;
        }
        constant += 1;
    }
    tables
};

#[cfg(test)]
mod tests {
    use super::*;

    /// School multiplication, bit by bit, independent of the tables.
    fn multiply_slowly(a: u8, b: u8) -> u8 {
        let mut product = 0;
        let mut shifted = a;
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= shifted;
            }
            shifted = double(shifted);
        }
        product
    }

    #[test]
    fn multiplication_matches_the_definition() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), multiply_slowly(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn every_non_zero_element_has_an_inverse() {
        for a in 1..=255 {
            assert_eq!(multiply(a, invert(a)), 1, "{a}");
        }
    }

    #[test]
    fn powers_of_two_run_through_the_whole_field() {
        let mut seen = [false; 256];
        for exponent in 0..255 {
            let power = power_of_two(exponent);
            assert!(!std::mem::replace(&mut seen[power as usize], true), "2^{exponent} came before");
            assert_eq!(logarithm(power), exponent);
        }
        assert!(!seen[0]);
    }
}
