//! A line that shows how far it is, on the standard error when that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

const TEMPLATE: &str = "{msg} {bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";

/// Goes when it is dropped.
pub struct Progress(ProgressBar);

impl Progress {
    /// Begins at 0 of so many bytes.
    pub fn new(what: &str, bytes: u64) -> Self {
        let style =
            ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(bytes).with_style(style);
        Self(bar.with_message(what.to_owned()))
    }

    /// So many bytes more.
    pub fn advance(&self, bytes: usize) {
        self.0.inc(bytes as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_a_form_of_its_own() {
        ProgressStyle::with_template(TEMPLATE).unwrap();
    }
}
