//! Jobs on the slices of a volume, shown as jobs of the volume. Pure.

use crate::jobs::kind::JobKind;
use crate::status::activity::Activity;

/// A job on a part of a volume.
pub(crate) struct OfPart {
    /// Number of the part.
    pub part: usize,
    /// The job works on the part now.
    pub is_running: bool,
    /// Total work, in units of the job.
    pub total: f64,
    pub activity: Activity,
}

/// Joins jobs of one kind, on the same drive: those of `parts` slices.
pub(crate) fn joined(jobs: Vec<OfPart>, parts: usize) -> Vec<Activity> {
    let mut groups: Vec<Vec<OfPart>> = Vec::new();
    for job in jobs {
        let is_alike = |group: &&mut Vec<OfPart>| {
            let first = &group[0].activity;
            (first.kind, first.drive) == (job.activity.kind, job.activity.drive)
        };
        match groups.iter_mut().find(is_alike) {
            Some(group) => group.push(job),
            None => groups.push(vec![job]),
        }
    }
    groups.into_iter().map(|group| join(group, parts)).collect()
}

fn join(group: Vec<OfPart>, parts: usize) -> Activity {
    let percent = match (group[0].activity.kind, group.iter().find(|job| job.is_running)) {
        // One slice after the other.
        (JobKind::Scrub, Some(running)) => {
            (running.part as f64 * 100.0 + running.activity.percent) / parts.max(1) as f64
        }
        (JobKind::Scrub, None) => {
            group.iter().map(|job| job.activity.percent).sum::<f64>() / group.len() as f64
        }
        // All at a time, as far as there is something to do.
        _ => {
            let total: f64 = group.iter().map(|job| job.total).sum();
            let done: f64 = group.iter().map(|job| job.activity.percent * job.total).sum();
            if total > 0.0 { done / total } else { 0.0 }
        }
    };
    let mb_per_s = group.iter().map(|job| job.activity.mb_per_s).sum();
    let seconds_left = group.iter().filter_map(|job| job.activity.seconds_left).reduce(f64::max);
    let first = group.into_iter().next().expect("a group has a job").activity;
    Activity { percent, mb_per_s, seconds_left, ..first }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Id;

    fn job(part: usize, kind: JobKind, drive: u128, percent: f64, total: f64, is_running: bool) -> OfPart {
        let (mb_per_s, seconds_left) = if is_running { (10.0, Some(percent)) } else { (0.0, None) };
        let (volume, drive) = ("v".to_owned(), Some(Id(drive)));
        let activity = Activity { kind, percent, mb_per_s, seconds_left, volume, drive };
        OfPart { part, is_running, total, activity }
    }

    #[test]
    fn slices_are_rebuilt_as_one_volume() {
        let of_slices = vec![
            job(0, JobKind::Rebuild, 1, 100.0, 30.0, true),
            job(1, JobKind::Rebuild, 1, 20.0, 10.0, true),
            job(2, JobKind::Rebuild, 2, 5.0, 10.0, false),
        ];
        let shown = joined(of_slices, 3);
        assert_eq!((shown.len(), shown[0].percent, shown[0].mb_per_s), (2, 80.0, 20.0));
        assert_eq!((shown[0].seconds_left, shown[1].percent), (Some(100.0), 5.0));
    }

    #[test]
    fn slices_are_scrubbed_one_after_the_other() {
        let scrub = |part: usize, percent: f64, is_running: bool| {
            job(part, JobKind::Scrub, 1, percent, 8.0, is_running)
        };
        let shown = joined(vec![scrub(0, 0.0, false), scrub(1, 50.0, true)], 2);
        assert_eq!((shown.len(), shown[0].percent), (1, 75.0));
        let waits = joined(vec![scrub(0, 100.0, false), scrub(1, 50.0, false)], 2);
        assert_eq!(waits[0].percent, 75.0);
    }
}
