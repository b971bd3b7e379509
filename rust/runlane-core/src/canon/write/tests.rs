//! The writer against its text, its limits and its keys.

use ring::digest::{SHA256, digest};

use super::*;

const LIMITS: Limits = Limits {
    max_depth: 128,
    max_nodes: 1000,
    max_bytes: 1 << 20,
    max_digits: 100_000,
};

#[test]
fn the_hash_is_that_of_the_text_however_long_its_pieces() {
    for length in [
        0, 1, 2, 63, 64, 1023, 1024, 1025, 4000, 4095, 4096, 4097, 9000, 70_000,
    ] {
        for filler in ["x", "\n", "é"] {
            let value = filler.repeat(length);
            let mut text = Writer::<Keep>::new(Form::Record, LIMITS);
            let mut hash = Writer::<Hash>::new(Form::Record, LIMITS);
            text.open_array().unwrap();
            hash.open_array().unwrap();
            for is_first in [true, false, false] {
                text.part(is_first).unwrap();
                hash.part(is_first).unwrap();
                text.string(&value).unwrap();
                hash.string(&value).unwrap();
            }
            text.close_array().unwrap();
            hash.close_array().unwrap();
            let expected = format!("[{0},{0},{0}]", format!("\"{value}\"").replace('\n', "\\n"));
            assert_eq!(text.text(), expected.as_bytes());
            assert_eq!(
                hash.into_hex().as_str(),
                Hex::new(digest(&SHA256, text.text()).as_ref()).as_str()
            );
        }
    }
}

#[test]
fn the_byte_limit_is_exact() {
    for length in [0, 3, 500, 1023, 1024, 1025, 5000] {
        let value = "x".repeat(length);
        let write = |max_bytes| {
            let mut writer = Writer::<Keep>::new(
                Form::Record,
                Limits {
                    max_bytes,
                    ..LIMITS
                },
            );
            writer
                .string(&value)
                .map(|()| writer.text().len())
                .map_err(|Stop| writer.problem())
        };
        let needed = length + 2;
        assert_eq!(write(needed), Ok(needed));
        assert_eq!(
            write(needed - 1),
            Err(Some(Problem::TooManyBytes(needed - 1)))
        );
        let hash = |max_bytes| {
            let mut writer = Writer::<Hash>::new(
                Form::Record,
                Limits {
                    max_bytes,
                    ..LIMITS
                },
            );
            writer.key(&value, true).map_err(|Stop| writer.problem())
        };
        assert_eq!(hash(needed + 1), Ok(()));
        assert_eq!(hash(needed), Err(Some(Problem::TooManyBytes(needed))));
    }
}

#[test]
fn a_rendered_key_is_the_key() {
    for key in [
        "",
        "a",
        "a\n\"b\\",
        "é\u{1f600}",
        &"k".repeat(600),
        &"\u{1}".repeat(100),
    ] {
        for is_first in [true, false] {
            let mut plain = Writer::<Keep>::new(Form::Record, LIMITS);
            let mut fast = Writer::<Keep>::new(Form::Record, LIMITS);
            plain.key(key, is_first).unwrap();
            let mut rendered = Vec::with_capacity(6 * key.len() + 4);
            assert!(render_key(&mut rendered, key));
            fast.rendered(&rendered, is_first).unwrap();
            assert_eq!(plain.text(), fast.text());
        }
    }
}

#[test]
fn node_and_depth_limits_are_exact() {
    let mut writer = Writer::<Keep>::new(
        Form::Record,
        Limits {
            max_depth: 2,
            max_nodes: 3,
            ..LIMITS
        },
    );
    assert_eq!(writer.enter(2, 1), Ok(()));
    assert_eq!(writer.enter(3, 1), Err(Stop));
    assert_eq!(writer.problem(), Some(Problem::TooDeep(2)));
    assert_eq!(writer.enter(0, 1), Ok(()));
    assert_eq!(writer.enter(0, 1), Err(Stop));
    assert_eq!(writer.problem(), Some(Problem::TooManyNodes(3)));
}
