//! Pages on their way from a file into memory, while the store serves others.

use std::collections::HashMap;
use std::ops::Range;

/// Pages being loaded, and whether they still equal the device's contents.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    /// Looked up by page, or changed as a whole; never iterated.
    pages: HashMap<u64, Page>,
}

#[derive(Debug)]
struct Page {
    /// Several may fetch one page.
    loaders: u32,
    valid: bool,
}

impl Loading {
    /// Begins to read a page from the file.
    pub fn begin(&mut self, page: u64) {
        // A page that changed while another fetched it may be fetched as it was for this one, too.
        self.pages.entry(page).or_insert(Page { loaders: 0, valid: true }).loaders += 1;
    }

    /// Ends the read of a page, successful or not. Returns whether the page still equals the device's contents.
    pub fn finish(&mut self, page: u64) -> bool {
        let Some(entry) = self.pages.get_mut(&page) else { return false };
        let valid = entry.valid;
        entry.loaders -= 1;
        if entry.loaders == 0 {
            self.pages.remove(&page);
        }
        valid
    }

    /// Invalidates a page that is being loaded, if it is.
    pub fn changed(&mut self, page: u64) {
        if !self.pages.is_empty()
            && let Some(entry) = self.pages.get_mut(&page)
        {
            entry.valid = false;
        }
    }

    /// Like [`changed`](Self::changed), for a range of pages.
    pub fn changed_range(&mut self, pages: Range<u64>) {
        self.pages.iter_mut().filter(|(page, _)| pages.contains(page)).for_each(|(_, entry)| entry.valid = false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_changes_on_its_way_is_worth_nothing_to_anybody() {
        let mut loading = Loading::default();
        loading.begin(10);
        assert!(loading.finish(10));
        loading.begin(10);
        loading.begin(10);
        loading.changed(10);
        assert!(!loading.finish(10));
        loading.begin(10);
        assert!(!loading.finish(10) && !loading.finish(10));
        loading.begin(10);
        loading.changed_range(0..11);
        assert!(!loading.finish(10));
        assert!(!loading.finish(10), "nobody fetches it");
        loading.begin(10);
        assert!(loading.finish(10));
    }
}
