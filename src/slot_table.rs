//! A table whose keys never name the wrong object.
//!
//! The kernel hands a cookie of ours back in every event, possibly long after the object it stands
//! for is gone. A key is a slot number and the slot's generation: when a slot is used again its
//! generation has moved on, and the old key finds nothing.

/// Names one entry of a [`SlotTable`], for as long as the process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    slot: u32,
    generation: u32,
}

impl Key {
    /// The number that travels through the kernel. Never zero, which the kernel uses for "no
    /// cookie yet".
    pub(crate) fn to_cookie(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    /// The key that a number from the kernel stands for, whether or not it names an entry.
    pub(crate) fn from_cookie(cookie: u64) -> Self {
        Self {
            slot: cookie as u32,
            generation: (cookie >> 32) as u32,
        }
    }
}

#[derive(Debug)]
struct Slot<T> {
    /// From 1 upward; a slot whose generations are used up is retired.
    generation: u32,
    value: Option<T>,
}

/// Values under [`Key`]s.
#[derive(Debug)]
pub(crate) struct SlotTable<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> SlotTable<T> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Stores a value under a new key.
    pub(crate) fn insert(&mut self, value: T) -> Key {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.slots[slot as usize];
            entry.value = Some(value);
            return Key {
                slot,
                generation: entry.generation,
            };
        }
        let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 objects are alive");
        self.slots.push(Slot {
            generation: 1,
            value: Some(value),
        });
        Key {
            slot,
            generation: 1,
        }
    }

    /// The value under `key`, if it is still there.
    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.slots
            .get(key.slot as usize)
            .filter(|slot| slot.generation == key.generation)
            .and_then(|slot| slot.value.as_ref())
    }

    /// Puts another value under a key that is in use; a stale key is left alone.
    pub(crate) fn replace(&mut self, key: Key, value: T) {
        let slot = self.slots.get_mut(key.slot as usize);
        if let Some(slot) = slot.filter(|slot| slot.generation == key.generation) {
            slot.value = slot.value.is_some().then_some(value);
        }
    }

    /// Takes the value out; the key is stale from then on.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.slot as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(key.slot);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_stale_key_finds_nothing_after_its_slot_is_used_again() {
        let mut table = SlotTable::new();
        let first = table.insert("first");
        assert_eq!(table.remove(first), Some("first"));
        let second = table.insert("second");
        assert_eq!(second.slot, first.slot, "the slot is used again");
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&"second"));
    }

    #[test]
    fn a_slot_with_its_generations_used_up_is_never_used_again() {
        let mut table = SlotTable::new();
        let key = table.insert(());
        table.slots[0].generation = u32::MAX;
        let last = Key {
            generation: u32::MAX,
            ..key
        };
        assert_eq!(table.remove(last), Some(()));
        assert_ne!(table.insert(()).slot, key.slot);
    }

    #[test]
    fn unknown_cookies_find_nothing() {
        let mut table = SlotTable::new();
        table.insert(());
        for cookie in [0, 1, u64::MAX, 1 << 32 | 1, 2 << 32] {
            assert_eq!(table.get(Key::from_cookie(cookie)), None, "{cookie:#x}");
        }
    }

    proptest! {
        #[test]
        fn behaves_as_a_map_that_never_repeats_a_key(
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..if cfg!(miri) { 20 } else { 200 })
        ) {
            let mut table = SlotTable::new();
            let mut model: HashMap<u64, usize> = HashMap::new();
            let mut keys = Vec::new();
            for (number, (insert, pick)) in steps.into_iter().enumerate() {
                if insert || keys.is_empty() {
                    let key = table.insert(number);
                    prop_assert_eq!(Key::from_cookie(key.to_cookie()), key);
                    prop_assert!(model.insert(key.to_cookie(), number).is_none());
                    keys.push(key);
                } else {
                    let key = keys[pick.index(keys.len())];
                    prop_assert_eq!(table.remove(key), model.remove(&key.to_cookie()));
                }
                for key in &keys {
                    prop_assert_eq!(table.get(*key), model.get(&key.to_cookie()));
                }
            }
        }
    }
}
