//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write;

/// A page of metrics.
#[derive(Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    /// Begins a metric family: its help and type. Its values follow.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a value.
    pub(super) fn value(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let text: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if text.is_empty() { String::new() } else { format!("{{{}}}", text.join(",")) };
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    /// Adds a histogram of durations. `counts` has one entry per bucket of `steps_ns`, and one for
    /// longer durations.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        steps_ns: &[u64],
        counts: &[u64],
        total_ns: u64,
    ) {
        let ends = steps_ns.iter().map(|&end_ns| (end_ns as f64 / 1e9).to_string());
        let mut so_far = 0;
        for (end, count) in ends.chain(["+Inf".to_owned()]).zip(counts) {
            so_far += count;
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", end.as_str())]).collect();
            self.value(&format!("{name}_bucket"), &labels, so_far as f64);
        }
        self.value(&format!("{name}_sum"), labels, total_ns as f64 / 1e9);
        self.value(&format!("{name}_count"), labels, so_far as f64);
    }

    /// Returns the page.
    pub(super) fn into_text(self) -> String {
        self.text
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.family("a", "gauge", "What it is");
        page.value("a", &[("path", "/d/\"x\"\\\n"), ("b", "c")], 1.5);
        page.value("a", &[], 2.0);
        assert_eq!(
            page.text,
            "# HELP a What it is\n# TYPE a gauge\na{path=\"/d/\\\"x\\\"\\\\\\n\",b=\"c\"} 1.5\na 2\n"
        );
    }

    #[test]
    fn steps_of_a_histogram_include_those_below() {
        let mut page = Page::default();
        page.histogram("a", &[("b", "c")], &[10_000, 2_000_000_000], &[1, 2, 3], 1_500_000_000);
        assert_eq!(
            page.text,
            "a_bucket{b=\"c\",le=\"0.00001\"} 1\na_bucket{b=\"c\",le=\"2\"} 3\na_bucket{b=\"c\",le=\"+Inf\"} 6\n\
             a_sum{b=\"c\"} 1.5\na_count{b=\"c\"} 6\n"
        );
    }
}
