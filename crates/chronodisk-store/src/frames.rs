//! The memory of an overflow store: frames for pages.

/// Unit of caching and eviction.
pub const PAGE_BYTES: u64 = 4096;
/// Unit in which memory is allocated on demand.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
const CHUNK_FRAMES: u32 = (CHUNK_BYTES / PAGE_BYTES as usize) as u32;

/// The pages in memory, in the order of their last use.
#[derive(Debug)]
pub(crate) struct Frames {
    pub count_max: u32,
    chunks: Vec<Box<[u8]>>,
    /// The page of each frame; [`NO_PAGE`] where the frame is free.
    pages: Vec<u64>,
    /// Whether the file is known to have space for the page of each frame.
    backed: Vec<bool>,
    newer: Vec<u32>,
    older: Vec<u32>,
    newest: u32,
    oldest: u32,
    free: Vec<u32>,
}

const NO_FRAME: u32 = u32::MAX;
const NO_PAGE: u64 = u64::MAX;

impl Frames {
    pub fn new(count_max: u32) -> Self {
        Frames {
            count_max,
            chunks: Vec::new(),
            pages: Vec::new(),
            backed: Vec::new(),
            newer: Vec::new(),
            older: Vec::new(),
            newest: NO_FRAME,
            oldest: NO_FRAME,
            free: Vec::new(),
        }
    }

    /// Frames so far, free ones included.
    pub fn count(&self) -> u32 {
        self.pages.len() as u32
    }

    pub fn in_use(&self) -> u64 {
        (self.pages.len() - self.free.len()) as u64
    }

    pub fn bytes(&self, frame: u32) -> &[u8] {
        let start = (frame % CHUNK_FRAMES) as usize * PAGE_BYTES as usize;
        &self.chunks[(frame / CHUNK_FRAMES) as usize][start..start + PAGE_BYTES as usize]
    }

    pub fn bytes_mut(&mut self, frame: u32) -> &mut [u8] {
        let start = (frame % CHUNK_FRAMES) as usize * PAGE_BYTES as usize;
        &mut self.chunks[(frame / CHUNK_FRAMES) as usize][start..start + PAGE_BYTES as usize]
    }

    /// An empty frame, as long as the limit is not reached.
    pub fn take_free(&mut self) -> Option<u32> {
        if let Some(frame) = self.free.pop() {
            return Some(frame);
        }
        let frame = self.pages.len() as u32;
        if frame >= self.count_max {
            return None;
        }
        if frame.is_multiple_of(CHUNK_FRAMES) {
            let frames = CHUNK_FRAMES.min(self.count_max - frame) as usize;
            self.chunks.push(vec![0; frames * PAGE_BYTES as usize].into_boxed_slice());
        }
        self.pages.push(NO_PAGE);
        self.backed.push(false);
        self.newer.push(NO_FRAME);
        self.older.push(NO_FRAME);
        Some(frame)
    }

    pub fn page_of(&self, frame: u32) -> u64 {
        self.pages[frame as usize]
    }

    pub fn page_if_used(&self, frame: u32) -> Option<u64> {
        Some(self.pages[frame as usize]).filter(|page| *page != NO_PAGE)
    }

    pub fn oldest(&self) -> u32 {
        self.oldest
    }

    /// The frames that hold pages, by their last use.
    pub fn oldest_first(&self) -> impl Iterator<Item = u32> {
        let frame = |frame: u32| (frame != NO_FRAME).then_some(frame);
        std::iter::successors(frame(self.oldest), move |before| frame(self.newer[*before as usize]))
    }

    /// Whether the file is known to have space for the frame's page.
    pub fn is_backed(&self, frame: u32) -> bool {
        self.backed[frame as usize]
    }

    /// Notes whether the file is known to have space for the frame's page.
    pub fn set_backed(&mut self, frame: u32, is_backed: bool) {
        self.backed[frame as usize] = is_backed;
    }

    /// The frame holds this page, the newest.
    pub fn link(&mut self, frame: u32, page: u64) {
        self.pages[frame as usize] = page;
        self.newer[frame as usize] = NO_FRAME;
        self.older[frame as usize] = self.newest;
        match self.newest {
            NO_FRAME => self.oldest = frame,
            newest => self.newer[newest as usize] = frame,
        }
        self.newest = frame;
    }

    /// Empties the frame.
    pub fn unlink(&mut self, frame: u32) {
        let (newer, older) = (self.newer[frame as usize], self.older[frame as usize]);
        match newer {
            NO_FRAME => self.newest = older,
            newer => self.older[newer as usize] = older,
        }
        match older {
            NO_FRAME => self.oldest = newer,
            older => self.newer[older as usize] = newer,
        }
        self.pages[frame as usize] = NO_PAGE;
    }

    pub fn free(&mut self, frame: u32) {
        self.free.push(frame);
    }

    pub fn touch(&mut self, frame: u32) {
        if self.newest == frame {
            return;
        }
        let page = self.page_of(frame);
        self.unlink(frame);
        self.link(frame, page);
    }
}
