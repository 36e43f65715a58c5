//! Laws of durations in hours, in the notation of the command line:
//!
//! | text | law |
//! |---|---|
//! | `weibull:1.12,461386` | shape β and scale η, in either order: the larger one is η |
//! | `weibull:6,12,2` | location γ, scale η, shape β |
//! | `weibull:gamma=6,eta=12,beta=2` | the same by name |
//! | `exponential:24` | mean |
//! | `fixed:24` | always |
//! | `uniform:0,168` | from, to |
//!
//! Expected faults: any text that a user may type.

use std::fmt;
use std::str::FromStr;

use super::philox::Random;

/// Distribution of a duration, in hours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// Weibull with three parameters; a shape of 1 makes it exponential.
    Weibull {
        /// γ: nothing is over before.
        location: f64,
        /// η.
        scale: f64,
        /// β.
        shape: f64,
    },
    /// Always the same.
    Fixed(f64),
    /// Anything between, equally likely.
    Uniform {
        /// The least.
        from: f64,
        /// The most.
        to: f64,
    },
}

/// Reason why a text is not a law.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum LawError {
    /// Unknown form.
    #[error(
        "`{0}` is not a law: write weibull:BETA,ETA or weibull:GAMMA,ETA,BETA or exponential:MEAN or \
         fixed:HOURS or uniform:FROM,TO"
    )]
    Form(String),
    /// Numbers outside the law's range.
    #[error("`{text}`: {why}")]
    Number {
        /// As typed.
        text: String,
        /// Fault of the law.
        why: &'static str,
    },
}

impl Law {
    /// Exponential.
    pub fn exponential(mean: f64) -> Self {
        Self::Weibull { location: 0.0, scale: mean, shape: 1.0 }
    }

    /// Weibull without a location.
    pub fn weibull(shape: f64, scale: f64) -> Self {
        Self::Weibull { location: 0.0, scale, shape }
    }

    /// A duration.
    #[inline]
    pub(super) fn sample(&self, random: &mut Random) -> f64 {
        match *self {
            Self::Weibull { location, scale, shape: 1.0 } => location + scale * random.exponential(),
            Self::Weibull { location, scale, shape } => {
                location + scale * random.exponential().powf(1.0 / shape)
            }
            Self::Fixed(hours) => hours,
            Self::Uniform { from, to } => from + (to - from) * random.uniform(),
        }
    }

    /// Probability of more than `hours`.
    pub(super) fn survival(&self, hours: f64) -> f64 {
        match *self {
            Self::Weibull { location, scale, shape } => match hours <= location {
                true => 1.0,
                false => (-((hours - location) / scale).powf(shape)).exp(),
            },
            Self::Fixed(fixed) => f64::from(hours < fixed),
            Self::Uniform { from, to } => match hours < from {
                true => 1.0,
                false => ((to - hours) / (to - from)).clamp(0.0, 1.0),
            },
        }
    }

    /// Duration that is exceeded with a probability of only 10^-9.
    pub(super) fn longest(&self) -> f64 {
        match *self {
            Self::Weibull { location, scale, shape } => location + scale * 20.7f64.powf(1.0 / shape),
            Self::Fixed(hours) => hours,
            Self::Uniform { to, .. } => to,
        }
    }
}

impl fmt::Display for Law {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Weibull { location: 0.0, scale, shape: 1.0 } => write!(to, "exponential:{scale}"),
            Self::Weibull { location: 0.0, scale, shape } => write!(to, "weibull:{shape},{scale}"),
            Self::Weibull { location, scale, shape } => write!(to, "weibull:{location},{scale},{shape}"),
            Self::Fixed(hours) => write!(to, "fixed:{hours}"),
            Self::Uniform { from, to: most } => write!(to, "uniform:{from},{most}"),
        }
    }
}

impl FromStr for Law {
    type Err = LawError;

    fn from_str(text: &str) -> Result<Self, LawError> {
        let form = || LawError::Form(text.to_owned());
        let wrong = |why| LawError::Number { text: text.to_owned(), why };
        let (name, numbers) = text.trim().split_once(':').ok_or_else(form)?;
        let mut values = Vec::new();
        let mut named = [None; 3];
        for part in numbers.split(',') {
            let (key, number) = match part.split_once('=') {
                Some((key, number)) => (Some(key.trim().to_ascii_lowercase()), number),
                None => (None, part),
            };
            let value: f64 = number.trim().parse().map_err(|_| form())?;
            if !value.is_finite() || value < 0.0 {
                return Err(wrong("no number may be negative or infinite"));
            }
            match key.as_deref() {
                None => values.push(value),
                Some("gamma") => named[0] = Some(value),
                Some("eta") => named[1] = Some(value),
                Some("beta") => named[2] = Some(value),
                Some(_) => return Err(form()),
            }
        }
        let law = match (name.trim().to_ascii_lowercase().as_str(), values.as_slice(), named) {
            ("weibull", [], [location, Some(scale), Some(shape)]) => {
                Self::Weibull { location: location.unwrap_or(0.0), scale, shape }
            }
            ("weibull", &[a, b], [None, None, None]) => Self::weibull(a.min(b), a.max(b)),
            ("weibull", &[location, scale, shape], [None, None, None]) => {
                Self::Weibull { location, scale, shape }
            }
            ("exponential", &[mean], [None, None, None]) => Self::exponential(mean),
            ("fixed", &[hours], [None, None, None]) => Self::Fixed(hours),
            ("uniform", &[from, to], [None, None, None]) => Self::Uniform { from, to },
            _ => return Err(form()),
        };
        match law {
            Self::Weibull { scale, shape, .. } if scale == 0.0 || shape == 0.0 => {
                Err(wrong("scale and shape are more than 0"))
            }
            // Outside, powers of durations leave what a floating-point number holds.
            Self::Weibull { shape, .. } if !(0.1..=50.0).contains(&shape) => {
                Err(wrong("a shape lies between 0.1 and 50"))
            }
            Self::Uniform { from, to } if from >= to => Err(wrong("the first number is the smaller one")),
            law => Ok(law),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_parse_in_every_notation() {
        let parse = |text: &str| text.parse::<Law>().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(parse("weibull:1.12,461386"), Law::weibull(1.12, 461_386.0));
        assert_eq!(parse("weibull:9259,1"), Law::exponential(9259.0));
        let restore = Law::Weibull { location: 6.0, scale: 12.0, shape: 2.0 };
        assert_eq!(parse("weibull:6,12,2"), restore);
        assert_eq!(parse(" Weibull:beta=2,eta=12,gamma=6"), restore);
        assert_eq!(parse("exponential:24"), Law::exponential(24.0));
        assert_eq!(parse("fixed:24"), Law::Fixed(24.0));
        assert_eq!(parse("uniform:0,168"), Law::Uniform { from: 0.0, to: 168.0 });
        for law in [restore, Law::exponential(24.0), Law::weibull(1.12, 9.0), Law::Fixed(3.0)] {
            assert_eq!(parse(&law.to_string()), law);
        }
    }

    #[test]
    fn invalid_laws_are_refused() {
        for text in [
            "",
            "weibull",
            "weibull:",
            "weibull:1",
            "weibull:1,2,3,4",
            "weibull:x,y",
            "weibull:-1,5",
            "gauss:1,2",
            "exponential:0",
            "exponential:NaN",
            "exponential:1,2",
            "uniform:5,5",
            "weibull:beta=2",
            "weibull:0.001,9",
            "weibull:alpha=1,eta=2",
            "fixed:-1",
            "fixed:inf",
        ] {
            assert!(text.parse::<Law>().is_err(), "{text}");
        }
    }

    #[test]
    fn samples_follow_their_law() {
        let laws = ["weibull:6,12,2", "exponential:24", "uniform:10,30", "weibull:0.7,100"];
        for (number, text) in laws.into_iter().enumerate() {
            let law: Law = text.parse().unwrap();
            let mut random = Random::new(11, number as u64);
            let drawn: Vec<f64> = (0..20_000).map(|_| law.sample(&mut random)).collect();
            for hours in [8.0, 15.0, 20.0, 28.0] {
                let above = drawn.iter().filter(|drawn| **drawn > hours).count() as f64 / 20_000.0;
                assert!((above - law.survival(hours)).abs() < 0.015, "{text} at {hours}: {above}");
            }
            assert!(law.survival(law.longest()) <= 1.1e-9, "{text}");
        }
    }
}
