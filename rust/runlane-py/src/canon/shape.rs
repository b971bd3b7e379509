//! Shapes: the order of keys, remembered within one walk.
//!
//! Records in a list have the same keys in the same order, and nearly always the very same key objects. Where the
//! pointers of a dict's keys are those of an earlier dict, so are their texts and their order.

use core::cmp::Ordering;

use pyo3::ffi;
use runlane_core::canon::{order, render_key};

use super::scalar::as_text;

/// From how many dicts on shapes are remembered: fewer would not earn what it costs.
const FIRST_DICTS: usize = 6;
/// The greatest dict that is remembered.
const MAX_KEYS: usize = 64;
/// How many keys are remembered in all.
const MAX_TOTAL: usize = 512;
/// How many bytes of keys as they are written are remembered in all.
const MAX_BYTES: usize = 8 << 10;
/// The number of places for a shape; a power of two.
const SLOTS: usize = 32;

/// The text of a key that is alive, because its dict is, or the walk keeps it; or that text as it is written.
#[derive(Clone, Copy)]
pub(super) struct KeyText {
    text: *const u8,
    length: usize,
}

impl KeyText {
    #[inline]
    pub(super) fn get(&self) -> &str {
        // SAFETY: from `utf8`, and the key outlives the walk, which no key text does.
        unsafe { as_text(self.text, self.length) }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.get().as_bytes()
    }
}

/// A key: where it stands in its dict, and its text.
#[derive(Clone, Copy)]
pub(super) struct Place {
    prefix: u64,
    pub(super) text: KeyText,
    pub(super) index: usize,
}

impl Place {
    /// The place of a key that is alive, and whose UTF-8 this is.
    #[inline]
    pub(super) fn new(index: usize, (text, length): (*const u8, usize)) -> Self {
        let text = KeyText { text, length };
        Self {
            prefix: order::prefix(text.bytes()),
            text,
            index,
        }
    }

    #[inline]
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let whole = || order::compare(self.text.bytes(), other.text.bytes());
        self.prefix.cmp(&other.prefix).then_with(whole)
    }
}

/// One shape: where its keys start, and how many there are.
#[derive(Clone, Copy, Default)]
struct Shape {
    start: usize,
    length: usize,
}

/// See the module. The pointers are good for one walk that runs no Python code. What is remembered stays where it is.
#[derive(Default)]
pub(super) struct Shapes {
    dicts: usize,
    slots: Vec<Shape>,
    /// The keys of all shapes, each in the order of its dict.
    keys: Vec<*mut ffi::PyObject>,
    /// The same keys in the order of the text, as they are written.
    order: Vec<Place>,
    /// Those texts. It never grows beyond what it is made with, so that they stay in place.
    rendered: Vec<u8>,
}

impl Shapes {
    /// Where the order of the keys of a dict starts, if it is known.
    #[inline]
    pub(super) fn find(
        &mut self,
        keys: impl ExactSizeIterator<Item = *mut ffi::PyObject> + Clone,
    ) -> Option<usize> {
        self.dicts += 1;
        if self.slots.is_empty() {
            return None;
        }
        let Shape { start, length } = *self.slots.get(slot(keys.clone())?)?;
        if keys.len() != length {
            return None;
        }
        let known = self.keys.get(start..start + length)?;
        keys.zip(known).all(|(a, &b)| a == b).then_some(start)
    }

    /// Keys in the order of the text, from where `find` said.
    #[inline]
    pub(super) fn order(&self) -> &[Place] {
        &self.order
    }

    /// Remembers the order of the keys of a dict, if that promises to pay.
    #[inline]
    pub(super) fn remember(
        &mut self,
        keys: impl ExactSizeIterator<Item = *mut ffi::PyObject> + Clone,
        order: &[Place],
    ) {
        let length = order.len();
        if self.dicts > FIRST_DICTS && length <= MAX_KEYS && self.keys.len() + length <= MAX_TOTAL {
            self.add(keys, order);
        }
    }

    fn add(
        &mut self,
        keys: impl ExactSizeIterator<Item = *mut ffi::PyObject> + Clone,
        order: &[Place],
    ) {
        let Some(slot) = slot(keys.clone()) else {
            return;
        };
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, Shape::default());
            self.rendered.reserve_exact(MAX_BYTES);
            self.keys.reserve(64);
            self.order.reserve(64);
        }
        let shape = Shape {
            start: self.keys.len(),
            length: order.len(),
        };
        for place in order {
            let from = self.rendered.len();
            if !render_key(&mut self.rendered, place.text.get()) {
                self.order.truncate(shape.start);
                return;
            }
            if let Some(rendered) = self.rendered.get(from..) {
                let text = KeyText {
                    text: rendered.as_ptr(),
                    length: rendered.len(),
                };
                self.order.push(Place { text, ..*place });
            }
        }
        self.keys.extend(keys);
        if let Some(place) = self.slots.get_mut(slot) {
            *place = shape;
        }
    }
}

/// The place of a shape: by its first key and its size.
#[inline]
fn slot(mut keys: impl ExactSizeIterator<Item = *mut ffi::PyObject>) -> Option<usize> {
    let length = keys.len();
    let first = keys.next()?.addr();
    Some((first >> 4 ^ first >> 9 ^ length) % SLOTS)
}
