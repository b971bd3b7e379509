//! Numbers as text: the digits of integers, and doubles as ECMAScript prints them.

use num_bigint::BigUint;

/// The largest integer that every binary64 reader keeps apart from its neighbours: 2^53 - 1.
pub const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// The most digits an integer may have in the forms that keep them.
///
/// Reading and printing them takes a time that grows faster than their number: for this many some 50 milliseconds.
pub const MAX_DIGITS: usize = 100_000;

/// Whether an integer may stand in the interchange form.
pub const fn is_safe(value: i64) -> bool {
    value.unsigned_abs() <= MAX_SAFE_INTEGER
}

/// Room for the text of any number of 64 bits, and who prints into it.
pub struct Printer {
    integer: itoa::Buffer,
    double: ryu_js::Buffer,
}

impl Default for Printer {
    fn default() -> Self {
        Self {
            integer: itoa::Buffer::new(),
            double: ryu_js::Buffer::new(),
        }
    }
}

impl Printer {
    /// An integer's digits.
    #[inline]
    pub fn integer(&mut self, value: i64) -> &str {
        self.integer.format(value)
    }

    /// A finite double as ECMAScript's `Number.prototype.toString` prints it; -0 gives `0`.
    #[inline]
    pub fn double(&mut self, value: f64) -> &str {
        match whole(value) {
            Some(integer) => self.integer.format(integer),
            None => self.double.format_finite(value),
        }
    }
}

/// The integer that a double is, where every neighbour has a double of its own.
#[inline]
fn whole(value: f64) -> Option<i64> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the result is compared with what went in"
    )]
    let integer = value as i64;
    #[expect(
        clippy::cast_precision_loss,
        clippy::float_cmp,
        reason = "exactness is the question"
    )]
    let is_same = integer as f64 == value;
    (is_same && is_safe(integer)).then_some(integer)
}

/// What makes a printed double read back as a double: a point, unless it has one or an exponent.
pub fn double_mark(printed: &str) -> &'static str {
    if printed.contains(['.', 'e']) {
        ""
    } else {
        ".0"
    }
}

/// The decimal digits of a big integer given as Python's `hex()` prints it (`-0x1f`).
pub fn decimal_from_hex(hex: &str) -> Option<String> {
    let (sign, magnitude) = match hex.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", hex),
    };
    let number = BigUint::parse_bytes(magnitude.strip_prefix("0x")?.as_bytes(), 16)?;
    Some(format!("{sign}{number}"))
}

/// The reverse, for the digits of a JSON integer.
pub fn hex_from_decimal(digits: &str) -> Option<String> {
    let (sign, magnitude) = match digits.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", digits),
    };
    let number = BigUint::parse_bytes(magnitude.as_bytes(), 10)?;
    Some(format!("{sign}{number:x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_print_as_ecmascript_prints_them() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (1e6, "1000000"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (-9_007_199_254_740_991.0, "-9007199254740991"),
            (333_333_333.333_333_3, "333333333.3333333"),
        ];
        for (value, text) in cases {
            assert_eq!(Printer::default().double(value), text);
        }
    }

    #[test]
    fn a_marked_double_keeps_its_type() {
        for (value, text) in [
            (1.0, "1.0"),
            (1e21, "1e+21"),
            (0.5, "0.5"),
            (1e20, "100000000000000000000.0"),
        ] {
            let mut printer = Printer::default();
            let digits = printer.double(value);
            assert_eq!(format!("{digits}{}", double_mark(digits)), text);
        }
    }

    #[test]
    fn hex_becomes_decimal_digits() {
        assert_eq!(decimal_from_hex("-0x1f").as_deref(), Some("-31"));
        assert_eq!(
            decimal_from_hex("0x10000000000000000").as_deref(),
            Some("18446744073709551616")
        );
        assert_eq!(decimal_from_hex("1f"), None);
        assert_eq!(
            hex_from_decimal("-18446744073709551616").as_deref(),
            Some("-10000000000000000")
        );
        assert_eq!(hex_from_decimal("x"), None);
    }
}
