//! What no real card or kernel would forgive.

/// The violations so far.
#[derive(Debug, Default)]
pub(crate) struct Violations {
    texts: Vec<String>,
    aborts: bool,
}

/// More than this are of no use to anybody.
const MOST: usize = 100;

impl Violations {
    pub(crate) fn new(aborts: bool) -> Self {
        Self {
            texts: Vec::new(),
            aborts,
        }
    }

    pub(crate) fn add(&mut self, text: String) {
        if self.aborts {
            eprintln!("mlx5 device: VIOLATION: {text}");
            std::process::abort();
        }
        if self.texts.len() < MOST {
            self.texts.push(text);
        }
    }

    pub(crate) fn texts(&self) -> Vec<String> {
        self.texts.clone()
    }
}
