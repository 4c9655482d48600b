//! A line that shows how far it is, on the standard error when that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Goes when it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// Begins at 0 of `steps`.
    pub fn new(what: &'static str, steps: usize) -> Self {
        let style = ProgressStyle::with_template("{msg:>22} {bar:40} {pos} of {len}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(steps as u64).with_style(style);
        Self(bar.with_message(what))
    }

    /// One step more. The line is drawn a few times a second, however often this is called.
    pub fn advance(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
