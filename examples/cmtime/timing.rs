//! What a step took, and the table of it.

use std::time::Duration;

use crate::cpu::Cpu;
use crate::step::Step;

/// A step of all connections.
#[derive(Debug)]
pub struct Timing {
    pub step: Step,
    /// From the first call to the last event.
    pub total: Duration,
    /// Of each connection that got through, from its call to its event.
    pub each: Vec<Duration>,
    /// Processor time, if it was asked for.
    pub cpu: Option<Cpu>,
}

/// The line above the table.
pub fn heading(with_cpu: bool) -> String {
    let cpu = if with_cpu {
        "    user ms  kernel ms"
    } else {
        ""
    };
    format!("step              total ms     max ms     min us  us / conn{cpu}")
}

impl Timing {
    /// The line of the table, where there are this many connections.
    pub fn line(&self, connections: u32) -> String {
        let longest = self.each.iter().max().copied().unwrap_or_default();
        let shortest = self.each.iter().min().copied().unwrap_or_default();
        let line = format!(
            "{:<13}: {:11.2}{:11.2}{:11.2}{:11.2}",
            self.step.name(),
            millis(self.total),
            millis(longest),
            micros(shortest),
            micros(self.total) / f64::from(connections)
        );
        match self.cpu {
            None => line,
            Some(cpu) => format!("{line}{:11.2}{:11.2}", millis(cpu.user), millis(cpu.kernel)),
        }
    }
}

/// The step's name and its total milliseconds, from a line that [`Timing::line`] or the C program
/// made; `None` for other lines.
pub fn parse(line: &str) -> Option<(&str, f64)> {
    let (name, numbers) = line.split_once(':')?;
    let mut numbers = numbers.split_whitespace().map(str::parse::<f64>);
    let total = numbers.next()?.ok()?;
    // Longest, shortest, and per connection.
    let others = numbers.take_while(|number| number.is_ok()).count();
    (others >= 3).then(|| (name.trim_end(), total))
}

pub fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing() -> Timing {
        Timing {
            step: Step::ResolveAddr,
            total: Duration::from_micros(12_340),
            each: [1500, 20, 700].map(Duration::from_micros).into(),
            cpu: None,
        }
    }

    #[test]
    fn lines_stand_below_the_heading_as_in_c() {
        assert_eq!(
            timing().line(3),
            "resolve addr :       12.34       1.50      20.00    4113.33"
        );
        let with_cpu = Timing {
            cpu: Some(Cpu::default()),
            ..timing()
        };
        assert_eq!(with_cpu.line(3).len(), heading(true).len());
    }

    #[test]
    fn lines_are_read_back_and_others_are_not() {
        assert_eq!(parse(&timing().line(3)), Some(("resolve addr", 12.34)));
        for line in [
            "connecting",
            "event: RDMA_CM_EVENT_REJECTED, error: 8",
            "a: 1 2",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_step_that_nobody_got_through_has_a_line() {
        let nobody = Timing {
            each: Vec::new(),
            ..timing()
        };
        assert!(parse(&nobody.line(3)).is_some());
    }
}
