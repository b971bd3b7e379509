//! Finding things by a string of the records: ids, runs, calls, approvals.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

use super::text::{decoded, same, to_usize};

/// Up to here comparing every entry is as fast as a table.
const FEW: usize = 12;

/// A list of named things, found by name; the names stay where they are and are given by `name_of`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    len: usize,
    table: HashTable<u32>,
}

fn hash(name: &str) -> u64 {
    FixedState::default().hash_one(&*decoded(name))
}

impl Names {
    /// The newest entry of this name.
    pub(crate) fn find<'n>(&self, name: &str, name_of: impl Fn(usize) -> &'n str) -> Option<usize> {
        if self.len <= FEW {
            return (0..self.len)
                .rev()
                .find(|entry| same(name_of(*entry), name));
        }
        let found = self
            .table
            .find(hash(name), |entry| same(name_of(to_usize(*entry)), name));
        found.map(|entry| to_usize(*entry))
    }

    /// Makes room for more entries.
    pub(crate) fn reserve<'n>(&mut self, more: usize, name_of: impl Fn(usize) -> &'n str) {
        if self.len.saturating_add(more) > FEW {
            self.table.reserve(more.saturating_add(FEW), |other| {
                hash(name_of(to_usize(*other)))
            });
        }
    }

    /// Adds the next entry; its name must be there already.
    pub(crate) fn push<'n>(&mut self, name_of: impl Fn(usize) -> &'n str) {
        let entry = self.len;
        self.len = entry.saturating_add(1);
        if entry < FEW {
            return;
        }
        if entry == FEW {
            (0..FEW).for_each(|entry| self.enter(entry, &name_of));
        }
        self.enter(entry, &name_of);
    }

    fn enter<'n>(&mut self, entry: usize, name_of: &impl Fn(usize) -> &'n str) {
        if let Ok(short) = u32::try_from(entry) {
            self.table
                .insert_unique(hash(name_of(entry)), short, |other| {
                    hash(name_of(to_usize(*other)))
                });
        }
    }

    /// Forgets the entries from `len` on, whose names must still be there.
    pub(crate) fn truncate<'n>(&mut self, len: usize, name_of: impl Fn(usize) -> &'n str) {
        if len <= FEW {
            self.table.clear();
        } else {
            for entry in len..self.len {
                let gone = |other: &u32| to_usize(*other) == entry;
                if let Ok(found) = self.table.find_entry(hash(name_of(entry)), gone) {
                    found.remove();
                }
            }
        }
        self.len = self.len.min(len);
    }

    pub(crate) fn clear(&mut self) {
        self.table.clear();
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_however_many_there_are() {
        let names: Vec<String> = (0..100).map(|n| format!("call-{n}")).collect();
        let name_of = |entry: usize| names[entry].as_str();
        let mut known = Names::default();
        for (n, name) in names.iter().enumerate() {
            known.push(name_of);
            assert_eq!(known.find(name, name_of), Some(n));
            assert_eq!(known.find("absent", name_of), None);
        }
        known.truncate(50, name_of);
        assert_eq!(known.find("call-49", name_of), Some(49));
        assert_eq!(known.find("call-50", name_of), None);
        known.truncate(5, name_of);
        assert_eq!(known.find("call-5", name_of), None);
        assert_eq!(known.find("\\u0063all-4", name_of), Some(4));
    }
}
