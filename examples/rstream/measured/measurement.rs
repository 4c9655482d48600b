//! What is measured: how many bytes, how often.

use super::short::size_text;

/// Which measurements to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    Series {
        all_sizes: bool,
    },
    One {
        size: u32,
        transfers: u32,
        iterations: u32,
    },
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measurement {
    pub name: String,
    /// Bytes of a transfer.
    pub size: u32,
    /// Transfers in each direction of an iteration.
    pub transfers: u32,
    pub iterations: u32,
}

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Latency,
    Bandwidth,
    /// What the command line says.
    Custom,
}

/// What is done over one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    pub purpose: Purpose,
    pub measurements: Vec<Measurement>,
}

/// The sizes: powers of two from 64 bytes to 4 MiB, and between each two the mean. Those that are
/// used without `-S all` come with true.
fn sizes() -> impl Iterator<Item = (u32, bool)> {
    (6..=22).flat_map(|shift| {
        let size = 1 << shift;
        let is_usual = matches!(shift, 6 | 12 | 16 | 20);
        let between = (shift > 6).then_some((size + size / 2, false));
        std::iter::once((size, is_usual)).chain(between)
    })
}

/// How often a size is transferred: the longer, the less.
fn count_of(size: u32) -> u32 {
    match size {
        0x10_0000.. => 100,
        0x1_0000.. => 1000,
        0x400.. => 10_000,
        _ => 100_000,
    }
}

impl Plan {
    /// The connections to make, in this order.
    pub fn series(self) -> Vec<Series> {
        let all_sizes = match self {
            Self::Series { all_sizes } => all_sizes,
            Self::One {
                size,
                transfers,
                iterations,
            } => {
                let name = "custom".to_owned();
                return vec![Series {
                    purpose: Purpose::Custom,
                    measurements: vec![Measurement {
                        name,
                        size,
                        transfers,
                        iterations,
                    }],
                }];
            }
        };
        let of = |purpose| Series {
            purpose,
            measurements: sizes()
                .filter(|(_, is_usual)| all_sizes || *is_usual)
                .map(|(size, _)| Measurement::of_series(purpose, size))
                .collect(),
        };
        vec![of(Purpose::Latency), of(Purpose::Bandwidth)]
    }
}

impl Measurement {
    fn of_series(purpose: Purpose, size: u32) -> Self {
        let text = size_text(size.into());
        let (suffix, transfers, iterations) = match purpose {
            Purpose::Latency => ("lat", 1, count_of(size)),
            _ => ("bw", count_of(size), 1),
        };
        Self {
            name: format!("{text}_{suffix}"),
            size,
            transfers,
            iterations,
        }
    }

    /// Transfers of both directions.
    pub fn all_transfers(&self) -> u64 {
        2 * u64::from(self.transfers) * u64::from(self.iterations)
    }

    /// Bytes of both directions.
    pub fn bytes(&self) -> u128 {
        u128::from(self.all_transfers()) * u128::from(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(plan: Plan) -> Vec<Vec<String>> {
        let name = |measurement: Measurement| measurement.name;
        plan.series()
            .into_iter()
            .map(|series| series.measurements.into_iter().map(name).collect())
            .collect()
    }

    #[test]
    fn the_usual_series_has_four_sizes() {
        let names = names(Plan::Series { all_sizes: false });
        assert_eq!(names[0], ["64_lat", "4k_lat", "64k_lat", "1m_lat"]);
        assert_eq!(names[1], ["64_bw", "4k_bw", "64k_bw", "1m_bw"]);
    }

    #[test]
    fn all_sizes_have_means_between_them() {
        let names = names(Plan::Series { all_sizes: true });
        let [latency, bandwidth] = &names[..] else {
            panic!("{names:?}");
        };
        assert_eq!((latency.len(), bandwidth.len()), (33, 33));
        assert_eq!(latency[..4], ["64_lat", "128_lat", "192_lat", "256_lat"]);
        assert_eq!(bandwidth[8..10], ["1.5k_bw", "2k_bw"]);
        assert_eq!(bandwidth[31..], ["4m_bw", "6m_bw"]);
    }

    #[test]
    fn longer_is_less_often() {
        let series = Plan::Series { all_sizes: false }.series();
        let counts = |series: &Series| -> Vec<(u32, u32)> {
            let measurements = series.measurements.iter();
            measurements.map(|m| (m.transfers, m.iterations)).collect()
        };
        let often = [100_000, 10_000, 1000, 100];
        assert_eq!(counts(&series[0]), often.map(|count| (1, count)));
        assert_eq!(counts(&series[1]), often.map(|count| (count, 1)));
        assert_eq!(series[1].measurements[3].bytes(), 200 << 20);
    }
}
