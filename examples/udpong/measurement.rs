//! What is measured: how many bytes, how often; and the table of what came out.

use std::time::Duration;

use crate::short::{count_text, size_text};

/// What the command line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// Latency and bandwidth of several sizes.
    Series,
    One {
        size: u32,
        transfers: u32,
        echoes: bool,
    },
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurement {
    name: String,
    /// Bytes of a transfer.
    pub size: u32,
    pub transfers: u32,
    /// Whether each comes back.
    pub echoes: bool,
}

/// Powers of two from 64 to 1024 bytes, and behind each but the first the mean of it and the next.
const SIZES: [u32; 9] = [64, 128, 192, 256, 384, 512, 768, 1024, 1536];

impl Plan {
    pub fn measurements(self) -> Vec<Measurement> {
        match self {
            Self::Series => {
                let latency = SIZES.map(|size| Measurement {
                    name: format!("{}_lat", size_text(size.into())),
                    size,
                    transfers: count_of(size) / 10,
                    echoes: true,
                });
                let bandwidth = SIZES.map(|size| Measurement {
                    name: format!("{}_bw", size_text(size.into())),
                    size,
                    transfers: count_of(size),
                    echoes: false,
                });
                [latency, bandwidth].concat()
            }
            Self::One {
                size,
                transfers,
                echoes,
            } => vec![Measurement {
                name: "custom".to_owned(),
                size,
                transfers,
                echoes,
            }],
        }
    }
}

/// How often a size is transferred: the longer, the less.
fn count_of(size: u32) -> u32 {
    match size {
        0x400.. => 10_000,
        _ => 100_000,
    }
}

pub fn heading() -> String {
    format!(
        "{:<10}{:<8}{:<8}{:<8}{:>8} {:>10}{:>13}",
        "name", "bytes", "xfers", "total", "time", "Gb/sec", "usec/xfer"
    )
}

impl Measurement {
    /// The line of the table.
    pub fn line(&self, transfers: u64, time: Duration) -> String {
        let bytes = transfers * u64::from(self.size);
        let microseconds = time.as_secs_f64() * 1e6;
        format!(
            "{:<10}{:<8}{:<8}{:<8}{:>8.2}s{:>10.2}{:>11.2}",
            self.name,
            size_text(self.size.into()),
            count_text(transfers),
            size_text(bytes.into()),
            time.as_secs_f64(),
            bytes as f64 * 8.0 / (1000.0 * microseconds),
            microseconds / transfers as f64,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_is_that_of_the_c_program() {
        let series = Plan::Series.measurements();
        let of = |at: usize| {
            (
                series[at].name.as_str(),
                series[at].transfers,
                series[at].echoes,
            )
        };
        assert_eq!(of(0), ("64_lat", 10_000, true));
        assert_eq!(of(8), ("1.5k_lat", 1000, true));
        assert_eq!(of(9), ("64_bw", 100_000, false));
        assert_eq!(of(16), ("1k_bw", 10_000, false));
        assert_eq!(series.len(), 18);
    }

    #[test]
    fn a_line_stands_below_the_heading() {
        let one = Plan::One {
            size: 1000,
            transfers: 1000,
            echoes: false,
        };
        let line = one.measurements()[0].line(1000, Duration::from_millis(10));
        assert_eq!(
            line,
            "custom    1000    1k      976k        0.01s      0.80      10.00"
        );
        assert_eq!(
            heading(),
            "name      bytes   xfers   total       time     Gb/sec    usec/xfer"
        );
    }
}
