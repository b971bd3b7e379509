//! Shapes: the order of keys, remembered within one walk.
//!
//! Records in a list have the same keys in the same order, and nearly always the very same key objects. Where the
//! pointers of a dict's keys are those of an earlier dict, so are their texts and their order.

use core::cmp::Ordering;

use pyo3::ffi;
use runlane_core::canon::order;

use super::scalar::as_text;

/// From how many dicts on shapes are remembered: fewer would not earn what it costs.
const FIRST_DICTS: usize = 6;
/// The greatest dict that is remembered.
const MAX_KEYS: usize = 64;
/// How many keys are remembered in all.
const MAX_TOTAL: usize = 4096;
/// The number of places for a shape; a power of two.
const SLOTS: usize = 32;

/// The text of a key that is alive: its dict keeps it, or the walk does.
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
            prefix: order::prefix(text.get().as_bytes()),
            text,
            index,
        }
    }

    #[inline]
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let whole = || order::compare(self.text.get().as_bytes(), other.text.get().as_bytes());
        self.prefix.cmp(&other.prefix).then_with(whole)
    }
}

/// One shape: its keys in the order of the dict, and in the order of the text.
#[derive(Default)]
struct Shape {
    keys: Vec<*mut ffi::PyObject>,
    order: Vec<Place>,
}

/// See the module. The pointers are good for one walk that runs no Python code.
#[derive(Default)]
pub(super) struct Shapes {
    dicts: usize,
    total: usize,
    slots: Vec<Shape>,
}

impl Shapes {
    /// The order of the keys of a dict, if it is known.
    #[inline]
    pub(super) fn find(
        &mut self,
        keys: impl ExactSizeIterator<Item = *mut ffi::PyObject> + Clone,
    ) -> Option<&[Place]> {
        self.dicts += 1;
        if self.slots.is_empty() {
            return None;
        }
        let shape = self.slots.get(slot(keys.clone())?)?;
        let is_same = shape.keys.len() == keys.len() && keys.zip(&shape.keys).all(|(a, &b)| a == b);
        is_same.then_some(&shape.order)
    }

    /// Remembers the order of the keys of a dict, if that promises to pay.
    #[inline]
    pub(super) fn remember(
        &mut self,
        keys: impl ExactSizeIterator<Item = *mut ffi::PyObject> + Clone,
        order: &[Place],
    ) {
        let total = self.total + order.len();
        if self.dicts <= FIRST_DICTS || order.len() > MAX_KEYS || total > MAX_TOTAL {
            return;
        }
        let Some(slot) = slot(keys.clone()) else {
            return;
        };
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, Shape::default);
        }
        if let Some(shape) = self.slots.get_mut(slot) {
            self.total = total;
            shape.keys.clear();
            shape.keys.extend(keys);
            shape.order.clear();
            shape.order.extend_from_slice(order);
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
