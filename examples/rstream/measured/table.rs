//! The table, as the C program prints it.

use std::time::Duration;

use super::measurement::Measurement;
use super::short::{count_text, size_text};

/// The line above the table.
pub fn heading() -> String {
    format!(
        "{:<10}{:<8}{:<8}{:<8}{:<8}{:>8} {:>10}{:>13}",
        "name", "bytes", "xfers", "iters", "total", "time", "Gb/sec", "usec/xfer"
    )
}

/// The line of a measurement.
pub fn line(measurement: &Measurement, took: Duration) -> String {
    let micros = took.as_secs_f64() * 1e6;
    let bytes = measurement.bytes();
    format!(
        "{:<10}{:<8}{:<8}{:<8}{:<8}{:>8.2}s{:>10.2}{:>11.2}",
        measurement.name,
        size_text(measurement.size.into()),
        count_text(measurement.transfers.into()),
        count_text(measurement.iterations.into()),
        size_text(bytes),
        micros / 1e6,
        bytes as f64 * 8.0 / (1000.0 * micros),
        micros / measurement.all_transfers() as f64
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_c_program() {
        let measurement = Measurement {
            name: "64k_bw".to_owned(),
            size: 1 << 16,
            transfers: 1000,
            iterations: 1,
        };
        let took = Duration::from_millis(250);
        assert_eq!(
            [heading(), line(&measurement, took)],
            [
                "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer",
                "64k_bw    64k     1k      1       125m        0.25s      4.19     125.00"
            ]
        );
    }
}
