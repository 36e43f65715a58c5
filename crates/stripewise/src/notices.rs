//! Notices of running operations on a terminal: messages on standard error, jobs as progress.

use stripewise_control::{JobStep, Notices};

use crate::printer::Printer;
use crate::progress::Progress;

impl Notices for Printer {
    fn note(&self, text: &str) {
        Printer::note(self, text);
    }

    fn warning(&self, text: &str) {
        Printer::warning(self, text);
    }

    fn job_steps(&self) -> Box<dyn FnMut(&JobStep<'_>) + '_> {
        let mut progress = Progress::new(self);
        Box::new(move |JobStep { kind, pool, job }| {
            let what = match job.volume.as_str() {
                "" => format!("{kind} of {pool}"),
                volume => format!("{kind} of {pool}/{volume}"),
            };
            progress.update(&what, job.percent, job.mb_per_s, job.seconds_left);
        })
    }
}
