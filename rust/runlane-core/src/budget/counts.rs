//! Token counts of records, kept per tokenizer.

use crate::history::{RecordRef, short};

/// What the framing of a message, and of each part in it, costs at most with any known chat format.
const FRAME: u64 = 8;

/// The largest count: 2^53 - 1.
const MAX_COUNT: u64 = (1 << 53) - 1;

/// What one record counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Not counted yet.
    Missing,
    /// Counted, and nobody knows.
    Unknown,
    /// Counted exactly.
    Measured(u64),
    /// Derived.
    Computed(u64),
    /// Guessed.
    Estimated(u64),
}

impl Count {
    /// The number, if there is one.
    pub fn value(self) -> Option<u64> {
        match self {
            Self::Missing | Self::Unknown => None,
            Self::Measured(value) | Self::Computed(value) | Self::Estimated(value) => Some(value),
        }
    }

    /// Never below what a byte-level tokenizer makes of the record: a token is at least one byte.
    pub fn bound(record: RecordRef<'_>) -> Self {
        let parts = u64::try_from(record.part_count()).unwrap_or(u64::MAX);
        let frames = parts.saturating_add(1).saturating_mul(FRAME);
        Self::Estimated(u64::from(record.said()).saturating_add(frames))
    }

    fn packed(self) -> u64 {
        let (value, label) = match self {
            Self::Missing => (0, 0),
            Self::Unknown => (0, 1),
            Self::Measured(value) => (value, 2),
            Self::Computed(value) => (value, 3),
            Self::Estimated(value) => (value, 4),
        };
        value.min(MAX_COUNT) << 3 | label
    }

    fn unpacked(packed: u64) -> Self {
        let value = packed >> 3;
        match packed & 7 {
            1 => Self::Unknown,
            2 => Self::Measured(value),
            3 => Self::Computed(value),
            4 => Self::Estimated(value),
            _ => Self::Missing,
        }
    }
}

/// The counts of one tokenizer, one per record.
#[derive(Clone, Debug)]
pub struct Counter {
    name: String,
    counts: Vec<u64>,
    /// No count is missing before here.
    settled: usize,
}

impl Counter {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            counts: Vec::new(),
            settled: 0,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What a record counts.
    pub fn get(&self, place: usize) -> Count {
        self.counts
            .get(place)
            .map_or(Count::Missing, |packed| Count::unpacked(*packed))
    }

    /// Says what a record counts.
    pub fn set(&mut self, place: usize, count: Count) {
        if self.counts.len() <= place {
            self.counts
                .resize(place.saturating_add(1), Count::Missing.packed());
        }
        if let Some(packed) = self.counts.get_mut(place) {
            *packed = count.packed();
        }
    }

    pub(crate) fn forget(&mut self, place: usize) {
        if let Some(packed) = self.counts.get_mut(place) {
            *packed = Count::Missing.packed();
            self.settled = self.settled.min(place);
        }
    }

    /// Notes how far every record is counted.
    pub(crate) fn settle(&mut self) {
        let behind = self.counts.get(self.settled..).unwrap_or_default();
        let counted = behind
            .iter()
            .take_while(|packed| **packed != Count::Missing.packed());
        self.settled = self.settled.saturating_add(counted.count());
    }

    /// Places of the records, of so many, that were not counted yet.
    pub(crate) fn uncounted(&self, records: usize) -> Vec<u32> {
        (self.settled..records)
            .filter(|place| self.get(*place) == Count::Missing)
            .map(short)
            .collect()
    }

    pub(crate) fn insert(&mut self, place: usize) {
        if place < self.counts.len() {
            self.counts.insert(place, Count::Missing.packed());
            self.settled = self.settled.min(place);
        }
    }

    /// Takes out places, ascending.
    pub(crate) fn remove(&mut self, places: &[usize]) {
        if let Some(first) = places.first() {
            self.settled = self.settled.min(*first);
        }
        let mut gone = places.iter().copied().peekable();
        let mut place = 0_usize;
        self.counts.retain(|_| {
            let keep = gone.next_if_eq(&place).is_none();
            place = place.saturating_add(1);
            keep
        });
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.counts.capacity().saturating_mul(size_of::<u64>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_survives_being_kept() {
        for count in [
            Count::Missing,
            Count::Unknown,
            Count::Measured(0),
            Count::Computed(7),
            Count::Estimated(MAX_COUNT),
        ] {
            assert_eq!(Count::unpacked(count.packed()), count);
        }
    }

    #[test]
    fn counts_move_with_their_records() {
        let mut counter = Counter::new("t");
        (0..5).for_each(|place| counter.set(place, Count::Measured(place as u64)));
        counter.insert(1);
        counter.remove(&[0, 3]);
        let left: Vec<_> = (0..5).map(|place| counter.get(place)).collect();
        let expected = [
            Count::Missing,
            Count::Measured(1),
            Count::Measured(3),
            Count::Measured(4),
            Count::Missing,
        ];
        assert_eq!(left, expected);
    }
}
