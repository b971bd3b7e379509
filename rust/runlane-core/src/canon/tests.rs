use super::*;

const LIMITS: Limits = Limits {
    max_depth: 128,
    max_nodes: 1_000_000,
    max_bytes: 64 << 20,
    max_digits: 100_000,
};

fn interchange(document: &str) -> Result<String, Refusal> {
    canonicalize(document.as_bytes(), Form::Interchange, LIMITS)
        .map(|text| String::from_utf8(text).unwrap())
}

fn record(document: &str) -> Result<String, Refusal> {
    canonicalize(document.as_bytes(), Form::Record, LIMITS)
        .map(|text| String::from_utf8(text).unwrap())
}

#[track_caller]
fn refused(document: &str, problem: Problem, pointer: &str) {
    let refusal = interchange(document).unwrap_err();
    assert_eq!(
        (refusal.problem, refusal.pointer.as_str()),
        (problem, pointer),
        "{document}"
    );
}

#[test]
fn space_goes_and_keys_stand_in_order_at_every_depth() {
    let document = " { \"b\" : [ 1 , { \"z\":0,\"y\" : {} } , [] ] ,\n\t\"a\":\r\"x\" } ";
    assert_eq!(
        interchange(document).unwrap(),
        r#"{"a":"x","b":[1,{"y":{},"z":0},[]]}"#
    );
}

#[test]
fn a_surrogate_pair_sorts_before_the_private_use_area() {
    let expected = "{\"\u{1f600}\":1,\"\u{fb33}\":2}";
    assert_eq!(
        interchange("{\"\u{fb33}\":2,\"\u{1f600}\":1}").unwrap(),
        expected
    );
    assert_eq!(
        interchange(r#"{"\ufb33":2,"\ud83d\ude00":1}"#).unwrap(),
        expected
    );
}

#[test]
fn text_is_escaped_as_little_as_possible() {
    let document = r#""\u0041\/\u000a\u001F\"\\\u00e9\u2028\u007f""#;
    assert_eq!(
        interchange(document).unwrap(),
        "\"A/\\n\\u001f\\\"\\\\é\u{2028}\u{7f}\""
    );
}

#[test]
fn numbers_are_doubles_printed_as_ecmascript_prints_them() {
    let cases = [
        ("1E30", "1e+30"),
        ("4.50", "4.5"),
        ("2e-3", "0.002"),
        ("-0", "0"),
        ("-0.0", "0"),
        ("1e-400", "0"),
        ("1e6", "1000000"),
        ("9007199254740991", "9007199254740991"),
        ("-9007199254740991", "-9007199254740991"),
    ];
    for (literal, text) in cases {
        assert_eq!(interchange(literal).unwrap(), text);
    }
}

#[test]
fn a_long_integer_is_refused_unless_it_is_what_a_double_prints() {
    for literal in [
        "9007199254740993",
        "2512292042121000001",
        "-1152921504606846976",
        "1000000000000000000000",
    ] {
        refused(literal, Problem::IntegerRange, "");
        assert_eq!(record(literal).unwrap(), literal);
    }
    for double in [
        9_007_199_254_740_992.0,
        1_152_921_504_606_846_976.0,
        1e20,
        -1e20,
    ] {
        let mut printer = number::Printer::default();
        let text = printer.double(double);
        assert_eq!(interchange(text).unwrap(), text);
        assert_eq!(record(text).unwrap(), text);
    }
}

#[test]
fn what_is_not_json_is_refused_with_its_place() {
    let cases = [
        ("", Problem::Syntax("a value"), ""),
        ("[1,]", Problem::Syntax("a value"), "/1"),
        ("[1 2]", Problem::Syntax("',' or ']'"), ""),
        (r#"{"a":1,}"#, Problem::Syntax("a key"), ""),
        (
            r#"{"a":[1,{"b":tru}]}"#,
            Problem::Syntax("a value"),
            "/a/1/b",
        ),
        (r#"{"a" 1}"#, Problem::Syntax("':'"), ""),
        (r#"{"a":1 "b":2}"#, Problem::Syntax("',' or '}'"), ""),
        ("{", Problem::Syntax("a key or '}'"), ""),
        ("[", Problem::Syntax("a value"), "/0"),
        ("1 1", Problem::Syntax("the end"), ""),
        ("[\"a\", 01]", Problem::Syntax("',' or ']'"), ""),
        ("[1.]", Problem::Syntax("a digit"), "/0"),
        ("1e", Problem::Syntax("a digit"), ""),
        ("-", Problem::Syntax("a digit"), ""),
        ("+1", Problem::Syntax("a value"), ""),
        ("NaN", Problem::Syntax("a value"), ""),
        (
            "\"a\nb\"",
            Problem::Syntax("an escape instead of a control character"),
            "",
        ),
        ("\"a", Problem::Syntax("'\"'"), ""),
        (r#""\x""#, Problem::Syntax("an escape"), ""),
        (
            r#""\u12g4""#,
            Problem::Syntax("four hexadecimal digits"),
            "",
        ),
        (r#""\u12"#, Problem::Syntax("four hexadecimal digits"), ""),
        ("\u{feff}1", Problem::Syntax("a value"), ""),
        (r#"{"x":"\ud800"}"#, Problem::LoneSurrogate, "/x"),
        (r#"["\udc00"]"#, Problem::LoneSurrogate, "/0"),
        (r#"["\ud800\u0041"]"#, Problem::LoneSurrogate, "/0"),
        (r#"{"x":{"\ud800":1}}"#, Problem::LoneSurrogateInKey, "/x"),
        (r#"{"x":[1e400]}"#, Problem::NumberOverflow, "/x/0"),
        (r#"[0,{"b":1,"a":2,"b":3}]"#, Problem::DuplicateKey, "/1/b"),
        (r#"{"a":1,"\u0061":2}"#, Problem::DuplicateKey, "/a"),
    ];
    for (document, problem, pointer) in cases {
        refused(document, problem, pointer);
    }
}

#[test]
fn bytes_that_are_no_utf8_are_refused() {
    for document in [
        &b"\"\xff\""[..],
        b"\"\xed\xa0\x80\"",
        b"\"\xc0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
    ] {
        let refusal = canonicalize(document, Form::Interchange, LIMITS).unwrap_err();
        assert_eq!(
            (refusal.problem, refusal.offset),
            (Problem::InvalidUtf8, Some(1))
        );
    }
}

#[test]
fn the_depth_of_a_value_counts_from_zero_at_the_root() {
    let nested =
        |depth: usize, inner: &str| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(interchange(&nested(128, "1")).is_ok());
    assert!(interchange(&nested(129, "")).is_ok());
    refused(&nested(129, "1"), Problem::TooDeep(128), &"/0".repeat(129));
    refused(&nested(130, ""), Problem::TooDeep(128), &"/0".repeat(129));
    let limits = Limits {
        max_depth: 1_000_000,
        ..LIMITS
    };
    assert!(canonicalize(nested(500_000, "").as_bytes(), Form::Interchange, limits).is_ok());
}

#[test]
fn node_and_byte_limits_hold_for_documents() {
    let limits = Limits {
        max_nodes: 3,
        max_bytes: 8,
        ..LIMITS
    };
    let run = |document: &str| canonicalize(document.as_bytes(), Form::Record, limits);
    assert!(run("[1,2]").is_ok());
    assert_eq!(
        run("[1,2,3]").unwrap_err().problem,
        Problem::TooManyNodes(3)
    );
    assert_eq!(run("[1,2,3]").unwrap_err().pointer, "/2");
    assert_eq!(
        run("        1").unwrap_err().problem,
        Problem::TooManyBytes(8)
    );
    assert_eq!(
        run("[1e20,1]").unwrap_err().problem,
        Problem::TooManyBytes(8)
    );
}

#[test]
fn lossless_reading_refuses_negative_zero() {
    for literal in ["-0", "-0.0", "-0e5", "-1e-400"] {
        let refusal = parse(literal.as_bytes(), Form::Lossless, LIMITS).unwrap_err();
        assert_eq!(refusal.problem, Problem::NegativeZero);
    }
}

#[test]
fn the_digest_is_that_of_the_empty_object() {
    let expected = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
    assert_eq!(
        digest(b" { } ", Form::Record, LIMITS).unwrap().as_str(),
        expected
    );
}
