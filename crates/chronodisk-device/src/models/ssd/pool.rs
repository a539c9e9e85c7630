//! Small records in contiguous memory, with reusable numbers.

/// Records with reusable slots. It allocates no memory once it has reached its maximum number of records.
#[derive(Clone, Debug)]
pub(super) struct Pool<T> {
    records: Vec<T>,
    free: Vec<u32>,
}

impl<T: Copy> Pool<T> {
    pub(super) fn new() -> Self {
        Pool { records: Vec::new(), free: Vec::new() }
    }

    /// Puts a record in and returns its number.
    pub(super) fn insert(&mut self, record: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.records[number as usize] = record;
            return number;
        }
        self.records.push(record);
        // Room for the number of each record, so that giving one back never allocates.
        self.free.reserve(self.records.len());
        self.records.len() as u32 - 1
    }

    /// Removes a record; its number may be reused.
    pub(super) fn remove(&mut self, number: u32) -> T {
        self.free.push(number);
        self.records[number as usize]
    }

    /// The records in use, in order of their numbers.
    pub(super) fn in_use(&self) -> impl Iterator<Item = &T> {
        let mut is_free = vec![false; self.records.len()];
        self.free.iter().for_each(|&number| is_free[number as usize] = true);
        self.records.iter().zip(is_free).filter_map(|(record, free)| (!free).then_some(record))
    }

    /// Number of records in use.
    pub(super) fn len(&self) -> usize {
        self.records.len() - self.free.len()
    }
}

impl<T> std::ops::Index<u32> for Pool<T> {
    type Output = T;
    fn index(&self, number: u32) -> &T {
        &self.records[number as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Pool<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.records[number as usize]
    }
}

/// The number that stands for no record.
pub(super) const NONE: u32 = u32::MAX;
