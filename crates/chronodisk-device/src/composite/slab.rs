//! Small records with reusable numbers.

/// Records whose numbers become free when they are taken out. It never shrinks, so it stops allocating once it has
/// reached its maximum size.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// A slab without records.
    pub(crate) fn new() -> Self {
        Slab { entries: Vec::new(), free: Vec::new() }
    }

    /// Puts a record in and returns its number.
    pub(crate) fn insert(&mut self, entry: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.entries[number as usize] = Some(entry);
            return number;
        }
        self.entries.push(Some(entry));
        u32::try_from(self.entries.len() - 1).expect("fewer than 2^32 records")
    }

    /// Takes a record out.
    ///
    /// # Panics
    /// If there is no record under this number.
    pub(crate) fn take(&mut self, number: u32) -> T {
        let entry = self.entries[number as usize].take().expect("a number is taken once");
        self.free.push(number);
        entry
    }

    /// The record under this number.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn get_mut(&mut self, number: u32) -> &mut T {
        self.entries[number as usize].as_mut().expect("a record under this number")
    }

    /// The records, in order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten()
    }

    /// Like [`get_mut`](Self::get_mut), for reading.
    pub(crate) fn get(&self, number: u32) -> &T {
        self.entries[number as usize].as_ref().expect("a record under this number")
    }
}
